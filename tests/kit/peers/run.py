"""``make bench-peers``: compare builds and calls of Graft with ``torch.library.custom_op`` and a C++ extension."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from graft.core.console import say
from graft.core.errors import CommandError
from graft.core.files import write_atomically
from graft.core.layout import REPOSITORY, Layout
from graft.thin import thin_wheel

from ..bench.environment import REQUIREMENTS
from ..builds import DEVELOP, bench_build, conditions
from ..edits import ADDED, KERNEL_EDITED
from ..environments import BENCH, wheel_environment, wheel_of

_FIRST = "from nothing"
_ROWS = {name: f"{DEVELOP}, {name}" for name in (KERNEL_EDITED, ADDED)} | {_FIRST: _FIRST}
_RESULTS = REPOSITORY / "build/bench-peers"

# The columns of the table.
_ORDER = ("graft", "custom_op", "extension")


def bench_peers(layout: Layout, *, base_wheel: Path | None, jobs: int, markdown: Path | None) -> None:
    """Measure, print a table and write it into ``markdown``.

    Args:
        layout: the pin, and the native folder to build; it has ``twice_plus``.
        base_wheel: path of the base wheel; None to download it with pip.
        jobs: the maximum number of compilers to run at once.
        markdown: a file for the table; None for none.

    Raises:
        CommandError: a measurement failed.
    """
    about = conditions(layout, jobs)
    found = _calls(layout)
    there = replace(layout, out=_RESULTS)  # users install what is in `out`
    wheel = thin_wheel(there, name="peers", version="0", python="", base_wheel=base_wheel, jobs=jobs).wheel
    text = f"{about['title']}:\n\n{table(found, _builds(layout, base_wheel, jobs), wheel.stat().st_size)}"
    print(f"\n{text}", end="")
    if markdown:
        write_atomically(markdown, text)
        say(f"written to {markdown}")


def _calls(layout: Layout) -> dict[str, Any]:
    """Run calls.py with the folder's wheel."""
    with wheel_environment(layout, BENCH, Path(wheel_of(layout).wheel), REQUIREMENTS) as python:
        command = [str(python), "-m", "tests.kit.peers.calls"]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode:
        raise CommandError("the calls could not be measured; see Python's output above")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _builds(layout: Layout, base_wheel: Path | None, jobs: int) -> dict[str, float]:
    """Return the median seconds of `make bench-build`'s rows."""
    result = _RESULTS / "builds.json"
    bench_build(
        layout,
        base_wheel=base_wheel,
        jobs=jobs,
        only=list(_ROWS.values()),
        repeat=None,
        folder=REPOSITORY / "build/bench",
        keep=False,
        result=result,
        markdown=None,
    )
    rows = json.loads(result.read_text(encoding="utf-8"))["rows"]
    medians = {row["name"]: row["median"] for row in rows}
    return {name: medians[row] for name, row in _ROWS.items()}


def table(found: Mapping[str, Any], builds: Mapping[str, float], thin: int) -> str:
    """Format a Markdown table with a row for each figure.

    Args:
        found: the output of calls.py.
        builds: seconds, by the names of ``_ROWS``.
        thin: the bytes of the thin wheel.
    """
    calls, extension = found["calls"], found["extension"]
    seconds = f"{extension['seconds']:.0f} s"
    lines = [
        ("", "Graft", "`torch.library.custom_op`", "`TORCH_LIBRARY` extension"),
        ("---", "--:", "--:", "--:"),
        ("call, one element", *_times(calls, "plain")),
        ("call that autograd records", *_times(calls, "recorded")),
        ("kernel edited, until it can be imported", f"{builds[KERNEL_EDITED]:.0f} s", "0 s", seconds),
        ("operator added, until it can be imported", f"{builds[ADDED]:.0f} s", "0 s", seconds),
        ("first build", f"{builds[_FIRST]:.0f} s, of `native/`", "0 s", seconds),
        ("size shipped", f"{thin / 1e6:.1f} MB, of `native/`", "none", f"{extension['bytes'] / 1e6:.1f} MB"),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _times(calls: Mapping[str, Mapping[str, float]], kind: str) -> list[str]:
    """Format the calls' times, also as multiples of torch.digamma's."""
    unit = calls["digamma"][kind]
    return [f"{calls[name][kind] * 1e6:.1f} us ({calls[name][kind] / unit:.1f})" for name in _ORDER]
