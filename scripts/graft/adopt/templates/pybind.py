"""Registers functions of pybind11 modules as operators of ``their_package``. `graft adopt` writes this file."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch.library import Library, register_autograd, register_fake

NAMESPACE = "their_package"

# A Python file of the author, or another adopted module, may have opened the namespace.
_LIBRARY = Library(NAMESPACE, "FRAGMENT")


def _imported(place: str) -> Any:
    """What stands at ``package.module:name``."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _kernel(function: Callable[..., Any], enums: dict[int | str, str]) -> Callable[..., Any]:
    """Call ``function``; the schema has numbers where it takes enumerations."""
    if not enums:
        return lambda *arguments, **named: function(*arguments, **named)
    classes = {argument: _imported(place) for argument, place in enums.items()}

    def convert(argument: int | str, value: Any) -> Any:
        if argument not in classes or value is None:
            return value
        class_ = classes[argument]
        return [class_(each) for each in value] if isinstance(value, (list, tuple)) else class_(value)

    def call(*arguments: Any, **named: Any) -> Any:
        return function(
            *(convert(position, value) for position, value in enumerate(arguments)),
            **{name: convert(name, value) for name, value in named.items()},
        )

    return call


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(_: Any, *gradients: Any) -> Any:
        raise RuntimeError(
            f"{name} has no gradient: it is a pybind11 function. Write a torch.autograd.Function that calls it"
        )

    return refuse


def _nothing(*_: Any, **__: Any) -> None:
    """The fake of a function that only writes."""


def _register(
    schema: str,
    function: str,
    *,
    backends: Sequence[str],
    for_cuda: str = "",
    fake: str = "",
    enums: dict[int | str, str] | None = None,
    writes: bool = False,
    returns: bool = True,
) -> None:
    """Register the function at ``function``, for backends: a composite kernel would be taken for a fake, too. That at
    ``for_cuda`` is called for CUDA, if it is given.
    """
    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=(torch.Tag.needs_exact_strides,))
    for backend in backends:
        place = for_cuda if for_cuda and backend == "CUDA" else function
        _LIBRARY.impl(name, _kernel(_imported(place), enums or {}), backend)
    if fake or not returns:
        register_fake(f"{NAMESPACE}::{name}", _imported(fake) if fake else _nothing, lib=_LIBRARY)
    if returns and not writes:  # torch.library refuses the others; their forward in C++ has the node
        register_autograd(f"{NAMESPACE}::{name}", _refusing(f"{NAMESPACE}::{name}"), lib=_LIBRARY)
