"""Run a module of the builder in a process that imports the torchgen of a tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..common.layout import REPOSITORY
from ..common.process import run


def torchgen_command(tree: Path, module: str, *arguments: str | Path) -> tuple[list[str | Path], dict[str, str]]:
    """The command of ``python -m module arguments``, and the variables that it needs.

    Args:
        tree: the folder that holds ``torchgen``.
        module: such as ``scripts.generate``.
        arguments: of the module.
    """
    env = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(tree)]), "PYTHONUTF8": "1"}
    if (tree / "torchgen").is_symlink():  # nothing is written into a torch that is installed
        env["PYTHONPYCACHEPREFIX"] = str(tree.parent / "pycache")
    return [sys.executable, "-m", module, *arguments], env


def run_with_torchgen(
    tree: Path, module: str, *arguments: str | Path, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run that command; return what it printed, whatever its exit code.

    Args:
        tree: the folder that holds ``torchgen``.
        module: such as ``scripts.generate``.
        arguments: of the module.
        cwd: the folder to run in. Python looks for modules there first, so it must not hold another torchgen.
    """
    command, env = torchgen_command(tree, module, *arguments)
    return run(command, cwd=cwd, env=env, check=False)
