"""A copy of ``patches/`` in which a pin is written and tested before it is added to the repository."""

from __future__ import annotations

import shutil
from pathlib import Path

from packaging.version import Version

from ..base.base import Base
from ..core.errors import GraftError, PinError
from ..inputs.patches import SERIES, Patch, load_series, patched
from ..inputs.pin import TOOLKITS, GitSource, Pin, load_pin
from . import texts
from .findings import Findings
from .release import Release
from .toolkit import find_toolkit

_PIN = "pin.yaml"


class Draft:
    """The new pin of a release.

    Args:
        patches: the folder of all pins, which is only read.
        copy: where it is copied to.
        release: the release to pin.

    Attributes:
        is_new: whether the release has no pin yet.
    """

    def __init__(self, patches: Path, copy: Path, release: Release) -> None:
        self._patches = patches
        self.copy = copy
        self._release = release
        self._name = release.public
        self.is_new = not (patches / release.public / _PIN).is_file()
        shutil.copytree(patches, copy)

    @property
    def folder(self) -> Path:
        """The pin's folder in the copy."""
        return self.copy / self._name

    def translate(self, error: GraftError) -> None:
        """Make errors name the files of the repository."""
        error.what, error.cause, error.todo = map(self._translate, (error.what, error.cause, error.todo))

    def _translate(self, text: str) -> str:
        return text.replace(str(self.copy), str(self._patches))

    def pin(self) -> Pin:
        """Return the pin with the release's wheels. For a new pin, properties of the wheel are added later.

        Raises:
            PinError: the pin has another file of the same kind, or is invalid.
        """
        path = self.folder / _PIN
        if self.is_new:
            self._write(_PIN, texts.EMPTY_PIN.format(version=self._name))
        known = load_pin(self.folder)
        wheels = {version: dict(hashes) for version, hashes in known.wheels.items()}
        hashes = wheels.setdefault(self._release.version, {})
        for tag, sha256 in self._release.wheels.items():
            if hashes.get(tag, sha256) != sha256:
                raise PinError(
                    f"{path}: {self._release.version}, {tag}: the file differs from the pinned one",
                    cause=f"the pin has {hashes[tag]}, but the file has {sha256}",
                    todo="check which file is the official wheel; if it is the new one, delete the pin's line first",
                )
        wheels[self._release.version] = dict(sorted({**hashes, **self._release.wheels}.items()))
        self._write(_PIN, texts.with_wheels(path.read_text(encoding="utf-8"), path, wheels))
        return load_pin(self.folder, self._release.version)

    def finish(self, pin: Pin, found: Findings) -> None:
        """Write the properties found in the wheel, or compare them with the pin.

        Raises:
            PinError: the pin has other values.
        """
        if self.is_new:
            head = texts.new_pin(self._name, found.commit, found.standard)
            self._write(_PIN, texts.with_wheels(head, pin.path, pin.wheels))
            return
        pairs = [(pin.source.commit, found.commit)] if isinstance(pin.source, GitSource) else []
        for said, is_so in [*pairs, (pin.standard, found.standard)]:
            if said != is_so:
                raise PinError(
                    f"{pin.path}: it has {said}, but torch {found.version} has {is_so}",
                    todo="check that all wheels of this pin are of one release, and fix the pin",
                )

    def add_toolkit(self, pin: Pin, cuda: str, index: str) -> int:
        """Make sure there is a toolkit for that version of CUDA. Return its number of packages, 0 if pip has none.

        Raises:
            GraftError: pip's packages do not fit together, or pip failed.
        """
        if cuda in pin.toolkits:
            return len(pin.toolkits[cuda])
        packages = find_toolkit(cuda, index)
        if packages:
            path = self.copy / TOOLKITS
            path.write_text(texts.with_toolkit(path.read_text(encoding="utf-8"), cuda, packages), encoding="utf-8")
        return len(packages)

    def add_series(self, base: Base, scratch: Path) -> dict[Patch, str]:
        """Make sure there is a series. Return the patches that were tried, each with the reason why it does not apply.

        A new series lists those patches of the newest other pin that apply.

        Raises:
            PinError: an existing series is invalid.
        """
        is_there = (self.folder / SERIES).is_file()
        other = None if is_there else newest(self._patches, self._release)
        folder = self.folder if is_there else self.copy / Version(other).public if other else None
        tried = try_patches(load_series(folder) if folder else [], base.tree, scratch)
        if not is_there:
            self._write(SERIES, texts.series([patch for patch, why in tried.items() if not why], self.folder))
        return {patch: self._translate(why) for patch, why in tried.items()}

    def changed(self) -> dict[Path, str]:
        """The files that differ from the repository's, by path."""
        files = [self.folder / _PIN, self.folder / SERIES, self.copy / TOOLKITS]
        new = {self._patches / file.relative_to(self.copy): file.read_text(encoding="utf-8") for file in files}
        return {
            path: text for path, text in new.items() if not path.is_file() or path.read_text(encoding="utf-8") != text
        }

    def _write(self, name: str, text: str) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / name).write_text(text, encoding="utf-8")


def newest(patches: Path, release: Release, *, is_same_kind: bool = False) -> str:
    """Return the newest wheel of another pin; empty if there is none.

    Args:
        patches: the folder of all pins.
        release: the release of this pin.
        is_same_kind: whether to consider only CPU wheels, or only CUDA wheels, like the release.
    """
    pins = [load_pin(path.parent) for path in sorted(patches.glob(f"*/{_PIN}"))]
    known = [Version(name) for pin in pins for name in pin.wheels]
    others = [version for version in known if version.public != release.public]
    if is_same_kind:
        own = _is_for_cpus(Version(release.version))
        others = [version for version in others if _is_for_cpus(version) == own]
    return str(max(others)) if others else ""


def _is_for_cpus(version: Version) -> bool:
    return version.local == "cpu"


def try_patches(patches: list[Patch], tree: Path, scratch: Path) -> dict[Patch, str]:
    """Return each patch with the reason why it does not apply after earlier ones; empty if it does."""
    applied: list[Patch] = []
    tried = {}
    for patch in patches:
        try:
            patched([*applied, patch], tree, scratch)
        except PinError as error:
            tried[patch] = error.what
        else:
            applied.append(patch)
            tried[patch] = ""
    return tried
