"""Make operators of pybind11 modules: their schemas, and a Python module that registers them with ``torch.library``.

The names, types and defaults come from the signatures in the functions' docstrings. The author adds the arguments that
a function writes, and its fake implementation (``PybindChoices``). A function that returns one of its arguments looks
like one that returns a new tensor; opcheck's schema test reports it. Uses only the standard library.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .patterns import is_named, unused
from .pybind_found import FoundFunction, FoundModules
from .pybind_operators import PybindChoices as PybindChoices
from .pybind_operators import PybindOperator as PybindOperator
from .pybind_operators import operators_of, schema_names
from .pybind_signatures import Argument, signatures

_TEMPLATE = Path(__file__).parent / "templates" / "pybind.py"


@dataclass(frozen=True)
class PybindFindings:
    """The operators of a package's pybind11 modules.

    Args:
        text: a Python module that registers the operators; empty without operators.
        operators: the operators, in the order of their registration.
        left_out: the functions and classes that become no operator, each with the reason.
        mistakes: the errors in the author's settings.
        namespace: the namespace of the operators.
        notes: what the author should know about the names.
    """

    text: str
    operators: tuple[PybindOperator, ...]
    left_out: tuple[tuple[str, str], ...]
    mistakes: tuple[str, ...] = ()
    namespace: str = ""
    notes: tuple[str, ...] = ()


def registered(
    package: str, found: FoundModules, choices: PybindChoices | None = None, existing: Collection[str] = ()
) -> PybindFindings:
    """Return the operators of the functions that were found.

    Args:
        package: the package's name in Python.
        found: what ``found_in`` returns.
        choices: the author's settings.
        existing: names of operators that the package itself registers: ``ns::f``.
    """
    choices = choices or PybindChoices()
    namespace = choices.namespace or re.sub(r"\W", "_", package)
    taken = {name.partition("::")[2].partition(".")[0] for name in existing}
    operators: list[PybindOperator] = []
    left_out: list[tuple[str, str]] = []
    named = [*_named(_paired(found.functions))]
    for name, function in named:
        if not is_named(name, choices.only or ("*",)) or is_named(name, choices.except_):
            left_out.append((function.place, "left out, as adopt.toml says"))
        elif function.name in taken:
            left_out.append((function.place, "the package registers an operator of this name"))
        else:
            made, reasons = operators_of(name, function, found.enums, choices)
            operators += made
            left_out += [(function.place, each) for each in reasons]
    left_out += [(name, "a class") for name in found.classes]
    has_cuda = found.cuda or any(each.for_cuda for each in operators)
    text = _text(namespace, operators, choices.backends or (("CPU", "CUDA") if has_cuda else ("CPU",)))
    mistakes, notes = tuple(_mistakes(found, choices, taken)), tuple(_notes(named, operators))
    return PybindFindings(text, tuple(operators), tuple(left_out), mistakes, namespace, notes)


def _paired(functions: Sequence[FoundFunction]) -> list[FoundFunction]:
    """Return the functions, where two in modules such as ``their.ops_cpu`` and ``their.ops_cuda`` become one that has
    both: so its name is the same where the module for CUDA is not built.
    """
    known = {each.place: each for each in functions}
    pairs = {}
    for each in functions:
        package, _, module = each.module.rpartition(".")
        for_cuda = ".".join(filter(None, [package, module.replace("cpu", "cuda")]))
        other = known.get(f"{for_cuda}:{each.name}", each)
        if other is not each and _calls_of(each) == _calls_of(other) != []:
            pairs[each.place] = other.place
    rest = (each for each in functions if each.place not in pairs.values())
    return [replace(each, for_cuda=pairs.get(each.place, "")) for each in rest]


def _calls_of(function: FoundFunction) -> list[tuple[tuple[Argument, ...], str]]:
    """Return the arguments and the result of each overload."""
    return [(each.arguments, each.result) for each in signatures(function.name, function.doc)]


def _notes(named: Iterable[tuple[str, FoundFunction]], operators: Iterable[PybindOperator]) -> Iterator[str]:
    """Yield a note if names of operators depend on which modules are built."""
    places = {each.function for each in operators}
    if long := [name for name, each in named if name != each.name and each.place in places]:
        yield (
            f"{', '.join(long)}: these names begin with the module's, since several modules have such functions; where "
            f'one is not built, they do not. `names = {{{long[0]} = "my_name"}}` in adopt.toml is a name of your own'
        )


def _named(functions: Iterable[FoundFunction]) -> Iterator[tuple[str, FoundFunction]]:
    """Yield each function with its operator's name. Functions of the same name get their module's name as a prefix."""
    functions = tuple(functions)
    often = Counter(each.name for each in functions)
    for each in functions:
        module = each.module.rpartition(".")[2].strip("_")
        yield (f"{module}_{each.name}" if often[each.name] > 1 else each.name), each


def _mistakes(found: FoundModules, choices: PybindChoices, taken: Collection[str]) -> Iterator[str]:
    """Yield the errors in the author's settings. ``writes`` may also name an operator in ``taken``."""
    functions = {each.name: each for each in found.functions}
    for line, names, known in (("writes", choices.writes, {*taken, *functions}), ("fakes", choices.fakes, functions)):
        yield from (f"{line}: no function is called {name}" for name in unused(names, known) if name != "*")
    for name, arguments in choices.writes.items():
        meant = [each for each in found.functions if is_named(each.name, [name])]
        has = [schema_names(one.arguments) for each in meant for one in signatures(each.name, each.doc)]
        for argument in arguments:
            if has and not any(argument in each for each in has):
                yield f"writes: {name} has no argument {argument}, only {', '.join(has[0])}"
    for name, place in choices.fakes.items():
        if not re.fullmatch(r"[\w.]+(:\w+)?", place):
            yield f"fakes: {name}: write package.module:function instead of {place}"


def _text(namespace: str, operators: Sequence[PybindOperator], backends: Sequence[str]) -> str:
    """Return the text of the Python module that registers the operators; empty if there are none."""
    calls = [_call(each, backends) for each in operators if "writes" not in each.needs]
    if not calls:
        return ""
    return _TEMPLATE.read_text(encoding="utf-8").replace("their_package", namespace) + "\n\n" + "\n".join(calls) + "\n"


def _call(operator: PybindOperator, backends: Sequence[str]) -> str:
    given = {
        "backends": list(backends),
        "for_cuda": operator.for_cuda,
        "fake": operator.fake,
        "enums": dict(operator.enums),
        "writes": operator.writes,
        "returns": operator.returns,
    }
    usual = {"for_cuda": "", "fake": "", "enums": {}, "writes": False, "returns": True}
    named = [f"{name}={value!r}" for name, value in given.items() if name not in usual or value != usual[name]]
    lines = [repr(operator.schema), repr(operator.function), *named]
    return "_register(\n" + "".join(f"    {line},\n" for line in lines) + ")"
