"""Progress on the terminal: steps with their times."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial


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


# Seconds between two lines that a log gets about a long step.
_LOGGED_EVERY = 20.0


class StepLine:
    """One line of progress. A terminal rewrites it in place; a log gets the final text, and a line every 20 seconds
    until then.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.note = ""
        self._live = sys.stderr.isatty()
        self._start = "\r\x1b[K" if self._live else ""
        self._text = ""
        self._began = self._logged = time.monotonic()
        self._lock = threading.Lock()

    def update(self, text: str) -> None:
        """Show ``text`` after the title."""
        self._text = text
        if self._live:
            print(f"{self._start}{self.title} {text}", end="", file=sys.stderr, flush=True)
        else:
            self.repeat()

    def repeat(self) -> None:
        """Show the text again, and for how long it takes already, if a log has had no line for 20 seconds."""
        with self._lock:
            now = time.monotonic()
            if not self._live and now - self._logged >= _LOGGED_EVERY:
                self._logged = now
                say(f"{self.title} {self._text}, {now - self._began:.0f} s")

    @contextmanager
    def repeated(self) -> Iterator[None]:
        """Repeat the line in a log while the body runs, which may update it rarely: a busy machine compiles a source
        for minutes.
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

    def say(self, text: str) -> None:
        """Print a line of information above this one."""
        print(f"{self._start}{text}", file=sys.stderr, flush=True)

    def end(self, text: str) -> None:
        """Finish the line with ``text``."""
        self.say(f"{self.title} {text}")


HELP = "`make` lists the variables, and ARGS=--help the options of a target"

# Set where there is no Makefile: how messages spell each variable of make, in a command and elsewhere.
SPELLED: dict[str, tuple[str, str]] = {}


@contextmanager
def spelling(names: Mapping[str, tuple[str, str]]) -> Iterator[None]:
    """Spell make's variables in this way while the body runs."""
    before = dict(SPELLED)
    SPELLED.update(names)
    try:
        yield
    finally:
        SPELLED.clear()
        SPELLED.update(before)


def say(text: str) -> None:
    """Print one line of information, in one piece: another thread may print a line of progress."""
    sys.stderr.write(f"{as_typed(text)}\n")
    sys.stderr.flush()


def as_typed(text: str) -> str:
    """Return a message in the form in which commands are typed: ``make pin TORCH=2.16.0``, or ``graft pin --torch
    2.16.0`` where Graft is installed. Messages are written for make; this function alone spells them for others.
    """
    if not SPELLED:
        return text
    text = (
        re.sub(r" \(`make \.\.\. ARGS=-v`\)", "", text)
        .replace("make patch-and-build", "make build")
        .replace("make new-op", "make new")
    )
    text = text.replace(HELP, "`graft --help` lists the verbs, and `graft VERB --help` the options of one")
    text = text.replace("`make`", "`graft --help`")
    text = re.sub(r"(?<=`)make (?=[a-z])|\bmake (?=[a-z-]+ [A-Z]+=)", "graft ", text)
    names = re.compile(rf"\b({'|'.join(SPELLED)})\b(=?)")
    text = re.sub(
        r"(?<=graft )[a-z-]+( [A-Z_]+=\S+)+", lambda command: names.sub(partial(_spelled, 0), command[0]), text
    )
    return names.sub(partial(_spelled, 1), text)


def _spelled(place: int, name: re.Match[str]) -> str:
    """Return a variable as it is spelled in a command, or elsewhere: before a value if ``=`` follows it."""
    spelled = SPELLED[name[1]][place]
    return spelled + (" " if name[2] and spelled.startswith("--") else name[2])


def table(lines: Sequence[Sequence[str]]) -> str:
    """Return the rows as text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
