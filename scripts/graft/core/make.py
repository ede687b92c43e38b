"""Find the make that runs Graft, and whether it has the option -C. Not every make passes that in MAKEFLAGS."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

# Options of GNU make whose argument is the rest of the word.
_WITH_ARGUMENT = "fIoWEjlO"


def command_of_make() -> list[str]:
    """Return the command line of the make that runs this process; empty if none does."""
    process = os.getppid()
    while process > 1:
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
            status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has ended, or belongs to another user
            return []
        if Path(words[0]).name.startswith(("make", "gmake")):
            return words
        process = int(status.rpartition(")")[2].split()[1])
    return []


def changes_folder(command: Sequence[str]) -> bool:
    """Return whether a command line of make has ``-C folder``, also combined with other options: ``-kC folder``."""
    return any(_has_c(word) for word in command[1:])


def _has_c(word: str) -> bool:
    if word.startswith("--"):
        return len(word) > 3 and "--directory".startswith(word.partition("=")[0])
    letters = word[1:] if word.startswith("-") else ""
    return "C" in letters and not any(letter in letters[: letters.index("C")] for letter in _WITH_ARGUMENT)
