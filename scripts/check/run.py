"""The builder's side of the checks: run them in a process that can import the base's torchgen."""

from __future__ import annotations

from pathlib import Path

from ..base.torchgen import run_with_torchgen
from ..common.console import say
from ..common.errors import OperatorError


def check_native(native: Path, base_tree: Path) -> None:
    """Check ``native`` against the base; print warnings.

    Raises:
        OperatorError: naming every mistake, each as ``file:line: what is wrong; what to write instead``.
    """
    done = run_with_torchgen(base_tree, "scripts.check", "--base", base_tree, "--native", native)
    output = done.stdout.strip()
    if done.returncode != 0:
        raise OperatorError(output)
    if output:
        say(output)
