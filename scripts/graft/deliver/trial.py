"""Import torch from a new tree in a fresh process, before the tree is used: what a folder adds to Python may fail.

PyTorch loads thin wheels there, too, as it will for the user.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ..base.base import VERSION_FILE
from ..base.installed import Environment
from ..core.console import say
from ..core.errors import PackError
from ..core.process import run
from ..inputs.native import PYTHON, NativeFolders
from .develop import developed, note_of

# The last lines of an error that no line of the folder causes.
_SHOWN = 20

# Printed with the name of a module before its error.
_FAILED = "cannot import:"

# A thin wheel's load.py says so in a line with the reason.
_NOT_ADDED = "its operators were not added to torch"

# An editable install builds nothing meanwhile: it would wait for this build.
_VARIABLES = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1", "GRAFT_EDITABLE_REBUILD": "0"}

_PROGRAM = """
import importlib, sys
sys.path.insert(0, {folder!r})
for name in {modules!r}:
    try:
        importlib.import_module(name)
    except BaseException:
        print({failed!r} + name, flush=True)
        raise
"""


def require_import(environment: Environment, tree: Path, natives: NativeFolders) -> None:
    """Check that torch and the modules that the folder adds to can be imported from ``tree``, unless its Python files
    are those of the current tree. Of the modules, those that differ: torch may import them long after. Repeat what
    thin wheels print that are not loaded.

    Raises:
        PackError: one cannot be; with the line of the native folder that fails.
    """
    new, old = _python(note_of(tree)), _python(developed(environment))
    if new == old:
        return  # an import takes longer than a kernel
    files = [f"torch/{name.relative_to(PYTHON).as_posix()}" for name in natives.python if name.suffix == ".py"]
    modules = ["torch", *(_module(name) for name in files if new.get(name) != old.get(name))]
    done = _import(environment, tree, modules)
    every = done.stdout.strip().splitlines()
    if done.returncode == 0:
        for line in every:
            if _NOT_ADDED in line:
                say(line)
        return
    failed = next((line.partition(":")[2] for line in every if line.startswith(_FAILED)), "torch")
    lines = [line for line in every if not line.startswith(_FAILED)]
    lines = lines or [f"it printed nothing, and ended with {done.returncode}"]
    frames = re.findall(rf'File "{re.escape(str(tree))}/(.+?)", line (\d+)', done.stdout)
    places = [place for name, line in frames if (place := _place(tree, name, int(line), natives))]
    there = [_module(name) for name in ["torch/__init__.py", *files] if (environment.site / name).is_file()]
    if not places and failed in there and _import(environment, environment.site, [failed]).returncode != 0:
        return  # so does the installed torch: what it needs is elsewhere, in PYTHONPATH, or not installed
    what = f"{places[-1]}: {lines[-1]}" if places else "\n".join(lines[-_SHOWN:])
    raise PackError(what, cause=f"`import {failed}` fails with this", todo="correct it; torch is as it was before")


def _module(file: str) -> str:
    """Return the name of the module in a file."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _import(environment: Environment, folder: Path, modules: list[str]) -> subprocess.CompletedProcess[str]:
    program = _PROGRAM.format(folder=str(folder), modules=modules, failed=_FAILED)
    return run([environment.python, "-I", "-B", "-c", program], check=False, env=_VARIABLES)


def _python(note: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the hashes of a tree's own Python files but that of the version, which always differs."""
    files = note.get("files", {})
    return {name: files[name] for name in files if name.endswith(".py") and name != VERSION_FILE}


def _place(tree: Path, name: str, line: int, natives: NativeFolders) -> str:
    """Return the user's file and line that a line of a file in the tree comes from; empty if of none."""
    own = PYTHON / Path(name).relative_to("torch") if name.startswith("torch/") else Path(name)
    for path, text in natives.texts(own).items() if own in natives.python else ():
        before = (tree / name).read_text(encoding="utf-8").partition(text)[0].count("\n")
        if 0 < line - before <= text.count("\n") + 1:
            return f"{path}:{line - before}"
    return ""
