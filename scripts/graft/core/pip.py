"""Run pip: look up, download and install packages."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from .console import StepLine
from .errors import MissingError
from .process import follow, run
from .system_errors import refuse_full

# pip's messages if there is no such package, a constraint forbids it, the network is down, or a hash differs.
_MISSING = "No matching distribution found"
_CONSTRAINED = re.compile(r"The user requested \(constraint\) \S*?([<>=!~][^\s;]*)")
_UNREACHABLE = "Retrying (Retry("
_MISMATCH = "DO NOT MATCH THE HASHES"

# pip's variables, and uv's variables for the same settings.
_OF_UV = {"PIP_INDEX_URL": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"), "PIP_FIND_LINKS": ("UV_FIND_LINKS",)}

# How messages name the index.
INDEX = "PIP_INDEX_URL or UV_DEFAULT_INDEX"
_AGAIN = f"check the network; if another index has it, name that in {INDEX}; then run the same command again"

# Python's message if pip is not installed. uv's environments have no pip.
_NO_PIP = "No module named pip"

_QUIETLY = ("--no-input", "--no-color", "--progress-bar=off", "--disable-pip-version-check", "--only-binary=:all:")


@dataclass(frozen=True)
class Distribution:
    """A package that pip would install: its name, its version, its file and the hash of that."""

    name: str
    version: str
    file: str
    sha256: str


class UnavailableError(MissingError):
    """pip cannot get a package; the caller may try another one.

    Args:
        brief: the reason in a few words.
        is_capped: whether a constraint in pip's configuration forbids it.
    """

    def __init__(self, what: str, *, brief: str, cause: str = "", todo: str = "", is_capped: bool = False) -> None:
        super().__init__(what, cause=cause, todo=todo)
        self.brief = brief
        self.is_capped = is_capped


def ask_pip(requirement: str, index: str, *options: str) -> list[Distribution]:
    """Return the packages that pip would install for ``requirement``, also from ``index`` unless it is empty.

    Raises:
        UnavailableError: pip cannot get it.
        MissingError: pip failed.
    """
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", *_QUIETLY]
        command += [f"--target={folder}/nothing", f"--report={report}", *options]
        done = run([*command, *index_option(index), requirement], env=indexes_of_uv(), check=False)
        if done.returncode != 0:
            raise _refusal(requirement, done.stdout, "look up")
        return [_distribution(entry) for entry in json.loads(report.read_text(encoding="utf-8"))["install"]]


def indexes_of_uv() -> dict[str, str]:
    """Return pip's variables of indexes that are not set, with the values of uv's variables."""
    found = {}
    for name, theirs in _OF_UV.items():
        given = next(filter(None, map(os.environ.get, theirs)), "")
        if given and not os.environ.get(name):
            # uv separates places by commas, and an index may have a name: `mine=https://...`.
            found[name] = " ".join(re.sub(r"^[\w-]+=", "", word.strip()) for word in given.split(","))
    return found


def index_option(index: str) -> list[str]:
    """Return pip's option for an additional index; no option if ``index`` is empty."""
    return [f"--extra-index-url={index}"] if index else []


def pip_into(folder: Path, verb: str, packages: Mapping[str, str], line: StepLine, *options: str) -> None:
    """Download or install ``packages`` into ``folder``, without their dependencies, and show the downloaded size.

    pip retries failed downloads, and takes files from its cache.

    Args:
        folder: an existing folder. pip's temporary files are there, too: /tmp may be too small.
        verb: ``download`` for the wheels, ``install`` for their files.
        packages: the requirements, each with the sha256 of its file; if that is empty, pip uses the index's.
        line: shows the progress.
        options: additional options of pip.

    Raises:
        UnavailableError: pip cannot get one of them.
        MissingError: pip failed, or a file has another hash.
        RefusedError: the disk is full.
    """
    wanted = folder / "requirements.txt"
    lines = [f"{name} --hash=sha256:{sha256}\n" if sha256 else f"{name}\n" for name, sha256 in packages.items()]
    wanted.write_text("".join(lines), encoding="utf-8")
    output: list[str] = []

    def watch() -> None:
        with suppress(OSError):  # pip renames and deletes files at the same time
            line.update(f"{sum(path.stat().st_size for path in folder.rglob('*.whl')) >> 20} MB")

    into = {"download": "--dest", "install": "--target"}[verb]
    command = [sys.executable, "-m", "pip", verb, "--no-deps", *_QUIETLY, *options, f"{into}={folder}"]
    command += ["--require-hashes"] if all(packages.values()) else []
    env = {"TMPDIR": str(folder), **indexes_of_uv()}
    if follow([*command, f"--requirement={wanted}"], output.append, env=env, watch=watch) != 0:
        refuse_full("".join(output), folder)
        first, *others = packages
        several = f" and {len(others)} other packages" if others else ""
        raise _refusal(f"{first}{several}", "".join(output), verb)


def _distribution(entry: dict[str, Any]) -> Distribution:
    url, metadata = entry["download_info"]["url"], entry["metadata"]
    file = unquote(urlsplit(url).path).rpartition("/")[2]
    archive = entry["download_info"]["archive_info"]
    # Releases of pip before 23.1 write only `hash`.
    sha256 = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise MissingError(f"{url}: the index has no sha256 of this file", todo="set INDEX to another index")
    return Distribution(metadata["name"], metadata["version"], file, sha256)


def _refusal(requirement: str, output: str, act: str) -> MissingError:
    """Return the error that pip's output reports."""
    if output.rstrip().endswith(_NO_PIP):
        what = f"pip is not installed for {sys.executable}, which needs it to {act} {requirement}"
        return MissingError(what, todo="install it there: `uv pip install pip`, or `python -m ensurepip`")
    what = f"pip could not {act} {requirement}"
    cap, version = ",".join(dict.fromkeys(_CONSTRAINED.findall(output))), requirement.partition("===")[2]
    # pip names a constraint also where there is simply no such version.
    if cap and version and not _allows(cap, version):
        return UnavailableError(
            f"a constraint of pip's forbids {requirement}: it allows {cap}",
            cause="PIP_CONSTRAINT, or pip's configuration files (`pip config list`)",
            todo="put PIP_CONSTRAINT=/dev/null before the command, or set another "
            "configuration of pip in PIP_CONFIG_FILE",
            brief=f"a constraint of pip's allows {cap} only",
            is_capped=True,
        )
    if _UNREACHABLE in output:
        cause = next(line for line in output.splitlines() if _UNREACHABLE in line)
        return UnavailableError(what, cause=cause, todo=_AGAIN, brief="no index can be reached")
    if cap or _MISSING in output:
        errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
        return UnavailableError(
            f"pip finds no {requirement} for this Python", cause=" ".join(errors[:1]), brief="not found"
        )
    # A truncated download has another hash, too.
    owner = "; if this remains, ask whoever runs the index, or its mirror, why it has another file"
    todo = f"{_AGAIN}{owner if _MISMATCH in output else ''}"
    return MissingError(what, cause=output.strip()[-2000:], todo=todo)


def _allows(cap: str, version: str) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(cap).contains(version, prereleases=True)
