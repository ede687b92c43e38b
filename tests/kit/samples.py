"""The ``samples.py`` of native folders: inputs for the tests of their operators, or inputs derived from the schemas::

    def my_op(make):  # a function for each operator; make(*shape) makes a tensor of the wanted dtype
        yield make(3, 4), make(4)  # positional arguments
        yield make(3), make(3), {"alpha": 2}  # the last may be keyword arguments

    def my_op_reference(input, other, alpha=1):  # the expected result, in NumPy or plain torch
        return input.numpy() + alpha * other.numpy()

    def my_op_errors(make):  # arguments, the error's message, and its type if it is no RuntimeError
        yield (make(3), make(4)), "must match"

    OPINFO = {"my_op": {"dtypes": floating_types(), "supports_forward_ad": True}}  # arguments of PyTorch's OpInfo
    SURFACES = {("title", "my_op"): "reason"}  # accepted differences of `make surfaces`
    DIFFERS = {"lerp": "reason"}  # operators of PyTorch whose results are not those of the kernels that are replaced

References receive floating-point values in double precision. The variable ``GRAFT_NATIVE`` names the folders.
"""

from __future__ import annotations

import itertools
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from graft.core.layout import native_folders
from graft.inputs.native import SAMPLES as FILE
from torch.testing._internal.opinfo.core import ErrorInput, SampleInput
from torch.utils import _pytree as pytree

from .made_up import Make, made_up_arguments, require_acceptance, tensors_of

# Errors that an operator may raise for a wrong argument.
_REFUSED = (RuntimeError, TypeError, ValueError, IndexError)


class WrongSamples(Exception):
    """``samples.py`` is wrong, or the operator accepts its samples for no dtype."""


