"""``graft adopt``: write a native folder with the operators of an extension."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..base.base import Base, run_with_torchgen
from ..base.installed import base_of, find_environment, layout_on
from ..core.bugs import BugError
from ..core.console import Steps, say
from ..core.errors import UsageError
from ..core.files import build_lock, read_json
from ..core.keys import FILE as PROJECT
from ..core.layout import expanded
from ..inputs.native import DERIVATIVES, FUNCTIONS
from ..new.skeleton import write_all
from ..options import Request
from .asked import FILE, Asked, read_asked, with_given
from .builds import TheirBuild, their_build
from .dispatcher import ask
from .project import project_text
from .table import changes, report_of, shown
from .tree import built, libraries_of, modules_of, settings_text, written_files

# What adopt wrote, by file, and the operators: what a later run compares.
RECORD = "adopted.json"


# What is the author's once it is there.
AUTHORS = {PROJECT, str(DERIVATIVES)}


@dataclass(frozen=True)
class Told:
    """What became of the operators, for ``--report``."""

    report: list[dict[str, Any]]


def adopt(request: Request, own: argparse.Namespace) -> Told:
    """Write a native folder with an entry and a kernel for each operator of the extension, and print a table. The
    extension's code runs in a child process.
    """
    folder = request.native[0]
    before = _record_of(folder)
    asked = _asked(folder, own)
    build = their_build(folder / asked.source, request.python) if asked.source else None
    if build and not asked.modules:
        asked = replace(asked, modules=modules_of(build))
    base, found = _found(request, asked, build)
    with Steps().step("write entries and kernels"):
        answer = _planned(base.tree, asked, found, before)
    operators = answer["operators"]
    say(shown(operators, found["functions"]["left_out"]))
    if told := changes(before.get("operators", {}), operators):
        say(told)
    if not own.dry_run:
        texts = {**answer["files"], **_author_files(folder, asked, found, build)}
        _write(folder, texts, operators, before)
        say(f"wrote {folder}\nthen: make develop NATIVE={folder} PYTHON={request.python}")
    return Told(report_of(operators))


def _found(request: Request, asked: Asked, build: TheirBuild | None) -> tuple[Base, Mapping[str, Any]]:
    """Return the installed torch, and what the extension registers with it."""
    environment = find_environment(request.python)
    layout = layout_on(request.layout, environment)
    with ExitStack() as stack:
        site = [stack.enter_context(built(build, request))] if build else []
        stack.enter_context(build_lock(layout.base))
        base = base_of(environment, layout.base)
        with Steps().step("ask the dispatcher"):
            found = {**ask(environment, base, layout, asked, site)}
    if build:
        found["libraries"] = libraries_of(build)
    if mistakes := found["functions"]["mistakes"]:
        folder = request.native[0]
        raise UsageError("\n".join(f"{folder / FILE}: {each}" for each in mistakes), todo="correct it")
    if not found["operators"] and not found["functions"]["needs"]:
        raise UsageError(
            f"{' '.join(asked.modules)}: importing it registers no operator",
            cause="a module that it does not import may register them",
            todo="name that module, too: `graft adopt their_package their_package.ops`",
        )
    return base, found


def _author_files(folder: Path, asked: Asked, found: Mapping[str, Any], build: TheirBuild | None) -> dict[str, str]:
    """Return the files that are the author's once they are there, and what their build writes."""
    settings = settings_text(build, folder) if build else ""
    texts = {} if asked == read_asked(folder) else {FILE: asked.text()}
    project = folder / PROJECT
    if not project.is_file():
        texts[PROJECT] = project_text(folder, asked, found, settings)
    elif settings not in project.read_text(encoding="utf-8"):
        say(f"{project}: their build now says something else; delete this file, and adopt writes it anew")
    written = written_files(build) if build else {}
    return texts | {name: content.decode() for name, content in written.items()}


def _asked(folder: Path, own: argparse.Namespace) -> Asked:
    methods = () if own.methods is None else tuple(own.methods) or ("all",)
    source, modules = _source_in(own.modules, folder)
    given = {"source": source, "modules": modules, "prefix": own.prefix, "methods": methods, "own": tuple(own.own)}
    asked = with_given(read_asked(folder), given)
    if not asked.modules and not asked.source:
        raise UsageError(
            "no package is given",
            todo="name one that is installed, or a source tree: `graft adopt torchvision --native ~/my_ops`",
        )
    return asked


def _source_in(words: Sequence[str], folder: Path) -> tuple[str, tuple[str, ...]]:
    """Return the source tree that the first word names, seen from the folder, and the modules."""
    if not words or not ("/" in words[0] or words[0].startswith(("~", "."))):
        return "", tuple(words)
    tree = expanded(words[0])
    if not tree.is_dir():
        raise UsageError(
            f"{words[0]}: no such folder", todo="give the folder of the extension's setup.py, or a package"
        )
    return os.path.relpath(tree, folder), tuple(words[1:])


def _record_of(folder: Path) -> dict[str, Any]:
    """Return what adopt wrote into a folder before. A folder that others wrote is refused, and so are edited files."""
    record = read_json(folder / RECORD)
    if not record and (folder / FUNCTIONS).exists():
        raise UsageError(
            f"{folder / FUNCTIONS}: this folder has operators of its own",
            todo="set NATIVE to a new folder; builds take several",
        )
    edited = [
        folder / name
        for name, hash_ in record.get("files", {}).items()
        if (folder / name).is_file() and _hash((folder / name).read_text(encoding="utf-8")) != hash_
    ]
    if edited:
        raise UsageError(
            "\n".join(f"{file}: it was edited since `graft adopt` wrote it" for file in edited),
            todo="move the edits into another native folder, or delete the file; builds take several folders",
        )
    return record


def _planned(tree: Path, asked: Asked, found: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return what becomes of each operator, and the texts of the files."""
    ours = {each["function"] for each in before.get("operators", {}).values()}
    request = {
        **{key: found[key] for key in ("operators", "libraries", "functions")},
        "taken": sorted({*found["taken"]} - ours),
        "modules": asked.modules,
        "prefix": asked.prefix,
        "methods": asked.methods,
        "own": asked.own,
    }
    with TemporaryDirectory(prefix="graft-adopt-") as folder:
        file = Path(folder) / "request.json"
        (file.parent / "trial").mkdir()
        file.write_text(json.dumps(request), encoding="utf-8")
        done = run_with_torchgen(tree, "graft.adopt", tree, file)
    if done.returncode:
        raise BugError(done.stdout.strip()[-4000:])
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _write(
    folder: Path, texts: Mapping[str, str], operators: Sequence[Mapping[str, Any]], before: Mapping[str, Any]
) -> None:
    record = {
        "files": {name: _hash(text) for name, text in texts.items() if name not in {*AUTHORS, FILE}},
        "operators": {
            each["full"]: {key: each[key] for key in ("function", "entry", "schema", "signature")} for each in operators
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    texts = {name: text for name, text in texts.items() if name not in AUTHORS or not (folder / name).exists()}
    write_all(folder, {**texts, RECORD: json.dumps(record, indent=1)})
    for name in {*before.get("files", {})} - {*texts}:
        (folder / name).unlink(missing_ok=True)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
