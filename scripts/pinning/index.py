"""Ask pip what it would install, without installing it."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from ..common.errors import FetchError
from ..common.process import run

# pip's messages if there is no such package, a constraint forbids it, or the network is down.
_MISSING = "No matching distribution found"
_CONSTRAINED = "(constraint)"
_UNREACHABLE = "Retrying (Retry("


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


def ask_pip(requirement: str, index: str, *options: str) -> list[Distribution]:
    """Return what pip would install for ``requirement``.

    Args:
        requirement: a requirement in pip's form.
        index: an index in addition to pip's configuration; may be empty.
        options: additional options of ``pip install``.

    Raises:
        MissingError: there is no such package.
        FetchError: pip failed, or a constraint forbids it.
    """
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--only-binary=:all:"]
        command += ["--no-input", "--progress-bar=off", "--disable-pip-version-check", f"--target={folder}/nothing"]
        command += [f"--report={report}", *options, *([f"--extra-index-url={index}"] if index else [])]
        done = run([*command, requirement], check=False)
        if done.returncode != 0:
            raise _refusal(requirement, done.stdout)
        return [_distribution(entry) for entry in json.loads(report.read_text(encoding="utf-8"))["install"]]


def _distribution(entry: dict[str, Any]) -> Distribution:
    url, metadata = entry["download_info"]["url"], entry["metadata"]
    file = unquote(urlsplit(url).path).rpartition("/")[2]
    archive = entry["download_info"]["archive_info"]
    # Releases of pip before 23.1 write only `hash`.
    sha256 = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").removeprefix("sha256=")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise FetchError(f"{url}: the index has no sha256 of this file", todo="set INDEX to another index")
    return Distribution(metadata["name"], metadata["version"], file, sha256)


def _refusal(requirement: str, output: str) -> FetchError:
    if _CONSTRAINED in output:
        return FetchError(
            f"a constraint forbids {requirement}",
            cause="; ".join(line.strip() for line in output.splitlines() if _CONSTRAINED in line),
            todo="put PIP_CONSTRAINT=/dev/null before the command, or set another "
            "configuration of pip in PIP_CONFIG_FILE",
        )
    errors = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.startswith("ERROR: ")]
    if _UNREACHABLE in output:
        return FetchError(
            f"pip could not look up {requirement}",
            cause=next(line for line in output.splitlines() if _UNREACHABLE in line),
            todo="check the network and run the same command again; without a network, set TORCH to a wheel file",
        )
    kind = MissingError if _MISSING in output else FetchError
    return kind(
        f"pip finds no {requirement}" if kind is MissingError else f"pip could not look up {requirement}",
        cause=errors[0] if errors else output.strip()[-2000:],
        todo="set TORCH to an existing version, or INDEX to an index that has it (the builds of PyTorch for CPUs "
        "are on https://download.pytorch.org/whl/cpu)",
    )
