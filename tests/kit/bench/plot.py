"""Draw ``bench.json``: for each operator a panel of the peer's time divided by ours, by the elements of the input."""

from __future__ import annotations

import json
import math
from pathlib import Path

# Models have a table, and what a folder replaces has no sizes.
_OTHERS = ("models", "replaced")
_MISSED = 0.95

# The axes of a panel show at least these values, so each has ticks enough to read it.
_RATIOS = (0.5, 2.0)
# Beyond this range, 1, 2 and 5 of each decade overlap.
_WIDE = 50

# What browsers show of matplotlib's black on white in the dark.
_DARK = """<style>@media (prefers-color-scheme: dark) {
[style*="fill: #ffffff"] { fill: #0d1117 !important }
[style*="stroke: #000000"] { stroke: #8b949e !important }
[style*="stroke: #d0d7de"] { stroke: #30363d !important }
[style*="#1f77b4"] { fill: #58a6ff !important; stroke: #58a6ff !important }
[style*="#d62728"] { fill: #ff7b72 !important; stroke: #ff7b72 !important }
text { fill: #e6edf3 }
}</style>
"""


def write_plot(folder: Path) -> None:
    """Draw ``bench.json`` as ``bench.svg``, 800 pixels wide, if it has operators: with the least number of threads."""
    (folder / "bench.svg").unlink(missing_ok=True)
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot, ticker

    results = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
    threads = min(case["threads"] for case in results["cases"])
    cases = [each for each in results["cases"] if each["operator"] not in _OTHERS and each["threads"] == threads]
    operators = list(dict.fromkeys(case["operator"] for case in cases))
    if not operators:
        return
    rows = math.ceil(len(operators) / 2)
    # Text stays text, and the same results give the same file.
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "bench", "font.size": 9, "axes.titlesize": 10})
    figure, axes = pyplot.subplots(rows, 2, figsize=(800 / 96, 1.8 * rows + 0.6), squeeze=False, layout="constrained")
    for panel in axes.flat[len(operators) :]:
        panel.axis("off")
    for panel, operator in zip(axes.flat, operators, strict=False):
        own = [case for case in cases if case["operator"] == operator]
        for case in own:
            color = "tab:red" if case["ratio"] < _MISSED else "tab:blue"
            marker = "o" if case["step"] == "forward" else "s"
            panel.scatter(max(case["elements"], 1), case["ratio"], 14, color, marker, alpha=0.6)
        panel.set(xscale="log", yscale="log", title=f"{operator} vs. {', '.join(sorted({c['peer'] for c in own}))}")
        panel.axhline(1, color="black", linewidth=0.8)
        elements = [max(case["elements"], 1) for case in own]
        first, last = math.floor(math.log10(min(elements))), math.ceil(math.log10(max(elements)))
        panel.set_xlim(0.5 * 10**first, 2 * 10 ** max(1, last))
        low, high = (limit(*_RATIOS, *(case["ratio"] for case in own)) for limit in (min, max))
        panel.set_ylim(low / 1.2, high * 1.2)
        panel.xaxis.set_minor_formatter(ticker.NullFormatter())
        panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high / low < _WIDE else (1,)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_locator(ticker.NullLocator())
        panel.grid(color="#d0d7de", linewidth=0.5)
    about = f"{threads} thread{'s'[: threads - 1]}, torch {results['torch']}, {results['processor']}"
    legend = "peer's time / ours, by elements of the input; forward: circles, backward: squares; below 0.95: red"
    figure.suptitle(f"{legend}\n{about}", fontsize=9)
    figure.savefig(folder / "bench.svg", metadata={"Date": None})
    picture = (folder / "bench.svg").read_text(encoding="utf-8")
    (folder / "bench.svg").write_text(picture.replace(" <defs>\n", f" {_DARK} <defs>\n", 1), encoding="utf-8")
