"""Check the formulas of derivatives.yaml: their names, and how many gradients they give.

Names are looked up in the formula that torchgen generates, since this is compiled: torchgen replaces text such as
``self.sym_sizes()`` by saved variables. The compiler reports the rest, with the entry's line (``compile.messages``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from ..codegen.torchgen import (
    FORMULA_VARIABLES,
    LOOP_VARIABLES,
    Argument,
    BaseTy,
    BaseType,
    Derivative,
    DifferentiabilityInfo,
    FunctionSchema,
    ListType,
    OptionalType,
    Type,
)
from ..cpp.syntax import identifiers, parse, text_of
from ..inputs.entries import RELEASES, Entry, Place
from . import Findings, nearest
from .arguments import wrong_calls
from .surroundings import Surroundings, is_of_libc

SPECIAL = ("auto_linear", "auto_element_wise", "non_differentiable")

# Text of a formula that uses the incoming gradient, or says that there is none.
_USES_GRADIENT = r"\bgrads?\b|\bgrad_\w+|\bstock\b|not_implemented|non_differentiable|zeros|undefined|Tensor\(\)"

# Text that asks whether a tensor is defined.
_ASKS = re.compile(r"defined|has_value")

# Members of std::optional.
_OF_OPTIONAL = frozenset({"value", "has_value", "value_or", "and_then", "transform", "or_else"})


def formulas(entry: Entry) -> Iterator[tuple[str, str, Place]]:
    """Yield the variables, the text and the place of each formula that the user wrote in ``entry``."""
    dispatch = entry.fields.get("dispatch")
    of_keys = [each for each in dispatch.values() if isinstance(each, dict)] if isinstance(dispatch, dict) else []
    for fields in (entry.fields, *of_keys):
        for key, value in fields.items():
            is_own = fields is not entry.fields or key in entry.values
            if is_own and isinstance(value, str) and key not in ("name", "output_differentiability", RELEASES):
                of_key = entry.word(entry.place("dispatch"), value.strip())
                yield str(key), value.strip(), entry.value(key) if fields is entry.fields else of_key


def output_names(schema: FunctionSchema) -> list[str]:
    """Return the names that formulas use for the returns, if these are named or there are several."""
    numbered = [f"result{i}" for i in range(len(schema.returns))] if len(schema.returns) > 1 else []
    return [*(r.name for r in schema.returns if r.name), *numbered]


def is_cplusplus(formula: str) -> bool:
    """Return whether a formula is one C++ expression."""
    tree = parse(f"auto _ = {formula};")
    return not tree.has_error and len(tree.named_children) == 1


def check_text(entry: Entry, schema: FunctionSchema, findings: Findings) -> None:
    """Check the text of each formula of ``entry`` for ``schema``."""
    for key, formula, place in formulas(entry):
        if formula.startswith("not_implemented(") and "," in key:
            first, *_ = key.split(",")
            todo = f"write one for each: `{first}: {formula}`, and so on"
            findings.add("gradient-count", place, f"the formula for `{key}` gives one gradient", todo)
        if formula in SPECIAL or formula.startswith("not_implemented("):
            continue
        is_forward = set(_names(key)) <= {"result", *output_names(schema)}
        if not is_cplusplus(formula):
            todo = "close brackets and quotes, and end it without a semicolon"
            findings.add("formula-syntax", place, "the formula is not a C++ expression", todo)
        elif not is_forward and not re.search(_USES_GRADIENT, formula) and not re.fullmatch(r"\w+", formula):
            what = f"the gradient of `{key}` does not use `grad`"
            todo = 'multiply by `grad`, or write `non_differentiable` or `not_implemented("...")`'
            findings.warn("grad-unused", place, what, todo)


def _names(key: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in key.split(","))


def check_formulas(
    entry: Entry, infos: Mapping[str, DifferentiabilityInfo], around: Surroundings, findings: Findings
) -> None:
    """Check each formula of ``entry``. ``infos`` has torchgen's results for the entry, by dispatch key."""
    written = {_names(key): (text, place) for key, text, place in formulas(entry)}
    for info in infos.values():
        schema = info.func.func
        named = {*(a.name for a in schema.arguments.flat_all), *output_names(schema), "result"}
        duals = {f"{name}_{kind}" for name in {*named, "original_self"} for kind in ("t", "p")}
        gradients = {"grad", "grads", *info.available_named_gradients}
        tensors = {a.name for a in schema.arguments.flat_all if str(a.type) == "Tensor"} | {"grad", "result"}
        of_torchgen = LOOP_VARIABLES if schema.name.name.base.startswith("_foreach_") else frozenset()
        backward: set[str] = set()
        for derivative in info.derivatives:
            if derivative.var_names not in written:
                continue
            saved = {str(each.nctype.name) for each in (*derivative.saved_inputs, *derivative.saved_outputs)}
            text, place = written[derivative.var_names]
            formula = _Formula(text, derivative.formula, derivative.var_names, entry, place)
            mine = gradients | saved | FORMULA_VARIABLES | of_torchgen
            backward.update(_check_names(formula, (mine, named | gradients, duals), around, findings))
            _check_calls(formula, tensors, around, findings)
            _check_number(formula, around, findings)
            _check_optional(derivative, formula, schema, findings)
            _warn_of_undefined(formula, around, findings)
        for forward in info.forward_derivatives:
            if forward.var_names not in written:
                continue
            text, place = written[forward.var_names]
            formula = _Formula(text, forward.formula, forward.var_names, entry, place)
            if text == "auto_element_wise" and not of_torchgen and any(map(_is_list, forward.var_types)):
                what = f"`auto_element_wise` gives one tensor, and `{', '.join(forward.var_names)}` is a list"
                findings.add("gradient-count", place, what, "write a formula that gives a list, or leave this out")
            elif formula.text not in SPECIAL:
                # A formula that torchgen derives from the backward formula has the names of that one.
                known = named | duals | (backward if text in SPECIAL else set())
                _check_names(formula, (known | of_torchgen, known, gradients - named), around, findings)
                _check_calls(formula, tensors | duals, around, findings)


