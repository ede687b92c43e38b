"""``graft adopt``: write a native folder with the operators of an extension."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..base.base import run_with_torchgen
from ..base.installed import base_of, find_environment, layout_on
from ..core.bugs import BugError
from ..core.console import Steps, say
from ..core.errors import UsageError
from ..core.files import build_lock, read_json
from ..core.keys import FILE as PROJECT
from ..inputs.native import DERIVATIVES, FUNCTIONS
from ..new.skeleton import write_all
from ..options import Request
from .asked import FILE, Asked, read_asked, with_given
from .dispatcher import ask
from .project import project_text
from .table import changes, report_of, shown

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
    environment = find_environment(request.python)
    layout, steps = layout_on(request.layout, environment), Steps()
    with build_lock(layout.base):
        base = base_of(environment, layout.base)
        with steps.step("ask the dispatcher"):
            found = ask(environment, base, layout, asked)
    functions = found["functions"]
    if functions["mistakes"]:
        raise UsageError("\n".join(f"{folder / FILE}: {each}" for each in functions["mistakes"]), todo="correct it")
    if not found["operators"] and not functions["needs"]:
        raise UsageError(
            f"{' '.join(asked.modules)}: importing it registers no operator",
            cause="a module that it does not import may register them",
            todo="name that module, too: `graft adopt their_package their_package.ops`",
        )
    with steps.step("write entries and kernels"):
        answer = _planned(base.tree, asked, found, before)
    operators = answer["operators"]
    texts = {
        **answer["files"],
        **({} if asked == read_asked(folder) else {FILE: asked.text()}),
        **({} if (folder / PROJECT).is_file() else {PROJECT: project_text(folder, asked, found)}),
    }
    say(shown(operators, functions["left_out"]))
    if told := changes(before.get("operators", {}), operators):
        say(told)
    if not own.dry_run:
        _write(folder, texts, operators, before)
        say(f"wrote {folder}\nthen: make develop NATIVE={folder} PYTHON={request.python}")
    return Told(report_of(operators))


def _asked(folder: Path, own: argparse.Namespace) -> Asked:
    methods = () if own.methods is None else tuple(own.methods) or ("all",)
    given = {"modules": tuple(own.modules), "prefix": own.prefix, "methods": methods, "own": tuple(own.own)}
    asked = with_given(read_asked(folder), given)
    if not asked.modules:
        raise UsageError(
            "no package is given", todo="name one that is installed: `graft adopt torchvision --native ~/my_ops`"
        )
    return asked


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
