"""What pip would install, and what it downloads."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from .console import StepLine
from .errors import FetchError
from .process import follow, run

# pip's messages if there is no such package, a constraint forbids it, or the network is down.
_MISSING = "No matching distribution found"
_CONSTRAINED = re.compile(r"The user requested \(constraint\) \S*?([<>=!~][^\s;]*)")
_UNREACHABLE = "Retrying (Retry("

_AGAIN = "check the network; then run the same command again"

_QUIETLY = ("--no-input", "--no-color", "--progress-bar=off", "--disable-pip-version-check")


@dataclass(frozen=True)
class Distribution:
    """A package that pip would install.

    Args:
        name: the name of the package.
        version: its version.
        file: the name of its file.
        sha256: the hash of that file.
    """

    name: str
    version: str
    file: str
    sha256: str


class MissingError(FetchError):
    """No index has the requested package."""


class UnreachableError(FetchError):
    """No index could be asked."""


class CappedError(FetchError):
    """A constraint in pip's configuration forbids the requested version.

    Args:
        requirement: what was requested.
        cap: the versions that the constraint allows, for example ``<=2.14.1``.
    """

    def __init__(self, requirement: str, cap: str) -> None:
        super().__init__(
            f"a constraint of pip's forbids {requirement}: it allows {cap}",
            cause="PIP_CONSTRAINT, or pip's configuration files (`pip config list`)",
            todo="put PIP_CONSTRAINT=/dev/null before the command, or set another "
            "configuration of pip in PIP_CONFIG_FILE",
        )
        self.cap = cap

    def allows(self, version: str) -> bool:
        """Return whether the constraint allows another version."""
        return _allows(self.cap, version)


def ask_pip(requirement: str, index: str, *options: str) -> list[Distribution]:
    """Return what pip would install for ``requirement``.

    Args:
        requirement: a requirement in pip's form.
        index: an index in addition to pip's configuration; may be empty.
        options: additional options of ``pip install``.

    Raises:
        MissingError: there is no such package.
        UnreachableError: no index could be asked.
        CappedError: a constraint forbids it.
        FetchError: pip failed.
    """
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--only-binary=:all:"]
        command += [*_QUIETLY, f"--target={folder}/nothing"]
        command += [f"--report={report}", *options, *([f"--extra-index-url={index}"] if index else [])]
        done = run([*command, requirement], check=False)
        if done.returncode != 0:
            raise _refusal(requirement, done.stdout)
        return [_distribution(entry) for entry in json.loads(report.read_text(encoding="utf-8"))["install"]]


def download(requirement: str, folder: Path, line: StepLine, options: Sequence[str] = ()) -> Path:
    """Download the wheel for ``requirement`` into ``folder``, which is empty, and show how much there is of it.

    pip retries, uses its cache, and compares the file with the hash that the index gives.

    Raises:
        MissingError: there is no such package.
        UnreachableError: no index could be asked.
        CappedError: a constraint forbids it.
        FetchError: pip failed, or the file is not the index's.
    """
    output: list[str] = []

    def watch() -> bool:
        with suppress(OSError):  # pip renames and deletes files meanwhile
            line.update(f"{sum(path.stat().st_size for path in folder.rglob('*.whl')) >> 20} MB")
        return False

    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", *_QUIETLY, *options]
    # pip writes into the folder for temporary files first; /tmp may be too small.
    env = {"TMPDIR": str(folder)}
    if follow([*command, f"--dest={folder}", requirement], output.append, env=env, watch=watch) != 0:
        raise _refusal(requirement, "".join(output), "download")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _distribution(entry: dict[str, Any]) -> Distribution:
    url, metadata = entry["download_info"]["url"], entry["metadata"]
    file = unquote(urlsplit(url).path).rpartition("/")[2]
    archive = entry["download_info"]["archive_info"]
    # Releases of pip before 23.1 write only `hash`.
    sha256 = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise FetchError(f"{url}: the index has no sha256 of this file", todo="set INDEX to another index")
    return Distribution(metadata["name"], metadata["version"], file, sha256)


def _refusal(requirement: str, output: str, act: str = "look up") -> FetchError:
    cap, version = ",".join(dict.fromkeys(_CONSTRAINED.findall(output))), requirement.partition("===")[2]
    # pip names a constraint also where there is simply no such version.
    if cap and version and not _allows(cap, version):
        return CappedError(requirement, cap)
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    if _UNREACHABLE in output:
        return UnreachableError(
            f"pip could not {act} {requirement}",
            cause=next(line for line in output.splitlines() if _UNREACHABLE in line),
            todo=_AGAIN,
        )
    if cap or _MISSING in output:
        return MissingError(f"pip finds no {requirement} for this Python", cause=" ".join(errors[:1]))
    return FetchError(f"pip could not {act} {requirement}", cause=output.strip()[-2000:], todo=_AGAIN)


def _allows(cap: str, version: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(cap).contains(version, prereleases=True)