def _is_list(kind: Type) -> bool:
    return isinstance(kind, ListType)


@dataclass
class _Formula:
    """A formula.

    Args:
        written: the formula as the user wrote it.
        text: the formula as torchgen generates it.
        key: the variables that it is for.
        entry: its entry.
        place: where it begins.
    """

    written: str
    text: str
    key: tuple[str, ...]
    entry: Entry
    place: Place

    def at(self, word: str) -> Place:
        """Return the place of a word of the formula as written; of the formula if it is no such word."""
        is_there = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", self.written)
        return self.entry.word(self.place, word) if is_there else self.place

    @cached_property
    def tree(self) -> Node:
        """The syntax tree of a declaration that has the formula as its value."""
        return parse(f"auto _ = {self.text};")

    @property
    def value(self) -> Node | None:
        """The formula's node in the tree."""
        declarator = self.tree.named_children[0].child_by_field_name("declarator")
        return declarator.child_by_field_name("value") if declarator is not None else None


def _check_names(
    formula: _Formula,
    variables: tuple[set[str] | frozenset[str], set[str], set[str]],
    around: Surroundings,
    findings: Findings,
) -> list[str]:
    """Report the names that are not defined, and return them. ``variables`` has the names that the formula may use, the
    names that a user could write, and the names for formulas of the other pass.
    """
    mine, written, others = variables
    key = ", ".join(formula.key)
    unknown = list(dict.fromkeys(_unknown(formula.tree, mine, around)))
    for name in unknown:
        what = f"the formula of `{key}` uses `{name}`, which is not defined"
        todo = nearest(
            name, {*written, *SPECIAL} - {name}, otherwise="use an argument, an output, or a function of ATen"
        )
        if not re.search(rf"\b{name}\b", formula.written):
            what = f"torchgen turns the formula of `{key}` into `{formula.text}`, where `{name}` is not defined"
            todo = "leave the qualifier before the replaced text out, or give the argument another name"
            todo = "write a formula with `self_t`" if formula.written in SPECIAL else todo
        elif name in others:
            there, here = ("backward", "`self_t`") if name.startswith("grad") else ("forward", "`grad`")
            what = f"the formula of `{key}` uses `{name}`, which only formulas of the {there} pass can use"
            todo = f"use {here} instead"
        elif around.is_function(name):
            what = f"the formula of `{key}` uses `{name}`, which is a function, without calling it"
            todo = f'write `{name}("{key}")`' if name == "not_implemented" else f"write `{name}(...)`"
        elif source := around.defines(name):
            what = f"the formula of `{key}` cannot call `{name}` of {source.name}: it sees PyTorch's headers only"
            todo = f"add an operator `{name}`, whose kernel this function is"
        findings.add("formula-name", formula.at(name), what, todo)
    return unknown


