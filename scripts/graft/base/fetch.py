"""Get the base wheel from pip or from a local file, verify its sha256, and unpack the parts that a build needs:
headers, torchgen, libraries and Python sources.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipFile, ZipInfo, is_zipfile

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ..core.console import StepLine, Steps, say
from ..core.errors import MissingError, RefusedError, UsageError
from ..core.files import build_lock, delete, free_bytes, sha256_of_file, write_atomically
from ..core.layout import Layout, TorchVersion
from ..core.pip import UnavailableError, index_option, pip_into
from ..inputs.pin import VERIFIED, Pin, pinned_file, platform_options, tags_for
from .base import Base, name_of_python, refuse_unusable
from .shared import bases, link, share_tree, share_wheel, wheel_with

# Space for the base wheel, its unpacked tree, objects and the new wheel, with a margin.
_NEEDED_BYTES = 3 * 1024**3

# Give up early: PyTorch's own index answers at once, or cannot be reached from here.
_IMPATIENTLY = ("--retries=1", "--timeout=15")

# The members that a build needs, by the beginning of their names; and the suffixes of texts that it extends.
_NEEDED, _EXTENDED = ("torch/include/", "torch/lib/", "torchgen/", "torch/_C."), (".py", ".pyi")


def get_base(pin: Pin, layout: Layout, given: Path | None, steps: Steps, index: str = "") -> Base:
    """Get and unpack the base wheel for this Python, if needed. Only one process at a time does so."""
    with build_lock(layout.base):
        with steps.step("base wheel") as line:
            wheel = fetch(pin, layout.base, given, line, index)
        with steps.step("unpack it") as line:
            return _unpacked(wheel, layout.base, line)


def fetch(pin: Pin, folder: Path, given: Path | None, line: StepLine, index: str = "") -> Path:
    """Return the pin's wheel for this Python: a link in ``folder`` to a shared wheel. If it is missing, take the file
    ``given``, or download it with pip, also from ``index``. The caller holds the folder's lock.

    The wheel must have the pinned sha256. If the pin has none for this Python, pip compares the wheel with the sha256
    in PyTorch's own index, and the wheel and its sha256 are printed.

    Raises:
        MissingError: there is no wheel for this Python, or pip cannot get it.
        UsageError: the file that was given is not the pinned one.
        RefusedError: the disk is full.
    """
    tag, sha256 = pinned_file(pin)
    wanted = check_wheel(given, pin) if given else sha256
    kept = kept_wheel(pin, folder, wanted)
    if not kept and (shared := wheel_with(wanted)):
        kept = _link_wheel(shared, pin, folder, wanted, tag)
    if kept:
        line.note = "already downloaded"
        return kept
    if given is None and not sha256 and not pin.index:
        raise _no_wheel(pin)
    _require_space(folder, bases())
    partial = folder / "download"
    delete(partial)  # left by a build that was killed
    partial.mkdir(parents=True)
    try:
        wheel = Path(shutil.copy(given, partial)) if given else _downloaded(pin, partial, line, index)
        found = check_wheel(wheel, pin)
        kept = _link_wheel(share_wheel(wheel, found), pin, folder, found, tag)
    finally:
        delete(partial)
    if not sha256 and pin.index:
        say(f"      {kept.name} is not pinned: sha256 {found}; `make pin TORCH={pin.version}` writes it down")
    return kept


def _require_space(*folders: Path) -> None:
    for folder in folders:
        there = next(each for each in (folder, *folder.parents) if each.is_dir())
        if free_bytes(there) < _NEEDED_BYTES:
            todo = "free some space, for example with `make clean`"
            raise RefusedError(f"{folder}: less than {_NEEDED_BYTES >> 30} GiB are free", todo=todo)


def _link_wheel(shared: Path, pin: Pin, folder: Path, sha256: str, tag: str) -> Path:
    """Link a shared wheel into ``folder``, and note its hash. Return the link."""
    for old in (folder / VERIFIED, *folder.glob("torch-*.whl")):
        delete(old)
    # A file name may contain several tags; the name of the link has only the pinned one.
    kept = folder / (f"torch-{pin.version}-{tag}.whl" if tag else shared.name)
    folder.mkdir(parents=True, exist_ok=True)
    link(kept, shared)
    (folder / VERIFIED).write_text(sha256, encoding="utf-8")
    return kept


def kept_wheel(pin: Pin, folder: Path, sha256: str) -> Path | None:
    """Return the verified wheel of the pin in ``folder``, or None; with ``sha256``, only if it has this hash."""
    note = folder / VERIFIED
    if not note.is_file() or (sha256 and note.read_text(encoding="utf-8") != sha256):
        return None
    # The link is broken if the shared wheels were deleted.
    return next((path for path in folder.glob(f"torch-{pin.version}-*.whl") if path.is_file()), None)


def check_wheel(path: Path, pin: Pin) -> str:
    """Check that ``path`` is the pin's wheel for this Python. Return its sha256."""
    version, tags = in_name_of(path)
    if version != pin.version:
        raise UsageError(
            f"{path}: this is torch {version}, but the pin is {pin.version}",
            todo=f"set WHEEL to the wheel of {pin.version}, or PIN to a pin of {version}",
        )
    is_whole = is_zipfile(path)
    if is_whole:
        with ZipFile(path) as archive:
            refuse_unusable(path, archive.namelist(), pin.machine)
    supported = tags_for(pin.machine)
    if tags.isdisjoint(supported):
        raise UsageError(
            f"{path}: this wheel is not for this Python, {supported[0]}",
            todo="set WHEEL to a wheel for it, or PYTHON to a Python that this wheel is for",
        )
    found, (_, pinned) = sha256_of_file(path), pinned_file(pin)
    if not is_whole or pinned not in ("", found):
        what = f"the sha256 is {found}, but the pin has {pinned}" if pinned else "it is not a zip file"
        raise UsageError(
            f"{path}: {what}",
            cause="the file is damaged, or not the official wheel",
            todo="download it again, and compare its hash with the official index",
        )
    return found


