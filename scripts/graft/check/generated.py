"""Check that the code that torchgen generates from derivatives.yaml is valid C++: torchgen replaces text and declares
variables.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torchgen.api.autograd import DifferentiabilityInfo, SavedAttribute, match_differentiability_info
from torchgen.api.types import BaseCType, OptionalCType, stringT
from torchgen.model import FunctionSchema, NativeFunction
from torchgen.packaged.autograd.gen_autograd_functions import (
    FUNCTION_DECLARATION,
    FUNCTION_DEFINITION,
    process_function,
)
from torchgen.packaged.autograd.gen_inplace_or_view_type import use_derived
from torchgen.packaged.autograd.gen_variable_type import gen_variable_type_func
from torchgen.packaged.autograd.load_derivatives import create_differentiability_info
from tree_sitter import Node

from .arguments import place_of
from .cplusplus import identifiers, parse, text_of
from .entries import Entry, Place
from .finding import Findings
from .formulas import formulas
from .schemas import Function

Infos = dict[str, DifferentiabilityInfo]


def check_generated(entries: list[Entry], functions: list[Function], findings: Findings) -> None:
    """Run torchgen on ``entries``, each for one of ``functions``, and check its output."""
    by_root: dict[str, list[Function]] = defaultdict(list)
    for function in functions:
        by_root[function.schema.name.name.base].append(function)
    infos: dict[str, dict[FunctionSchema, Infos]] = defaultdict(dict)
    sound = []
    for entry in entries:
        root = entry.operator.partition(".")[0].rstrip("_")
        with _torchgen_judges(entry, findings):
            schema, infos_of_keys = _infos(entry, [f.native for f in by_root[root]])
            infos[root][schema] = infos_of_keys
            sound.append((entry, root, schema))
    for entry, root, schema in sound:
        before = len(findings.errors)
        for info in infos[root][schema].values():
            _check_replaced(entry, info, findings)
        texts: list[str] = []
        if len(findings.errors) == before:
            with _torchgen_judges(entry, findings):
                texts += _code(schema, infos[root], [f.native for f in by_root[root]])
        function = next(f for f in by_root[root] if str(f.schema.name) == entry.operator)
        clashes = {name for text in texts for name in _declared_twice(parse(text))}
        for name in clashes & _names(infos[root][schema]):
            what = f"the autograd code that torchgen generates already uses `{name}`"
            findings.add(place_of(name, function), what, f"give `{name}` another name")


@contextmanager
def _torchgen_judges(entry: Entry, findings: Findings) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # torchgen raises arbitrary errors
        what = str(error) or f"torchgen cannot process this entry ({type(error).__name__})"
        findings.add(entry.value("name"), what, "compare it with an entry of PyTorch's own derivatives.yaml")


def _infos(entry: Entry, natives: list[NativeFunction]) -> tuple[FunctionSchema, Infos]:
    by_signature: dict[FunctionSchema, list[NativeFunction]] = defaultdict(list)
    for native in natives:
        by_signature[native.func.signature()].append(native)
    fields: dict[str, Any] = dict(entry.fields)
    if "dispatch" not in fields:  # as in load_derivatives
        about_all: dict[str, Any] = {
            key: fields.pop(key) for key in ("name", "output_differentiability") if key in fields
        }
        fields = {**about_all, "dispatch": {"Default": fields}}
    made: tuple[FunctionSchema, Infos] = create_differentiability_info(
        fields, by_signature, {str(f.func): f for f in natives}, Counter(), set()
    )
    return made


def _check_replaced(entry: Entry, info: DifferentiabilityInfo, findings: Findings) -> None:
    """torchgen replaces text like `self.sym_sizes()` without checking what precedes it, or the type."""
    places = {formula: place for _, formula, place in formulas(entry)}
    for derivative in info.derivatives:
        place = places[derivative.original_formula]
        saved = {str(s.nctype.name): s for s in (*derivative.saved_inputs, *derivative.saved_outputs)}
        replaced = {name: _text_of(one) for name, one in saved.items() if one.expr != name or _is_optional_text(one)}
        for chain, name in _torn(derivative.formula, set(replaced), derivative.original_formula):
            what = f"torchgen replaces `{replaced[name]}`, which turns the formula into `{chain}`"
            is_whole = re.search(rf"\b{name}\b", chain) and replaced[name] != name
            todo = "write it without a qualifier" if is_whole else "give the argument another name"
            findings.add(place, what, todo)
        for name, text in replaced.items():
            _check_type(saved[name], text, info, place, findings)
    for forward in info.forward_derivatives:
        key = forward.var_names[0]
        if str(entry.fields.get(key)).strip() != "auto_element_wise":
            continue
        name = info.args_with_derivatives[0].name
        for chain, _ in _torn(forward.formula, {f"{name}_t", f"{name}_p"}, "", left="grad"):
            what = f"torchgen derives the formula of `{key}` from that of `{name}`, which gives `{chain}`"
            findings.add(entry.value(key), what, f"write a formula with `{name}_t` and `{name}_p`")


def _torn(formula: str, made: set[str], original: str, left: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield the names in ``formula`` that torchgen replaced partly, each with the name of ``made`` in it.

    Args:
        formula: torchgen's version.
        made: the names that torchgen inserted.
        original: the original formula.
        left: a name that must not remain.
    """
    known = {*re.findall(r"\w+", original), *made}
    for chain in re.findall(r"(?:\w|::|->|\.)+", formula):
        first, *others = re.split(r"::|->|\.", chain)
        ends = [name for name in made for word in (first, *others) if word not in known and word.endswith(name)]
        qualified = [name for name in others if name in made]
        if qualified or ends or first == left:
            yield chain, max(qualified or ends or [first], key=len)


