"""Get the base wheel, from pip or from a local file, and verify its sha256."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ..core.console import StepLine, say
from ..core.errors import FetchError
from ..core.files import free_bytes, sha256_of_file
from ..core.pip import MissingError, UnreachableError, download
from ..inputs.pin import Pin
from .base import refuse_unusable

# Space for the base wheel, its unpacked tree, objects and the new wheel, with a margin.
_NEEDED_BYTES = 3 * 1024**3

# The file next to a kept wheel: its sha256, and what changes if the file does, so that 200 MB need not be read again.
_VERIFIED = "verified.sha256"

# PyTorch's own index answers at once, or cannot be reached from here.
_IMPATIENTLY = ("--retries=1", "--timeout=15")


def fetch(pin: Pin, folder: Path, given: Path | None, line: StepLine, index: str = "") -> Path:
    """Return the pin's wheel for this Python in ``folder``. Download it if it is not there.

    It must have the pinned sha256. If the pin has none for this Python, that of PyTorch's own index counts, which pip
    compares; the wheel and its sha256 are then printed.

    Args:
        pin: the pin.
        folder: the folder that keeps the wheel.
        given: a wheel file to use instead of pip.
        line: shows the progress.
        index: an additional index for pip.

    Raises:
        FetchError: there is no wheel for this Python, the disk is full, or the file is not the pinned one.
    """
    tag, sha256 = pinned_file(pin)
    if given is not None:
        check_wheel(given, pin)
    if kept := kept_wheel(pin, folder, sha256_of_file(given) if given else sha256):
        return kept
    if given is None and not sha256 and not pin.index:
        raise _no_wheel(pin)
    require_space(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder) as name:
        wheel = _copied(given, Path(name)) if given else _downloaded(pin, Path(name), line, index)
        check_wheel(wheel, pin)
        for old in folder.glob("torch-*.whl"):
            old.unlink()
        # A file name may contain several tags; the pinned one decides about the name of the new wheel.
        kept = wheel.replace(folder / (f"torch-{pin.wheel_version}-{tag}.whl" if tag else wheel.name))
    found = sha256 or sha256_of_file(kept)
    if not sha256 and pin.index:
        say(f"      {kept.name} is not pinned: sha256 {found}; `make pin TORCH={pin.wheel_version}` writes it down")
    (folder / _VERIFIED).write_text(_fingerprint(kept, found), encoding="utf-8")
    return kept


def kept_wheel(pin: Pin, folder: Path, sha256: str) -> Path | None:
    """Return the pin's wheel if ``folder`` has it, unchanged since it was verified.

    Args:
        pin: the pin.
        folder: the folder that keeps the wheel.
        sha256: the hash that it must have; empty for any.
    """
    note = folder / _VERIFIED
    known = note.read_text(encoding="utf-8") if note.is_file() else ""
    for wheel in folder.glob(f"torch-{pin.wheel_version}-*.whl"):
        if sha256 and known != _fingerprint(wheel, sha256) and sha256_of_file(wheel) == sha256:
            note.write_text(_fingerprint(wheel, sha256), encoding="utf-8")
            return wheel
        if known == _fingerprint(wheel, sha256 or known.partition(" ")[0]):
            return wheel
    return None


def unpinned_sha256(pin: Pin, folder: Path) -> str:
    """Return the hash of the wheel in ``folder`` if the pin does not have it; otherwise, or if there is no wheel, an
    empty text.
    """
    note = folder / _VERIFIED
    if not pin.chosen or pinned_file(pin)[1] or not note.is_file():
        return ""
    return note.read_text(encoding="utf-8").partition(" ")[0]


def pinned_file(pin: Pin) -> tuple[str, str]:
    """Return the compatibility tag and the sha256 of the pin's wheel for this Python; empty if none is pinned."""
    supported = set(map(str, sys_tags()))
    return next(((tag, sha256) for tag, sha256 in pin.sha256.items() if tag in supported), ("", ""))


