"""The environment in which the benchmarks run."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..layout import REPOSITORY, Layout
from ..run_tests import make_environment, wheel_of


def bench(layout: Layout, arguments: Sequence[str]) -> None:
    """Run the benchmarks with ``layout``'s wheel; what they print goes to the terminal."""
    requirements = Path(__file__).with_name("requirements.txt")
    python = make_environment(REPOSITORY / "build/bench-environment", Path(wheel_of(layout).wheel), requirements)
    command: list[str | Path] = [python, "-m", "scripts.bench", *arguments]
    subprocess.run(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, check=True)
