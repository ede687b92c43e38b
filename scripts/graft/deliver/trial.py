"""Import torch from a new tree in a fresh process, before the tree is used: what a folder adds to Python may fail."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ..base.base import VERSION_FILE
from ..base.installed import Environment
from ..core.errors import PackError
from ..core.process import run
from ..inputs.native import PYTHON, NativeFolder
from .develop import developed, note_of

# The last lines of an error that no line of the folder causes.
_SHOWN = 20


def require_import(environment: Environment, tree: Path, native: NativeFolder) -> None:
    """Check that ``import torch`` works with ``tree``, unless its Python files are those of the current tree.

    Raises:
        PackError: it does not; with the line of the native folder that fails.
    """
    if _python(note_of(tree)) == _python(developed(environment)):
        return  # an import takes longer than a kernel
    done = _import(environment, tree)
    if done.returncode == 0:
        return
    lines = done.stdout.strip().splitlines() or [f"it printed nothing, and ended with {done.returncode}"]
    frames = re.findall(rf'File "{re.escape(str(tree))}/(.+?)", line (\d+)', done.stdout)
    places = [place for name, line in frames if (place := _place(tree, name, int(line), native))]
    if not places and _import(environment, environment.site).returncode != 0:
        return  # so does the installed torch: what it needs is elsewhere, in PYTHONPATH
    what = f"{places[-1]}: {lines[-1]}" if places else "\n".join(lines[-_SHOWN:])
    raise PackError(what, cause="`import torch` fails with this", todo="correct it; torch is as it was before")


def _import(environment: Environment, folder: Path) -> subprocess.CompletedProcess[str]:
    program = f"import sys; sys.path.insert(0, {str(folder)!r}); import torch"
    return run([environment.python, "-I", "-B", "-c", program], check=False, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})


def _python(note: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the hashes of a tree's own Python files but that of the version, which always differs."""
    files = note.get("files", {})
    return {name: files[name] for name in files if name.endswith(".py") and name != VERSION_FILE}


def _place(tree: Path, name: str, line: int, native: NativeFolder) -> str:
    """Return the file and line of the native folder that a line of a file in the tree comes from; empty if of none."""
    own = PYTHON / Path(name).relative_to("torch") if name.startswith("torch/") else Path(name)
    if own not in native.python:
        return ""
    text = (native.path / own).read_text(encoding="utf-8")
    before = (tree / name).read_text(encoding="utf-8").partition(text)[0].count("\n")
    is_within = 0 < line - before <= text.count("\n") + 1
    return f"{native.path / own}:{line - before}" if is_within else ""
