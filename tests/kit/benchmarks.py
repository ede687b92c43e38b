"""``make bench`` and ``make bench-peers``: run measurements with the rebuilt wheel, in an environment of their own."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from graft.core.console import say
from graft.core.environments import install
from graft.core.errors import CommandError, MissingError
from graft.core.files import Layer
from graft.core.layout import HOME, REPOSITORY
from graft.options import Request
from graft.verbs import build, of_checkout, thin_wheel

from .builds import DEVELOP, bench_build, conditions
from .environments import base_wheel_of, environment_in, folder_of, run_python, wheel_environment, wheel_of
from .markdown import markdown_table, write_figures
from .processor import machine

REQUIREMENTS = REPOSITORY / "tests/kit/bench/requirements.txt"

# glibc would return the memory of a large tensor to the system, depending on its position, and the next call would get
# it again page by page. That can take longer than the call.
_VARIABLES = {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_MAX_": "0"}

# The comparison with other ways to add an operator has these rows of `make bench-build`, in its order, and columns.
_ROWS = (f"{DEVELOP}, kernel edited", f"{DEVELOP}, operator added")
_ORDER = ("graft", "custom_op", "extension")

# Rows of both tables, by the names of figures in bench/.
_CALLS = {"call, one element": "plain", "call that autograd records": "recorded"}
_SECONDS = {"first operator": "first", "kernel edited": "edit"}

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


def bench_peers(request: Request, given: argparse.Namespace) -> None:
    """Compare builds and calls of Graft with ``torch.library.custom_op`` and a C++ extension, for an operator that is
    in ``native/``; and ``graft.load_inline`` with PyTorch's ``load_inline``. Print tables in Markdown; ``--write``
    also writes them into the page of figures.
    """
    build(request)
    layout = request.layout
    title = conditions(layout)
    with wheel_environment(layout, "bench", wheel_of(layout), REQUIREMENTS) as python:
        found = _printed(python, "tests.kit.bench.peers")
    out = HOME / "bench-peers"  # users install what is in theirs
    wheel = thin_wheel(replace(request, out=out, name="peers")).path
    rows = bench_build(request, only=_ROWS, repeat=None)
    builds = [f"{statistics.median(row.seconds):.0f} s ({row.cpu:.0f})" for row in rows]
    folder, requirements = folder_of("bench-inline", layout), REPOSITORY / "scripts/requirements.txt"
    with environment_in(folder, base_wheel_of(layout), requirements) as python:  # the official torch
        inline = inline_table(_printed(python, "tests.kit.bench.inline", str(HOME / "bench-load.svg")))
    peers = table(found, builds, wheel.stat().st_size)
    print(f"\n{title}:\n\n{peers}\n{inline}", end="")
    if given.write:
        write_figures("calls", peers, machine())
        write_figures("inline", inline, machine())


def _printed(python: Path, module: str, *arguments: str) -> dict[str, Any]:
    """Run a module. Return what its last line says, as JSON."""
    lines: list[str] = []
    if run_python(python, ["-m", module, *arguments], {}, lines.append):
        raise CommandError(f"{module} failed", cause="".join(lines[-40:]))
    return json.loads(lines[-1])


def inline_table(found: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Format a Markdown table of the output of bench/inline.py: medians."""
    ways = [{name: statistics.median(each[name] for each in found[way]) for name in found[way][0]} for way in _INLINE]
    lines = [
        ("in the running process", *_INLINE.values()),
        ("---", *["--:"] * len(_INLINE)),
        *((what, *(f"{way[key]:.1f} s ({way[f'{key} cpu']:.0f})" for way in ways)) for what, key in _SECONDS.items()),
        *((what, *(_time(way, key) for way in ways)) for what, key in _CALLS.items()),
    ]
    return markdown_table(lines)


def table(found: Mapping[str, Any], builds: Sequence[str], thin: int) -> str:
    """Format a Markdown table with a row for each figure.

    Args:
        found: the output of bench/peers.py.
        builds: the times of ``_ROWS``.
        thin: the bytes of the thin wheel.
    """
    extension = found["built"]
    kernel, operator = builds
    seconds = f"{extension['seconds']:.0f} s ({extension['cpu']:.0f})"
    lines = [
        ("", "Graft", "`torch.library.custom_op`", "`TORCH_LIBRARY` extension"),
        ("---", "--:", "--:", "--:"),
        *((what, *(_time(found[name], key) for name in _ORDER)) for what, key in _CALLS.items()),
        ("kernel edited, until it can be imported", kernel, "0 s", seconds),
        ("operator added, until it can be imported", operator, "0 s", seconds),
        ("size shipped", f"{thin / 1e6:.1f} MB, of `native/`", "none", f"{extension['bytes'] / 1e6:.1f} MB"),
    ]
    return markdown_table(lines)


def _time(figures: Mapping[str, float], kind: str) -> str:
    """Format the time of a call, also as a multiple of torch.digamma's."""
    return f"{figures[kind] * 1e6:.1f} us ({figures[f'{kind} ratio']:.1f})"
