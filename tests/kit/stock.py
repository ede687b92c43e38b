"""The official torch in a process of its own, for comparisons with the torch under test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# A module of every torch with operators of Graft.
MODULE = "torch._added_operators"

# Prints what Graft added to the torch of the process: operators, and that module.
_PROGRAM = f"""
import importlib.util, sys, torch
names = {{*torch._C._dispatch_get_all_op_names(), *([{MODULE!r}] if importlib.util.find_spec({MODULE!r}) else [])}}
print(*(name for name in sys.argv[1:] if name in names))
"""


def environment(stock: Path | None) -> dict[str, str]:
    """Return the variables of a process that imports the torch in the folder ``stock``; that under test if it is None.

    ``import torch`` loads the thin wheels of the environment into any torch, so it must not look for them.
    """
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**variables, "PYTHONPATH": str(stock), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} if stock else variables


def added_in(operators: Sequence[str], variables: Mapping[str, str]) -> set[str]:
    """Return those of ``operators``, and ``MODULE``, that the torch of a process with these variables has."""
    command = [sys.executable, "-c", _PROGRAM, MODULE, *operators]
    return set(subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True).stdout.split())


def require_difference(stock: Path, operators: Sequence[str]) -> None:
    """Check that the torch under test has the operators, and the one in ``stock`` has not: otherwise a comparison of
    the two cannot fail.
    """
    ours, theirs = (added_in(operators, environment(folder)) for folder in (None, stock))
    assert ours == {MODULE, *operators}, f"the torch under test lacks {sorted({MODULE, *operators} - ours)}"
    assert not theirs, f"the torch in {stock} has {sorted(theirs)}: it is not the official one"
