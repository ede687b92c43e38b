"""Write the results: JSON for programs, tables, a plot of the ratios."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.benchmark import Compare

from ..processor import describe_processor
from .case import Result

# Of what is measured forward and backward, and of models.
_STEPS = ("forward", "backward", "inference", "training")


def write_results(results: Sequence[Result], folder: Path) -> None:
    """Write all but the plot: ``bench.json``, ``bench.txt`` with the times, and the README's ``summary.md``."""
    about = {
        "torch": torch.__version__,
        "processor": describe_processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cases": [_as_json(result) for result in results],
    }
    (folder / "bench.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    times = Compare([measured for result in results for measured in result.measurements])
    (folder / "bench.txt").write_text(str(times), encoding="utf-8")
    conditions = f"torch {torch.__version__} on {describe_processor()}\n\n"
    (folder / "summary.md").write_text(conditions + summary(results), encoding="utf-8")


def _as_json(result: Result) -> dict[str, Any]:
    described = {name: value for name, value in vars(result.case).items() if not callable(value)}
    ours, peer = (min(m.median for m in result.measurements[side::2]) for side in (0, 1))
    figures = {"threads": result.threads, "ratio": result.ratio, "ratios": result.ratios}
    return {**described, **figures, "seconds": [ours, peer], "peak_bytes": result.peak_bytes}


def summary(results: Sequence[Result]) -> str:
    """Return a Markdown table with the range of the ratios of each group, and how many of them miss the aim."""
    steps = sorted({(_STEPS.index(r.case.step), r.threads) for r in results})
    heads = ["", "compared with", *(f"{_STEPS[step]}, {threads} thread{'s'[: threads - 1]}" for step, threads in steps)]
    lines = [heads, ["---"] * len(heads)]
    for (operator, group, peer), row in rows_of(results).items():
        name = f"`{operator}`, {group}" if group else f"`{operator}`"
        cells = [[r for r in row if (_STEPS.index(r.case.step), r.threads) == column] for column in steps]
        lines.append([name, f"`{peer}`", *map(_range, cells)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rows_of(results: Iterable[Result]) -> dict[tuple[str, str, str], list[Result]]:
    """Return the results of each operator, group and peer."""
    rows: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        rows.setdefault((result.case.operator, result.case.group, result.case.peer), []).append(result)
    return rows


def _range(results: Sequence[Result]) -> str:
    if not results:
        return ""
    least, most = (f"{ratio:.3g}" for ratio in (min(r.ratio for r in results), max(r.ratio for r in results)))
    missed = sum(result.is_missed for result in results)
    return (least if least == most else f"{least} to {most}") + (f" ({missed}/{len(results)})" if missed else "")


def write_plot(results: Sequence[Result], path: Path) -> None:
    """Plot a row for each group. A point is a case, red if it misses its aim."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    rows = rows_of(results)
    figure, axes = pyplot.subplots(figsize=(10, 0.24 * len(rows) + 1))
    for place, of_row in enumerate(rows.values()):
        for result in of_row:
            color = "tab:red" if result.is_missed else "tab:blue"
            marker = "s" if result.case.step in ("backward", "training") else "o"
            axes.plot(result.ratio, place, marker, color=color, markersize=4, alpha=0.6)
    axes.set_yticks(range(len(rows)), [", ".join(filter(None, row)) for row in rows], fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("speedup; circles: forward or inference, squares: backward or training; red: aim missed")
    figure.tight_layout()
    figure.savefig(path)
