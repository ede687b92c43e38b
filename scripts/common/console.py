"""Progress on the terminal: numbered steps, each with its time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Steps:
    """Counts the steps of a build and keeps how long each took, in seconds."""

    total: int
    seconds: dict[str, float] = field(default_factory=dict)
    _number: int = 0

    @contextmanager
    def step(self, name: str) -> Iterator[StepLine]:
        """Announce step ``name``, run the body, then say how long it took."""
        self._number += 1
        line = StepLine(f"({self._number}/{self.total}) {name}")
        with self.counted(name):
            try:
                yield line
            except BaseException:
                line.end("failed")
                raise
        line.end(f"{line.note + ', ' if line.note else ''}{self.seconds[name]:.1f} s")

    @contextmanager
    def counted(self, name: str) -> Iterator[None]:
        """Count how long the body takes; it says itself what it does, if that is anything."""
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


# How often a log shows that a long step goes on, in seconds.
_LOGGED_EVERY = 60


class StepLine:
    """One line of progress. On a terminal it is rewritten in place; a log gets its end, and one a minute until then."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.note = ""
        self._live = sys.stderr.isatty()
        self._logged = time.monotonic()
        self.update("...")

    def update(self, text: str) -> None:
        """Show ``text`` behind the title."""
        if self._live:
            print(f"\r\x1b[K{self.title} {text}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._logged >= _LOGGED_EVERY:
            self._logged = time.monotonic()
            say(f"{self.title} {text}")

    def end(self, text: str) -> None:
        """Finish the line with ``text``."""
        start = "\r\x1b[K" if self._live else ""
        print(f"{start}{self.title} {text}", file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Print one line of information."""
    print(text, file=sys.stderr, flush=True)


def table(lines: Sequence[Sequence[str]]) -> str:
    """Lines with their columns one below another."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
