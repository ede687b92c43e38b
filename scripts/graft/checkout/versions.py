"""Two versions of PyTorch's files: a commit and the working tree, or two commits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from ..core.errors import UsageError
from .repository import Repository


class Versions(ABC):
    """Two versions of the files of a checkout.

    Args:
        repository: the checkout.
        old: the commit that is compared with.
    """

    def __init__(self, repository: Repository, old: str) -> None:
        self._repository = repository
        self._old = old

    @property
    def tree(self) -> Path:
        """The top folder of the checkout."""
        return self._repository.path

    @cached_property
    @abstractmethod
    def changed(self) -> Mapping[str, str]:
        """The files that differ, each with the kind of change, as in ``Repository.changed``."""

    def before(self, names: Iterable[str]) -> dict[str, bytes | None]:
        """Return the contents of files in the old version; None for one that is not there."""
        wanted = [*names]
        if unknown := [name for name in wanted if name not in self._before]:
            # Read all changed files at once: each read takes a process.
            self._before.update(self._repository.texts(self._old, {*unknown, *self._read}))
        return {name: self._before[name] for name in wanted}

    @cached_property
    def _before(self) -> dict[str, bytes | None]:
        return {}

    @cached_property
    def _read(self) -> list[str]:
        """The files that changed and may be asked for."""
        return [
            name for name, how in self.changed.items() if how != "S" and name.startswith(("aten/", "tools/", "torch/"))
        ]

    @abstractmethod
    def after(self, name: str) -> bytes | None:
        """Return the content of a file in the new version; None if it is not there."""


class WorkingTree(Versions):
    """A commit and the working tree."""

    @cached_property
    def changed(self) -> Mapping[str, str]:
        found = self._repository.changed(self._old)
        # Some editors lock a file with a dangling link.
        for name in [name for name in found if (self.tree / name).is_symlink() and not (self.tree / name).exists()]:
            if found[name] == "A":
                del found[name]
            else:
                found[name] = "D"
        return found

    def after(self, name: str) -> bytes | None:
        path = self.tree / name
        try:
            return path.read_bytes() if path.is_file() else None
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", todo="make it readable") from error


class Commits(Versions):
    """Two commits.

    Args:
        repository: the checkout.
        old: the commit that is compared with.
        new: the other one.
    """

    def __init__(self, repository: Repository, old: str, new: str) -> None:
        super().__init__(repository, old)
        self._new = new

    @cached_property
    def changed(self) -> Mapping[str, str]:
        names = sorted(self._repository.differing(self._old, self._new))
        return {name: "D" if self._contents[name] is None else "M" for name in names}

    @cached_property
    def _contents(self) -> dict[str, bytes | None]:
        return self._repository.texts(self._new, self._repository.differing(self._old, self._new))

    def after(self, name: str) -> bytes | None:
        if name not in self._contents:
            self._contents.update(self._repository.texts(self._new, [name]))
        return self._contents[name]
