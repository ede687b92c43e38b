"""The environment in which the benchmarks run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ...common.errors import CommandError
from ...common.layout import REPOSITORY, Layout
from ...testing.run import make_environment, wheel_of


def bench(layout: Layout, arguments: Sequence[str]) -> None:
    """Run the benchmarks with ``layout``'s wheel; what they print goes to the terminal.

    Raises:
        CommandError: they failed.
    """
    requirements = Path(__file__).with_name("requirements.txt")
    python = make_environment(REPOSITORY / "build/bench-environment", Path(wheel_of(layout).wheel), requirements)
    command: list[str | Path] = [python, "-m", "scripts.measure.bench", *arguments]
    # The profiler, which tells how much memory is used, else logs each time it starts and stops.
    env = {**os.environ, "KINETO_LOG_LEVEL": "99"}
    if subprocess.run(command, cwd=REPOSITORY, env=env, stdin=subprocess.DEVNULL, check=False).returncode != 0:
        raise CommandError("the benchmarks failed; what was measured before is in build/bench-results")
