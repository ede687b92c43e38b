"""Find the make that runs Graft, whether it has the option -C, which not every make passes in MAKEFLAGS, and what is
wrong with the variables on its command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

# Options of GNU make whose argument is the rest of the word.
_WITH_ARGUMENT = "fIoWEjlO"

# If one of these is empty, a shell variable was, most likely; the default would be another folder than is meant.
_NEVER_EMPTY = ("NATIVE", "SOURCE", "OUT", "PYTHON")

# Variables of make, of compilers and of the system.
_OF_OTHERS = re.compile(
    r"\w*FLAGS|MAKE\w*|SHELL|CC|CPP|CUDACXX|NVCC|FC|AR|AS|LD|NM|RANLIB|STRIP|CPATH|HOME|PATH|TMPDIR|TZ|LANG"
)


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


def mistakes(names: Sequence[str], values: Mapping[str, str], known: Collection[str]) -> list[str]:
    """Return what is wrong with the variables on make's command line. A name with an underscore, such as PIP_INDEX_URL,
    may be another program's, if it does not resemble one of ours.

    Args:
        names: the names on the command line.
        values: of all variables.
        known: the names that mean something to Graft.
    """
    from difflib import get_close_matches  # late: few builds need it

    found = []
    for name in names:
        if name in known:
            if name in _NEVER_EMPTY and not values.get(name):
                found.append(f"{name}=: it is empty; leave it out for the default")
        elif not _OF_OTHERS.fullmatch(name):
            cutoff = 0.75 if "_" in name else 0.6
            spelled = (name.upper(), name.upper().removeprefix("GRAFT_"))
            near = [close for each in spelled for close in get_close_matches(each, known, n=1, cutoff=cutoff)][:1]
            if near or "_" not in name:
                found.append(f"{name}: no such variable" + "".join(f"; did you mean {each}?" for each in near))
    return found


def _has_c(word: str) -> bool:
    if word.startswith("--"):
        return len(word) > 3 and "--directory".startswith(word.partition("=")[0])
    letters = word[1:] if word.startswith("-") else ""
    return "C" in letters and not any(letter in letters[: letters.index("C")] for letter in _WITH_ARGUMENT)
