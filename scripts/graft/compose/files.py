"""Compose the files of the wheel that differ from the base's, each from its layers, in one pass.

The layers of a text file are upstream's text, patches, insertions and appended texts. No layer is applied to an earlier
result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.base import VERSION_FILE
from ..codegen.description import PLACES, Description
from ..compile.manifest import Outside
from ..core.errors import UsageError
from ..core.files import files_below
from ..inputs.elsewhere import SOURCE_SUFFIXES
from ..inputs.merge import MARK
from ..inputs.native import NativeFolders
from ..inputs.patches import ADDED
from .appending import appended_texts, behind, our_files
from .docs import docstring, insert_classes, insert_functions, with_docstring

ANNOTATED = "torch/testing/_internal/generated/annotated_fn_args.py"
_RETURN_TYPES = "torch/return_types.pyi"
_NOTE = "torch/_graft.json"


@dataclass(frozen=True)
class Made:
    """What was built from a native folder.

    Args:
        hash_: a hash of the inputs.
        stamp: the stamp of the snapshot and of what was read elsewhere.
        outside: what was read elsewhere.
        natives: the native folders.
        description: the description of its operators.
        patched: the files that patches change, with the patches applied.
        generated: the folder of files that the generator wrote for the wheel.
        libraries: the linked libraries, by path below site-packages.
        cuda: the variables that give the same result again; empty if CUDA plays no part in it.
    """

    hash_: str
    stamp: str
    outside: Outside
    natives: NativeFolders
    description: Description
    patched: Mapping[str, bytes]
    generated: Path
    libraries: Mapping[str, Path]
    cuda: str = ""


class Composition:
    """The files of the wheel that differ from the base's, by path.

    Args:
        tree: the unpacked base.
        patched: the files that patches change, with the patches applied.
        generated: the folder of files that the generator wrote for the wheel.
    """

    def __init__(self, tree: Path, patched: Mapping[str, bytes], generated: Path) -> None:
        self._tree = tree
        self.files: dict[str, bytes] = dict(patched)
        self.files |= {name.as_posix(): (generated / name).read_bytes() for name in files_below(generated)}
        if (tree / ADDED).is_file():
            texts = (tree / ADDED).read_text(encoding="utf-8"), self.files[ADDED].decode("utf-8")
            self._put(ADDED, extended(*texts))

    def text(self, name: str) -> str | None:
        """Return the current text of ``name``, or None if there is no such file."""
        content = self.files.get(name)
        if content is None and (self._tree / name).is_file():
            content = (self._tree / name).read_bytes()
        return None if content is None else content.decode("utf-8")

    def insert(self, natives: NativeFolders, description: Description) -> None:
        """Insert the added operators into files that upstream generates: stubs, and arguments for tests."""
        documented = {(b.place.name, b.name): docstring(b, natives) for b in description.bound}
        for place in PLACES:
            if place.stub and (hints := description.hints.get(place.name)):
                definitions = {
                    name: with_docstring(texts, documented.get((place.name, name), "")) for name, texts in hints.items()
                }
                self._put(place.stub, insert_functions(self._upstream(place.stub), place.stub_class, definitions))
        if description.return_types:
            self._put(_RETURN_TYPES, insert_classes(self._upstream(_RETURN_TYPES), description.return_types))
        if description.annotated:
            head, brace, tail = self._upstream(ANNOTATED).rpartition("}")
            self._put(ANNOTATED, f"{head}{''.join(description.annotated)}{brace}{tail}")

    def append(self, texts: Mapping[str, str]) -> None:
        """Append texts to the files of these names."""
        ours = {name: path.read_text(encoding="utf-8") for name, path in our_files().items()}
        for name, text in texts.items():
            self._put(name, behind(self.text(name), text, ours.get(name, "")))

    def _put(self, name: str, text: str) -> None:
        self.files[name] = text.encode("utf-8")

    def _upstream(self, name: str) -> str:
        text = self.text(name)
        assert text is not None, name
        return text


def extended(lists: str, more: str) -> str:
    """Return the text of a module of lists and dictionaries that has the entries of two."""
    more = re.sub(r"\A.*?^(?=[A-Z]+ = )", "", more, flags=re.M | re.S)
    more = re.sub(r"^([A-Z]+) = (?=\[)", r"\1 += ", more, flags=re.M)
    more = re.sub(r"^([A-Z]+) = ", r"\1 |= ", more, flags=re.M)
    return f"{lists}{MARK}{more}"


def compose(tree: Path, made: Made, version: str, note: Mapping[str, Any]) -> dict[str, bytes]:
    """Compose every file of a grafted torch that differs from the base's.

    Args:
        tree: the unpacked base.
        made: the linked build.
        version: the value of ``torch.__version__``.
        note: the description that ``python -m torch._graft`` shows.

    Raises:
        UsageError: a header of the native folder has the name of one of PyTorch's.
    """
    composition = Composition(tree, made.patched, made.generated)
    composition.insert(made.natives, made.description)
    composition.append(appended_texts(made.natives, made.description))
    version_text = with_version(composition.text(VERSION_FILE) or "", version)
    note = {**note, "replaced": made.description.replaced}
    own = {VERSION_FILE: version_text.encode("utf-8"), _NOTE: json.dumps(note, indent=1).encode()}
    own |= {name: path.read_bytes() for name, path in made.libraries.items()}
    return {**composition.files, **installed_headers(tree, made.natives), **own}


def with_version(text: str, version: str) -> str:
    """Return the text of ``torch/version.py`` with another ``__version__``."""
    return re.sub(r"^__version__ = .*$", f"__version__ = '{version}'", text, count=1, flags=re.M)


def installed_headers(tree: Path, natives: NativeFolders) -> dict[str, bytes]:
    """Return the headers of native folders, at the paths where PyTorch installs its own.

    Raises:
        UsageError: PyTorch has a header of this name, which the base was compiled with.
    """
    found = {}
    for header in natives.headers:
        if header.suffix in SOURCE_SUFFIXES:
            continue  # another source includes it
        name = f"torch/include/ATen/native/{header.as_posix()}"
        if (tree / name).is_file():
            raise UsageError(
                f"{natives.file(header)}: PyTorch has a header of this name, ATen/native/{header.as_posix()}",
                todo="choose another name",
            )
        found[name] = natives.paths[header].read_bytes()
    return found


def describe_additions(base: str, description: Description) -> str:
    """Return the notice that is added to PyTorch's licenses: what was added to the version ``base``, and from where."""
    names = sorted({bound.public for bound in description.bound})
    parts = [
        f"This is PyTorch {base}, under the license in LICENSE, with operators that Graft added.\n"
        "The added operators are under the license of their authors:\n",
        *(f"    {name}\n" for name in names),
    ]
    if description.replaced:
        parts += ["So are these parts, which replace PyTorch's own:\n"]
        parts += [f"    {line}\n" for line in description.replaced_lines]
    return "".join(parts)
