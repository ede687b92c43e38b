"""The files of the new wheel that differ from the base's, laid out as in the wheel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ..common.files import remove_others, write_if_changed


@dataclass
class Overlay:
    """A folder of files that go into the wheel beside, or instead of, the base's.

    Files are written only when they change; ``prune`` deletes what no step of this build wrote.

    Args:
        folder: where they are.
        base: the base wheel's tree.
        names: what was written, relative to ``folder``.
    """

    folder: Path
    base: Path
    names: set[Path] = field(default_factory=set)

    def read(self, name: str) -> str:
        """The text of ``name``, as this build has it so far, or else as the base has it."""
        ours = self.folder / name
        return (ours if Path(name) in self.names else self.base / name).read_text()

    def write(self, name: str | PurePosixPath, content: str | bytes) -> None:
        """Write ``content`` as ``name``."""
        write_if_changed(self.folder / name, content)
        self.names.add(Path(name))

    def keep(self, names: Iterable[str | Path]) -> None:
        """Note files that another process wrote here."""
        self.names.update(map(Path, names))

    def prune(self) -> None:
        """Delete files that are left from an earlier build."""
        remove_others(self.folder, self.names)
