"""A picture of a build: what runs at each second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

# The steps beside compilation and linking that are drawn, and the step that has those.
COMPILED = "compile and link"
ENVIRONMENT = "environment"

_WIDTH, _LANE, _TOP = 1000, 34, 30
# Of a letter and of an entry of the legend, in the picture's units.
_LETTER, _ENTRY = 6, 140

# What browsers show in the dark, and the letters on the colors, which are light in both.
_STYLE = """<style>
.paper { fill: #fff } text { fill: #1f2328 }
@media (prefers-color-scheme: dark) { .paper { fill: #0d1117 } text { fill: #e6edf3 } text.name { fill: #1f2328 } }
</style>"""

# What a command compiles, by a part of its target, and its color.
_KINDS = {
    "linked/": ("link", "#c49c94"),
    "generated/": ("generated", "#aec7e8"),
    ".AVX512.": ("kernels for AVX512", "#f7b6d2"),
    ".AVX2.": ("kernels for AVX2", "#e7ba52"),
    "native/": ("the folder's sources", "#98df8a"),
    "": ("Graft's own", "#c5b0d5"),
}
_STEP = ("other steps", "#d9d9d9")


@dataclass(frozen=True)
class Task:
    """What runs from ``begin`` to ``end``, in seconds."""

    name: str
    kind: tuple[str, str]
    begin: float
    end: float


def tasks_of(log: str, offset: float) -> list[Task]:
    """Return the commands in ninja's log, which begin ``offset`` seconds after the build."""
    rows = [line.split("\t") for line in log.splitlines() if not line.startswith("#")]
    return [
        Task(
            Path(target).name,
            next(kind for part, kind in _KINDS.items() if part in target),
            offset + int(begin) / 1000,
            offset + int(end) / 1000,
        )
        for begin, end, _, target, _ in rows
    ]


def timeline(log: str, steps: Mapping[str, float], seconds: float) -> str:
    """Return the picture, as SVG.

    Args:
        log: ninja's, of one build.
        steps: the seconds of each step, in order, as ``--report`` writes them.
        seconds: of the whole command. What is missing in ``steps`` came before them.
    """
    now, tasks = 0.0, []
    for name, taken in {ENVIRONMENT: seconds - sum(steps.values()), **steps}.items():
        tasks += tasks_of(log, now) if name == COMPILED else [Task(name, _STEP, now, now + taken)]
        now += taken
    return _drawn(_lanes(tasks), now)


def _lanes(tasks: Iterable[Task]) -> list[list[Task]]:
    """Divide tasks into as many lanes as run at once."""
    lanes: list[list[Task]] = []
    for task in sorted(tasks, key=lambda each: each.begin):
        free = next((lane for lane in lanes if lane[-1].end <= task.begin + 0.05), None)
        if free is None:
            lanes.append([task])
        else:
            free.append(task)
    return lanes


def _drawn(lanes: list[list[Task]], seconds: float) -> str:
    scale, bottom = _WIDTH / seconds, _TOP + _LANE * len(lanes)
    parts = []
    for number, lane in enumerate(lanes):
        for task in lane:
            x, width, y = task.begin * scale, (task.end - task.begin) * scale, _TOP + _LANE * number
            tip = f"{task.name}: {task.end - task.begin:.1f} s"
            shape = (
                f'x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.1):.1f}" height="{_LANE - 4}" fill="{task.kind[1]}"'
            )
            parts.append(f"<rect {shape}><title>{escape(tip)}</title></rect>")
            if len(task.name) * _LETTER + 4 < width:
                parts.append(f'<text class="name" x="{x + 2:.1f}" y="{y + 19}">{escape(task.name)}</text>')
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if seconds / step < 16)
    for second in range(0, int(seconds) + 1, step):
        parts.append(f'<text x="{second * scale:.1f}" y="{bottom + 14}">{second} s</text>')
    kinds = dict.fromkeys(task.kind for lane in lanes for task in lane)
    for number, (name, color) in enumerate(kinds):
        parts.append(f'<rect x="{_ENTRY * number}" y="4" width="12" height="12" fill="{color}"/>')
        parts.append(f'<text x="{_ENTRY * number + 16}" y="14">{escape(name)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 20}" font-family="sans-serif"'
    paper = '<rect class="paper" width="100%" height="100%"/>'
    return "\n".join([f'{head} font-size="10">', _STYLE, paper, *parts, "</svg>\n"])
