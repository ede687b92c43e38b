"""Check the text of a derivative formula: its C++, its names, and the number of gradients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from torchgen.model import FunctionSchema
from tree_sitter import Node

from .base import BaseOperators
from .cplusplus import Source, identifiers, parse, text_of
from .entries import Entry, Place
from .finding import Findings, nearest
from .schemas import Function
from .signatures import values_of

_SPECIAL = ("auto_linear", "auto_element_wise", "non_differentiable", "not_implemented")

# Names that a formula can use in addition to those of PyTorch and the folder.
_LANGUAGE = frozenset(
    re.findall(
        r"\w+",
        """alignas auto bool break case char class const constexpr continue decltype default do double else enum
        explicit false float for if int int64_t long namespace new nullptr operator return short signed sizeof static
        std struct switch template this throw true typename union unsigned using void while size_t uint8_t nullopt
        vector string tuple array optional move forward get make_tuple any all begin end size
        M_E M_LOG2E M_LOG10E M_LN2 M_LN10 M_PI M_PI_2 M_PI_4 M_1_PI M_2_PI M_2_SQRTPI M_SQRT2 M_SQRT1_2
        sym_blocksize""",  # torchgen replaces the last
    )
)


@dataclass
class Surroundings:
    """What a formula can use.

    Args:
        base: the base.
        functions: the folders' operators.
        sources: the folders' C++ sources.
    """

    base: BaseOperators
    functions: list[Function]
    sources: list[Source]

    @cached_property
    def words(self) -> frozenset[str]:
        """Return the names that formulas can use, as far as the text shows."""
        names = [str(name.name) for f in self.functions for name in (f.schema.name, *f.native.autogen)]
        own = {f"{name}{suffix}" for name in names for suffix in ("", "_symint", "_out", "_outf", "_symint_out")}
        return _LANGUAGE | self.base.formula_words | own.union(*(source.words for source in self.sources))

    def values_of(self, name: str) -> set[int | None]:
        """Return how many values the functions called ``name`` return; includes None if that is unknown."""
        root = name.removesuffix("_symint")
        schemas = [
            *self.base.schemas_like(root),
            *(f.schema for f in self.functions if f.schema.name.name.base == root),
        ]
        own = [d for source in self.sources for d in (*source.definitions, *source.declarations)]
        written = [d for d in (*own, *self.base.formula_functions) if d.name == name and not d.macro]
        return {len(schema.returns) for schema in schemas} | {values_of(d.returns) for d in written}


def formulas(entry: Entry) -> Iterator[tuple[str, str, Place]]:
    """Yield each formula of ``entry``: its variables, its text and its place."""
    for key, value in entry.fields.items():
        if isinstance(value, str) and key not in ("name", "output_differentiability"):
            yield key, value, entry.value(key)
    dispatch = entry.fields.get("dispatch")
    if isinstance(dispatch, dict):
        for of_key in dispatch.values():
            for key, value in of_key.items() if isinstance(of_key, dict) else []:
                if isinstance(value, str):
                    yield str(key), value, entry.place("dispatch")


def check_formulas(entry: Entry, schema: FunctionSchema, around: Surroundings, findings: Findings) -> None:
    """Check the text of each formula of ``entry`` for ``schema``."""
    arguments = [a.name for a in schema.arguments.flat_all]
    returns = [r.name for r in schema.returns if r.name]
    results = [f"result{i}" for i in range(len(schema.returns))] if len(schema.returns) > 1 else []
    always = {*arguments, *returns, *results, "result", "grad_input_mask", "retain_variables", "wrap_opt_if"}
    gradients = {"grad", "grads", *(f"grad_{name}" for name in returns)}
    duals = {
        f"{name}_{kind}" for name in (*arguments, *returns, *results, "result", "original_self") for kind in ("t", "p")
    }
    for key, formula, place in formulas(entry):
        names = [part.strip() for part in key.split(",")]
        is_forward = set(names) <= {"result", *returns, *results}
        values = always | (duals if is_forward else gradients)
        word = formula.strip()
        if word in _SPECIAL or word.startswith("not_implemented("):
            continue
        if re.fullmatch(r"\w+", word) and word not in values and not word.isdigit():
            findings.add(place, f"`{word}` is not a formula", nearest(word, [*_SPECIAL, *values]))
            continue
        tree = parse(f"auto _ = {formula};")
        if tree.has_error or len(tree.named_children) != 1:
            findings.add(
                place,
                "the formula is not a C++ expression",
                "close brackets and quotes, and end it without a semicolon",
            )
            continue
        others = (gradients if is_forward else duals) - values
        for name, what, is_warning in _unknown(tree, values, others, around):
            todo = nearest(name, values, otherwise="use an argument, an output, or a function of ATen")
            if name in others:
                there, here = ("backward", "`self_t`") if is_forward else ("forward", "`grad`")
                what = f"the formula of `{key}` uses `{name}`, which only formulas of the {there} pass can use"
                todo = f"use {here} instead"
            findings.add(place, what, todo, is_warning=is_warning)
        _check_number(names, _value(tree), place, around, findings)
        if not is_forward and not _uses_gradient(formula):
            what = f"the gradient of `{key}` does not use `grad`"
            todo = 'multiply by `grad`, or write `non_differentiable` or `not_implemented("...")`'
            findings.add(place, what, todo, is_warning=True)


def _unknown(tree: Node, values: set[str], others: set[str], around: Surroundings) -> Iterator[tuple[str, str, bool]]:
    """Yield the undefined names of a formula, each with a remedy, and whether it is a warning."""
    nodes = list(identifiers(tree))
    values = values | {text_of(node) for node in nodes if _is_declared(node)}
    for node in nodes:
        name, before = text_of(node), (tree.text or b"")[: node.start_byte].decode()
        what = f"the formula uses `{name}`, which is not defined"
        is_member = re.search(r"(::|\.|->)\s*$", before) is not None  # of a namespace, a class or an object
        if name in values or re.search(r"\bstd\s*::\s*$", before):
            continue
        is_of_another = not is_member and (name in others or re.fullmatch(r"result\d+", name))
        is_known = name in around.words
        if is_of_another or not (is_known or name.isupper() or around.base.says(name)):
            yield name, what, False
        elif not is_known and not is_member:  # it may be a C macro
            yield name, f"the formula uses `{name}`, which is not defined in the headers for formulas", True


def _is_declared(node: Node) -> bool:
    """Return whether ``node`` is a name that the formula itself declares: a parameter or variable of a lambda."""
    parent = node.parent
    while parent is not None and parent.type.endswith("declarator") and parent.type != "init_declarator":
        node, parent = parent, parent.parent
    field = "left" if parent is not None and parent.type == "lambda_capture_initializer" else "declarator"
    return parent is not None and parent.child_by_field_name(field) == node


def _value(tree: Node) -> Node | None:
    """Return the formula's node in the syntax tree of ``auto _ = formula;``."""
    declarator = tree.named_children[0].child_by_field_name("declarator")
    return declarator.child_by_field_name("value") if declarator is not None else None


