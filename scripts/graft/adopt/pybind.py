"""Operators of pybind11 modules: their schemas, and a Python module that registers them with ``torch.library``.

The names, types and defaults come from the signatures in the functions' docstrings. What these do not say, the author
does (``PybindChoices``): which arguments a function writes, and its fake. A function that returns one of its arguments
looks like one that returns a new tensor; opcheck's schema test finds it. Uses only the standard library.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .pybind_found import FoundFunction, FoundModules
from .pybind_signatures import Argument, Signature, signatures
from .pybind_types import UnknownTypeError, is_tensor, schema_default, schema_results, schema_type

_TEMPLATE = Path(__file__).parent / "templates" / "pybind.py"


@dataclass(frozen=True)
class PybindChoices:
    """What the author says.

    Args:
        namespace: the operators' namespace; that of the package's name if empty.
        backends: the dispatch keys that the functions have kernels for; CPU if empty, and CUDA if there is code for it.
        writes: for each function, the arguments that it writes; none for a function that only checks something.
        fakes: for each function, ``package.module:function``, which makes empty results.
    """

    namespace: str = ""
    backends: Sequence[str] = ()
    writes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fakes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PybindOperator:
    """An operator that a function becomes.

    Args:
        name: its name without the namespace, with that of the overload.
        schema: its schema without the namespace.
        function: ``module:function``.
        needs: the lines that are missing: ``writes`` (the operator is not registered), ``fake``.
        doc: the function's docstring behind its signature.
        enums: arguments that are numbers here, and where their enumeration stands.
        writes: whether it writes arguments.
        returns: whether it has results.
        fake: ``package.module:function``.
    """

    name: str
    schema: str
    function: str
    needs: tuple[str, ...] = ()
    doc: str = ""
    enums: Mapping[int | str, str] = field(default_factory=dict)
    writes: bool = False
    returns: bool = True
    fake: str = ""


@dataclass(frozen=True)
class PybindFindings:
    """What the modules of a package become.

    Args:
        text: a Python module that registers the operators; empty without operators.
        operators: in the order of their registration.
        left_out: what is no operator, and why.
        mistakes: lines of the author that fit no function.
    """

    text: str
    operators: tuple[PybindOperator, ...]
    left_out: tuple[tuple[str, str], ...]
    mistakes: tuple[str, ...] = ()


def registered(
    package: str, found: FoundModules, choices: PybindChoices | None = None, existing: Collection[str] = ()
) -> PybindFindings:
    """Return the operators of the functions that were found.

    Args:
        package: the package's name in Python.
        found: what ``found_in`` returns.
        choices: what the author says.
        existing: names of operators that the package itself registers: ``ns::f``.
    """
    choices = choices or PybindChoices()
    namespace = choices.namespace or re.sub(r"\W", "_", package)
    taken = {name.partition("::")[2].partition(".")[0] for name in existing}
    operators: list[PybindOperator] = []
    left_out: list[tuple[str, str]] = []
    for name, function in _named(found.functions):
        if function.name in taken:
            left_out.append((function.place, "the package registers an operator of this name"))
            continue
        made, reasons = _operators(name, function, found.enums, choices)
        operators += made
        left_out += [(function.place, each) for each in reasons]
    left_out += [(name, "a class") for name in found.classes]
    text = _text(namespace, operators, choices.backends or (("CPU", "CUDA") if found.cuda else ("CPU",)))
    return PybindFindings(text, tuple(operators), tuple(left_out), tuple(_mistakes(found, choices)))


def _named(functions: Iterable[FoundFunction]) -> Iterator[tuple[str, FoundFunction]]:
    """Each function with its operator's name: where two modules have ``forward``, the module's name is put before."""
    functions = tuple(functions)
    often = Counter(each.name for each in functions)
    for each in functions:
        module = each.module.rpartition(".")[2].strip("_")
        yield (f"{module}_{each.name}" if often[each.name] > 1 else each.name), each


def _operators(
    name: str, function: FoundFunction, enums: Collection[str], choices: PybindChoices
) -> tuple[list[PybindOperator], list[str]]:
    """The operators of a function, one for each overload, and why an overload is none."""
    overloads = signatures(function.name, function.doc)
    if not overloads:
        return [], ["its docstring has no signature: py::options leaves it out, or a default's text is not readable"]
    if not name.isidentifier() or keyword.iskeyword(name):
        return [], [f"{name} is no name of an operator"]
    made: dict[str, PybindOperator] = {}
    reasons = []
    for signature in _ordered(overloads):
        try:
            one = _operator(name, signature, function, enums, choices, bool(made))
        except UnknownTypeError as error:
            reasons.append(str(error))
            continue
        made.setdefault(one.name, one)  # overloads for int32 and int64 are one
    return list(made.values()), reasons


def _ordered(overloads: Sequence[Signature]) -> list[Signature]:
    """torch.ops takes the first overload that fits, and a float takes an int: the same one with an int goes before."""
    ordered: list[Signature] = []
    for each in overloads:
        place = next((i for i, other in enumerate(ordered) if _is_narrower(each, other)), len(ordered))
        ordered.insert(place, each)
    return ordered


def _is_narrower(one: Signature, other: Signature) -> bool:
    if len(one.arguments) != len(other.arguments):
        return False
    pairs = {(a.type, b.type) for a, b in zip(one.arguments, other.arguments, strict=True) if a.type != b.type}
    return bool(pairs) and all(not _is_float(a) and _is_float(b) for a, b in pairs)


def _is_float(type_: str) -> bool:
    return type_ == "float" or "SupportsFloat" in type_


def _operator(
    name: str,
    signature: Signature,
    function: FoundFunction,
    enums: Collection[str],
    choices: PybindChoices,
    is_overload: bool,
) -> PybindOperator:
    types = [_type(argument, enums) for argument in signature.arguments]
    results = schema_results(signature.result)
    if not any(map(is_tensor, types)):
        raise UnknownTypeError("no argument is a tensor, by which the dispatcher chooses a kernel")
    names = _names(signature.arguments)
    writes = choices.writes.get(function.name)
    written = _written(types, names, writes or ())
    if is_overload:
        name += "." + "_".join(
            re.sub(r"\W", lambda found: {"?": "Opt", "[": "List"}.get(found[0], ""), each) for each in types
        )
    # One without a tensor in its results may return a status, and write its result into an argument.
    needs = ["writes"] if writes is None and not any(map(is_tensor, results)) else []
    fake = choices.fakes.get(function.name, "")
    if results and not fake:
        needs.append("fake")
    return PybindOperator(
        name,
        f"{name}({_arguments(signature.arguments, names, types, written)}) -> {_results(results)}",
        function.place,
        tuple(needs),
        signature.doc,
        _enums(signature.arguments, names, enums),
        bool(writes),
        bool(results),
        fake,
    )


def _type(argument: Argument, enums: Collection[str]) -> str:
    if argument.name.startswith("*"):
        raise UnknownTypeError(f"it takes any number of arguments ({argument.name})")
    try:
        return schema_type(argument.type, enums)
    except UnknownTypeError as error:
        raise UnknownTypeError(f"{argument.name}: {error}") from None


def _names(arguments: Sequence[Argument]) -> list[str]:
    """The names in the schema: positional arguments are passed by position, so theirs may differ."""
    names: list[str] = []
    for position, argument in enumerate(arguments):
        fits = argument.name.isidentifier() and not keyword.iskeyword(argument.name) and argument.name not in names
        if not fits and argument.keyword_only:
            raise UnknownTypeError(f"no schema has a keyword-only argument named {argument.name}")
        names.append(argument.name if fits else f"arg{position}")
    return names


def _written(types: Sequence[str], names: Sequence[str], writes: Sequence[str]) -> dict[str, str]:
    """The types of the arguments that are written: ``Tensor(a!)``, with a letter for each."""
    written: dict[str, str] = {}
    for name, type_ in zip(names, types, strict=True):
        if name in writes and is_tensor(type_):
            written[name] = type_.replace("Tensor", f"Tensor({'abcdefghijklmnopqrstuvwxyz'[len(written)]}!)", 1)
    return written


def _arguments(
    arguments: Sequence[Argument], names: Sequence[str], types: Sequence[str], written: Mapping[str, str]
) -> str:
    """The arguments of a schema. Behind one that must be given, no default may be missing."""
    defaults = [
        None if each.default is None else schema_default(each.default, types[i]) for i, each in enumerate(arguments)
    ]
    parts: list[str] = []
    for position, argument in enumerate(arguments):
        rest = [
            defaults[i] for i in range(position, len(arguments)) if arguments[i].keyword_only == argument.keyword_only
        ]
        default = defaults[position] if argument.keyword_only or None not in rest else None
        if argument.keyword_only and "*" not in parts:
            parts.append("*")
        name = names[position]
        parts.append(f"{written.get(name, types[position])} {name}" + ("" if default is None else f"={default}"))
    return ", ".join(parts)


def _results(results: Sequence[str]) -> str:
    return results[0] if len(results) == 1 else f"({', '.join(results)})"


def _enums(arguments: Sequence[Argument], names: Sequence[str], enums: Collection[str]) -> dict[int | str, str]:
    found: dict[int | str, str] = {}
    for position, (argument, name) in enumerate(zip(arguments, names, strict=True)):
        for each in enums:
            if re.search(rf"(?<![\w.]){re.escape(each)}(?![\w.])", argument.type):
                found[name if argument.keyword_only else position] = ":".join(each.rsplit(".", 1))
    return found


def _mistakes(found: FoundModules, choices: PybindChoices) -> Iterator[str]:
    """Lines of the author that fit no function, or no argument."""
    functions = {each.name: each for each in found.functions}
    for line, names in (("writes", choices.writes), ("fakes", choices.fakes)):
        yield from (f"{line}: no function is called {name}" for name in names if name not in functions)
    for name, arguments in choices.writes.items():
        has = [_names(each.arguments) for each in signatures(name, functions[name].doc)] if name in functions else []
        for argument in arguments:
            if has and not any(argument in each for each in has):
                yield f"writes: {name} has no argument {argument}, only {', '.join(has[0])}"
    for name, place in choices.fakes.items():
        if not re.fullmatch(r"[\w.]+:\w+", place):
            yield f"fakes: {name}: write package.module:function instead of {place}"


def _text(namespace: str, operators: Sequence[PybindOperator], backends: Sequence[str]) -> str:
    """The module that registers them."""
    calls = [_call(each, backends) for each in operators if "writes" not in each.needs]
    if not calls:
        return ""
    return _TEMPLATE.read_text().replace("their_package", namespace) + "\n\n" + "\n".join(calls) + "\n"


def _call(operator: PybindOperator, backends: Sequence[str]) -> str:
    given = {
        "backends": list(backends),
        "fake": operator.fake,
        "enums": dict(operator.enums),
        "writes": operator.writes,
        "returns": operator.returns,
    }
    usual = {"fake": "", "enums": {}, "writes": False, "returns": True}
    named = [f"{name}={value!r}" for name, value in given.items() if name not in usual or value != usual[name]]
    lines = [repr(operator.schema), repr(operator.function), *named]
    return "_register(\n" + "".join(f"    {line},\n" for line in lines) + ")"