def _text_of(saved: SavedAttribute) -> str:
    """Return the expression that torchgen replaced to save ``saved``."""
    if saved.nctype.name == f"{saved.expr}_info":
        return f"zeros_like({saved.expr})"
    return re.sub(r"(\w+)\.has_value\(\).*", r"\1->sym_sizes()", str(saved.expr))


def _is_optional_text(saved: SavedAttribute) -> bool:
    """Return whether torchgen writes a different expression for each use."""
    return bool(saved.nctype.type == OptionalCType(BaseCType(stringT)))


def _check_type(
    saved: SavedAttribute, text: str, info: DifferentiabilityInfo, place: Place, findings: Findings
) -> None:
    """What is saved of an argument is computed in the forward pass, where an optional argument may not be a tensor."""
    arguments = [a for a in info.func.func.arguments.flat_all if re.search(rf"\b{a.name}\b", text)]
    if not arguments or not arguments[0].type.is_tensor_like():
        return
    name, kind = arguments[0].name, str(arguments[0].type)
    if "->" in text and kind == "Tensor":
        what = f"`{name}` is a Tensor, which has no `->`"
        findings.add(place, what, f"write `{text.replace('->', '.')}`")
    elif "->" not in text and kind == "Tensor?":
        what = f"torchgen saves `{text}` in the forward pass, where `{name}` is an optional tensor"
        direct = re.sub(rf"\b{name}\b", f"({name})", text, count=1)
        todo = f"`{name}->sym_sizes()`" if text == f"{name}.sym_sizes()" else f"`{direct}`, which saves the tensor"
        findings.add(place, what, f"write {todo}")


def _names(infos: Infos) -> set[str]:
    """Return the names of arguments and returns, and of saved variables."""
    schemas = [info.func.func for info in infos.values()]
    saved = [one for info in infos.values() for one in (*info.all_saved_inputs, *info.all_saved_outputs)]
    written = {
        named.name for schema in schemas for named in (*schema.arguments.flat_all, *schema.returns) if named.name
    }
    return written | {str(one.nctype.name) for one in saved}


def _code(schema: FunctionSchema, infos: dict[FunctionSchema, Infos], natives: list[NativeFunction]) -> list[str]:
    """Return the C++ that torchgen generates from the entry for ``schema``, one of those for ``natives``."""
    texts = []
    for info in infos[schema].values():
        if info.args_with_derivatives:
            declared, defined = (process_function(info, each) for each in (FUNCTION_DECLARATION, FUNCTION_DEFINITION))
            texts.append(re.sub(r"#ifdef _WIN32.*?#else(.*?)#endif", r"\1", declared, flags=re.S) + defined)
    for matched in match_differentiability_info(natives, infos):
        if matched.info and use_derived(matched) and any(i.func.func == schema for i in matched.info.values()):
            made = gen_variable_type_func(matched).items()
            texts += [text for key, listed in made if key.startswith("type_derived") for text in listed]
    return texts


def _declared_twice(root: Node) -> Iterator[str]:
    """Names that the generated code already uses in these scopes."""
    members: set[str] = set()
    for node in root.named_children:
        body, declarator = (node.child_by_field_name(field) for field in ("body", "declarator"))
        if body is not None and node.type == "struct_specifier":
            yield from _in_scope(body, members)
        while declarator is not None and declarator.type == "reference_declarator":
            declarator = declarator.named_children[-1]
        if body is not None and declarator is not None:
            head, parameters = (declarator.child_by_field_name(field) for field in ("declarator", "parameters"))
            scope = set(members) if "::" in text_of(head) else set()
            for part in filter(None, (parameters, body)):
                yield from _in_scope(part, scope)


def _in_scope(node: Node, names: set[str]) -> Iterator[str]:
    """Yield names that ``node`` declares although they are in ``names``. New names are added to ``names``."""
    for child in node.named_children:
        if child.type.endswith("declaration") or (child.type, node.type) == (
            "function_definition",
            "field_declaration_list",
        ):
            for declarator in child.children_by_field_name("declarator"):
                name = next((text_of(each) for each in identifiers(declarator)), "")
                if name in names:
                    yield name
                names.add(name)
        elif child.type.startswith("preproc"):
            yield from _in_scope(child, names)
        elif child.type in ("if_statement", "else_clause", "compound_statement"):
            yield from _in_scope(child, set(names))
