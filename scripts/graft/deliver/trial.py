"""Import torch from a new tree in a fresh process before the tree is used: the folder's Python code may fail.

PyTorch loads thin wheels there, too, as it will for the user.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ..base.base import VERSION_FILE
from ..base.installed import Environment
from ..compose.package import module_of
from ..core.console import say
from ..core.errors import BuildError
from ..core.process import run
from ..inputs.native import PYTHON, NativeFolders
from .develop import current_tree, note_of

# How many lines are shown of an error that no line of the folder causes.
_SHOWN = 20

# Printed with the name of a module before its error.
_FAILED = "cannot import:"

# A thin wheel that is not loaded prints a line with this and the reason.
_NOT_ADDED = "its operators were not added to torch"

# Modules below this need packages that torch does not.
_OF_TESTS = "torch/testing/"

# Editable installs must not build: they would wait for this build.
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
    """Check that torch can be imported from ``tree``, and so can each module of the folder that differs from the
    current tree's: torch may import it later. If no Python file changed, import nothing. Print the messages about thin
    wheels that are not loaded.
    """
    new, old = _python(note_of(tree)), _python(note_of(current_tree(environment.packages)))
    if new == old:
        return  # an import takes longer than compiling a kernel
    files = [f"torch/{name.relative_to(PYTHON).as_posix()}" for name in natives.python if name.suffix == ".py"]
    laid_over = [name for name in natives.overlay if name.endswith(".py") and not name.startswith(_OF_TESTS)]
    files += laid_over
    modules = ["torch", *(module_of(name) for name in files if new.get(name) != old.get(name))]
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
    there = [module_of(name) for name in ["torch/__init__.py", *files] if (environment.site / name).is_file()]
    may_be_theirs = not places or failed in map(module_of, laid_over)
    if may_be_theirs and failed in there and _import(environment, environment.site, [failed]).returncode != 0:
        return  # the installed torch fails, too: what it needs is in PYTHONPATH, or not installed
    what = f"{places[-1]}: {lines[-1]}" if places else "\n".join(lines[-_SHOWN:])
    raise BuildError(what, cause=f"`import {failed}` fails with this", todo="correct it; torch is as it was before")


def _import(environment: Environment, folder: Path, modules: list[str]) -> subprocess.CompletedProcess[str]:
    program = _PROGRAM.format(folder=str(folder), modules=modules, failed=_FAILED)
    return run([environment.python, "-I", "-B", "-c", program], check=False, env=_VARIABLES)


def _python(note: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the hashes of a tree's own Python files, except for the version file, which always differs."""
    files = note.get("files", {})
    return {name: files[name] for name in files if name.endswith(".py") and name != VERSION_FILE}


def _place(tree: Path, name: str, line: int, natives: NativeFolders) -> str:
    """Return the user's file and line from which a line of a file in the tree comes; empty if it is not the user's."""
    if name in natives.overlay:
        user, copy = natives.overlay[name]
        if line <= copy.read_text(encoding="utf-8").count("\n"):
            return f"{user}:{line}"
    own = PYTHON / Path(name).relative_to("torch") if name.startswith("torch/") else Path(name)
    for path, text in natives.texts(own).items() if own in natives.python else ():
        before = (tree / name).read_text(encoding="utf-8").partition(text)[0].count("\n")
        if 0 < line - before <= text.count("\n") + 1:
            return f"{path}:{line - before}"
    return ""
