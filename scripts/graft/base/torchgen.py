"""Run a module of the builder in a process that imports a base's torchgen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..core.layout import BYTECODE, PACKAGES
from ..core.process import run


def torchgen_command(tree: Path, module: str, *arguments: str | Path) -> tuple[list[str | Path], dict[str, str]]:
    """Return the command ``python -m module arguments`` and the environment variables that it needs.

    Args:
        tree: the folder that holds ``torchgen``.
        module: for example ``graft.codegen``.
        arguments: the arguments of the module.
    """
    env = {"PYTHONPATH": os.pathsep.join([str(PACKAGES), str(tree)]), "PYTHONUTF8": "1"}
    # Not beside the sources: they may be those of an installed torch.
    env["PYTHONPYCACHEPREFIX"] = os.environ.get("PYTHONPYCACHEPREFIX") or str(BYTECODE)
    return [sys.executable, "-m", module, *arguments], env


def run_with_torchgen(
    tree: Path, module: str, *arguments: str | Path, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command of ``torchgen_command``. Return its result, whatever the exit code.

    Args:
        tree: the folder that holds ``torchgen``.
        module: for example ``graft.codegen``.
        arguments: the arguments of the module.
        cwd: the folder to run in. Python searches it for modules first, so it must not contain another torchgen.
    """
    command, env = torchgen_command(tree, module, *arguments)
    return run(command, cwd=cwd, env=env, check=False)
