"""``graft adopt``: write a native folder with the operators of an extension."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..base.base import Base, run_with_torchgen
from ..base.installed import base_of, find_environment, find_site, layout_on
from ..check import nearest
from ..core.bugs import BugError
from ..core.console import Steps, say
from ..core.errors import UsageError
from ..core.files import build_lock
from ..core.keys import FILE as PROJECT
from ..core.layout import expanded
from ..deliver.develop import current_tree, note_of
from ..inputs.accepted import NO_WHEEL
from ..inputs.native import FUNCTIONS
from ..inputs.settings import settings_of
from ..options import Request
from .adopt_options import FILE, Asked, is_tree, read_asked, with_given
from .compare import compare
from .dispatcher import ask
from .folder import changed_files, facts_of, hash_of, record_of, write
from .project import dependencies_of, project_text
from .table import changes, lines_of_left_out, report_of, shown
from .tree import Tree, tree_of

# The record's hash of the settings, if adopt wrote none.
_NONE = hash_of(b"")


@dataclass(frozen=True)
class Report:
    """The outcome for each operator, for ``--report``."""

    report: list[dict[str, Any]]


def adopt(request: Request, own: argparse.Namespace) -> Report:
    """Write a native folder with an entry and a kernel for each operator of the extension, and print a table.

    With ``--compare``, compare the adopted operators with the extension's instead. The extension's code runs in a child
    process.
    """
    folder, *others = request.native
    asked = _asked(folder, own)
    others += _developed(request.python, folder)
    before = record_of(folder)
    if own.compare:
        compare(folder, asked.modules, request.python)
        return Report([])
    is_by_hand = before.get("settings", _NONE) == _NONE
    tree = tree_of(folder, asked.source, request.python, is_by_hand=is_by_hand) if asked.source else None
    if tree and not asked.modules:
        asked = replace(asked, modules=tree.modules)
    base, found = _found(request, asked, tree)
    asked = replace(asked, modules=(*asked.modules, *found["late"]))
    with Steps().step("write entries and kernels"):
        answer = _planned(base.tree, asked, found, before, others)
    operators = answer["operators"]
    say(shown(operators, [*found["functions"]["left_out"], *answer["left_out"]]))
    for note in found["functions"]["notes"]:
        say(note)
    if told := changes(before.get("operators", {}), operators):
        say(told)
    for flag in tree.processor_flags if tree else ():
        say(f"{folder / PROJECT}: {flag} is for processors like this one; {NO_WHEEL}")
    texts = {**answer["files"], **_author_files(folder, asked, found, tree, before)}
    written = tree.written if tree else {}
    if before:
        say(f"files that change: {', '.join(changed_files(folder, texts, written, before)) or 'none'}")
    if not own.dry_run:
        write(folder, texts, written, facts_of(operators, tree.settings(folder) if tree else ""), before)
        archs = f" CUDA_ARCHS={shlex.quote(request.cuda_archs)}" if request.cuda_archs else ""
        build = f"make develop NATIVE={shlex.quote(str(folder))} PYTHON={shlex.quote(request.python)}{archs}"
        say(f"wrote {folder}\nthen: {build}")
    return Report(report_of(operators))


def _asked(folder: Path, own: argparse.Namespace) -> Asked:
    """Return the options from the folder's adopt.toml and the command line."""
    methods = () if own.methods is None else tuple(own.methods) or ("all",)
    source, modules = _source_in(own.modules, folder)
    given = {"source": source, "modules": modules, "prefix": own.prefix, "methods": methods}
    given |= {name: tuple(getattr(own, name)) for name in ("only", "except_", "own")}
    asked = with_given(read_asked(folder), given)
    if not asked.modules and not asked.source:
        raise UsageError(
            "no package is given",
            todo="name one that is installed, or a source tree: `make adopt PACKAGE=torchvision NATIVE=~/my_ops`",
        )
    return asked


def _source_in(words: Sequence[str], folder: Path) -> tuple[str, tuple[str, ...]]:
    """Return the source tree that the first word names, relative to ``folder``, or an empty string; and the modules."""
    if not words or not is_tree(words[0]):
        return "", tuple(words)
    tree = expanded(words[0])
    if not tree.is_dir():
        raise UsageError(
            f"{words[0]}: no such folder", todo="give the folder of the extension's setup.py, or a package"
        )
    return os.path.relpath(tree, folder), tuple(words[1:])