def require_space(folder: Path) -> None:
    """Check that there is space for a build in ``folder``, which need not exist.

    Raises:
        FetchError: there is not.
    """
    there = next(each for each in (folder, *folder.parents) if each.is_dir())
    if free_bytes(there) < _NEEDED_BYTES:
        raise FetchError(
            f"{folder}: less than {_NEEDED_BYTES >> 30} GiB are free",
            todo="free some space, for example with `make clean`",
        )


def check_wheel(path: Path, pin: Pin) -> None:
    """Check that ``path`` is the pin's wheel for this Python.

    Raises:
        FetchError: it does not exist, is for another version or Python, or has another hash than the pinned one.
        UnusableBaseError: it is not supported.
    """
    version, tags = in_name_of(path)
    if version != pin.wheel_version:
        raise FetchError(
            f"{path}: this is torch {version}, but the pin is {pin.wheel_version}",
            todo=f"set WHEEL to the wheel of {pin.wheel_version}, or PIN to a pin of {version}",
        )
    _, pinned = pinned_file(pin)
    damage = None
    try:
        with ZipFile(path) as archive:
            refuse_unusable(path, archive.namelist())
    except BadZipFile as error:
        damage = error
    supported = list(sys_tags())
    if tags.isdisjoint(supported):
        raise FetchError(
            f"{path}: this wheel is not for this Python, {supported[0]}",
            todo="set WHEEL to a wheel for it, or PYTHON to a Python that this wheel is for",
        )
    if pinned and (found := sha256_of_file(path)) != pinned:
        raise FetchError(
            f"{path}: the sha256 is {found}, but the pin has {pinned}",
            cause="the file is damaged, or not the official wheel",
            todo="download it again, and compare its hash with the official index",
        )
    if damage:
        raise FetchError(f"{path}: {damage}", todo="download it again") from damage


def in_name_of(path: Path) -> tuple[str, frozenset[Tag]]:
    """Return the version and the compatibility tags in the name of a wheel file.

    Raises:
        FetchError: there is no such file, or it is no wheel of torch.
    """
    if not path.is_file():
        raise FetchError(
            f"{path}: no such file", todo="set WHEEL to a wheel file, or leave it out to download the wheel with pip"
        )
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise FetchError(f"{path}: not the file name of a wheel", cause=str(error)) from error
    if name != "torch":
        raise FetchError(f"{path}: this is {name}, not torch", todo="set WHEEL to a wheel of torch")
    return str(version), tags


def _no_wheel(pin: Pin) -> FetchError:
    if not pin.sha256:
        return FetchError(
            f"torch {pin.wheel_version} is no wheel that can be downloaded", todo="set WHEEL to the file that was built"
        )
    supported = list(map(str, sys_tags()))
    others = [version for version, wheels in pin.wheels.items() if not wheels.keys().isdisjoint(supported)]
    to_another = f"set PIN to a pin with a wheel for this Python ({', '.join(others)}), " if others else ""
    return FetchError(
        f"the pin of torch {pin.wheel_version} has no wheel for this Python ({supported[0]})",
        cause=f"it has {', '.join(pin.sha256)}",
        todo=f"{to_another}set PYTHON to a Python that this pin has a wheel for, or add a wheel with "
        f"`make pin TORCH={pin.wheel_version}`",
    )


def _copied(wheel: Path, folder: Path) -> Path:
    return Path(shutil.copyfile(wheel, folder / wheel.name))


def _downloaded(pin: Pin, folder: Path, line: StepLine, index: str) -> Path:
    """Download with pip as it is configured; if it finds nothing, from PyTorch's own index."""
    more = [f"--extra-index-url={index}"] if index else []
    try:
        return download(pin.requirement, folder, line, more)
    except MissingError as error:
        error.todo = f"set PIN to another version, or WHEEL to a wheel file of torch {pin.wheel_version}"
        if not pin.index:
            raise
        missing = error
    try:
        return download(pin.requirement, folder, line, [f"--index-url={pin.index}", *_IMPATIENTLY])
    except (MissingError, UnreachableError) as error:
        missing.cause = f"neither do pip's indexes have it, nor {pin.index} ({error.what})"
        raise missing from error


def _fingerprint(path: Path, sha256: str) -> str:
    status = path.stat()
    return f"{sha256} {status.st_size} {status.st_mtime_ns} {status.st_ino}\n"
