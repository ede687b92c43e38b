"""Operators that write positional arguments: ``foo(Tensor x, Tensor(a!) out) -> ()``.

torchgen expects that what is written is returned, or that such an operator has a functional and an out variant. Without
these, it is named in torchgen's lists of exceptions, and gets no kernel for functionalization: PyTorch's
auto_functionalized_v2 makes one, as for an operator of TORCH_LIBRARY. The kernels for ADInplaceOrView, Autograd and
Tracer are made of the written arguments by the texts in ``appended/torchgen``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from torchgen.gen_functionalization_type import MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION
from torchgen.model import Argument, DispatchKey, FunctionSchema, NativeFunction, SchemaKind

_APPENDED = Path(__file__).resolve().parent / "appended"

# The first has the names that the others import.
_TEXTS = tuple(
    f"torchgen/packaged/autograd/{name}.py"
    for name in ("gen_trace_type", "gen_inplace_or_view_type", "gen_variable_type")
)

# Each of torchgen's files with a list of exceptions.
_LISTS = {
    "torchgen/native_function_generation.py": "MUTABLE_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT",
    "torchgen/gen_functionalization_type.py": "MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION",
}


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


def is_writing(f: NativeFunction) -> bool:
    """Return whether ``f`` writes positional arguments, and is not composed of others that do."""
    return bool(written(f.func)) and not f.has_composite_implicit_autograd_kernel


def is_auto_functionalized(f: NativeFunction) -> bool:
    """Return whether PyTorch's auto_functionalized_v2 stands for ``f`` in graphs."""
    return is_writing(f) and str(f.func.name) in MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION


def texts_of_writing(operators: Sequence[tuple[FunctionSchema, bool]]) -> dict[str, str]:
    """Return the text to append to each of torchgen's files for those of the operators that write positional arguments.
    The order matters.

    Args:
        operators: the schemas of a folder's operators, each with whether torchgen generates variants of it.
    """
    given = [schema for schema, _ in operators]
    writing = [s for s in given if written(s)]
    texts = dict.fromkeys((*_LISTS, *_TEXTS), "")
    generated = {str(schema.name) for schema, has_autogen in operators if has_autogen}
    fresh = [s for s in writing if not s.returns_are_aliased() and not _has_variant(s, given)]
    alone = [str(s.name) for s in fresh if str(s.name) not in generated]
    for file, name in _LISTS.items():
        texts[file] += f"{name}.extend([\n{_lines(alone)}])\n" if alone else ""
    for file in _TEXTS if writing else ():
        texts[file] += (_APPENDED / file).read_text(encoding="utf-8")
    traced = [str(s.name) for s in writing if not _has_list_in_place(s)]
    lists = [str(s.name) for s in writing if any(a.type.is_list_like() for a in written(s))]
    for name, names in (("_WRITING", traced), ("_WRITING_LISTS", lists)):
        texts[_TEXTS[0]] += f"{name}.update([\n{_lines(names)}])\n" if names else ""
    return {file: text for file, text in texts.items() if text}


def _has_variant(schema: FunctionSchema, others: Iterable[FunctionSchema]) -> bool:
    """Return whether one of the operators is the functional or the out variant of another."""
    kinds = (SchemaKind.functional, SchemaKind.out)
    wanted = schema.signature()
    return any(s.kind() in kinds and s != schema and s.signature() == wanted for s in others)


def _has_list_in_place(schema: FunctionSchema) -> bool:
    """Return whether an in-place operator writes a list: torchgen's kernel for tracing takes one tensor."""
    self_arg = schema.arguments.self_arg
    return schema.kind() == SchemaKind.inplace and bool(self_arg and self_arg.argument.type.is_list_like())


def _lines(names: Iterable[str]) -> str:
    return "".join(f'    "{name}",\n' for name in names)


def lacks_meta(f: NativeFunction, keys: Iterable[DispatchKey]) -> bool:
    """Return whether ``f``, with kernels for these keys, needs a kernel for Meta, and one that does nothing will do."""
    given = {str(key) for key in keys}
    return is_writing(f) and not f.func.returns and not any(k == "Meta" or k.startswith("Composite") for k in given)