def _found(request: Request, asked: Asked, tree: Tree | None) -> tuple[Base, Mapping[str, Any]]:
    """Return the base of the installed torch, and the answer of ``child.py`` about the extension."""
    environment, folder = find_environment(request.python), request.native[0]
    layout = layout_on(request.layout, environment)
    if tree:
        tree.require_imports(asked.modules, environment.python)
    with ExitStack() as stack:
        site = [stack.enter_context(tree.built(request))] if tree else []
        stack.enter_context(build_lock(layout.base))
        base = base_of(environment, layout.base)
        with Steps().step("ask the dispatcher"):
            found = {**ask(environment, base, layout, asked, folder, site, [*tree.extensions] if tree else ())}
    if tree:
        found["libraries"] = tree.libraries
    if mistakes := found["functions"]["mistakes"]:
        raise UsageError("\n".join(f"{folder / FILE}: {each}" for each in mistakes), todo="correct it")
    if not found["operators"] and not found["functions"]["needs"]:
        left_out = lines_of_left_out(found["functions"]["left_out"])
        raise UsageError(
            "\n".join([f"{' '.join(asked.modules)}: importing it registers no operator", *left_out]),
            cause="" if left_out else "a module that it does not import may register them",
            todo="name that module, too: `graft adopt their_package their_package.ops`",
        )
    return base, found


def _author_files(
    folder: Path, asked: Asked, found: Mapping[str, Any], tree: Tree | None, before: Mapping[str, Any]
) -> dict[str, str]:
    """Return the texts for the author's files: adopt.toml if the options changed, pyproject.toml if there is none."""
    file, project = folder / FILE, folder / PROJECT
    texts = {}
    if asked != read_asked(folder):
        texts[FILE] = asked.text(file.read_text(encoding="utf-8") if file.is_file() else "")
    settings = tree.settings(folder) if tree else ""
    needed = dependencies_of(asked, found, tree.requires if tree else ())
    above = None if project.is_file() else settings_of(folder).file
    if above:
        more = f"; its [project] dependencies need: {', '.join(needed)}" if needed else ""
        say(f"{above} has the settings of this folder{more}")
    elif not project.is_file():
        texts[PROJECT] = project_text(folder, asked, found, settings, needed)
    elif before.get("settings", "") != hash_of(settings.encode()):
        say(f"{project}: the extension's build now says something else:\n{settings}")
    return texts


def _planned(
    tree: Path, asked: Asked, found: Mapping[str, Any], before: Mapping[str, Any], others: Sequence[Path]
) -> dict[str, Any]:
    """Return the plan for each operator, and the texts of the files. Names in the folders ``others`` are taken."""
    ours = {each["function"] for each in before.get("operators", {}).values()}
    theirs = {name for folder in others for name in _names_in(folder / FUNCTIONS)}
    request = {
        **{key: found[key] for key in ("operators", "libraries", "functions")},
        "taken": sorted({*found["taken"]} - ours | theirs),
        "modules": asked.modules,
        **{key: getattr(asked, key) for key in ("only", "except_", "names", "prefix", "methods", "own", "writes")},
    }
    with TemporaryDirectory(prefix="graft-adopt-") as folder:
        file = Path(folder) / "request.json"
        (file.parent / "trial").mkdir()
        file.write_text(json.dumps(request), encoding="utf-8")
        done = run_with_torchgen(tree, "graft.adopt", tree, file)
    if done.returncode:
        raise BugError(done.stdout.strip()[-4000:])
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if unknown := answer["unknown"]:
        lines = [f"{name}: the extension has no such operator; {nearest(name, answer['known'])}" for name in unknown]
        raise UsageError("\n".join(lines), todo=f"correct what was given, or the lines of {FILE}")
    return answer


def _developed(python: str, folder: Path) -> list[Path]:
    """Return the other native folders that `make develop` added to the torch of a Python."""
    note = note_of(current_tree(find_site(python)[0]))
    return [path for each in note.get("natives", []) if (path := Path(each)) != folder]


def _names_in(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    return re.findall(r"^- func: (\w+)", text, re.M)
