"""Hints for sources that use instructions which their CPU capability lacks."""

from __future__ import annotations

import re
from pathlib import Path

from .diagnostics import COMPILED_FOR, Diagnostic

_MISMATCH = "target specific option mismatch"
# In the headers of g++, before functions for processors with a feature.
_GUARD = re.compile(r"^#if.*?\b(__\w+__)\b.*\n(?:#pragma GCC push_options\n)?#pragma GCC target", re.M)


def compiled_for(command: str) -> str:
    """Return a line for ``diagnostics`` with the CPU capability of a compiler's command, and its flags. It is empty for
    sources that are compiled once.
    """
    capability = re.search(r" -DCPU_CAPABILITY=(\w+)", command)
    flags = dict.fromkeys(re.findall(r" (-m[^\s']+)", command))
    return f"{COMPILED_FOR}{capability[1]}: {' '.join(flags) or 'no flags'}" if capability else ""


def hint_of_capability(error: Diagnostic) -> str:
    """Return the hint for a function of instructions that the capability of a source lacks; empty for other errors."""
    if _MISMATCH not in error.message:
        return ""
    guard = _guard_above(Path(error.file), error.line)
    capability, _, flags = error.compiled_for.partition(": ")
    with_what = f"{capability} is compiled with {flags}" if capability else "this file is compiled for any processor"
    what = f"write the call below `#ifdef {guard}`" if guard else "call it only where a macro says that it is there"
    return f"{with_what}; {what}, and another way for processors without it"


def _guard_above(header: Path, line: int) -> str:
    """Return the macro that says whether the functions at a line of a compiler's header can be called."""
    try:
        lines = header.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except OSError:
        return ""
    found = _GUARD.findall("".join(lines[:line]))
    return str(found[-1]) if found else ""
