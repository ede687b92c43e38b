"""Run a module of the builder in a process that imports the torchgen of a tree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..common.layout import REPOSITORY
from ..common.process import run


def run_with_torchgen(
    tree: Path, module: str, *arguments: str | Path, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m module arguments``; return what it printed, whatever its exit code.

    Args:
        tree: the folder that holds ``torchgen``.
        module: such as ``scripts.generate``.
        arguments: of the module.
        cwd: the folder to run in. Python looks for modules there first, so it must not hold another torchgen.
    """
    env = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(tree)]), "PYTHONUTF8": "1"}
    return run([sys.executable, "-m", module, *arguments], cwd=cwd, env=env, check=False)
