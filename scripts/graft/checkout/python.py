"""Take Python files of torch that a checkout changes: as whole files, or as text to append to the installed ones."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.process import run
from ..inputs.patches import ADDED
from ..inputs.python_names import names_defined, names_needed
from .changed_python import Difference
from .python_operators import docs_of, without_docstrings

PYTHON_SUFFIXES = (".py", ".pyi", ".pyi.in")

# Git's markers of conflicts. They are longer than the underline of a heading.
_MARK = 40
_CONFLICT = re.compile(rf"^<{{{_MARK}}} installed\n(.*?)^={{{_MARK}}}\n(.*?)^>{{{_MARK}}} new\n", re.M | re.S)
_MERGE = ("git", "-c", "merge.conflictStyle=merge", "merge-file", "-p", "-q", f"--marker-size={_MARK}")

# Files that cannot be changed, and why.
_OTHERS = {
    r"torch/version\.py|torch/testing/_internal/generated/.*": "PyTorch's build writes it",
    rf"torch/_graft.*|{re.escape(ADDED)}": "Graft writes it",
    "torch/(bin|csrc|include|lib|share|test)/.*": "a wheel has no Python of this folder",
}
# The build appends docstrings of its own to these, and PyTorch allows no second one for an operator.
_DOCSTRINGS = ("torch/_torch_docs.py", "torch/_tensor_docs.py")


@dataclass(frozen=True)
class Taken:
    """The parts of a changed Python file to build; none if only comments or the formatting changed.

    Args:
        whole: the content of the file, if it replaces the installed one.
        behind: otherwise the text to append to the installed file, each statement at its line in the checkout.
        docs: the docstrings of added operators, as files of a native folder.
        left: the changes that are left out, for messages.
    """

    whole: bytes | None = None
    behind: str = ""
    docs: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def installed_name(name: str) -> str:
    """Return the path below site-packages of a file of a checkout."""
    return name.removesuffix(".in")


def taken(
    name: str,
    before: bytes | None,
    after: bytes | None,
    wheel: bytes | None,
    added: Collection[str],
    refused: Collection[str],
    *,
    only_behind: bool = False,
) -> Taken:
    """Return the parts to build of a changed Python file below torch/.

    Args:
        name: its path in the checkout.
        before: its content in the commit that the checkout is compared with; None if that lacks it.
        after: its content in the checkout; None if it is deleted.
        wheel: the content of ``installed_name(name)`` in the torch that is built on, with the pin's patches; None if
            there is none.
        added: the names of operators that the checkout adds, whose docstrings the build sets.
        refused: the names of operators that stay as they are, as in native_functions.yaml.
        only_behind: whether text can only be appended to files, as in a thin wheel.

    Raises:
        ValueError: the file is not taken; the message says why.
    """
    if why := next((why for names, why in _OTHERS.items() if re.fullmatch(names, name)), ""):
        raise ValueError(why)
    if after is None:
        raise ValueError("the checkout deletes it, and the installed torch keeps it")
    old, new, installed = (_text(each) for each in (before, after, wheel))
    if old is None and installed not in (None, new):
        raise ValueError("the installed torch has another file of this name")
    if old is not None and installed is None:
        raise ValueError("the installed torch has no such file")
    if name.endswith(".in") and installed != old:
        raise ValueError("PyTorch's build generates the installed stub from it")
    if new is None or new in (old, installed):
        return Taken()
    _require_python(name, new)
    new, found = without_docstrings(new, added)
    try:
        difference = Difference(old or "", new, refused, name)
    except SyntaxError as error:
        raise ValueError(f"before the changes it is not Python of this version: {error}") from error
    docs, computed = docs_of(found)
    of_refused = difference.left
    left = [f"the docstring of {each}, which is computed" for each in computed] + of_refused
    if difference.is_empty and old is not None:
        return Taken(docs=docs, left=left)
    if installed == old and not of_refused and not only_behind:
        return Taken(new.encode(), "", docs, left)
    if installed is None and not of_refused:
        return Taken(None, new or "\n", docs, left)  # an empty file makes a package
    text, faults = difference.behind()
    if text and name in _DOCSTRINGS:
        text, faults = "", ["docstrings of PyTorch's operators"]
    if faults and not only_behind and not of_refused and old is not None and installed is not None:
        both, conflicts = merged(old, new, installed)
        return Taken(both.encode(), "", docs, [*left, *conflicts])
    why = "the installed torch has another version" if installed != old else "no file of torch is replaced here"
    why = f"{', '.join(of_refused)} must be left out" if of_refused else why
    faults = [f"{why}, and text behind the file cannot change {each}" for each in faults]
    if faults and not text:
        raise ValueError(faults[0])
    return Taken(None, text, docs, [*left, *faults])


def _text(content: bytes | None) -> str | None:
    """Return a file's text, with line ends made the same: git may convert them in a checkout."""
    try:
        return None if content is None else content.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: {error.reason} at byte {error.start}") from error


def merged(old: str, new: str, installed: str) -> tuple[str, list[str]]:
    """Merge the changes from ``old`` to ``new`` into the installed text. Return the result and a list of conflicts,
    where the installed text stays.

    Raises:
        ValueError: git cannot merge them; or the result is not Python, or lacks a name that a left-out change defines.
    """
    with TemporaryDirectory(prefix="graft-") as folder:
        files = [Path(folder, name) for name in ("installed", "old", "new")]
        for file, text in zip(files, (installed, old, new), strict=True):
            file.write_text(text, encoding="utf-8", newline="")
        named = [word for file in files for word in ("-L", file.name)]
        done = run([*_MERGE, *named, *files], cwd=Path(folder), check=False)
    if not 0 <= done.returncode < 128:  # the number of conflicts
        raise ValueError(f"what git cannot merge: {done.stdout.strip()}")
    conflicts, here, there = [], 0, 0
    for found in _CONFLICT.finditer(done.stdout):
        here, there = max(new.find(found[2], here), 0), max(installed.find(found[1], there), 0)
        ours, theirs = _lines_of(found[2], new, here), _lines_of(found[1], installed, there)
        conflicts.append(f"{ours}, since the installed torch has {theirs} there")
    text = _CONFLICT.sub(lambda found: found[1], done.stdout)
    if fault := not_python(text):
        raise ValueError(f"line {fault}, once merged with the installed torch's")
    if lost := names_needed(text) & names_defined(new) - names_defined(text):
        raise ValueError(f"`{min(lost)}`: what defines it meets another change of the installed torch's")
    return text, conflicts


def _lines_of(part: str, whole: str, place: int) -> str:
    """Return the lines of ``part``, which begins at the offset ``place`` of ``whole``, for messages."""
    first, number = whole.count("\n", 0, place) + 1, part.count("\n")
    return f"lines {first} to {first + number - 1}" if number > 1 else f"line {first}" if part else "no line"


def _require_python(name: str, text: str) -> None:
    if conflict := re.search(r"^<{7}( |$)(?=.*?^>{7}( |$))", text, re.M | re.S):
        line = text.count("\n", 0, conflict.start()) + 1
        raise ValueError(f"{name}:{line}: a merge conflict; resolve it")
    if fault := not_python(text):
        raise ValueError(f"{name}:{fault}")


def not_python(text: str) -> str:
    """Return the line and the reason why a text is not Python; empty if it is."""
    try:
        compile(text, "<checkout>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{error.lineno}: not Python: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"1: not Python: {error}"
    return ""