def _check_calls(formula: _Formula, tensors: set[str], around: Surroundings, findings: Findings) -> None:
    """Check that the calls of operators have as many arguments as an overload takes."""
    for name, what, todo in wrong_calls(formula.tree, tensors, around):
        findings.add("formula-arguments", formula.at(name), f"the formula of `{', '.join(formula.key)}`: {what}", todo)


def _unknown(tree: Node, variables: set[str] | frozenset[str], around: Surroundings) -> Iterator[str]:
    """Yield the names of a formula that nothing defines."""
    nodes, code = list(identifiers(tree)), tree.text or b""
    local = {text_of(node) for node in nodes if _is_declared(node)}
    for node in nodes:
        name = text_of(node)
        before = code[: node.start_byte].decode(errors="replace")
        is_member = re.search(r"(::|\.|->)\s*$", before) is not None  # of a namespace, a class or an object
        if re.search(r"\bstd\s*::\s*$", before) or (not is_member and name in {*variables, *local}):
            continue
        parent = node.parent
        is_called = parent is not None and parent.child_by_field_name("function") == node
        is_template = parent is not None and parent.type == "template_function"
        is_value = node.type == "identifier" and not (is_member or is_called or is_template)
        if name.isupper() or (around.is_function(name) and not is_value):  # a macro, or a function
            continue
        if name in variables and before.rstrip().endswith("::"):
            yield name
        # Headers also contain lowercase words, as names of parameters, so they do not define a variable.
        is_variable = is_value and re.match(r"[a-z_](?![A-Z])", name)
        if is_variable or not (around.base.has_word(name) or is_of_libc(name)):
            yield name


def _is_declared(node: Node) -> bool:
    """Return whether ``node`` is a name that the formula itself declares: a parameter or variable of a lambda."""
    parent = node.parent
    while parent is not None and parent.type.endswith("declarator") and parent.type != "init_declarator":
        node, parent = parent, parent.parent
    field = "left" if parent is not None and parent.type == "lambda_capture_initializer" else "declarator"
    return parent is not None and parent.child_by_field_name(field) == node


def _check_number(formula: _Formula, around: Surroundings, findings: Findings) -> None:
    """Check the number of gradients: variables that share a formula need a ``std::tuple`` with one for each of them."""
    names = ", ".join(formula.key)
    for part, numbers in _numbers(formula.value, around):
        given = [number for number in numbers if number is not None]
        if not given or len(given) < len(numbers):
            continue
        if len(formula.key) > 1 and max(given) < len(formula.key):
            what = f"`{names}` share a formula, but `{part}` gives {max(given)} of {len(formula.key)} gradients"
            todo = "write a formula for each, or a function that returns them in a std::tuple"
            findings.add("gradient-count", formula.at(part), what, todo)
        elif len(formula.key) == 1 and min(given) > 1:
            what = f"`{part}` returns {min(given)} values, but the formula is for `{names}` only"
            todo = "select one with `std::get<0>(...)`, or name the arguments: `self, other: ...`"
            findings.add("gradient-count", formula.at(part), what, todo)


def _numbers(node: Node | None, around: Surroundings) -> Iterator[tuple[str, set[int | None]]]:
    """Yield the expressions that a formula may return, each with its possible numbers of values."""
    while node is not None and node.type == "parenthesized_expression":
        node = node.named_children[0]
    if node is None:
        return
    if node.type == "conditional_expression":
        yield from _numbers(node.child_by_field_name("consequence"), around)
        yield from _numbers(node.child_by_field_name("alternative"), around)
    elif node.type in ("identifier", "binary_expression", "unary_expression"):
        yield text_of(node), {1}
    elif name := _called(node):
        yield name, around.values_of(name)


