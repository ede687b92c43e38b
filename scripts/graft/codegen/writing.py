"""Operators that write positional arguments: ``foo(Tensor x, Tensor(a!) out) -> ()``.

torchgen expects that what is written is returned, or that such an operator has a functional and an out variant. Without
these, it is named in torchgen's lists of exceptions, and gets no kernel for functionalization: PyTorch's
auto_functionalized_v2 makes one, as for an operator of TORCH_LIBRARY. The kernels for ADInplaceOrView, Autograd and
Tracer are made of the written arguments by the texts in ``appended/torchgen``.
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

    torchgen derives all about an operator on lists called ``_foreach_x_`` from ``x``.
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
    """Return whether PyTorch's auto_functionalized_v2 stands for ``f`` in graphs."""
    return is_writing(f) and str(f.func.name) in MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION


def lacks_meta(f: NativeFunction, keys: Iterable[DispatchKey]) -> bool:
    """Return whether ``f``, with kernels for these keys, needs a kernel for Meta, and one that does nothing will do."""
    given = {str(key) for key in keys}
    return is_writing(f) and not f.func.returns and not any(k == "Meta" or k.startswith("Composite") for k in given)
