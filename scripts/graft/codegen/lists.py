"""Extend torchgen's lists of operators' names. Upstream edits them by hand; here they follow from the folders' YAML.

For a wheel, the lists are extended in the generating process. In a source tree, the same texts are appended to
torchgen's files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from ..inputs.entries import Entry
from ..inputs.native import DERIVATIVES, FUNCTIONS, NativeFolders
from .torchgen import (
    APPENDED,
    FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT,
    GRADIENT_IMPLEMENTED_FOR_COMPLEX,
    RESULTS,
    TYPES,
    VIEW_FUNCTIONS,
    FunctionSchema,
    SchemaKind,
)
from .writing import is_optional, written

# torchgen's files with lists, or with generators that texts in appended/ extend.
_VARIANTS = "torchgen/native_function_generation.py"
_FUNCTIONALIZATION = "torchgen/gen_functionalization_type.py"
_TRACE, _VIEWS, _AUTOGRAD = (
    f"torchgen/packaged/autograd/{name}.py"
    for name in ("gen_trace_type", "gen_inplace_or_view_type", "gen_variable_type")
)

_ADDED_VIEWS = """\
_ADDED_VIEWS = {{
{}}}
for _views in (VIEW_FUNCTIONS, ALL_VIEW_FUNCTIONS, RETURNS_VIEWS_OF_INPUT):
    _views.update(_ADDED_VIEWS)
"""


def missing_names(natives: NativeFolders) -> dict[str, str]:
    """Return the text to append to each of torchgen's files, so that its lists have the names in ``natives``. The order
    matters: a text imports names from the files before it.

    An operator with a formula is listed with correct gradients for complex tensors: upstream tests the operators on its
    list with complex inputs, as gradcheck does here.
    """
    functions, derivatives = (natives.entries(file, replacing=False) for file in (FUNCTIONS, DERIVATIVES))
    explicit = [entry for entry in functions if not is_composite_implicit(entry)]
    has_autogen = {schema: "autogen" in entry.fields for entry in explicit if (schema := parsed(entry.schema))}
    schemas = [*has_autogen]
    views: dict[str, str] = {}
    for schema in schemas:
        if str(schema.name.name) not in VIEW_FUNCTIONS and (viewed := viewed_argument(schema)):
            views.setdefault(str(schema.name.name), viewed)
    names = {entry.operator.partition(".")[0] for entry in derivatives}
    # torchgen derives the formula of the copy that functionalization uses in place of a view.
    names |= {f"{name}_copy" for name in names if name in views}
    writing = [s for s in schemas if written(s)]
    unpaired = [s for s in writing if not s.returns_are_aliased() and not _has_variant(s, schemas)]
    alone = [str(s.name) for s in unpaired if not has_autogen[s]]
    of_lists = [str(s.name) for s in writing if any(a.type.is_list_like() for a in written(s))]
    traced = [str(s.name) for s in writing if not _has_list_in_place(s)]

    every = [schema for entry in functions if (schema := parsed(entry.schema))]
    has_optionals = any(is_optional(a) for s in every for a in written(s))

    def text_of(file: str, *, is_needed: bool) -> str:
        return (APPENDED / file).read_text(encoding="utf-8") if is_needed else ""

    of_writing = partial(text_of, is_needed=bool(writing))

    added_views = _lines(f'"{name}": "{viewed}"' for name, viewed in views.items())
    texts = {
        **{file: [text_of(file, is_needed=has_optionals)] for file in TYPES},
        RESULTS: [text_of(RESULTS, is_needed=any(len(s.returns) > 1 for s in every))],
        _VARIANTS: [
            _call("FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT.extend", without_out(e.schema for e in functions)),
            _call("MUTABLE_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT.extend", alone),
        ],
        _FUNCTIONALIZATION: [_call("MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION.extend", alone)],
        _TRACE: [of_writing(_TRACE), _call("_WRITING.update", traced), _call("_WRITING_LISTS.update", of_lists)],
        _VIEWS: [_ADDED_VIEWS.format(added_views) if views else "", of_writing(_VIEWS)],
        _AUTOGRAD: [
            _call("GRADIENT_IMPLEMENTED_FOR_COMPLEX.update", sorted(names - GRADIENT_IMPLEMENTED_FOR_COMPLEX)),
            of_writing(_AUTOGRAD),
        ],
    }
    return {file: text for file, parts in texts.items() if (text := "".join(parts))}


def _call(function: str, names: Sequence[str]) -> str:
    """Return a call that adds names to a list; nothing if there are none."""
    lines = _lines(f'"{name}"' for name in names)
    return f"{function}([\n{lines}])\n" if names else ""


def _lines(items: Iterable[str]) -> str:
    return "".join(f"    {item},\n" for item in items)


def without_out(schemas: Iterable[str]) -> list[str]:
    """Return the operators that return no tensor, and so have no out= variant, and that torchgen does not list."""
    valid = [schema for schema in map(parsed, schemas) if schema]
    names = [str(schema.name) for schema in valid if not any(r.type.is_tensor_like() for r in schema.returns)]
    return [name for name in names if name not in FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT]


def parsed(schema: str) -> FunctionSchema | None:
    """Parse a schema, which may have a namespace. Return None if it is invalid, which torchgen reports later."""
    first, _, rest = schema.partition("::")
    try:
        return FunctionSchema.parse(rest or first)
    except Exception:
        return None


def is_composite_implicit(entry: Entry) -> bool:
    """Return whether the operator is composed of others."""
    return not entry.kernels or "CompositeImplicitAutograd" in entry.kernels


def viewed_argument(schema: FunctionSchema) -> str | None:
    """Return the argument that the result is a view of, from the alias annotations: ``Tensor(a) self -> Tensor(a)``."""
    for result in schema.returns:
        annotation = result.annotation
        if annotation is None or annotation.is_write:
            continue
        for argument in schema.arguments.flat_all:
            theirs = argument.annotation
            if theirs is not None and not theirs.is_write and set(theirs.alias_set) & set(annotation.alias_set):
                return argument.name
    return None


def _has_variant(schema: FunctionSchema, others: Iterable[FunctionSchema]) -> bool:
    """Return whether ``others`` has the functional or out variant of an operator."""
    kinds = (SchemaKind.functional, SchemaKind.out)
    wanted = schema.signature()
    return any(s.kind() in kinds and s != schema and s.signature() == wanted for s in others)


def _has_list_in_place(schema: FunctionSchema) -> bool:
    """Return whether an in-place operator writes a list: torchgen's kernel for tracing takes one tensor."""
    self_arg = schema.arguments.self_arg
    return schema.kind() == SchemaKind.inplace and bool(self_arg and self_arg.argument.type.is_list_like())
