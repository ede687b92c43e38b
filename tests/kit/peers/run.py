"""``make bench-peers``: compare builds and calls of Graft with ``torch.library.custom_op`` and a C++ extension."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from graft.build import Thin, run
from graft.core.errors import CommandError
from graft.core.layout import REPOSITORY, Layout
from graft.options import Request

from ..bench.environment import REQUIREMENTS
from ..builds import DEVELOP, NOTHING, bench_build, conditions
from ..environments import BENCH, wheel_environment, wheel_of

# Rows of `make bench-build`, in its order.
_ROWS = (NOTHING, f"{DEVELOP}, kernel edited", f"{DEVELOP}, operator added")

# The columns of the table.
_ORDER = ("graft", "custom_op", "extension")


def bench_peers(request: Request) -> None:
    """Measure, and print a table in Markdown, for a README.

    Args:
        request: the pin, and the native folder to build; it has ``twice_plus``.

    Raises:
        CommandError: a measurement failed.
    """
    layout = request.layout
    title, found = conditions(layout, request.jobs)["title"], _calls(layout)
    there = replace(layout, out=REPOSITORY / "build/bench-peers")  # users install what is in `out`
    wheel = run(Thin(there, None, "peers", "0"), request).path
    rows = bench_build(request, only=_ROWS, repeat=None)
    builds = [statistics.median(row.seconds) for row in rows]
    print(f"\n{title}:\n\n{table(found, builds, wheel.stat().st_size)}", end="")


def _calls(layout: Layout) -> dict[str, Any]:
    """Run calls.py with the folder's wheel."""
    with wheel_environment(layout, BENCH, Path(wheel_of(layout).wheel), REQUIREMENTS) as python:
        command = [str(python), "-m", "tests.kit.peers.calls"]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode:
        raise CommandError("the calls could not be measured; see Python's output above")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def table(found: Mapping[str, Any], builds: Sequence[float], thin: int) -> str:
    """Format a Markdown table with a row for each figure.

    Args:
        found: the output of calls.py.
        builds: the seconds of ``_ROWS``.
        thin: the bytes of the thin wheel.
    """
    calls, extension = found["calls"], found["extension"]
    first, kernel, operator = (f"{seconds:.0f} s" for seconds in builds)
    seconds = f"{extension['seconds']:.0f} s"
    lines = [
        ("", "Graft", "`torch.library.custom_op`", "`TORCH_LIBRARY` extension"),
        ("---", "--:", "--:", "--:"),
        ("call, one element", *_times(calls, "plain")),
        ("call that autograd records", *_times(calls, "recorded")),
        ("kernel edited, until it can be imported", kernel, "0 s", seconds),
        ("operator added, until it can be imported", operator, "0 s", seconds),
        ("first build", f"{first}, of `native/`", "0 s", seconds),
        ("size shipped", f"{thin / 1e6:.1f} MB, of `native/`", "none", f"{extension['bytes'] / 1e6:.1f} MB"),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _times(calls: Mapping[str, Mapping[str, float]], kind: str) -> list[str]:
    """Format the calls' times, also as multiples of torch.digamma's."""
    unit = calls["digamma"][kind]
    return [f"{calls[name][kind] * 1e6:.1f} us ({calls[name][kind] / unit:.1f})" for name in _ORDER]
