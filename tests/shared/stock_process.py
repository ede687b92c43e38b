"""Programs in a process of their own, with the official torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from graft.core.layout import PACKAGE
from helpers import of_the_base_wheel

from tests.kit.stock import environment


def run(program: Path, *arguments: str, **variables: str) -> Any:
    """Run a program with the official torch and graft. Return what its last line says, as JSON."""
    stock = environment(of_the_base_wheel("GRAFT_STOCK"))
    paths = os.pathsep.join([stock["PYTHONPATH"], str(PACKAGE.parent)])
    command = [sys.executable, "-W", "error:::graft", str(program), *arguments]
    done = subprocess.run(
        command, env={**stock, "PYTHONPATH": paths, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