def in_name_of(path: Path, variable: str = "WHEEL") -> tuple[TorchVersion, frozenset[Tag]]:
    """Return the version and the compatibility tags in the name of a wheel file. Errors name its ``variable``."""
    todo = f"set {variable} to a wheel file of torch, under its own name"
    if not path.is_file():
        raise UsageError(f"{variable}={path}: no such file", todo=todo)
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise UsageError(f"{path}: not the file name of a wheel", cause=str(error), todo=todo) from error
    if name != "torch":
        raise UsageError(f"{path}: this is {name}, not torch", todo=todo)
    return TorchVersion(version), tags


def _no_wheel(pin: Pin) -> MissingError:
    if not pin.sha256:
        return MissingError(
            f"torch {pin.version} is no wheel that can be downloaded", todo="set WHEEL to the file that was built"
        )
    supported = tags_for(pin.machine)
    others = [version for version, wheels in pin.wheels.items() if not wheels.keys().isdisjoint(map(str, supported))]
    to_another = f"set PIN to a pin with a wheel for this Python ({', '.join(others)}), " if others else ""
    return MissingError(
        f"the pin of torch {pin.version} has no wheel for this Python ({name_of_python(supported[0])})",
        cause=f"it has {', '.join([tag for tag in pin.sha256 if tag.endswith(pin.machine)] or pin.sha256)}",
        todo=f"{to_another}set PYTHON to a Python that this pin has a wheel for, or add a wheel with "
        f"`make pin TORCH={pin.version}`",
    )


def _downloaded(pin: Pin, folder: Path, line: StepLine, index: str) -> Path:
    """Download with pip's configured indexes; if they have no such wheel, from PyTorch's own index."""
    wanted = {pin.requirement: pinned_file(pin)[1]}
    options = platform_options(pin.machine)
    try:
        pip_into(folder, "download", wanted, line, *index_option(index), *options)
    except UnavailableError as missing:
        if missing.is_capped:
            raise
        missing.todo = f"set PIN to another version, or WHEEL to a wheel file of torch {pin.version}"
        if not pin.index:
            raise
        try:
            pip_into(folder, "download", wanted, line, f"--index-url={pin.index}", *_IMPATIENTLY, *options)
        except UnavailableError as error:
            missing.cause = f"neither do pip's indexes have it, nor {pin.index} ({error.what})"
            raise missing from error
    (wheel,) = folder.glob("*.whl")
    return wheel


def _unpacked(wheel: Path, folder: Path, line: StepLine) -> Base:
    """Link the tree of ``wheel`` into ``folder``. If it is new, extract the files that a build needs."""
    tree, done = folder / "tree", folder / "tree/.complete"
    mark = f"{wheel.name} {wheel.stat().st_size} {wheel.stat().st_mtime_ns}\n"
    line.note = "there already"
    if done.is_file() and done.read_text(encoding="utf-8") == mark:
        return Base(wheel, tree)

    def unpack(partial: Path) -> None:
        with ZipFile(wheel) as archive:
            members = [member for member in archive.infolist() if _is_needed(member)]
        _extract(wheel, members, partial)
        Base(wheel, partial).require_usable()
        write_atomically(partial / done.name, mark)
        line.note = f"{len(members)} files"

    link(tree, share_tree((folder / VERIFIED).read_text(encoding="utf-8"), unpack))
    return Base(wheel, tree)


def _is_needed(member: ZipInfo) -> bool:
    name = member.filename
    return not member.is_dir() and (name.startswith(_NEEDED) or name.endswith(_EXTENDED) or ".dist-info/" in name)


def _extract(wheel: Path, members: Sequence[ZipInfo], target: Path) -> None:
    """Extract with one thread for each processor, largest members first. zlib releases the interpreter lock."""
    ordered = sorted(members, key=lambda member: -member.file_size)
    workers = os.cpu_count() or 1
    for parent in {(target / member.filename).parent for member in ordered}:
        parent.mkdir(parents=True, exist_ok=True)

    def extract_share(share: Sequence[ZipInfo]) -> None:
        with ZipFile(wheel) as archive:
            for member in share:
                archive.extract(member, target)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(extract_share, [ordered[start::workers] for start in range(workers)]))
