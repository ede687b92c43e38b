"""The files that one run generates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from ..core.files import remove_others, write_if_changed


class Output:
    """Writes files below a folder, and records their names. Skips unchanged files, so ninja rebuilds nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: set[Path] = set()  # relative to the folder

    def write(self, name: str | Path, text: str) -> None:
        path = self.folder / name
        self.names.add(path.relative_to(self.folder))
        write_if_changed(path, text)

    def read(self, name: str | Path) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def prune(self, of: Iterable[str] = ("",)) -> None:
        """Delete the files below the folders ``of`` that this run did not write."""
        for folder in of:
            kept = {name.relative_to(folder) for name in self.names if name.is_relative_to(folder)}
            remove_others(self.folder / folder, kept)


class Drafts(Output):
    """Keeps the texts of those files that ``is_draft`` accepts, to be changed before they are written."""

    def __init__(self, folder: Path, is_draft: Callable[[str], bool]) -> None:
        super().__init__(folder)
        self._is_draft = is_draft
        self.texts: dict[str, str] = {}

    def write(self, name: str | Path, text: str) -> None:
        short = (self.folder / name).relative_to(self.folder).as_posix()
        if self._is_draft(short):
            self.texts[short] = text
        else:
            super().write(name, text)

    def write_to(self, out: Output) -> None:
        """Write the texts. ``out``, for the same folder, gets the names of the other files."""
        out.names |= self.names
        for name, text in self.texts.items():
            out.write(name, text)
