"""The environment in which the benchmarks run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from graft.core.console import say
from graft.core.environments import install
from graft.core.errors import CommandError, ToolchainError
from graft.core.files import Layer
from graft.core.layout import Layout

from ..environments import BENCH, run_python, wheel_environment, wheel_of

REQUIREMENTS = Path(__file__).with_name("requirements.txt")

# glibc would return the memory of a large tensor to the system, depending on its position, and the next call would get
# it again page by page. That can take longer than the call. The profiler, which measures memory, logs starts and stops.
_VARIABLES = {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_MAX_": "0", "KINETO_LOG_LEVEL": "99"}


def bench(layout: Layout, arguments: Sequence[str]) -> None:
    """Run the benchmarks with ``layout``'s wheel. They print to the terminal.

    Raises:
        CommandError: they failed.
    """
    wheel = Path(wheel_of(layout).wheel)
    torchvision = Layer(f"torchvision for {wheel.name}", partial(_add_torchvision, wheel))
    with wheel_environment(layout, BENCH, wheel, REQUIREMENTS, [torchvision]) as python:
        if run_python(python, ["-m", "tests.kit.bench", *arguments], _VARIABLES) != 0:
            raise CommandError("the benchmarks failed; earlier results are in build/bench-results")


def _add_torchvision(wheel: Path, environment: Path) -> None:
    """Install the torchvision that requires the torch of ``wheel``; pip determines its version."""
    torch = f"torch=={wheel.name.split('-')[1]}"
    try:
        install(environment, "torchvision", torch, what="torchvision")
    except ToolchainError as error:
        say(f"no torchvision for {torch}, so the models are left out: {error.cause}")
