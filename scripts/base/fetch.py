"""Get the pinned wheel, from pip or from a local file, and verify its sha256."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ..common.errors import FetchError, GraftError
from ..common.files import free_bytes, sha256_of_file
from ..common.process import run
from ..inputs.pin import Pin
from .base import refuse_unusable

# Space for the base wheel, its unpacked tree, objects and the new wheel, with a margin.
_NEEDED_BYTES = 3 * 1024**3


def fetch(pin: Pin, folder: Path, given: Path | None, index: str = "") -> Path:
    """Return the pinned wheel for this Python in ``folder``. Download it if it is not there.

    Args:
        pin: the pin.
        folder: the folder that keeps the wheel.
        given: a wheel file to use instead of pip.
        index: an additional index for pip.

    Raises:
        FetchError: there is no wheel for this Python, the disk is full, or the file is not the pinned one.
    """
    version = pin.wheel_version
    tag, sha256 = pinned_tag(pin, (str(tag) for tag in sys_tags()))
    kept = folder / f"torch-{version}-{tag}.whl"
    verified = folder / "verified.sha256"
    if given is not None:
        check_wheel(given, pin, sha256)
    if kept.is_file() and verified.is_file() and verified.read_text(encoding="utf-8") == fingerprint(kept, sha256):
        return kept
    if free_bytes(folder if folder.is_dir() else folder.parent.parent) < _NEEDED_BYTES:
        raise FetchError(
            f"{folder}: less than {_NEEDED_BYTES >> 30} GiB are free",
            todo="free some space, for example with `make clean`",
        )
    folder.mkdir(parents=True, exist_ok=True)
    if given is not None:
        partial = kept.with_suffix(".partial")
        try:
            shutil.copyfile(given, partial)
            partial.replace(kept)
        finally:
            partial.unlink(missing_ok=True)
    elif not kept.is_file() or sha256_of_file(kept) != sha256:
        kept.unlink(missing_ok=True)
        _download(pin, sha256, kept, index)
    verified.write_text(fingerprint(kept, sha256), encoding="utf-8")
    return kept


def pinned_tag(pin: Pin, supported: Iterable[str]) -> tuple[str, str]:
    """Return the compatibility tag and sha256 of the pin's wheel for this Python."""
    tags = list(supported)
    for tag, sha256 in pin.sha256.items():
        if tag in tags:
            return tag, sha256
    raise FetchError(
        f"the pin of torch {pin.version} has no wheel for this Python ({sys.executable}, {tags[0]})",
        cause=f"it has {', '.join(pin.sha256)}",
        todo=f"{_other_wheels(pin, tags)}set PYTHON to a Python that this pin has a wheel for, or add a wheel with "
        f"`make pin TORCH={pin.wheel_version}`",
    )


def _other_wheels(pin: Pin, tags: list[str]) -> str:
    others = [version for version, wheels in pin.wheels.items() if not wheels.keys().isdisjoint(tags)]
    return f"set PIN to a pin with a wheel for this Python ({', '.join(others)}), " if others else ""


def fingerprint(path: Path, sha256: str) -> str:
    """Return a fingerprint of a verified file, so that 200 MB need not be read again."""
    status = path.stat()
    return f"{sha256} {status.st_size} {status.st_mtime_ns} {status.st_ino}\n"


def check_wheel(path: Path, pin: Pin, sha256: str) -> None:
    """Check that ``path`` is the pinned wheel.

    Raises:
        FetchError: it does not exist, or has another version or hash.
        UnusableBaseError: it is not supported.
    """
    if not path.is_file():
        raise FetchError(
            f"{path}: no such file", todo="set WHEEL to a wheel file, or leave it out to download the wheel with pip"
        )
    try:
        _, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise FetchError(f"{path}: not the file name of a wheel", cause=str(error)) from error
    try:
        with ZipFile(path) as archive:
            refuse_unusable(path, archive.namelist())
    except BadZipFile:
        pass  # the hash decides
    if str(version) != pin.wheel_version:
        raise FetchError(
            f"{path}: this is torch {version}, but the pin is {pin.wheel_version}",
            todo=f"set WHEEL to the wheel of {pin.wheel_version}, or PIN to a pin of {version}",
        )
    found = sha256_of_file(path)
    if found != sha256:
        raise FetchError(
            f"{path}: the sha256 is {found}, but the pin has {sha256}",
            cause="the file is damaged, or not the official wheel",
            todo="download it again, and compare its hash with the official index",
        )


def _download(pin: Pin, sha256: str, target: Path, index: str) -> None:
    """Download with pip into a folder next to ``target``. pip handles retries and its cache."""
    with tempfile.TemporaryDirectory(prefix="download-", dir=target.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        command += [f"--extra-index-url={index}"] if index else []
        try:
            run([*command, "--dest", folder, pin.requirement], env={"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
        except GraftError as error:
            raise FetchError(
                f"pip could not download {pin.requirement}",
                cause=error.cause,
                todo="check the network; if your index has no CPU builds of PyTorch, name one that has in "
                "PIP_EXTRA_INDEX_URL, or download the wheel and set WHEEL to the file",
            ) from error
        (wheel,) = Path(folder).glob("*.whl")
        check_wheel(wheel, pin, sha256)
        wheel.replace(target)
