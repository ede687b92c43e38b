"""Progress on the terminal: steps with their times."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from .wording import as_typed

# The levels of the module logging, which takes as long to import as this package.
DEBUG, INFO, WARNING = 10, 20, 30

# Receives the lines of a build instead of the terminal, each with its level. A process runs one build at a time.
Listener = Callable[[int, str], object]
_listener: Listener | None = None
_retell: Callable[[str], str] = str


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """While the body runs, pass each line to ``listener`` instead of printing it."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


@contextmanager
def retold(by: Callable[[str], str]) -> Iterator[None]:
    """While the body runs, rewrite each line by a function."""
    global _retell
    before, _retell = _retell, by
    try:
        yield
    finally:
        _retell = before


@dataclass
class Steps:
    """Shows the steps of a build and records how long each took, in seconds."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[StepLine]:
        """Print the step's name, run the body, then print how long it took."""
        line = StepLine(f"{name}:")
        with self.counted(name):
            try:
                line.update("...")
                with line.repeated():
                    yield line
            except BaseException:
                line.end("failed")
                raise
        line.end(f"{line.note + ', ' if line.note else ''}{self.seconds[name]:.1f} s")

    @contextmanager
    def counted(self, name: str) -> Iterator[None]:
        """Measure the body without printing a step."""
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start


# Seconds between two lines in a log about one step.
_LOGGED_EVERY = 20.0


class StepLine:
    """One line of progress. A terminal rewrites it in place; a log gets the final text, and a line every 20 seconds
    until then.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.note = ""
        self._live = _listener is None and sys.stderr.isatty()
        self._start = "\r\x1b[K" if self._live else ""
        self._text = ""
        self._began = self._logged = time.monotonic()
        self._lock = threading.Lock()

    def update(self, text: str) -> None:
        """Show ``text`` after the title."""
        self._text = text
        say(f"{self.title} {text}", DEBUG)
        if self._live:
            print(f"{self._start}{self.title} {text}", end="", file=sys.stderr, flush=True)
        else:
            self.repeat()

    def repeat(self) -> None:
        """Show the text again, with the seconds since the start, if a log has had no line for 20 seconds."""
        with self._lock:
            now = time.monotonic()
            if not self._live and now - self._logged >= _LOGGED_EVERY:
                self._logged = now
                say(f"{self.title} {self._text}, {now - self._began:.0f} s")

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Repeat the line in a log while the body runs, which may update it rarely: on a busy machine, one source may
        compile for minutes.
        """
        is_over = threading.Event()

        def repeat() -> None:
            while not is_over.wait(min(1, _LOGGED_EVERY)):
                self.repeat()

        watcher = threading.Thread(target=repeat, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()

    def say(self, text: str, level: int = INFO) -> None:
        """Print a line of information above this one."""
        if _listener is not None:
            _listener(level, _retell(text))
        else:
            print(f"{self._start}{_retell(text)}", file=sys.stderr, flush=True)

    def end(self, text: str) -> None:
        """Finish the line with ``text``."""
        self.say(f"{self.title} {text}")


def say(text: str, level: int = INFO) -> None:
    """Print one line in one write: another thread may print progress. Only listeners get levels below ``INFO``."""
    text = _retell(as_typed(text))
    if _listener is not None:
        _listener(level, text)
    elif level >= INFO:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def table(lines: Sequence[Sequence[str]]) -> str:
    """Return the rows as text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
