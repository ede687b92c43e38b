"""Measure the cases of all operators, or of some. The Python of an environment with the rebuilt wheel runs this."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

from . import models, operators
from .case import Case
from .measure import measure
from .memory import keep_memory
from .processor import describe_processor
from .report import write_json, write_plot, write_summary, write_table


def main() -> None:
    """Measure and report. After each case the files contain the results so far."""
    options = _parser().parse_args()
    keep_memory()
    print(f"on {describe_processor()}")
    options.folder.mkdir(parents=True, exist_ok=True)
    results = []
    for case in _cases(options.operators):
        for threads in options.threads:
            result = measure(case, threads, options.rounds, options.seconds)
            results.append(result)
            told = f"{result.operator}, {result.name}, {result.step}, {threads} threads: {result.ratio:.2f}"
            print(f"{told} ({min(result.ratios):.2f} to {max(result.ratios):.2f}), aim {result.aim:g}", flush=True)
            write_json(results, options.folder / "bench.json")
            write_table(results, options.folder / "bench.md")
            write_summary(results, options.folder / "summary.md")
    write_plot(results, options.folder / "bench.svg")
    print(f"written to {options.folder}: bench.json, bench.md, summary.md, bench.svg")


def _cases(names: list[str]) -> Iterator[Case]:
    if not names or models.NAME in names:
        yield from models.cases()
    for module in pkgutil.iter_modules(operators.__path__):
        if not names or module.name in names:
            yield from importlib.import_module(f"{operators.__name__}.{module.name}").cases()


def _parser() -> argparse.ArgumentParser:
    known = [models.NAME, *(module.name for module in pkgutil.iter_modules(operators.__path__))]
    parser = argparse.ArgumentParser(prog="make bench ARGS=", description="Time operators and their alternatives.")
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help=f"all of {', '.join(known)} if none is named")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7, help="repetitions (%(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=0.1, help="seconds for one side in one repetition (%(default)s)"
    )
    parser.add_argument("--folder", type=Path, default=Path("build/bench-results"), help="the output folder")
    return parser


main()
