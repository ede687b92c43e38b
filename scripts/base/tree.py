"""Lay out what a build needs of the base wheel: headers, torchgen, libraries and Python sources."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

from ..common.console import StepLine
from ..common.errors import FetchError
from ..common.files import write_atomically

# What is linked against; ``libshm`` and others come in only as dependencies of these.
LIBRARIES = ("libtorch_cpu.so", "libc10.so", "libtorch_python.so", "libtorch.so", "libshm.so", "libgomp.so.1")


@dataclass(frozen=True)
class Base:
    """The base wheel.

    Args:
        wheel: the file.
        tree: the part of it that is laid out.
    """

    wheel: Path
    tree: Path

    @property
    def include(self) -> Path:
        """PyTorch's headers."""
        return self.tree / "torch/include"

    @property
    def libraries(self) -> Path:
        """PyTorch's libraries."""
        return self.tree / "torch/lib"

    @property
    def torchgen(self) -> Path:
        """torchgen's YAML files and templates."""
        return self.tree / "torchgen/packaged"


def is_needed(name: str) -> bool:
    """Whether a build reads this member of the base wheel."""
    if name.startswith("torch/lib/"):
        return Path(name).name in LIBRARIES
    # Text that is patched or brought up to date.
    return is_needed_to_compile(name) or name.endswith((".py", ".pyi"))


def is_needed_to_compile(name: str) -> bool:
    """Whether a build that links and packs nothing reads this member of the base wheel."""
    return name.startswith(("torch/include/", "torchgen/")) or ".dist-info/" in name


def lay_out(wheel: Path, tree: Path, line: StepLine, wanted: Callable[[str], bool] = is_needed) -> Base:
    """Extract the members of ``wheel`` that are ``wanted`` below ``tree``, unless that was done.

    Extraction goes to a folder beside and is renamed when it is whole.

    Raises:
        FetchError: the wheel is not a zip file.
    """
    done = tree / ".complete"
    mark = f"{wheel.name} {wheel.stat().st_size} {wheel.stat().st_mtime_ns}\n"
    if done.is_file() and done.read_text(encoding="utf-8") == mark:
        line.note = "there already"
        return Base(wheel, tree)
    partial = tree.with_name(tree.name + ".partial")
    for folder in (partial, tree):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        with ZipFile(wheel) as archive:
            members = [member for member in archive.infolist() if wanted(member.filename)]
    except BadZipFile as error:
        raise FetchError(f"{wheel}: {error}", todo="delete it and build again") from error
    extract(wheel, members, partial)
    write_atomically(partial / done.name, mark)
    partial.rename(tree)
    line.note = f"{len(members)} files"
    return Base(wheel, tree)


def extract(wheel: Path, members: Iterable[ZipInfo], target: Path) -> None:
    """Extract with a thread for each processor, the largest members first; zlib lets go of the interpreter lock."""
    ordered = sorted(members, key=lambda member: -member.file_size)
    workers = os.cpu_count() or 1
    for parent in sorted({(target / member.filename).parent for member in ordered}):
        parent.mkdir(parents=True, exist_ok=True)

    def extract_share(share: Sequence[ZipInfo]) -> None:
        with ZipFile(wheel) as archive:
            for member in share:
                archive.extract(member, target)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(extract_share, [ordered[start::workers] for start in range(workers)]))
