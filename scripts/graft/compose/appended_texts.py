"""Texts that are appended to torch's own Python files, and new files.

The order is: docstrings and public names; the native folder's ``python/``, which mirrors the ``torch`` package (a file
that torch does not have is new, text for an existing one is appended); ``samples.py``; and last the texts in
``appended/``, which every wheel gets, since they look at what is there. Those that the folder's own text needs come
before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..codegen.merge import MARK
from ..core.files import files_below
from ..inputs.native import DOCS, PYTHON, NativeFolder
from .description import Description
from .docs import docstring, docstring_texts

_OURS = Path(__file__).resolve().parent / "appended"
# Those of them that the native folder's text for the same file needs.
_BEFORE_THE_FOLDER_S = ("torch/_decomp/decompositions.py",)
_SAMPLES = "testing/_internal/added_samples.py"


def appended_texts(native: NativeFolder, description: Description) -> dict[str, str]:
    """Return the texts by the path of their file in the wheel, joined if there are several for one file."""
    documented = {bound: docstring(bound, native.path / DOCS) for bound in description.bound}
    texts = docstring_texts(documented)
    for name, path in _files(native):
        text = path.read_text(encoding="utf-8")
        texts[name] = f"{texts[name]}\n{text}" if name in texts else text
    return texts


def our_files() -> dict[str, Path]:
    """Return the texts that every wheel gets, by the path of their file in the wheel."""
    return {f"torch/{file.as_posix()}": _OURS / file for file in files_below(_OURS) if file.suffix == ".py"}


def _files(native: NativeFolder) -> Iterator[tuple[str, Path]]:
    ours = our_files()
    for name in _BEFORE_THE_FOLDER_S:
        yield name, ours.pop(name)
    for file in native.python:
        yield f"torch/{file.relative_to(PYTHON).as_posix()}", native.path / file
    if native.samples:
        yield f"torch/{_SAMPLES}", native.path / native.samples
    yield from ours.items()


def behind(upstream: str | None, text: str, ours: str = "") -> str:
    """Return the content of a file: ``text`` alone, or after upstream's text.

    Args:
        upstream: the file's text so far; None if there is none.
        text: what to append.
        ours: the part of ``text`` that a base built from the fork has already: at its end, which it stays, or, if
            ``text`` begins with it, before the texts of folders.
    """
    if ours and upstream and upstream.endswith(ours):
        if text == ours:
            return upstream
        upstream = upstream.removesuffix(ours)
    elif ours and upstream and ours in upstream:
        text = text.removeprefix(ours).lstrip("\n")
    return f"{upstream}{MARK if text else ''}{text}" if upstream else text
