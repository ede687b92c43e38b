"""Check FunctionsManual.cpp: functions for formulas that take the place of PyTorch's, and new ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from ..cpp.functions import Definition
from ..inputs.entries import Entry
from ..inputs.helpers import HEADER, NAMESPACE, Helpers, is_same, name_in
from ..inputs.native import HELPERS, HELPERS_HEADER, NativeFolders
from ..inputs.pyproject import line_of as line_of_key
from . import Findings, line_of, nearest
from .base import BaseOperators

# A file that changes the formulas of more of PyTorch's operators than this was probably copied whole.
_MANY = 40

_OWN_HEADER = re.compile(rf'^[ \t]*#[ \t]*include[ \t]*"{re.escape(str(HELPERS_HEADER))}"', re.M)

# The autograd nodes and kernels that torchgen writes. Graft generates these again.
_GENERATED = re.compile(
    r"torch::autograd::(?:generated::(?!details::)(\w+?)(?:::|_apply_functional|\()"
    r"|(?:VariableType|ADInplaceOrView)::(?:\(anonymous namespace\)::)?(\w+)\()"
)


def check_helpers(
    helpers: Helpers, natives: NativeFolders, entries: Iterable[Entry], base: BaseOperators, findings: Findings
) -> None:
    """Check each function, and that no function of PyTorch still calls one that is replaced.

    Args:
        helpers: the functions.
        natives: the native folders.
        entries: their entries in derivatives.yaml.
        base: the base.
        findings: receives errors and warnings.
    """
    formulas = "\n".join(str(each.fields) for each in entries)
    for each in helpers.elsewhere:
        where = f"namespace {each.namespace}" if each.namespace else "no namespace"
        what, todo = f"`{each}` is in {where}, where no formula finds it", f"put it into namespace {NAMESPACE}"
        findings.add("formula-function-unused", (each.file, each.line, 0), what, f"{todo}, or into another file")
    for name in (*natives.helpers, *natives.helper_headers):
        if found := _OWN_HEADER.search(natives.text(name)):
            line = natives.text(name).count("\n", 0, found.start()) + 1
            todo = f"include <{HEADER}>, which then has its declarations"
            what = f"builds do not find {HELPERS_HEADER} by this name"
            findings.add("formula-function-header", (natives.file(name), line, 0), what, todo)
    _check_settings(helpers, natives, base, findings)
    replaced: list[Definition] = []
    seen: dict[tuple[str, ...], Definition] = {}
    for each in helpers.defined:
        place = (each.file, each.line, 0)
        theirs = base.formula_functions.get(each.name, [])
        is_declared = any(each.has_types(d.returns, d.parameters) for d in helpers.declared if d.name == each.name)
        if (other := seen.setdefault(each.key, each)) is not each:
            what = f"`{each}` is also defined in {line_of(other.file, other.line, each.file)}"
            findings.add("duplicate-definition", place, what, "delete one of the two")
        elif each.name in base.fixed_formula_functions:
            what = f"{each.name} is in the code of every operator, not in formulas, so it cannot be replaced"
            findings.add("formula-function-inline", place, what, "give it another name, or write `static` before it")
        elif any(each.has_types(d.returns, d.parameters) for d in theirs):
            replaced.append(each)
        elif is_declared or (each.is_template and not theirs):
            if theirs:
                replaced.append(each)
        elif theirs:
            shown = " and ".join(f"`{d}`" for d in theirs)
            what = f"`{each}` is not PyTorch's, which is {shown} in {HEADER}"
            todo = f"write that; or declare this in {HELPERS_HEADER}, and write formulas that call it"
            findings.add("formula-function-signature", place, what, todo)
        else:
            what = f"no formula can call `{each}`, which {HEADER} does not declare"
            todo = f"declare it in {HELPERS_HEADER}, or write `static` before it"
            todo = nearest(each.name, base.formula_functions, otherwise=todo)
            findings.add("formula-function-unused", place, what, todo)
    _check_calls(replaced, helpers, natives, formulas, base, findings)
    for file in {each.file for each in replaced}:
        names = {each.name for each in replaced if each.file == file}
        if len(calling := base.calling(names)) > _MANY:
            what = f"this changes the formulas of {len(calling)} operators of PyTorch"
            todo = "leave in it only the functions that differ from PyTorch's"
            findings.warn("formula-function-many", (file, 1, 0), what, todo)


def _check_settings(helpers: Helpers, natives: NativeFolders, base: BaseOperators, findings: Findings) -> None:
    """Check the functions in settings: those in ``keep`` must be PyTorch's, and those in ``releases`` the folder's."""
    own = {each.name for each in helpers.defined}
    for settings in {folder.settings.file: folder.settings for folder in natives.folders}.values():
        left_out = {name for folder in natives.folders for name in folder.functions_left_out}
        functions = {part for part in settings.releases if re.fullmatch(r"\w+", part)}
        of_keys = ("keep", {*settings.kept}, {*base.formula_functions}), ("releases", functions, own | left_out)
        for key, names, known in of_keys:
            for name in sorted(names - known):
                assert settings.file is not None
                line = line_of_key(settings.file.read_text(encoding="utf-8"), key, name)
                of = "PyTorch" if key == "keep" else "the folder"
                what = f"{key}: {of} has no function {name}"
                findings.add("unknown-setting", (settings.file, line, 0), what, nearest(name, known, "delete it"))


def _check_calls(
    replaced: Iterable[Definition],
    helpers: Helpers,
    natives: NativeFolders,
    formulas: str,
    base: BaseOperators,
    findings: Findings,
) -> None:
    """Check that no function of PyTorch's library calls a replaced one: all formulas should get the same results."""
    names = {each.name for each in replaced}
    callers = base.callers_of_helpers(names)
    kept = {name for folder in natives.folders for name in folder.settings.kept}
    for each in replaced:
        of_each = {c for called, found in callers.items() if is_same(called, each) for c in found}
        calling = {name_in(c) for c in of_each if c.startswith(f"{NAMESPACE}::")} - helpers.names
        place = (each.file, each.line, 0)
        for name in sorted(calling - kept):
            of_formulas = base.calling({name})
            what = f"PyTorch's {name} calls PyTorch's {each.name}"
            what += f"; formulas of {_list(of_formulas)} call it" if of_formulas else ""
            todo = f'copy {name} into {HELPERS}, too, or write `keep = ["{name}"]` into [tool.graft] of pyproject.toml'
            findings.add("formula-function-callers", place, what, todo)
        others = {name_in(c) for c in of_each if not c.startswith(f"{NAMESPACE}::") and not _GENERATED.match(c)}
        if others:
            what = f"{_list(sorted(others))} of PyTorch call PyTorch's {each.name}"
            findings.warn("formula-function-callers", place, what, "nothing to do, if that is right")
        has_effect = any(not c.startswith(f"{NAMESPACE}::") or name_in(c) in helpers.names for c in of_each)
        if has_effect or base.calling({each.name}) or re.search(rf"\b{each.name}\(", formulas):
            continue
        if calling and calling <= kept:
            what = f"{each.name} has no effect: only {_list(sorted(calling))} of PyTorch call it, which `keep` names"
            findings.add("formula-function-unused", place, what, "copy one of these, too, or delete it")
        elif not calling:
            findings.add("formula-function-unused", place, f"nothing in PyTorch calls {each.name}", "delete it")
    _check_overloads([each for each in replaced if each.name not in kept], helpers, callers, findings)


def _check_overloads(
    replaced: Iterable[Definition],
    helpers: Helpers,
    callers: Mapping[str, Iterable[str]],
    findings: Findings,
) -> None:
    """Warn of overloads that stay PyTorch's beside one that is replaced, and that formulas call."""
    first = {each.name: each for each in reversed([*replaced])}
    for called, found in sorted(callers.items()):
        each, generated = first.get(name_in(called)), filter(None, map(_GENERATED.match, found))
        of_formulas = sorted({match[1] or match[2] for match in generated})
        if each and of_formulas and not any(is_same(called, other) for other in helpers.defined):
            what = f"`{called.removeprefix(f'{NAMESPACE}::')}` stays PyTorch's, and {_list(of_formulas)} call it"
            todo = f'if it has the same mistake, copy it, too; else write `keep = ["{each.name}"]` into [tool.graft]'
            findings.warn("formula-function-callers", (each.file, each.line, 0), what, todo)


def _list(names: Collection[str]) -> str:
    shown = list(names)[:5]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(shown)}{more}"
