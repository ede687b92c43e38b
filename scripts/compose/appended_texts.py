"""Text that goes behind that of torch's own Python files, and files beside them.

In this order: docstrings and public names; the native folder's ``python/``, which mirrors the ``torch`` package: a file
that torch does not have is new, one that it has gains the text; ``samples.py``; and last what every wheel gets, in
``appended/``, since it looks at what is there. What the folder's own text needs goes before that.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..common.files import files_below
from ..generate.merge import MARK
from ..inputs.native import DOCS, PYTHON, NativeFolder
from .description import Description
from .docs import docstring, docstring_texts

_OURS = Path(__file__).resolve().parent / "appended"
# Of those, what the native folder's text for the same file needs.
_BEFORE_THE_FOLDER_S = ("torch/_decomp/decompositions.py",)
_SAMPLES = "testing/_internal/added_samples.py"


def appended_texts(native: NativeFolder, description: Description) -> dict[str, str]:
    """The texts by the path of their file in the wheel, several for one file joined."""
    documented = {bound: docstring(bound, native.path / DOCS) for bound in description.bound}
    texts = docstring_texts(documented)
    for name, path in _files(native):
        text = path.read_text(encoding="utf-8")
        texts[name] = f"{texts[name]}\n{text}" if name in texts else text
    return texts


def our_files() -> dict[str, Path]:
    """The texts that every wheel gets, by the path of their file in the wheel."""
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


def behind(upstream: str | None, text: str) -> str:
    """The text of a file: ``text`` alone, or behind what upstream has there."""
    return text if upstream is None else f"{upstream}{MARK}{text}"
