"""The files that one run generates."""

from __future__ import annotations

from collections.abc import Iterable
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