def _called(node: Node | None) -> str:
    """Return the name of the function that ``node`` calls, without a namespace; empty for a template."""
    function = node.child_by_field_name("function") if node is not None and node.type == "call_expression" else None
    name = re.search(r"\w+$", text_of(function))
    return name[0] if name and "std::" not in text_of(function) else ""


def _check_optional(derivative: Derivative, formula: _Formula, schema: FunctionSchema, findings: Findings) -> None:
    """Check how the formula uses optional arguments."""
    arguments = {a.name: a for a in schema.arguments.flat_all}
    for saved in derivative.saved_inputs:
        first = re.match(r"\w+", saved.expr)
        argument = arguments.get(first[0]) if first else None
        # Saved expressions are computed in the forward pass, where an optional tensor is a std::optional.
        if argument is None or str(saved.nctype.name) == argument.name or not argument.type.is_tensor_like():
            continue
        is_guarded, name = "has_value()" in saved.expr, argument.name
        if str(argument.type) == "Tensor" and is_guarded:
            what = f"`{name}` is a Tensor, which has no `->`"
            findings.add("formula-optional", formula.at(saved.expr), what, f"write `{name}.sym_sizes()`")
        elif str(argument.type) == "Tensor?" and not is_guarded and saved.expr != name:
            what = f"torchgen saves `{saved.expr}` in the forward pass, where `{name}` is an optional tensor"
            direct = saved.expr.replace(name, f"({name})", 1)
            todo = (
                f"`{name}->sym_sizes()`" if saved.expr == f"{name}.sym_sizes()" else f"`{direct}`, which saves `{name}`"
            )
            findings.add("formula-optional", formula.at(saved.expr), what, f"write {todo}")
    for name, member in re.findall(r"(?<![\w.>:])(\w+)\.(\w+)", derivative.original_formula):
        if name in arguments and _is_optional_value(arguments[name]) and member not in _OF_OPTIONAL:
            what = f"`{name}` is {arguments[name].type}, a std::optional, which has no `{member}`"
            todo = f"write `{name}->{member}`, where `{name}.has_value()`"
            findings.add("formula-optional", formula.at(f"{name}.{member}"), what, todo)


def _is_optional_value(argument: Argument) -> bool:
    """Return whether an argument is a ``std::optional`` in formulas. Optional tensors, strings and lists are not."""
    kind = argument.type
    is_value = isinstance(kind, OptionalType) and isinstance(kind.elem, BaseType)
    return is_value and not any(kind.is_base_ty_like(each) for each in (BaseTy.Tensor, BaseTy.str, BaseTy.Generator))


def _warn_of_undefined(formula: _Formula, around: Surroundings, findings: Findings) -> None:
    """Warn of a formula for several arguments that does not check ``grad``, which may be undefined.

    torchgen calls the formula of one argument with a defined gradient only, but not that of several. PyTorch's own
    functions for formulas take undefined gradients; an operator of the folder does if its kernel checks.
    """
    own = around.own.get(_called(formula.value).removesuffix("_symint"), [])
    if len(formula.key) < 2 or not re.search(r"\bgrad\b", formula.written) or _ASKS.search(formula.written):
        return
    kernels = {kernel.kernel for f in own for index in f.kernels.values() for kernel in index.values()}
    defining = [source for source in around.sources if any(d.name in kernels for d in source.definitions)]
    if defining and not any(_ASKS.search(source.code) for source in defining):
        names = ", ".join(formula.key)
        what = f"the formula of `{names}` is computed with an undefined `grad`, too, and neither it nor the kernel asks"
        empty = f"std::tuple<{', '.join(['Tensor'] * len(formula.key))}>()"
        todo = f'write `"grad.defined() ? {formula.written} : {empty}"`'
        findings.warn("grad-undefined", formula.place, what, todo)
