"""Find what users give as options: in make's variables, in the environment, as flags, as settings of a build frontend.
Uses only the standard library.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from operator import attrgetter

from .core.errors import UsageError
from .core.keys import FILE, KEYS
from .core.make import mistakes
from .core.wording import HELP
from .options import NAMES, OPTIONS, Name, Request, Verb

# What a user gives, by the name of the option: the text, and how messages spell the name.
Given = Mapping[str, tuple[str, str]]


def given_as(texts: Mapping[str, str], spelled: Callable[[Name], str] = attrgetter("variable")) -> Given:
    """Return what is given under any name of the options. An option's own name comes before its aliases.

    Args:
        texts: the user's texts, by the key of a name.
        spelled: how the user wrote a name.
    """
    given: dict[str, tuple[str, str]] = {}
    for key, option in OPTIONS.items():
        for name in option.names:
            text = texts.get(name.key)
            if text is not None and not (name.value and text in ("", "0")):
                given.setdefault(key, (name.value if name.value and text == "1" else text, spelled(name)))
    return given


def in_environment(spelled: Callable[[Name], str] = attrgetter("variable")) -> Given:
    """Return what is given in environment variables."""
    return given_as({name.key: text for name in NAMES if (text := os.environ.get(name.variable))}, spelled)


def in_make() -> Given:
    """Return what is given in make's variables. make also passes empty ones."""
    return given_as({name.key: text for name in NAMES if (text := os.environ.get(name.word))}, attrgetter("word"))


def take_from_make(variables: MutableMapping[str, str]) -> None:
    """Set the builder's variables from make's, and unset the others: under make, only make's variables count."""
    for name in NAMES:
        if name.variable != name.word:
            variables.pop(name.variable, None)
            if given := variables.pop(name.word, ""):
                variables[name.variable] = given


# Variables that only the Makefile and the test tools read: default and help.
OF_MAKE = {
    "PACKAGE": ("", "for adopt: the Python package of an extension, and more modules of it"),
    "OP": ("", "for show: the name of an operator, such as relu or torch.fft.rfft2"),
    "PYTHONS": ("", 'for test-matrix: "3.11 3.12", names or paths'),
    "AT_ONCE": ("1", "for test-matrix: rows to run at once"),
    "KEEP": ("", "for test-matrix: 1 keeps its environments"),
    "ARGS": ("", "additional arguments, such as ARGS=--help"),
}


def require_known(variables: Mapping[str, str]) -> None:
    """Check the variables on make's command line, whose names the Makefile passes in ``GIVEN``."""
    known = [*OF_MAKE, *(name.word for name in NAMES)]
    if found := mistakes(variables.get("GIVEN", "").split(), variables, known):
        raise UsageError("\n".join(found), todo=HELP)


def variables(verbs: Sequence[Verb]) -> str:
    """Return a table of make's variables with their current values, and of the keys of [tool.graft]."""
    given = in_make()
    shown = {each.word: (given.get(key, (each.default,))[0], each.help_with(verbs)) for key, each in OPTIONS.items()}
    shown |= {name: (os.environ.get(name) or default, help_) for name, (default, help_) in OF_MAKE.items()}
    lines = [f"  {f'{name}={value}':<22} {help_}" for name, (value, help_) in shown.items()]
    keys = [f"  {name:<22} {key.help}" for name, key in KEYS.items()]
    return "\n".join(
        ["Variables, with their values now:", *lines, f"Settings of a folder, [tool.graft] in {FILE}:", *keys]
    )


def request_of(given: Given) -> Request:
    """Read the values of options.

    Raises:
        UsageError: lists every value that cannot be read.
    """
    values, faults = {}, []
    for key, option in OPTIONS.items():
        text, spelled = given.get(key, (option.default, option.word))
        try:
            values[key] = option.read(text)
        except ValueError as error:
            faults.append(f"{spelled}: {error}")
    if faults:
        raise UsageError("\n".join(faults), todo=HELP)
    return Request(**values)
