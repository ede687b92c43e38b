"""Make operators of pybind11's functions, with a schema for each overload. Uses only the standard library."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .patterns import of_name
from .pybind_found import FoundFunction
from .pybind_signatures import Argument, Signature, signatures
from .pybind_types import UnknownTypeError, is_number, is_tensor, schema_default, schema_results, schema_type


@dataclass(frozen=True)
class PybindChoices:
    """The author's settings for pybind11 functions.

    Args:
        namespace: the operators' namespace; the package's name if empty.
        backends: the dispatch keys that the functions have kernels for; CPU if empty, and CUDA if there is code for it.
        only: the functions that become operators; all if empty. Patterns, here and below.
        except_: the functions that do not become operators.
        writes: for each function, the arguments that it writes; none for a function that only checks something.
        fakes: the fake implementation of each function, as ``package.module:function``, or a module with a function of
            the same name.
    """

    namespace: str = ""
    backends: Sequence[str] = ()
    only: Sequence[str] = ()
    except_: Sequence[str] = ()
    writes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fakes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PybindOperator:
    """An operator made of a function.

    Args:
        name: its name with the overload, without the namespace.
        schema: its schema without the namespace.
        function: ``module:function``.
        for_cuda: the same for CUDA tensors, if that is another function; else empty.
        needs: the settings that are missing: ``writes`` (it is not registered), ``pure`` (it returns tensors, and may
            write arguments), ``fake``.
        doc: the function's docstring after its signature.
        enums: the places of enumerations, by the argument that takes their numbers: its position, or its name.
        writes: whether it writes arguments.
        returns: whether it has results.
        fake: its fake implementation, as ``package.module:function``; empty if there is none.
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
    for_cuda: str = ""


def operators_of(
    name: str, function: FoundFunction, enums: Collection[str], choices: PybindChoices
) -> tuple[list[PybindOperator], list[str]]:
    """Return the operators of a function, one for each overload, and the reasons why overloads are left out."""
    overloads = [_with_enums(each, enums) for each in signatures(function.name, function.doc)]
    if not overloads:
        return [], ["its docstring has no signature: py::options leaves it out, or a default's text is not readable"]
    if not name.isidentifier() or keyword.iskeyword(name):
        return [], [f"{name} is no name of an operator"]
    made: dict[str, PybindOperator] = {}
    reasons = []
    for signature in _ordered(_with_numbers(overloads)):
        try:
            one = _operator(name, signature, function, enums, choices, bool(made))
        except UnknownTypeError as error:
            reasons.append(str(error))
            continue
        made.setdefault(one.name, one)  # overloads for int32 and int64 are one
    return list(made.values()), reasons


def _with_enums(signature: Signature, enums: Collection[str]) -> Signature:
    """Return a signature with the Python names of enumerations. If the function is defined before an enumeration, the
    docstring has its C++ name: ``their::Mode``.
    """
    by_name = {each.rpartition(".")[2]: each for each in enums}

    def in_python(found: re.Match[str]) -> str:
        return by_name.get(found[1], found[0])

    arguments = (replace(each, type=re.sub(r"(?:\w+::)+(\w+)", in_python, each.type)) for each in signature.arguments)
    return replace(signature, arguments=tuple(arguments))


def _with_numbers(overloads: Sequence[Signature]) -> list[Signature]:
    """Merge overloads that differ only in ``int`` and ``float`` into one that takes any number. The function chooses by
    the value that it gets, while torch.ops would call the first overload that fits.
    """
    merged: list[Signature] = []
    for each in overloads:
        for i, other in enumerate(merged):
            if _is_but_for_numbers(each, other):
                pairs = zip(each.arguments, other.arguments, strict=True)
                merged[i] = replace(
                    other, arguments=tuple(a if a == b else replace(a, type="Number") for a, b in pairs)
                )
                break
        else:
            merged.append(each)
    return merged


def _is_but_for_numbers(one: Signature, other: Signature) -> bool:
    def without_numbers(signature: Signature) -> list[Argument]:
        return [replace(each, type="Number") if is_number(each.type) else each for each in signature.arguments]

    return one.result == other.result and without_numbers(one) == without_numbers(other)


def _ordered(overloads: Sequence[Signature]) -> list[Signature]:
    """Order overloads, an int before a float: torch.ops calls the first that fits, and a float takes an int, too."""
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
    try:
        return schema_type(type_).startswith("float")
    except UnknownTypeError:
        return False


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
    names = schema_names(signature.arguments)
    writes = of_name(choices.writes, function.name)
    written = _written(types, names, writes or ())
    if is_overload:
        name += "." + "_".join(
            re.sub(r"\W", lambda found: {"?": "Opt", "[": "List"}.get(found[0], ""), each) for each in types
        )
    # A function that returns no tensor may return a status, and write its result into an argument.
    needs = [] if writes is not None else ["pure" if any(map(is_tensor, results)) else "writes"]
    fake = of_name(choices.fakes, function.name) or ""
    if ":" not in fake:  # a module; a function without results needs no fake
        fake = f"{fake}:{function.name}" if fake and results else ""
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
        function.for_cuda,
    )


def _type(argument: Argument, enums: Collection[str]) -> str:
    if argument.name.startswith("*"):
        raise UnknownTypeError(f"it takes any number of arguments ({argument.name})")
    try:
        return schema_type(argument.type, enums)
    except UnknownTypeError as error:
        raise UnknownTypeError(f"{argument.name}: {error}") from None


def schema_names(arguments: Sequence[Argument]) -> list[str]:
    """Return the schema's argument names. Positional arguments with invalid names become ``arg0``, ``arg1``, ..."""
    names: list[str] = []
    for position, argument in enumerate(arguments):
        fits = argument.name.isidentifier() and not keyword.iskeyword(argument.name) and argument.name not in names
        if not fits and argument.keyword_only:
            raise UnknownTypeError(f"no schema has a keyword-only argument named {argument.name}")
        names.append(argument.name if fits else f"arg{position}")
    return names


def _written(types: Sequence[str], names: Sequence[str], writes: Sequence[str]) -> dict[str, str]:
    """Return the types of written arguments, by name: ``Tensor(a!)``, with a letter for each."""
    written: dict[str, str] = {}
    for name, type_ in zip(names, types, strict=True):
        if name in writes and is_tensor(type_):
            written[name] = type_.replace("Tensor", f"Tensor({'abcdefghijklmnopqrstuvwxyz'[len(written)]}!)", 1)
    return written


def _arguments(
    arguments: Sequence[Argument], names: Sequence[str], types: Sequence[str], written: Mapping[str, str]
) -> str:
    """Return the arguments of a schema. A positional argument has a default only if all after it have one."""
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
