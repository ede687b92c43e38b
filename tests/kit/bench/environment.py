"""The environment in which the benchmarks run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from graft.core.console import say
from graft.core.environments import Layer, install
from graft.core.errors import CommandError, ToolchainError
from graft.core.layout import Layout

from ..environments import BENCH, run_python, wheel_environment, wheel_of

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def bench(layout: Layout, arguments: Sequence[str]) -> None:
    """Run the benchmarks with ``layout``'s wheel. They print to the terminal.

    Raises:
        CommandError: they failed.
    """
    wheel = Path(wheel_of(layout).wheel)
    torchvision = Layer(f"torchvision for {wheel.name}", partial(_add_torchvision, wheel))
    with wheel_environment(layout, BENCH, wheel, REQUIREMENTS, [torchvision]) as python:
        # Otherwise the profiler, which measures memory, logs each start and stop.
        quiet = {"KINETO_LOG_LEVEL": "99"}
        if run_python(python, ["-m", "tests.kit.bench", *arguments], quiet) != 0:
            raise CommandError("the benchmarks failed; earlier results are in build/bench-results")


def _add_torchvision(wheel: Path, environment: Path) -> None:
    """Install the torchvision that requires the torch of ``wheel``; pip determines its version."""
    torch = f"torch=={wheel.name.split('-')[1]}"
    try:
        install(environment, "torchvision", torch, what="torchvision")
    except ToolchainError as error:
        say(f"no torchvision for {torch}, so the models are left out: {error.cause}")
