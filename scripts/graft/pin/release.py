"""The wheels of a release: those that pip finds, or a local file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from ..base.base import refuse_unusable
from ..core.errors import FetchError, UsageError
from ..core.files import sha256_of_file
from ..core.layout import expanded
from ..core.pip import Distribution, MissingError, ask_pip
from ..inputs.pin import indexes

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

# PyTorch's own index also has wheels of the second kind.
_PLATFORMS = ("manylinux_2_28_x86_64", "linux_x86_64")


@dataclass(frozen=True)
class Release:
    """Wheels of one version of torch.

    Args:
        version: their version, for example ``2.13.0+cpu``.
        wheels: the compatibility tag and sha256 of each.
        file: the only one, if it is a local file; None if pip downloads them.
    """

    version: str
    wheels: Mapping[str, str]
    file: Path | None = None

    @property
    def public(self) -> str:
        """The version without its local part, which names the pin's folder."""
        return Version(self.version).public


def find_release(torch: str, index: str, patches: Path) -> Release:
    """Return the wheels for ``TORCH``: a version, or a wheel file.

    If pip's indexes and ``index`` have none, PyTorch's own are asked, which ``patches`` lists.

    Raises:
        UsageError: it is neither.
        FetchError: there is no wheel of that version, or pip failed.
        UnusableBaseError: the file is not supported.
    """
    if torch.endswith(".whl"):
        return _of_file(expanded(torch))
    try:
        version = str(Version(torch))
    except InvalidVersion as error:
        raise UsageError(
            f"TORCH={torch}: neither a version nor a wheel file",
            todo="set TORCH to a version, such as TORCH=2.15.0 or TORCH=2.13.0+cpu, or to the path of a torch-*.whl",
        ) from error
    try:
        return Release(version, _of_index(version, index))
    except MissingError:
        if not (own := indexes(patches).get(Version(version).local or "")):
            raise
        return Release(version, _of_index(version, own))


def _of_index(version: str, index: str) -> dict[str, str]:
    options = ["--no-deps", *(f"--platform={name}" for name in _PLATFORMS)]
    found: list[Distribution] = []
    # One after another: if an index does not serve metadata, pip downloads each wheel to read it.
    for python in PYTHONS:
        try:
            found += ask_pip(f"torch==={version}", index, f"--python-version={python}", *options)
        except MissingError as error:
            missing = error
            missing.todo = "set TORCH to an existing version, or INDEX to an index that has it"
    if not found:
        raise missing
    return {_tag(wheel.file): wheel.sha256 for wheel in found}


def _of_file(path: Path) -> Release:
    if not path.is_file():
        raise UsageError(f"TORCH={path}: no such file", todo="set TORCH to a wheel file, or to a version")
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise UsageError(
            f"{path}: not the file name of a wheel", cause=str(error), todo="give it its own name"
        ) from error
    if name != "torch":
        raise UsageError(f"{path}: this is {name}, not torch", todo="set TORCH to a wheel of torch")
    try:
        with ZipFile(path) as archive:
            refuse_unusable(path, archive.namelist())
    except BadZipFile as error:
        raise FetchError(f"{path}: {error}", todo="download it again") from error
    return Release(str(version), {_tag(path.name): sha256_of_file(path)}, path)


def _tag(file: str) -> str:
    """Return one compatibility tag of a wheel; a file name may contain several."""
    *_, tags = parse_wheel_filename(file)
    return min(map(str, tags))
