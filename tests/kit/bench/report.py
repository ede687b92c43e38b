"""Write the results: JSON for programs, and tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.benchmark import Compare

from ..markdown import markdown_table, write_figures
from ..processor import describe_processor
from .case import CaseResult

# The steps of operators, then those of models.
_STEPS = ("forward", "backward", "inference", "training")


def write_results(results: Sequence[CaseResult], folder: Path) -> None:
    """Write ``bench.json``, ``bench.txt`` with the times, and for the READMEs ``overview.md`` and ``summary.md``."""
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
    for name, table in (("overview.md", overview), ("summary.md", summary)):
        (folder / name).write_text(conditions + table(results), encoding="utf-8")


def write_operators(results: Sequence[CaseResult]) -> None:
    """Write the summary of the operators, with the least number of threads, into the page of figures."""
    threads = min(result.threads for result in results)
    kept = [each for each in results if each.threads == threads and each.case.operator not in ("models", "replaced")]
    how = f"{threads} thread{'s'[: threads - 1]}, torch {torch.__version__}, {describe_processor()}"
    write_figures("operators", summary(kept), how)


def _as_json(result: CaseResult) -> dict[str, Any]:
    described = {name: value for name, value in vars(result.case).items() if not callable(value)}
    ours, peer = (min(m.median for m in result.measurements[side::2]) for side in (0, 1))
    figures = {"threads": result.threads, "ratio": result.ratio, "ratios": result.ratios}
    return {**described, **figures, "seconds": [ours, peer]}


def summary(results: Sequence[CaseResult]) -> str:
    """Return a Markdown table with the range of the ratios of each group, and how many of them miss the aim."""
    steps = sorted({(_STEPS.index(r.case.step), r.threads) for r in results})
    heads = ["", "compared with", *(f"{_STEPS[step]}, {threads} thread{'s'[: threads - 1]}" for step, threads in steps)]
    lines = [heads, ["---"] * len(heads)]
    rows: dict[tuple[str, str, str], list[CaseResult]] = {}
    for result in results:
        rows.setdefault((result.case.operator, result.case.group, result.case.peer), []).append(result)
    for (operator, group, peer), row in rows.items():
        name = f"`{operator}`, {group}" if group else f"`{operator}`"
        cells = [[r for r in row if (_STEPS.index(r.case.step), r.threads) == column] for column in steps]
        lines.append([name, f"`{peer}`", *map(_range, cells)])
    return markdown_table(lines)


def overview(results: Sequence[CaseResult]) -> str:
    """Return a Markdown table with a line for each model and each operator: the ranges of their ratios, with the least
    number of threads.
    """
    threads = min(result.threads for result in results)
    lines = [["", "compared with", "forward", "backward"], ["---"] * 4]
    rows: dict[str, list[CaseResult]] = {}
    for result in (each for each in results if each.threads == threads):
        operator, group = result.case.operator, result.case.group
        rows.setdefault(group.partition(",")[0] if operator == "models" else f"`{operator}`", []).append(result)
    for name, row in rows.items():
        cells = [[r for r in row if r.case.step in steps] for steps in (_STEPS[::2], _STEPS[1::2])]
        lines.append([name, ", ".join(dict.fromkeys(f"`{r.case.peer}`" for r in row)), *map(_range, cells)])
    return markdown_table(lines)


def _range(results: Sequence[CaseResult]) -> str:
    if not results:
        return ""
    least, most = (f"{ratio:.3g}" for ratio in (min(r.ratio for r in results), max(r.ratio for r in results)))
    missed = sum(result.is_missed for result in results)
    return (least if least == most else f"{least} to {most}") + (f" ({missed}/{len(results)})" if missed else "")
