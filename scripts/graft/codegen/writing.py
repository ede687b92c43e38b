"""Operators that write positional arguments: ``foo(Tensor x, Tensor(a!) out) -> ()``.

torchgen expects that written arguments are returned, or that the operator has a functional and an out variant. Without
these, the operator is added to torchgen's lists of exceptions, and gets no kernel for functionalization: PyTorch's
auto_functionalized_v2 represents it, as it does operators of TORCH_LIBRARY. The texts in ``appended/torchgen`` generate
its kernels for ADInplaceOrView, Autograd and Tracer.
"""

from __future__ import annotations

from collections.abc import Iterable

from .torchgen import (
    MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION,
    Argument,
    BaseTy,
    BaseType,
    DispatchKey,
    FunctionSchema,
    NativeFunction,
    OptionalType,
    SchemaKind,
)


def written(schema: FunctionSchema) -> list[Argument]:
    """Return the positional arguments that an operator writes and does not return.

    Empty for an operator on lists, ``_foreach_x_``: torchgen derives everything about it from ``x``.
    """
    if schema.name.name.base.startswith("_foreach_"):
        return []
    returned = [r.annotation for r in schema.returns if r.annotation is not None]
    positional = () if schema.kind() == SchemaKind.out else schema.arguments.flat_positional
    is_written = [a for a in positional if a.annotation is not None and a.annotation.is_write]
    return [a for a in is_written if a.annotation not in returned]


def is_optional(argument: Argument) -> bool:
    """Return whether an argument is one tensor or None."""
    return argument.type == OptionalType(BaseType(BaseTy.Tensor))


def is_writing(f: NativeFunction) -> bool:
    """Return whether ``f`` writes positional arguments, and is not composed of others that do."""
    return bool(written(f.func)) and not f.has_composite_implicit_autograd_kernel


def is_auto_functionalized(f: NativeFunction) -> bool:
    """Return whether PyTorch's auto_functionalized_v2 represents ``f`` in graphs."""
    return is_writing(f) and str(f.func.name) in MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION


def lacks_meta(f: NativeFunction, keys: Iterable[DispatchKey]) -> bool:
    """Return whether ``f``, with kernels for these keys, lacks a Meta kernel, and one that does nothing is enough."""
    given = {str(key) for key in keys}
    return is_writing(f) and not f.func.returns and not any(k == "Meta" or k.startswith("Composite") for k in given)
