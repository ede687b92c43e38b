"""Write the results: JSON for programs, tables for the README, a plot of the ratios."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from . import models
from .measure import Measured
from .processor import describe_processor

_HEAD = (
    "| operator | compared with | case | step | threads | speedup (least to most) | aim | ours | memory over peer's |"
)


def write_json(results: Sequence[Measured], path: Path) -> None:
    """Write all results, with the machine and the build."""
    about = {
        "torch": torch.__version__,
        "machine": platform.processor() or platform.machine(),
        "processor": describe_processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cases": [{**asdict(result), "ratio": result.ratio} for result in results],
    }
    path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def write_table(results: Sequence[Measured], path: Path) -> None:
    """Write all cases as Markdown, models first; misses are bold."""
    lines = [*_top(results), _HEAD, "|" + "---|" * 9]
    lines += [_row(result) for result in results]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_summary(results: Sequence[Measured], path: Path) -> None:
    """Write the README's tables: the models, and the range of ratios and the number of misses of each group."""
    lines, results = _top(results), [result for result in results if result.operator != models.NAME]
    columns = [(step, threads) for step in ("forward", "backward") for threads in sorted({r.threads for r in results})]
    heads = ["operator", "compared with"]
    heads += [f"{step}, {_threads(threads)}" for step, threads in columns]
    lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)] if results else []
    rows: dict[tuple[str, str, str], list[Measured]] = {}
    for result in results:
        rows.setdefault((result.operator, result.group, result.peer), []).append(result)
    for (operator, group, peer), row in rows.items():
        # Peers that are valid code are formatted as code.
        cells = [f"`{operator}`" + (f", {group}" if group else ""), f"`{peer}`" if set(peer) & set(".([") else peer]
        cells += [_range([r for r in row if (r.step, r.threads) == column]) for column in columns]
        lines.append(f"| {' | '.join(cells)} |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _top(results: Sequence[Measured]) -> list[str]:
    """Return the conditions, and a table of the models for each number of threads."""
    lines = [f"torch {torch.__version__} on {describe_processor()}", ""]
    of_models = [result for result in results if result.operator == models.NAME]
    for threads in sorted({result.threads for result in of_models}):
        heads = [_threads(threads)]
        heads += [f"{step} {layout} {', '.join(models.DTYPES)}" for step in models.AIMS for layout in models.FORMATS]
        lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
        found = {(r.step, r.name): _bold(r, f"{r.ratio:.2f}") for r in of_models if r.threads == threads}
        for model in dict.fromkeys(result.group for result in of_models):
            cells = [
                ", ".join(found.get((step, models.title(model, layout, dtype)), "") for dtype in models.DTYPES)
                for step in models.AIMS
                for layout in models.FORMATS
            ]
            lines.append(f"| {model} | {' | '.join(cells)} |")
        lines.append("")
    return lines


def _threads(number: int) -> str:
    return f"{number} thread{'s' if number > 1 else ''}"


def _bold(result: Measured, text: str) -> str:
    return text if result.ratio >= result.aim else f"**{text}**"


def _range(results: Sequence[Measured]) -> str:
    if not results:
        return ""
    ratios = [f"{ratio:.3g}" if ratio >= 10 else f"{ratio:.2f}" for ratio in sorted(r.ratio for r in results)]
    missed = sum(r.ratio < r.aim for r in results)
    text = ratios[0] if len(ratios) == 1 else f"{ratios[0]} to {ratios[-1]}"
    return text + (f" ({missed}/{len(results)})" if missed else "")


def _row(result: Measured) -> str:
    ratio = _bold(result, f"{result.ratio:.2f} ({min(result.ratios):.2f} to {max(result.ratios):.2f})")
    ours, theirs = result.peak_bytes
    memory = f"{ours / theirs:.2f}" if theirs else "none"
    cells = [result.operator, result.peer, result.name, result.step, str(result.threads), ratio, f"{result.aim:g}"]
    return f"| {' | '.join(cells)} | {_time(result.seconds[0])} | {memory} |"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.2g} us"


def write_plot(results: Sequence[Measured], path: Path) -> None:
    """Plot a panel for each operator, with a row for each group. A point is a case, red if it misses its aim."""
    import matplotlib

    matplotlib.use("svg")
    # The same results give the same file.
    matplotlib.rcParams |= {"svg.hashsalt": "graft", "svg.fonttype": "none"}
    from matplotlib import pyplot

    panels: dict[str, dict[str, list[Measured]]] = {}
    for result in results:
        row = ", ".join(filter(None, (result.group, result.peer, _threads(result.threads))))
        panels.setdefault(result.operator, {}).setdefault(row, []).append(result)
    heights = [len(rows) + 1 for rows in panels.values()]
    figure, axes = pyplot.subplots(
        len(panels), 1, sharex=True, squeeze=False, height_ratios=heights, figsize=(10, 0.24 * sum(heights) + 1)
    )
    for (operator, rows), panel in zip(panels.items(), axes.flat, strict=True):
        for place, of_row in enumerate(rows.values()):
            for result in of_row:
                color = "tab:blue" if result.ratio >= result.aim else "tab:red"
                panel.plot(
                    result.ratio,
                    place,
                    "os"[result.step in ("backward", "training")],
                    color=color,
                    markersize=4,
                    alpha=0.6,
                )
        panel.set_title(operator, loc="left", fontsize=9)
        panel.set_yticks(range(len(rows)), list(rows), fontsize=7)
        panel.set_ylim(len(rows) - 0.5, -0.5)
        panel.axvline(1, color="black", linewidth=0.8)
    axes[-1, 0].set_xscale("log")
    axes[-1, 0].xaxis.set_major_formatter("{x:g}")
    axes[-1, 0].xaxis.set_minor_formatter("{x:g}")
    axes[-1, 0].set_xlabel(
        "speedup over the peer; circles: forward or inference, squares: backward or training; red: aim missed"
    )
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
