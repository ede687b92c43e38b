"""``graft show OPERATOR``: show the code generated from an entry of native_functions.yaml, by file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .base.base import run_with_torchgen
from .base.installed import layout_of
from .core.console import say
from .core.errors import BuildError, CommandError, UsageError
from .core.files import build_lock
from .deliveries import job_of
from .inputs.snapshot import take_snapshot
from .options import Request

# The folder of the generated code, in the work folder.
_SHOWN = "show"


def show(request: Request, own: argparse.Namespace) -> None:
    """Print where the operators with a name are declared, their kernels, and the files generated for them; or the code
    in one of these files.
    """
    if not own.operator:
        todo = "name one, such as relu or torch.fft.rfft2; its file's name behind it prints the code"
        raise UsageError("there is no operator to show", todo=todo)
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
