"""``make bench`` and ``make bench-peers``: run measurements with the rebuilt wheel, in an environment of their own."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from graft.core.console import say
from graft.core.environments import install
from graft.core.errors import CommandError, MissingError
from graft.core.files import Layer
from graft.core.layout import HOME, REPOSITORY, Layout
from graft.options import Request
from graft.verbs import build, of_checkout, thin_wheel

from .builds import DEVELOP, NOTHING, bench_build, conditions
from .environments import base_wheel_of, environment_in, folder_of, run_python, wheel_environment, wheel_of

REQUIREMENTS = REPOSITORY / "tests/kit/bench/requirements.txt"

# glibc would return the memory of a large tensor to the system, depending on its position, and the next call would get
# it again page by page. That can take longer than the call.
_VARIABLES = {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_MAX_": "0"}

# The comparison with other ways to add an operator has these rows of `make bench-build`, in its order, and columns.
_ROWS = (NOTHING, f"{DEVELOP}, kernel edited", f"{DEVELOP}, operator added")
_ORDER = ("graft", "custom_op", "extension")

# What builds from text in a running process, as bench/inline.py names it.
_INLINE = {
    "graft": "`graft.load_inline`",
    "typed": "`load_inline` of `torch.utils.cpp_extension`",
    "pch": "with `use_pch=True`",
    "no headers": "with `no_implicit_headers=True`",
}


def bench(request: Request, given: argparse.Namespace) -> None:
    """Run the benchmarks of operators. They print to the terminal."""
    live = of_checkout(request)
    live.require_something()
    request = live.request
    build(request)
    wheel = wheel_of(request.layout)
    torchvision = Layer(f"torchvision for {wheel.name}", partial(_add_torchvision, wheel))
    with wheel_environment(request.layout, "bench", wheel, REQUIREMENTS, [torchvision]) as python:
        if run_python(python, ["-m", "tests.kit.bench", *given.extra], _VARIABLES) != 0:
            raise CommandError("the benchmarks failed; earlier results are in build/bench-results")
    live.finish()


def _add_torchvision(wheel: Path, environment: Path) -> None:
    """Install the torchvision that requires the torch of ``wheel``; pip determines its version."""
    torch = f"torch=={wheel.name.split('-')[1]}"
    try:
        install(environment, "torchvision", torch, what="torchvision")
    except MissingError as error:
        say(f"no torchvision for {torch}, so the models are left out: {error.cause}")


def bench_peers(request: Request) -> None:
    """Compare builds and calls of Graft with ``torch.library.custom_op`` and a C++ extension, for an operator that is
    in ``native/``; and ``graft.load_inline`` with PyTorch's ``load_inline``. Print tables in Markdown, for a README.
    """
    build(request)
    layout = request.layout
    title, found = conditions(layout, request.jobs)["title"], _calls(layout)
    out = HOME / "bench-peers"  # users install what is in theirs
    wheel = thin_wheel(replace(request, out=out, name="peers", pins="")).path
    builds = [statistics.median(row.seconds) for row in bench_build(request, only=_ROWS, repeat=None)]
    inline = inline_table(_inline(layout))
    print(f"\n{title}:\n\n{table(found, builds, wheel.stat().st_size)}\n{inline}", end="")


def _calls(layout: Layout) -> dict[str, Any]:
    """Run bench/peers.py with the folder's wheel."""
    with wheel_environment(layout, "bench", wheel_of(layout), REQUIREMENTS) as python:
        command = [str(python), "-m", "tests.kit.bench.peers"]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode:
        raise CommandError("the calls could not be measured; see Python's output above")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _inline(layout: Layout) -> dict[str, Any]:
    """Run bench/inline.py with the official torch."""
    folder, requirements = folder_of("bench-inline", layout), REPOSITORY / "scripts/requirements.txt"
    lines: list[str] = []
    with environment_in(folder, base_wheel_of(layout), requirements) as python:
        code = run_python(python, ["-m", "tests.kit.bench.inline"], {}, lines.append)
    if code:
        raise CommandError("operators from text could not be measured", cause="".join(lines[-40:]))
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def inline_table(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Format a Markdown table of the output of bench/inline.py: medians."""

    def median(way: str, figure: Callable[[Mapping[str, Any]], float]) -> float:
        return statistics.median(map(figure, found[way]))

    def seconds(kind: str) -> list[str]:
        return [f"{median(way, itemgetter(kind)):.1f} s" for way in _INLINE]

    def calls(kind: str) -> list[str]:
        times = [median(way, lambda each: each["call"][kind]) * 1e6 for way in _INLINE]
        ratios = [median(way, lambda each: each["call"][kind] / each["digamma"][kind]) for way in _INLINE]
        return [f"{time:.1f} us ({ratio:.1f})" for time, ratio in zip(times, ratios, strict=True)]

    lines = [
        ("in the running process", *_INLINE.values()),
        ("---", *["--:"] * len(_INLINE)),
        ("first operator", *seconds("first")),
        ("kernel edited", *seconds("edit")),
        ("call, one element", *calls("plain")),
        ("call that autograd records", *calls("recorded")),
    ]
    return _markdown(lines)


def _markdown(lines: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def table(found: Mapping[str, Any], builds: Sequence[float], thin: int) -> str:
    """Format a Markdown table with a row for each figure.

    Args:
        found: the output of bench/peers.py.
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
    return _markdown(lines)


def _times(calls: Mapping[str, Mapping[str, float]], kind: str) -> list[str]:
    """Format the calls' times, also as multiples of torch.digamma's."""
    unit = calls["digamma"][kind]
    return [f"{calls[name][kind] * 1e6:.1f} us ({calls[name][kind] / unit:.1f})" for name in _ORDER]
