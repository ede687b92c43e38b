"""Spell commands and options in messages as the user types them: for make, for ``graft``, or for a build frontend."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

HELP = "`make` lists the variables, and ARGS=--help the options of a target"

# How messages spell each variable of make, in a command and elsewhere. Empty where make runs Graft.
SPELLED: dict[str, tuple[str, str]] = {}

# The lines that messages quote from the output of other programs. Only those with a word that could be spelled.
_QUOTED: set[str] = set()
_SPELLABLE = re.compile(r"[A-Z]{2}|make")


@contextmanager
def spelling(names: Mapping[str, tuple[str, str]]) -> Iterator[None]:
    """While the body runs, spell make's variables as ``names`` says."""
    before = dict(SPELLED)
    SPELLED.update(names)
    try:
        yield
    finally:
        SPELLED.clear()
        SPELLED.update(before)


def quoted(text: str) -> str:
    """Return the output of another program. Its lines stay as they are in messages: CUDA_HOME is no option there."""
    # A shorter line, or one word, may also be a part of our own messages.
    lines = (line.strip() for line in text.splitlines() if _SPELLABLE.search(line))
    _QUOTED.update(line for line in lines if len(line) >= 10 and " " in line)
    return text


def as_typed(text: str) -> str:
    """Return a message in the form in which commands are typed: ``make pin TORCH=2.16.0``, or ``graft pin --torch
    2.16.0`` where Graft is installed. Messages are written for make; this function alone spells them for others. A word
    behind a quotation mark or in a path is the user's own, and stays; so do lines that are ``quoted``.
    """
    if not SPELLED:
        return text
    longest_first = "|".join(map(re.escape, sorted(_QUOTED, key=len, reverse=True)))
    parts = re.split(f"({longest_first})", text) if _QUOTED else [text]
    parts[::2] = map(_typed, parts[::2])
    return "".join(parts)


def _typed(text: str) -> str:
    text = re.sub(r" \(`make \.\.\. ARGS=-v`\)", "", text)
    text = text.replace("make patch-and-build", "make build").replace("make new-op", "make new")
    text = text.replace(HELP, "`graft --help` lists the verbs, and `graft VERB --help` the options of one")
    text = text.replace("`make`", "`graft --help`")
    text = re.sub(r"(?<=`)make (?=[a-z])|\bmake (?=[a-z-]+ [A-Z]+=)", "graft ", text)
    text = re.sub(r"\bARGS=(?:'([^']+)'|(?=-))", r"\1", text)
    names = re.compile(rf"(?<![\w'\"\u2018/.-])({'|'.join(SPELLED)})\b(=?)")
    text = re.sub(
        r"(?<=graft )[a-z-]+( [A-Z_]+=\S+)+", lambda command: names.sub(partial(_spelled, 0), command[0]), text
    )
    text = text.replace("graft adopt PACKAGE=", "graft adopt ")  # which no option takes
    return names.sub(partial(_spelled, 1), text)


def _spelled(place: int, name: re.Match[str]) -> str:
    """Return a variable's spelling in a command (``place`` 0) or elsewhere (1). A flag's ``=`` becomes a blank."""
    spelled = SPELLED[name[1]][place]
    return spelled + (" " if name[2] and spelled.startswith("--") else name[2])
