"""Draw ``bench.json``: for each operator a panel of the peer's time divided by ours, by the elements of the input."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

# Models have a table, and what a folder replaces has no sizes.
_OTHERS = ("models", "replaced")

_COLUMNS, _PANEL, _WIDTH, _TOP = 2, 180, 800, 78
# The plotting area in a panel: left, top, width and height.
_AREA = (52, 30, 330, 112)
_MISSED = 0.95
_STYLE = """
    text { font: 13px sans-serif; fill: #1f2328 }
    .title { font: bold 15px ui-monospace, Menlo, Consolas, monospace }
    .note { fill: #57606a }
    .box { fill: #fff; stroke: #57606a }
    .grid { stroke: #d0d7de }
    .even { stroke: #1f2328; stroke-width: 1.5 }
    .point { fill: #57606a; fill-opacity: .6 }
    .missed { fill: #de3412 }
"""


def plot(results: Mapping[str, Any]) -> str:
    """Return an SVG of the results, 800 pixels wide.

    Args:
        results: the content of ``bench.json``. Of several numbers of threads, the smallest is drawn.
    """
    cases = [case for case in results["cases"] if case["operator"] not in _OTHERS]
    threads = min((case["threads"] for case in cases), default=1)
    cases = [case for case in cases if case["threads"] == threads]
    panels = {case["operator"]: [each for each in cases if each["operator"] == case["operator"]] for case in cases}
    height = _TOP + _PANEL * math.ceil(len(panels) / _COLUMNS)
    legend = "the peer's time / ours, by elements of the input; forward: circles, backward: squares; below 0.95: red"
    about = f"{threads} thread{'s'[: threads - 1]}, torch {results['torch']}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        _text(12, 22, legend),
        _text(12, 42, escape(about), "note"),
        _text(12, 62, escape(results["processor"]), "note"),
    ]
    for number, (operator, of_operator) in enumerate(panels.items()):
        row, column = divmod(number, _COLUMNS)
        lines.append(f'<g transform="translate({column * _WIDTH // _COLUMNS} {_TOP + row * _PANEL})">')
        lines += [*_panel(operator, of_operator), "</g>"]
    return "\n".join([*lines, "</svg>", ""])


def _panel(operator: str, cases: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the elements of a panel, with the origin at its corner."""
    left, top, width, height = _AREA
    peers = ", ".join(dict.fromkeys(case["peer"] for case in cases))
    ratios, sizes = [1.0, *(case["ratio"] for case in cases)], [max(case["elements"], 1) for case in cases]
    ticks, powers = _ticks(min(ratios), max(ratios)), _powers(min(sizes), max(sizes))

    def x_of(size: float) -> float:
        return left + width * _share(size, powers[0], powers[-1])

    def y_of(ratio: float) -> float:
        return top + height * (1 - _share(ratio, ticks[0], ticks[-1]))

    yield _text(left, 18, f'<tspan class="title">{operator}</tspan> <tspan class="note">vs. {escape(peers)}</tspan>')
    yield f'<rect class="box" x="{left}" y="{top}" width="{width}" height="{height}"/>'
    for tick in ticks:
        y, kind = y_of(tick), "even" if tick == 1 else "grid"
        yield f'<path class="{kind}" d="M{left} {y:.1f}h{width}"/>'
        yield _text(left - 6, y + 4, f"{tick:g}", "note", "end")
    for power in powers:
        yield _text(x_of(power), top + height + 17, _power(power), "note", "middle")
    for case in cases:
        x, y = x_of(max(case["elements"], 1)), y_of(case["ratio"])
        kind = "point missed" if case["ratio"] < _MISSED else "point"
        title = f"<title>{escape(case['name'])}, {case['step']}: {case['ratio']:.2f}</title>"
        if case["step"] == "forward":
            yield f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">{title}</circle>'
        else:
            yield f'<rect class="{kind}" x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6">{title}</rect>'


def _share(value: float, least: float, most: float) -> float:
    """Return where a value is between two others, on a logarithmic scale."""
    return math.log(value / least) / math.log(most / least)


def _ticks(least: float, most: float) -> list[float]:
    """Return some of 0.1, 0.2, 0.5, 1, 2, 5, ... that enclose the ratios, with 1 among them: about six."""
    steps = [digit * 10.0**power for power in range(-9, 9) for digit in (1, 2, 5)]
    even = steps.index(1)
    first = max(i for i, step in enumerate(steps) if step <= min(least, 0.999))
    last = min(i for i, step in enumerate(steps) if step >= max(most, 1.001))
    stride = math.ceil((last - first) / 5)
    return steps[first - (first - even) % stride : last + (even - last) % stride + 1 : stride]


def _powers(least: int, most: int) -> list[int]:
    """Return powers of ten that enclose the sizes, every second or third if there are many."""
    first, last = math.floor(math.log10(least)), max(math.ceil(math.log10(most)), math.floor(math.log10(least)) + 1)
    stride = math.ceil((last - first) / 4)
    return [10**power for power in range(first, first + stride * math.ceil((last - first) / stride) + 1, stride)]


def _power(power: int) -> str:
    names = {1: "", 10**3: "k", 10**6: "M", 10**9: "G"}
    unit = max(each for each in names if each <= power)
    return f"{power // unit}{names[unit]}"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'
