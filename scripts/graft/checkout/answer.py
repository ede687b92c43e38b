"""A question about two versions of PyTorch, and the answer: a native folder, and the changes that do not fit in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path

from ..core.files import lay_out_files
from ..core.folders import OVERLAY, PLACES, Origin
from ..inputs.entries import split_entries
from ..inputs.merge import PACKAGED
from ..inputs.native import FUNCTIONS
from .versions import Versions

_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")


@dataclass(frozen=True)
class Question:
    """A request for a native folder with what differs between two versions of PyTorch.

    Args:
        versions: the two versions of PyTorch's files.
        site: the folder with the ``torch`` that is built on; None for a native folder that fits any torch.
        files: other sources to compile with the headers that changed: paths below ``aten/src/ATen``.
        is_whole: whether Python files of torch can be replaced as a whole.
    """

    versions: Versions
    site: Path | None
    files: tuple[str, ...] = ()
    is_whole: bool = True

    @property
    def tree(self) -> Path:
        """The top folder of the checkout."""
        return self.versions.tree

    @property
    def has_cuda(self) -> bool:
        """Whether kernels for CUDA can be built."""
        return self.site is None or (self.site / "torch/lib/libtorch_cuda.so").exists()

    def before(self, name: str) -> str:
        """Return the text of a file in the old version; empty if there is none."""
        return text_of(self.versions.before([name])[name])

    def after(self, name: str) -> str:
        """Return the text of a file in the new version; empty if there is none."""
        return text_of(self.versions.after(name))

    def there(self, names: Iterable[str]) -> list[str]:
        """Return those of the ``names`` whose files changed and were not deleted."""
        return [name for name in names if self.versions.changed.get(name, "D") != "D"]

    def installed(self, name: str) -> bytes | None:
        """Return the content of a file of the torch, by path below ``site``; None if there is none."""
        return (self.site / name).read_bytes() if self.site and (self.site / name).is_file() else None

    @cached_property
    def installed_entries(self) -> dict[str, str]:
        """The texts of the entries of native_functions.yaml that the torch has; none if the folder is for any."""
        return split_entries(text_of(self.installed(f"{PACKAGED[FUNCTIONS]}/{FUNCTIONS}")))

    def entries(self, name: str) -> dict[str, str]:
        """Return the texts of the entries in a YAML file of the new version, by operator."""
        if name not in self._entries:
            self._entries[name] = split_entries(self.after(name))
        return self._entries[name]

    @cached_property
    def _entries(self) -> dict[str, dict[str, str]]:
        return {}


@dataclass
class Answer:
    """What the new version changes, as a native folder: all of it, or what one step of ``derive`` found.

    Args:
        question: the question.
        files: the files of the folder.
        places: the path in the checkout of each file.
        overlay: files that replace torch's own, by path below site-packages: the content, and the path in the checkout.
        left: why a change is left out, by path in the checkout or by subject.
        refused: why an operator is left out, with file and line, by operator.
        said: other messages for the user.
        operators: the operators that change in any way.
        added: the names of operators that are new.
    """

    question: Question
    files: dict[str, bytes] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    overlay: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    operators: set[str] = field(default_factory=set)
    added: set[str] = field(default_factory=set)

    def __or__(self, other: Answer) -> Answer:
        """Return this with what a later step found."""
        both = [(getattr(self, each.name), getattr(other, each.name)) for each in fields(self)[1:]]
        return Answer(self.question, *(one + two if isinstance(one, list) else one | two for one, two in both))

    @property
    def carried(self) -> set[str]:
        """The paths in the checkout of all files of the folder, whether they changed or are only needed."""
        return {*self.places.values(), *(place for _, place in self.overlay.values())}

    def put(self, name: str, place: str, text: str) -> None:
        """Add a file, unless its text is blank. A folder for any torch need not keep line numbers or blank lines."""
        if text.strip():
            if self.question.site is None and text != self.question.after(place):
                text = _BLANK_LINES.sub("\n\n", text).strip("\n") + "\n"
            self.files[name], self.places[name] = text.encode(), place

    def put_whole(self, name: str, place: str) -> None:
        """Add a new file of the checkout, byte for byte."""
        content = self.question.versions.after(place)
        assert content is not None, place
        self.files[name], self.places[name] = content, place

    def write(self, folder: Path) -> None:
        """Write the native folder."""
        overlay = {f"{OVERLAY}/{name}": each for name, each in self.overlay.items()}
        places = self.places | {name: place for name, (_, place) in overlay.items()}
        files = self.files | {name: content for name, (content, _) in overlay.items()}
        origin = Origin(str(self.question.tree), "SOURCE", places)
        lay_out_files(folder, {**files, PLACES: origin.text.encode()})


def text_of(content: bytes | None) -> str:
    """Return the text of a file; empty if there is none."""
    return (content or b"").decode("utf-8", errors="replace").replace("\r\n", "\n")
