"""Compose the files of a wheel of torch, or of a tree, that differ from the base's.

A text file is upstream's text with patches, insertions and appended texts, always composed anew from these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.base import VERSION_FILE
from ..codegen.description import NAMESPACES, Description
from ..compile.extensions import NO_EXTENSIONS, Extensions
from ..compile.manifest import Outside
from ..core.errors import UsageError
from ..core.files import files_below
from ..inputs.native import NativeFolders
from ..inputs.patches import ADDED
from ..inputs.unread import SOURCE_SUFFIXES
from .appending import appended_texts, behind, files_extended, our_files
from .docs import docstring, insert_classes, insert_functions, with_docstring

ANNOTATED = "torch/testing/_internal/generated/annotated_fn_args.py"
_RETURN_TYPES = "torch/return_types.pyi"
_NOTE = "torch/_graft.json"


@dataclass(frozen=True)
class Made:
    """The results of a build, before they are composed into files to deliver.

    Args:
        hash_: a hash of the inputs.
        outside: the files outside of the build that compilers read.
        natives: the native folders.
        description: the description of its operators.
        patched: the files that patches change, with the patches applied.
        generated: the folder of the generated files that are delivered.
        libraries: the linked libraries, by path below site-packages.
        cuda_note: the note of the CUDA settings that give the same result again; empty if CUDA does not affect it.
        extensions: the extensions that stay separate libraries.
    """

    hash_: str
    outside: Outside
    natives: NativeFolders
    description: Description
    patched: Mapping[str, bytes]
    generated: Path
    libraries: Mapping[str, Path]
    cuda_note: str = ""
    extensions: Extensions = NO_EXTENSIONS


class Composition:
    """The files that differ from the base's, by path.

    Args:
        tree: the unpacked base.
        patched: the files that patches change, with the patches applied, and the files laid over the base's.
        generated: the folder of the generated files that are delivered.
    """

    def __init__(self, tree: Path, patched: Mapping[str, bytes], generated: Path) -> None:
        self._tree = tree
        self.files: dict[str, bytes] = dict(patched)
        self.files |= {name.as_posix(): (generated / name).read_bytes() for name in files_below(generated)}

    def text(self, name: str) -> str | None:
        """Return the current text of ``name``, or None if there is no such file."""
        content = self.files.get(name)
        if content is None and (self._tree / name).is_file():
            content = (self._tree / name).read_bytes()
        return None if content is None else content.decode("utf-8")

    def insert(self, natives: NativeFolders, description: Description) -> None:
        """Insert the added operators into the list of operators, and into upstream's stubs and arguments for tests."""
        self._put(ADDED, description.module(self.text(ADDED) or ""))
        documented = {(b.namespace, b.name): docstring(b, natives) for b in description.bound}
        for each in NAMESPACES:
            if each.stub and (hints := description.hints.get(each.name)):
                definitions = {
                    name: with_docstring(texts, documented.get((each, name), "")) for name, texts in hints.items()
                }
                self._put(each.stub, insert_functions(self._upstream(each.stub), each.stub_class, definitions))
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


def compose(tree: Path, made: Made, version: str, note: Mapping[str, Any]) -> dict[str, bytes]:
    """Compose every file of a grafted torch that differs from the base's.

    Args:
        tree: the unpacked base.
        made: the linked build.
        version: the value of ``torch.__version__``.
        note: the description that ``python -m torch._graft`` shows.
    """
    laid_over = {name: path.read_bytes() for name, (_, path) in made.natives.overlay.items()}
    composition = Composition(tree, {**made.patched, **laid_over}, made.generated)
    composition.insert(made.natives, made.description)
    composition.append(appended_texts(made.natives, made.description))
    version_text = with_version(composition.text(VERSION_FILE) or "", version)
    lists = {"extended": files_extended(tree, made.natives), "laid_over": sorted(laid_over)}
    note = {**note, "replaced": made.description.replaced_parts, **lists}
    own = {VERSION_FILE: version_text.encode("utf-8"), _NOTE: json.dumps(note, indent=1).encode()}
    own |= {name: path.read_bytes() for name, path in made.libraries.items()}
    return {**composition.files, **installed_headers(tree, made.natives), **own}


def with_version(text: str, version: str) -> str:
    """Return the text of ``torch/version.py`` with another ``__version__``."""
    return re.sub(r"^__version__ = .*$", f"__version__ = '{version}'", text, count=1, flags=re.M)


def installed_headers(tree: Path, natives: NativeFolders) -> dict[str, bytes]:
    """Return the headers of native folders, at the paths where PyTorch installs its own."""
    found = {}
    for header in natives.installed:
        if header.suffix in SOURCE_SUFFIXES:
            continue  # a source that another one includes
        name = f"torch/include/ATen/native/{header.as_posix()}"
        if (tree / name).is_file():
            raise UsageError(
                f"{natives.file(header)}: PyTorch has a header of this name, ATen/native/{header.as_posix()}",
                todo="choose another name",
            )
        found[name] = natives.paths[header].read_bytes()
    return found


def describe_additions(tree: Path, base: str, made: Made) -> str:
    """Return the notice that is added to PyTorch's licenses. It lists the operators added to the version ``base``,
    which is unpacked in ``tree``, and the parts that were replaced or extended.
    """
    description = made.description
    names = sorted({bound.public for bound in description.bound})
    parts = [
        f"This is PyTorch {base}, under the license in LICENSE, with operators that Graft added.\n"
        "The added operators are under the license of their authors:\n",
        *(f"    {name}\n" for name in names),
    ]
    if replaced := [*description.replaced_lines, *sorted({*made.natives.overlay, *files_extended(tree, made.natives)})]:
        parts += ["So are these parts, which replace or extend PyTorch's own:\n"]
        parts += [f"    {line}\n" for line in replaced]
    return "".join(parts)
