"""Measure the cases of all operators, or of some. The Python of an environment with the rebuilt wheel runs this."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch

from . import replaced
from .case import Case, measure
from .plot import write_plot
from .report import write_operators, write_results


def all_cases() -> Iterator[Case]:
    """Yield the cases of `native/`, if the wheel has its operators, and of what a folder replaces."""
    if hasattr(torch, "depthwise_conv2d"):
        from . import depthwise, models, operators, roi_pool

        for module in (models, operators, roi_pool, depthwise):
            yield from module.cases()
    yield from replaced.cases()


def main() -> None:
    """Measure and report. After each case the files contain the results so far."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=", description="Time operators and their alternatives.")
    parser.add_argument(
        "operators", nargs="*", metavar="OPERATOR", help="an operator, models or replaced; all if none is named"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7, help="repetitions (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.1, help="for one side in one repetition (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path("build/bench-results"), help="the output folder")
    parser.add_argument("--write", action="store_true", help="write the table of all operators into scripts/guides")
    options = parser.parse_args()
    if options.write and options.operators:
        parser.error("--write is for all operators")
    cases = list(all_cases())
    known = {case.operator: None for case in cases}
    if unknown := [name for name in options.operators if name not in known]:
        parser.error(f"{' '.join(unknown)}: no such operators; choose among {', '.join(known)}")
    if not cases:
        parser.error("there is nothing to compare: the wheel has none of the shipped operators, and replaces nothing")
    options.folder.mkdir(parents=True, exist_ok=True)
    results = []
    for case in [case for case in cases if case.operator in (options.operators or known)]:
        for threads in options.threads:
            result = measure(case, threads, options.rounds, options.seconds)
            results.append(result)
            least, most = min(result.ratios), max(result.ratios)
            print(f"{case.operator}, {case.name}, {case.step}, {threads} threads: {result.ratio:.2f}", end=" ")
            print(f"({least:.2f} to {most:.2f}), aim {case.aim:g}", flush=True)
            write_results(results, options.folder)
    write_plot(options.folder)
    if options.write:
        write_operators(results)
    print(f"written to {options.folder}: bench.json, bench.txt, bench.svg, overview.md, summary.md")


main()
