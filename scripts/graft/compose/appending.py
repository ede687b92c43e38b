"""The texts that are appended to torch's own Python files: docstrings, a native folder's ``python/``, ``appended/``.

The texts of ``appended/`` extend upstream's functions and lists by name. If a release lacks such a name, the build
fails, rather than ``import torch``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..codegen.description import Description
from ..core.errors import BuildError, UsageError
from ..core.files import files_below, write_atomically
from ..inputs.merge import MARK
from ..inputs.native import DOCS, PYTHON, NativeFolders
from ..inputs.patches import ADDED
from ..inputs.python_names import names_defined, names_needed
from ..inputs.snapshot import hash_of_builder
from .docs import docstring, docstring_texts

_OURS = Path(__file__).resolve().parent / "appended"
_FOR_EXTENSIONS = _OURS.with_name("of_extensions")
# In these files our text comes first, since the native folder's uses names that ours defines, or overrides ours.
_BEFORE_FOLDERS = ("torch/_decomp/decompositions.py", "torch/distributed/tensor/_ops/_pointwise_ops.py")


def our_files() -> dict[str, Path]:
    """Return the files of ``appended/``, whose texts every wheel gets, by path in the wheel."""
    return {f"torch/{file.as_posix()}": _OURS / file for file in files_below(_OURS) if file.suffix == ".py"}


def texts_of_folders(natives: NativeFolders) -> dict[str, str]:
    """Return the texts of the native folders' ``python/``, by path in the wheel."""
    texts = {name.relative_to(PYTHON): natives.texts(name).values() for name in natives.python}
    return {f"torch/{name.as_posix()}": "\n".join(each) for name, each in texts.items()}


def files_extended(tree: Path, natives: NativeFolders) -> list[str]:
    """Return torch's own Python files that native folders' ``python/`` extends, by path in the wheel."""
    return sorted(name for name in texts_of_folders(natives) if (tree / name).is_file())


def texts_of_extensions(natives: NativeFolders) -> dict[str, str]:
    """Return the texts for extensions that are delivered beside torch, by path in the wheel; may be empty."""
    names = [extension.name for folder in natives.folders for extension in folder.settings.extensions]
    text = (_FOR_EXTENSIONS / "_ops.py").read_text(encoding="utf-8") if names else ""
    return {"torch/_ops.py": text.replace("(EXTENSIONS)", f"({names!r})")} if names else {}


def appended_texts(natives: NativeFolders, description: Description) -> dict[str, str]:
    """Return the texts to append to torch's own Python files, and new files, by path in the wheel.

    The order is: docstrings and public names; the native folder's ``python/``, which mirrors the ``torch`` package;
    then the texts in ``appended/``, which every wheel gets, since they read what the others define; and the texts for
    extensions. ``_BEFORE_FOLDERS`` lists the exceptions.
    """
    texts = docstring_texts({bound: docstring(bound, natives) for bound in description.bound})
    ours = {name: path.read_text(encoding="utf-8") for name, path in our_files().items()}
    before = [(name, ours.pop(name)) for name in _BEFORE_FOLDERS]
    for name, text in [
        *before,
        *texts_of_folders(natives).items(),
        *ours.items(),
        *texts_of_extensions(natives).items(),
    ]:
        texts[name] = f"{texts[name]}\n{text}" if name in texts else text
    for name, text in texts.items():
        _require_valid(name, text)
    return texts


def _require_valid(name: str, text: str) -> None:
    """Check that a text is Python: otherwise ``import torch`` would fail."""
    try:
        compile(text, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = f"{name}: the text for it is not Python: {error}"
        raise BuildError(what, todo=f"correct what the folder has for it in {DOCS}/ or {PYTHON}/") from error


def behind(upstream: str | None, text: str, ours: str = "") -> str:
    """Return the content of a file: ``text`` alone, or after upstream's text.

    Args:
        upstream: the file's text so far; None if there is none.
        text: what to append.
        ours: the part of ``text`` that every wheel gets. A base that was built from the fork has it already. If the
            file ends with it, ``text`` takes its place. If it is elsewhere, before the texts of folders, ``text`` is
            appended without it.
    """
    if ours and upstream and upstream.endswith(ours):
        if text == ours:
            return upstream
        upstream = upstream.removesuffix(ours)
    elif ours and upstream and ours in upstream:
        text = text.removeprefix(ours).lstrip("\n")
    return f"{upstream}{MARK if text else ''}{text}" if upstream else text


def require_names(tree: Path, texts: Mapping[str, Path] | None = None, note: Path | None = None) -> None:
    """Check that the base defines each name that a text uses but does not define.

    Args:
        tree: the unpacked base.
        texts: the files with texts, by the file that each is appended to; None for the texts that every wheel gets.
        note: a file next to the base that records a successful check; None to check again.
    """
    stamp = hash_of_builder()
    if note and note.is_file() and note.read_text(encoding="utf-8") == stamp:
        return
    faults: list[str] = []
    for name, path in (our_files() if texts is None else texts).items():
        upstream = (tree / name).read_text(encoding="utf-8") if (tree / name).is_file() else ""
        text = path.read_text(encoding="utf-8")
        if not (tree / ADDED).is_file():
            missing = names_needed(text) - names_defined(upstream)
            faults += [f"{name}: it has no `{each}`, which {path} needs" for each in sorted(missing)]
        elif text not in upstream:
            raise UsageError(
                f"{name}: this torch was built from the fork by another version of Graft",
                todo="build it again with `make patch-and-build BUILD=source`; compiled files are kept",
            )
    if faults:
        raise UsageError(
            "\n".join(faults),
            cause="this PyTorch differs from the supported ones",
            todo="use names that this PyTorch has in these texts, or set PIN to another release",
        )
    if note:
        write_atomically(note, stamp)