class Samples:
    """What the ``samples.py`` of native folders define; each is a module of its own.

    An error in one of them is raised where samples are needed, since importing tests is not a test.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._files = [folder / FILE for folder in folders if (folder / FILE).is_file()]
        self.functions: dict[str, Any] = {}
        self.surfaces: dict[tuple[str, str], str] = {}
        self.differs: dict[str, str] = {}
        self._opinfo: dict[str, Any] = {}
        self._error: Exception | None = None
        for number, file in enumerate(self._files):
            try:
                module = _load(file, f"graft_samples_{number}")
            except Exception as error:
                self._error = error
                continue
            self.functions |= {name: value for name, value in vars(module).items() if callable(value)}
            self.surfaces |= getattr(module, "SURFACES", {})
            self.differs |= getattr(module, "DIFFERS", {})
            self._opinfo |= getattr(module, "OPINFO", {})

    def reference(self, name: str) -> Callable[..., Any] | None:
        """Return the reference function of an operator."""
        return self.functions.get(f"{name}_reference")

    def stated(self, name: str) -> dict[str, Any]:
        """Return what ``OPINFO`` states for an operator.

        Raises:
            WrongSamples: it is not a dictionary.
        """
        try:
            return dict(self._opinfo.get(name, {}))
        except Exception as error:
            raise WrongSamples(f"{FILE}: OPINFO must have a dictionary for {name}: {error}") from error

    def inputs(self, name: str, make: Make) -> Iterator[SampleInput]:
        """Yield the samples of an operator.

        Args:
            name: its name in native_functions.yaml, without an overload.
            make: creates a tensor of a shape.

        Raises:
            NoSamples: no ``samples.py`` has any, and the schema gives none, or the operator does not take these.
            WrongSamples: a ``samples.py`` cannot be imported.
        """
        self.require(name)
        overload = functional_overload(name)
        for each in self._source(name)(make):
            # A view of a tensor must be a leaf, too.
            each = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), each)
            sample = _sample(each if isinstance(each, tuple) else (each,))
            if len(overload._schema.returns) > 1 and any(leaf.requires_grad for leaf in tensors_of(each)):
                sample = with_differentiable_results(overload, sample)
            # Tests of in-place variants skip such samples.
            is_in_place = torch.Tag.pointwise not in overload.tags or _fits_into_its_input(overload, sample)
            yield sample.with_metadata(broadcasts_input=not is_in_place)

    def errors(self, name: str, make: Make) -> Iterator[ErrorInput]:
        """Yield the error inputs of an operator; ``make`` creates a tensor of float, or of another ``dtype``."""
        wrong = self.functions[f"{name}_errors"]
        for arguments, message, *kind in wrong(partial(make, dtype=torch.float)):
            yield ErrorInput(_sample(arguments), error_type=kind[0] if kind else RuntimeError, error_regex=message)

    def require(self, name: str) -> None:
        """Check that there are samples, or that made-up ones can be called; raises like ``inputs``."""
        self._source(name)
        if name not in self.functions:
            require_acceptance(functional_overload(name))

    def described(self, error: BaseException, name: str) -> str:
        """Return an error in one line, with its place: where in ``samples.py`` it was raised, or else the samples of
        ``name``.
        """
        frames = traceback.extract_tb(error.__traceback__)
        places = [(frame.filename, frame.lineno) for frame in frames if Path(frame.filename) in self._files]
        if isinstance(error, SyntaxError):
            places.append((str(error.filename), error.lineno))
        if not places and (code := getattr(self.functions.get(name), "__code__", None)):
            places.append((code.co_filename, code.co_firstlineno))
        place = f"{places[-1][0]}:{places[-1][1]}: " if places else ""
        return f"{place}{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"

    def _source(self, name: str) -> Callable[..., Iterator[Any]]:
        if self._error is not None:
            raise WrongSamples(self.described(self._error, name)) from self._error
        return self.functions.get(name) or partial(made_up_arguments, functional_overload(name))


def _load(file: Path, name: str) -> ModuleType:
    """Run a Python file as a module, without writing bytecode next to it."""
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module
    exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    return module


def _sample(arguments: Sequence[Any]) -> SampleInput:
    first, *args = arguments
    kwargs = args.pop() if args and isinstance(args[-1], dict) else {}
    return SampleInput(first, args=tuple(args), kwargs=kwargs)


def functional_overload(name: str) -> torch._ops.OpOverload:
    """Return the first overload of an operator that mutates no argument."""
    packet = getattr(torch.ops.aten, name)
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    return next((op for op in overloads if not op._schema.is_mutable), overloads[0])


def on_tensors(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """Return a call as a function of its tensors, and these."""
    leaves, spec = pytree.tree_flatten((list(args), kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> Any:
        values = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            values[place] = tensor
        args, kwargs = pytree.tree_unflatten(values, spec)
        return function(*args, **kwargs)

    return call, [leaves[place] for place in places]


def is_differentiable(tensor: torch.Tensor) -> bool:
    """Return whether the dtype has derivatives: that of an index has none."""
    return tensor.is_floating_point() or tensor.is_complex()


def reference_results(function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    """Return the reference's result for the arguments of an operator, as tensors in double precision."""

    def widen(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().resolve_conj().resolve_neg()
        return x.to(torch.cdouble) if x.is_complex() else x.double() if x.is_floating_point() else x

    args, kwargs = pytree.tree_map_only(torch.Tensor, widen, (args, kwargs))
    result = function(*args, **kwargs)
    several = result if isinstance(result, (tuple, list)) else (result,)
    return [each if isinstance(each, torch.Tensor) else torch.as_tensor(each) for each in several]


def with_differentiable_results(function: Callable[..., Any], sample: SampleInput) -> SampleInput:
    """Make tests of derivatives take only the results of ``function`` that have any: with forward AD they differentiate
    every floating-point result.
    """
    process = sample.output_process_fn_grad
    try:
        with torch.enable_grad():  # samples are made without
            results = tensors_of(process(function(sample.input, *sample.args, **sample.kwargs)))
    except _REFUSED:
        return sample  # a test of the operator gives a better message
    are_kept = [each.requires_grad for each in results]
    if any(are_kept) and not all(are_kept):
        sample.output_process_fn_grad = lambda given: tuple(itertools.compress(tensors_of(process(given)), are_kept))
    return sample


def _fits_into_its_input(overload: torch._ops.OpOverload, sample: SampleInput) -> bool:
    try:
        with torch.no_grad():
            result = overload(sample.input, *sample.args, **sample.kwargs)
    except _REFUSED:
        return True  # a test of the operator gives a better message
    if not isinstance(result, torch.Tensor):
        return True  # then there is no in-place variant
    return bool(result.shape == sample.input.shape and torch.can_cast(result.dtype, sample.input.dtype))


# The samples of the folders under test.
SAMPLES = Samples(native_folders(os.environ["GRAFT_NATIVE"]) if "GRAFT_NATIVE" in os.environ else ())
