"""Errors of g++ and nvcc, each with the user's source line that causes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_PLACED = re.compile(r"(\S[^:\n]*):(\d+)(?::(\d+))?: (?:fatal )?error\b[^:]*: (.*)")
# The assembler, the driver and the linker print no column, and often no line.
_UNPLACED = re.compile(r"(\S[^:\n]*)(?::(\d+))?: (?:fatal )?[Ee]rror: (.*)")
_REMARK = re.compile(r"\S.*: (?:note|warning|remark)\b.*?: ")
_FUNCTION = re.compile(r"\S+: In (?:\w+ )*(?:function|instantiation of|constructor)(?: '(.*?)'(?: \[.*)?)?:$")
_ELSEWHERE = re.compile(r"\S+: (?:At|In) .*:$")
_CHAIN = re.compile(r"\s*(?:In file included )?from (\S+?):(\d+)(?::\d+)?[,:]$")
_REQUIRED = re.compile(r"(\S+?):(\d+)(?::(\d+))?:   (?:recursively )?required (?:from|by)")
# A note below an error in a header. It names the caller of an inlined function, or the use of a macro.
_USED = re.compile(r"(\S+?):(\d+):(\d+): note: (?:called from here|in expansion of macro)")
# For a macro that pastes names together, g++ prints its definition, but not its use.
_DEFINED = re.compile(r"\S+: note: in definition of macro '(\w+)'")
# nvcc prints the instantiation of a template after the error.
_INSTANTIATED = re.compile(r"\s+.* at line (\d+) of (\S+)$")

# Starts a line with the CPU capability that the errors below it are for.
COMPILED_FOR = "compiled for "


@dataclass
class Diagnostic:
    """An error that a compiler, the assembler or the linker reports.

    Args:
        file: the file that the compiler names; for the driver and the assembler, the program or file that they name.
        line: 0 if the message has none.
        column: 0 if the message has none.
        message: the error message.
        excerpt: the source line and the marks below it.
        function: the function that contains it; empty outside of functions.
        user: the file and line in the native folder that cause it; None if unknown.
        note: the compiler's first note, with its place; may be empty.
        compiled_for: the CPU capability, with its flags; empty for sources that are compiled once.
    """

    file: str
    line: int
    column: int
    message: str
    excerpt: list[str]
    function: str
    user: tuple[str, int, int] | None
    note: str = ""
    compiled_for: str = ""

    @property
    def kind(self) -> str:
        """The message without quoted names, so that similar errors have one kind. Names of ``AT_`` macros stay, since
        an unknown macro causes other errors.
        """
        return re.sub(r"'(?!AT_)[^']*'|\"(?!AT_)[^\"]*\"", "''", re.sub(r"; did you mean .*", "", self.message))


def compiled_for(command: str) -> str:
    """Return a line for ``diagnostics`` with the CPU capability of a compiler's command, and its flags. It is empty for
    sources that are compiled once.
    """
    capability = re.search(r" -DCPU_CAPABILITY=(\w+)", command)
    flags = dict.fromkeys(re.findall(r" (-m[^\s']+)", command))
    return f"{COMPILED_FOR}{capability[1]}: {' '.join(flags) or 'no flags'}" if capability else ""


def diagnostics(output: Iterable[str], *folders: Path) -> list[Diagnostic]:
    """Return each error in a compiler's output once, with the line of a file in ``folders`` that causes it."""
    once: dict[tuple[str, int, int, str], Diagnostic] = {}
    for each in _read(output, tuple(f"{folder}/" for folder in folders)):
        once.setdefault((each.file, each.line, each.column, each.kind), each)
    return list(once.values())


def _read(output: Iterable[str], own: tuple[str, ...]) -> Iterator[Diagnostic]:
    function, required, chain, compiled_for = "", None, None, ""
    current: Diagnostic | None = None
    is_excerpt = False
    for text in (line.rstrip("\n") for line in output):
        if text.startswith(COMPILED_FOR):
            compiled_for = text.removeprefix(COMPILED_FOR)
        elif match := _PLACED.match(text) or _UNPLACED.match(text):
            if current:
                yield current
            place = (match[1], int(match[2] or 0), int(match[3] or 0) if match.re is _PLACED else 0)
            user = place if place[0].startswith(own) else required or chain
            current = Diagnostic(*place, match[match.re.groups], [], function, user, compiled_for=compiled_for)
            required, is_excerpt = None, True
        elif (match := _USED.match(text)) and current and match[1].startswith(own):
            # Of several nested expansions, the last is in the user's code.
            current.user = current.user if current.file.startswith(own) else (match[1], int(match[2]), int(match[3]))
            is_excerpt = False
        elif (match := _DEFINED.match(text)) and current and chain and not current.file.startswith(own):
            current.user = _use(match[1], Path(chain[0]), current.message) or current.user
            is_excerpt = False
        elif _REMARK.match(text):
            if current and not current.note and re.search(r": note: (?!in (?:expansion|definition) of)", text):
                current.note = text
            required, is_excerpt = None, False
        elif match := _REQUIRED.match(text):
            required = (match[1], int(match[2]), int(match[3] or 0)) if match[1].startswith(own) else required
            is_excerpt = False
        elif match := _CHAIN.match(text):
            # An include chain begins with "In file"; the user's file is the last that it names.
            chain = None if text.startswith("In file") else chain
            chain = (match[1], int(match[2]), 0) if match[1].startswith(own) else chain
            is_excerpt = False
        elif match := _FUNCTION.match(text):
            function, is_excerpt = match[1] or "", False
        elif _ELSEWHERE.match(text):
            function, is_excerpt = "", False
        elif (match := _INSTANTIATED.match(text)) and current and not current.user and match[2].startswith(own):
            current.user = (match[2], int(match[1]), 0)
        elif current and is_excerpt and text.startswith(" ") and len(current.excerpt) < 2:
            current.excerpt.append(text)
    if current:
        yield current


def _use(macro: str, file: Path, message: str) -> tuple[str, int, int] | None:
    """Return where ``file`` uses ``macro`` with a name that also occurs in ``message``."""
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    uses = re.finditer(rf"\b{macro}\(\s*(\w+)", text)
    found = next((use for use in uses if re.search(rf"_{use[1]}\b", message)), None)
    return (str(file), text.count("\n", 0, found.start()) + 1, 0) if found else None
