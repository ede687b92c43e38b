"""``graft show``: list what was added to the torch of an environment or a wheel. ``graft show OPERATOR``: show the code
generated from an entry of native_functions.yaml, by file.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any
from zipfile import BadZipFile, ZipFile

from .base.base import run_with_torchgen
from .base.installed import find_site, layout_of
from .core.console import say
from .core.errors import BuildError, CommandError, UsageError
from .core.files import build_lock
from .core.process import run
from .deliveries import job_of
from .inputs.snapshot import take_snapshot
from .options import Request

# The folder of the generated code, in the work folder.
_SHOWN = "show"
# The files of a wheel that describe what was added: to torch, and by a package for an installed torch.
_NOTES = ("_graft.json", "note.json")


def show(request: Request, own: argparse.Namespace) -> None:
    """Print where the operators with a name are declared, their kernels, and the files generated for them; or the code
    in one of these files. Without a name, print what was added to the torch of PYTHON, or to that in the file WHEEL.
    """
    if not own.operator:
        say(_wheel(request.wheel) if request.wheel else _environment(request.python))
        return
    layout, environment = layout_of(request)
    snapshot = take_snapshot(layout)
    with build_lock(layout.work):
        job = job_of(layout, snapshot, request, environment)
        folder, tree = layout.work / _SHOWN, job.base.tree
        given = tree, snapshot.note, own.operator, folder
        with job.steps.step("generate"):
            done = run_with_torchgen(tree, "graft.codegen.show", *given)
        if done.returncode != 0:
            raise CommandError("the code could not be generated", cause=done.stdout.strip()[-4000:])
        answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        raise BuildError(**answer["error"])
    say(text_in(folder, own.file, answer["files"]) if own.file else _table(folder, own.operator, answer))


def _environment(python: str) -> str:
    """Return what ``python -m torch._graft`` prints."""
    packages, site = find_site(python)
    if site is None:
        todo = "set PYTHON to the Python of an environment that has torch, or WHEEL to a wheel"
        raise UsageError(f"PYTHON={python}: no torch is installed there; its site-packages is {packages}", todo=todo)
    done = run([python, "-I", "-m", "torch._graft"], check=False)
    if done.returncode == 0:
        return done.stdout.strip()
    if "No module named torch._graft" in done.stdout:
        return f"{site}/torch: the official torch; nothing was added to it"
    raise CommandError(f"{site}/torch cannot be imported", cause=done.stdout.strip()[-4000:])


def _wheel(path: Path) -> str:
    """Return what was added to the torch in a wheel, or what a thin wheel adds."""
    lines = [str(path)]
    try:
        with ZipFile(path) as archive:
            for name in sorted(name for name in archive.namelist() if PurePath(name).name in _NOTES):
                note = json.loads(archive.read(name))
                listed = archive.read(str(PurePath(name).with_name("_added_operators.py"))).decode()
                lines += [f"{key:<11}{text}" for key, text in _described(note, listed) if text]
    except (OSError, BadZipFile) as error:
        raise UsageError(f"WHEEL={path}: {error}", todo="set WHEEL to a wheel that Graft has built") from error
    return "\n".join(lines if len(lines) > 1 else [*lines, "nothing was added to it"])


def _described(note: Mapping[str, Any], listed: str) -> Iterator[tuple[str, str]]:
    yield "delivery", str(note["delivery"])
    yield "base", f"torch {note['base']}"
    yield "hash", note["hash"]
    names: list[str] = ast.literal_eval(re.findall(r"^OPERATORS = (\[.*?\])$", listed, re.M | re.S)[0])
    roots = dict.fromkeys(name.partition("::")[2].partition(".")[0] for name in names)
    yield "operators", ", ".join(name for name in roots if not name.startswith("_"))
    yield "replaced", ", ".join(f"{name} ({', '.join(what)})" for name, what in note["replaced"].items())


def text_in(folder: Path, name: str, files: list[tuple[str, int, str]]) -> str:
    """Return the code of the generated files with this name, each from its first line about the operator.

    Raises:
        UsageError: no file has this name.
    """
    found = [each for each in files if f"/{each[0]}".endswith(f"/{name}") or Path(each[0]).stem == name]
    if not found:
        todo = f"name one of {', '.join(sorted({Path(path).name for path, *_ in files}))}"
        raise UsageError(f"{name}: no such file is generated", todo=todo)
    texts = []
    for path, line, purpose in found:
        lines = (folder / path).read_text(encoding="utf-8").splitlines()
        texts += [f"// {folder / path}:{line}: {purpose}", *lines[line - 1 :], ""]
    return "\n".join(texts)


def _table(folder: Path, name: str, answer: dict[str, Any]) -> str:
    lines = []
    for each in answer["operators"]:
        lines += [each["schema"], f"  entry    {each['entry']}"]
        if each["formula"]:
            lines.append(f"  formula  {each['formula']}: {each['node']}")
        if each["delegate"]:
            lines.append(f"  kernel   that of {each['delegate']}")
        lines += [f"  kernel   {kernel}: {', '.join(keys)}" for kernel, keys in each["kernels"].items()]
    lines.append(f"generated, in the order of a call, each from its line about {name}, in {folder}:")
    width = max(len(f"{path}:{line}") for path, line, _ in answer["files"])
    lines += [f"  {f'{path}:{line}':<{width}}  {purpose}" for path, line, purpose in answer["files"]]
    return "\n".join([*lines, "a file's name behind the operator's prints its code: VariableType.cpp, for example"])
