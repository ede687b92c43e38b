"""The builder's side of the checks: run them in a process that can import the base's torchgen."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..common.console import say
from ..common.errors import OperatorError
from ..common.layout import REPOSITORY
from ..common.process import run


def check_native(natives: Sequence[Path], base_tree: Path) -> None:
    """Check native folders against the base; print warnings.

    Raises:
        OperatorError: naming every mistake, each as ``file:line: what is wrong; what to write instead``.
    """
    command: list[str | Path] = [sys.executable, "-m", "scripts.check", "--base", base_tree, "--native", *natives]
    paths = os.pathsep.join([str(REPOSITORY), str(base_tree)])
    done = run(command, env={"PYTHONPATH": paths}, check=False)
    output = done.stdout.strip()
    if done.returncode != 0:
        raise OperatorError(output)
    if output:
        say(output)
