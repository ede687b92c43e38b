"""Find calls without a namespace for which C++ may choose another function than the author means.

If an argument's type is in namespace ``at``, as Tensor is, C++ also looks for the function there, and finds the
operators.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from ..codegen.torchgen import CppSignatureGroup, NativeFunction, Variant, native_function_manager
from ..cpp.functions import Definition, canonical
from ..cpp.sources import Source
from ..cpp.syntax import text_of
from . import Findings
from .calls import UNKNOWN, Call, is_tensor
from .kernels import Kernel
from .visible import Unit

_NUMBERS = {"bool", "int", "int64_t", "int32_t", "long", "unsigned", "size_t", "float", "double", "char"}
# Types that numbers and tensors are converted to.
_TAKE_NUMBERS = {"Scalar", "SymInt", "optional<int64_t>", "optional<double>", "optional<Scalar>"}
_TAKE_TENSORS = {"optional<Tensor>", "TensorBase", "OptionalTensorRef"}
# The types of namespace at in signatures, also within others.
_OF_ATEN = re.compile(r"\b(?:Tensor|TensorBase|Generator|Dimname|TensorIterator(?:Base)?)\b")
_NOTHING = re.compile(r"\{\s*\}|(?:\w+::)*nullopt|nullptr")


class Fit(Enum):
    """How an argument fits the parameter of a function compared with that of an operator."""

    SAME = auto()
    BETTER = auto()
    DEPENDS = auto()


@dataclass(frozen=True)
class Overload:
    """A function that a call may find.

    Args:
        parameters: the type of each parameter.
        required: how many have no default.
    """

    parameters: tuple[str, ...]
    required: int

    def takes(self, call: Call) -> bool:
        """Return whether it accepts the call, as far as the source shows."""
        given = len(call.arguments)
        kinds = (call.type_of(position) for position in range(given))
        return self.required <= given <= len(self.parameters) and all(map(_can_take, self.parameters, kinds))


@dataclass(frozen=True)
class Operator(Overload):
    """A function ``at::name`` of an operator.

    Args:
        header: its header in ``ATen/ops``, without suffix.
    """

    header: str


def check_lookup(
    functions: Iterable[NativeFunction],
    kernels: Iterable[Kernel],
    sources: Sequence[Source],
    searched: Sequence[Path],
    tree: Path,
    findings: Findings,
    laid_over: Sequence[Source] = (),
) -> None:
    """Report calls that C++ may resolve to another function: of a function that has the name of an operator of the
    folder, and of ``abs`` without ``std::``.

    Args:
        functions: the folder's operators.
        kernels: the kernels that they require.
        sources: the folder's sources.
        searched: the folders of headers that settings name.
        tree: the unpacked base.
        findings: receives errors and warnings.
        laid_over: headers that take the place of PyTorch's.
    """
    operators = _operators(functions)
    kernels = [kernel for kernel in kernels if kernel.name in operators and kernel.header]
    by_name = {source.name: source for source in (*sources, *laid_over)}
    for source in sources:
        unit = Unit(source, by_name, searched, tree)
        for name, own in _named(operators, kernels, unit).items():
            _check_calls(name, own, operators[name], unit, findings)
        if source.name.suffix not in (".cu", ".cuh"):  # CUDA declares abs for all numbers
            _check_absolute(unit, findings)


def _operators(functions: Iterable[NativeFunction]) -> dict[str, list[Operator]]:
    """Return the functions of the operators in namespace at, by name."""
    found = defaultdict[str, list[Operator]](list)
    for native in [f for f in functions if Variant.function in f.variants]:
        with native_function_manager(native):
            for each in CppSignatureGroup.from_native_function(native, method=False).signatures():
                types = tuple(binding.type for binding in each.arguments())
                required = sum(binding.default is None for binding in each.arguments())
                found[each.name()].append(Operator(types, required, native.root_name))
    return found


def _named(operators: dict[str, list[Operator]], kernels: Iterable[Kernel], unit: Unit) -> dict[str, list[Definition]]:
    """Return the functions in a unit that have the name of an operator whose function in namespace at is declared."""
    found = defaultdict[str, list[Definition]](list)
    for name in operators.keys() & unit.source.words:
        found[name] += unit.named(name)
    for each in kernels:
        if each.name in unit.source.words and unit.declares(each.header.removesuffix("_native.h"), "_native"):
            header = Path("ATen/ops") / each.header
            found[each.name].append(Definition(header, 0, each.namespace, each.name, "", "", each.parameters, False))
    return {name: own for name, own in found.items() if own and unit.declares(operators[name][0].header)}


def _check_calls(name: str, own: list[Definition], operators: list[Operator], unit: Unit, findings: Findings) -> None:
    """Check the calls of the function ``name`` in a source."""
    source = unit.source
    for call in unit.calls(name):
        around = _around(own, call, source)
        found = around or _used(own, call, source)
        fits = {_fit(found, call, operator) for operator in operators} if found else set()
        if fits <= {Fit.BETTER}:
            continue
        is_sure = bool(around) and Fit.DEPENDS not in fits and unit.declares(operators[0].header, surely=True)
        is_sure = is_sure and not (source.is_conditional(call.line) or source.opens_namespaces)
        where = f"{found[0].namespace}::{name}"
        what = f"`{call.text}` is ambiguous" if is_sure else f"`{call.text}` may call the operator at::{name}"
        what += f": C++ looks for functions of tensors in namespace at, too, so it finds at::{name} and {where}"
        todo = f"write `{where}(...)` for the function, `at::{name}(...)` for the operator"
        findings.add("ambiguous-call", (source.path, call.line, 0), what, todo, is_warning=not is_sure)


def _around(own: Iterable[Definition], call: Call, source: Source) -> list[Definition]:
    """Return the functions that a call finds by its name alone: those of the innermost namespace around it."""
    before = [d for d in own if d.file != source.path or d.line <= call.line]
    around = [d for d in before if not d.namespace or f"{call.namespace}::".startswith(f"{d.namespace}::")]
    innermost = max((d.namespace for d in around), key=len, default="")
    if not innermost and f"{call.namespace}::".startswith("at::"):
        return []  # namespace at hides the global one
    return [d for d in around if d.namespace == innermost and _can_be_called(d, call)]


def _used(own: Iterable[Definition], call: Call, source: Source) -> list[Definition]:
    """Return the functions that a call may find by ``using``; none if one declared around the call hides them."""
    names = set(re.findall(r"\busing\s+(?:namespace\s+)?(?:::)?([\w:]+)\s*;", source.code))
    found = [d for d in own if d.namespace and {d.namespace, f"{d.namespace}::{d.name}"} & names]
    is_inside = any(f"{call.namespace}::".startswith(f"{d.namespace}::") for d in own if d.namespace)
    return [] if is_inside else [d for d in found if _can_be_called(d, call)]


def _can_be_called(own: Definition, call: Call) -> bool:
    required = len(own.parameters) - len(own.defaults)
    return own.is_template or Overload(own.parameters, required).takes(call)


def _fit(found: Sequence[Definition], call: Call, operator: Operator) -> Fit:
    """Return how a call fits the functions ``found``, compared with an operator."""
    if not operator.takes(call):
        return Fit.BETTER
    fits = {_fit_of(each, call, operator) for each in found}
    return Fit.DEPENDS if len(fits) > 1 else fits.pop()


def _fit_of(own: Definition, call: Call, operator: Operator) -> Fit:
    given = range(len(call.arguments))
    if not any(_is_of_aten(own, call, position) for position in given):
        return Fit.BETTER
    if own.is_template or any("auto" in each for each in own.parameters):
        return Fit.DEPENDS
    fits = {_fit_at(position, own, call, operator) for position in given}
    return next(fit for fit in (Fit.DEPENDS, Fit.BETTER, Fit.SAME) if fit in fits)


def _is_of_aten(own: Definition, call: Call, position: int) -> bool:
    """Return whether C++ also looks into namespace at because of an argument."""
    argument = call.arguments[position]
    if argument.type == "initializer_list" or _NOTHING.fullmatch(text_of(argument)):
        return False
    declared = "" if own.is_template else canonical(own.parameters[position])
    return bool(_OF_ATEN.search(declared) or _OF_ATEN.search(call.type_of(position)))


def _fit_at(position: int, own: Definition, call: Call, operator: Operator) -> Fit:
    """Return how an argument fits the parameters of a function and an operator."""
    mine, theirs = canonical(own.parameters[position]), canonical(operator.parameters[position])
    kind, is_list = call.type_of(position), call.arguments[position].type == "initializer_list"
    one, other, given = _plain(mine), _plain(theirs), _plain(kind)
    if _is_written(theirs) and not _is_written(mine):
        return Fit.DEPENDS if given == other else Fit.BETTER
    if one == other:
        return Fit.BETTER if _is_written(mine) and not _is_written(theirs) else Fit.SAME
    if one == given:
        return Fit.BETTER
    is_number = other in _NUMBERS and one in _NUMBERS | _TAKE_NUMBERS
    is_tensor = other == "Tensor" and one in _TAKE_TENSORS
    return Fit.DEPENDS if is_number or is_tensor or (is_list and one not in _NUMBERS) else Fit.BETTER


def _plain(kind: str) -> str:
    return kind.removeprefix("const ").rstrip("&")


def _is_written(kind: str) -> bool:
    return kind.endswith("&") and not kind.startswith("const ")


def _can_take(parameter: str, kind: str) -> bool:
    """Return whether a parameter accepts an argument of a type. An unknown type is accepted."""
    wanted, given = _plain(canonical(parameter)), _plain(kind)
    if given == "Tensor":
        is_const = kind.startswith("const ")
        return wanted not in _NUMBERS | _TAKE_NUMBERS and not (is_const and _is_written(canonical(parameter)))
    return not (given in _NUMBERS and _OF_ATEN.search(wanted))


def _check_absolute(unit: Unit, findings: Findings) -> None:
    """Report ``abs`` of numbers in namespace at::native, which is not ``std::abs`` there."""
    source = unit.source
    if re.search(r"\busing\s+(?:std::abs|namespace\s+std)\b", source.code) or any(unit.named("abs")):
        return
    for call in unit.calls("abs"):
        if not f"{call.namespace}::".startswith("at::native::") or len(call.arguments) != 1:
            continue
        kind = _plain(call.type_of(0))
        is_for_tensors = unit.declares("abs") or unit.declares("abs", "_native")
        if is_tensor(kind) or kind.startswith("complex") or kind == (UNKNOWN if is_for_tensors else "int"):
            continue
        other = "PyTorch's function of tensors" if is_for_tensors else "C's function of int, which drops fractions"
        what = f"`{call.text}` in namespace {call.namespace} is not std::abs, but may be {other}"
        findings.warn("integer-abs", (source.path, call.line, 0), what, "write `std::abs`")
