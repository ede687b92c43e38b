"""The environment in which the benchmarks run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...common.errors import CommandError
from ...common.layout import Layout
from ...testing.environments import BENCH, run_python, wheel_environment, wheel_of


def bench(layout: Layout, arguments: Sequence[str]) -> None:
    """Run the benchmarks with ``layout``'s wheel; what they print goes to the terminal.

    Raises:
        CommandError: they failed.
    """
    requirements = Path(__file__).with_name("requirements.txt")
    with wheel_environment(layout, BENCH, Path(wheel_of(layout).wheel), requirements) as python:
        # The profiler, which tells how much memory is used, else logs each time it starts and stops.
        quiet = {"KINETO_LOG_LEVEL": "99"}
        if run_python(python, ["-m", "scripts.measure.bench", *arguments], quiet) != 0:
            raise CommandError("the benchmarks failed; what was measured before is in build/bench-results")
