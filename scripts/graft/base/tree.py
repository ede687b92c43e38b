"""Get the base and unpack what a build needs of it: headers, torchgen, libraries and Python sources."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import BadZipFile, ZipFile, ZipInfo

from ..core.console import StepLine, Steps
from ..core.errors import FetchError
from ..core.files import write_atomically
from ..core.layout import Layout
from ..core.lock import build_lock
from ..inputs.pin import Pin
from .base import Base, refuse_unusable
from .fetch import fetch


def get_base(pin: Pin, layout: Layout, given: Path | None, steps: Steps, index: str = "") -> Base:
    """Download and unpack the base wheel for this Python, if needed. Only one process at a time does so.

    Args:
        pin: the pin.
        layout: the folders of the build.
        given: a wheel file to use instead of pip.
        steps: announces the two steps.
        index: an additional index for pip.

    Raises:
        FetchError: there is no such wheel, or the file is not the pinned one.
        UnusableBaseError: it is not supported.
    """
    with build_lock(layout.base):
        with steps.step("fetch the base wheel") as line:
            wheel = fetch(pin, layout.base, given, line, index)
        with steps.step("unpack it") as line:
            return lay_out(wheel, layout.base / "tree", line)


def is_needed(name: str) -> bool:
    """Return whether a build needs this member of the base wheel."""
    if name.startswith(("torch/include/", "torch/lib/", "torchgen/", "torch/_C.")) or ".dist-info/" in name:
        return True
    # Text that the build extends.
    return name.endswith((".py", ".pyi"))


def lay_out(wheel: Path, tree: Path, line: StepLine) -> Base:
    """Extract what a build needs from ``wheel`` into ``tree``, unless it was done before.

    Files are extracted into a temporary folder, which is renamed when it is complete.

    Raises:
        FetchError: the file is not a zip file.
        UnusableBaseError: it is not supported.
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
            refuse_unusable(wheel, archive.namelist())
            members = [m for m in archive.infolist() if is_needed(m.filename) and not m.is_dir()]
    except BadZipFile as error:
        raise FetchError(f"{wheel}: {error}", todo="delete it and build again") from error
    extract(wheel, members, partial)
    Base(wheel, partial).require_usable()
    write_atomically(partial / done.name, mark)
    partial.rename(tree)
    line.note = f"{len(members)} files"
    return Base(wheel, tree)


def extract(wheel: Path, members: Iterable[ZipInfo], target: Path) -> None:
    """Extract with one thread for each processor, largest members first. zlib releases the interpreter lock."""
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
