"""The report of ``make pin``, on one screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import GraftError
from ..core.layout import REPOSITORY
from ..inputs.patches import Patch
from .findings import Findings, differences
from .release import PYTHONS


@dataclass(frozen=True)
class Report:
    """What a run of ``make pin`` did and found.

    Args:
        found: the properties of the base.
        is_new: whether the release had no pin.
        packages: the number of packages in the toolkit of its CUDA; 0 if there is none.
        tried: the patches, each with the reason if it does not apply.
        written: the files that were added or changed.
        failure: why the smallest operator cannot be built; None if it was.
        other: the properties of the newest other base of its kind, or an error; None if there is no such pin.
    """

    found: Findings
    is_new: bool
    packages: int
    tried: Mapping[Patch, str]
    written: Sequence[Path]
    failure: GraftError | None
    other: Findings | str | None

    def text(self) -> str:
        """The report's text."""
        found = self.found
        missing = [python for python in PYTHONS if python not in found.pythons]
        written = [
            str(path.relative_to(REPOSITORY)) if REPOSITORY in path.parents else str(path) for path in self.written
        ]
        rows = [
            ("written", ", ".join(written) or "nothing; the pin was complete"),
            ("Pythons", " ".join(found.pythons) + (f"; not {' '.join(missing)}" if missing else "")),
            ("devices", found.devices),
            *self._toolkit(),
            ("C++", found.standard),
            ("commit", found.commit),
            *self._patches(),
            ("smallest operator", "cannot be built, see below" if self.failure else "generated, compiled and linked"),
        ]
        title = f"torch {found.version}, {'a new pin' if self.is_new else 'in a pin that was there'}"
        return "\n".join([title, *_table(rows), *self._comparison(), *self._next()])

    def _toolkit(self) -> list[tuple[str, str]]:
        if not self.found.cuda:
            return []
        there = f"{self.packages} packages, each with its sha256"
        return [("CUDA toolkit", there if self.packages else "none from pip; CUDA kernels need CUDA_HOME")]

    def _patches(self) -> list[tuple[str, str]]:
        faults = [(patch, why) for patch, why in self.tried.items() if why]
        summary = f"{len(self.tried) - len(faults)} of {len(self.tried)} apply" if self.tried else "none in the series"
        return [("patches", summary), *(("", why.splitlines()[0]) for _, why in faults)]

    def _comparison(self) -> list[str]:
        if self.other is None:
            return ["there is no similar pin to compare it with"]
        if isinstance(self.other, str):
            return [f"not compared: {self.other}"]
        rows = differences(self.other, self.found)
        if not rows:
            return [f"same as {self.other.version}: CUDA, C++, Pythons, libraries and their dependencies"]
        return [f"differences from {self.other.version}:", *_table(list(rows.items()))]

    def _next(self) -> list[str]:
        if self.failure or not self.written:
            return []
        return [f"next: make test PIN={self.found.version}; then commit patches/"]


def _table(rows: Sequence[tuple[str, str]]) -> list[str]:
    width = max(len(about) for about, _ in rows)
    return [f"  {about:<{width}}  {text}" for about, text in rows]