def _check_number(names: list[str], value: Node | None, place: Place, around: Surroundings, findings: Findings) -> None:
    """Several variables share a ``std::tuple`` with one element each; one variable gets the returned value."""
    for part, numbers in _numbers(value, around):
        given = [number for number in numbers if number is not None]
        if len(given) < len(numbers) or not given:
            continue
        if len(names) > 1 and max(given) < len(names):
            values = "1 value" if max(given) == 1 else f"{max(given)} values"
            what = f"{', '.join(names)} share a formula, but `{part}` returns {values}"
            findings.add(place, what, f"write a formula that returns a `std::tuple` of {len(names)}")
        if len(names) == 1 and min(given) > 1:
            what = f"`{part}` returns {min(given)} values, but the formula is for `{names[0]}` only"
            findings.add(place, what, "select one with `std::get<0>(...)`, or list the arguments: `self, other: ...`")


def _numbers(node: Node | None, around: Surroundings) -> Iterator[tuple[str, set[int | None]]]:
    """Yield the expressions that a formula may return, each with its possible numbers of values."""
    if node is None:
        return
    if node.type == "parenthesized_expression":
        yield from _numbers(node.named_children[0], around)
    elif node.type == "conditional_expression":
        yield from _numbers(node.child_by_field_name("consequence"), around)
        yield from _numbers(node.child_by_field_name("alternative"), around)
    elif node.type in ("identifier", "binary_expression", "unary_expression"):
        yield text_of(node), {1}
    elif node.type == "call_expression" and (function := node.child_by_field_name("function")) is not None:
        name = re.search(r"\w+$", text_of(function))  # not of a template
        yield text_of(function), around.values_of(name[0]) if name else set()


def _uses_gradient(formula: str) -> bool:
    says_none = r"\bgrads?\b|\bgrad_\w+|not_implemented|non_differentiable|zeros_like|undefined|Tensor\(\)|zeros"
    return re.search(says_none, formula) is not None
