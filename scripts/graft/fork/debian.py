"""Get source packages and check packages of Debian, with Debian's own tools."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..core.console import say
from ..core.errors import CommandError, MissingError
from ..core.files import sha256_of_file
from ..core.process import run
from ..inputs.pin import DebianSource

_HELPER = Path("/usr/lib/apt/apt-helper")


def fetch_package(source: DebianSource, downloads: Path, target: Path, mirror: str) -> None:
    """Unpack the source package into ``target``, with Debian's patches applied.

    Args:
        source: the source package.
        downloads: keeps the package's files.
        target: the output folder; it must not exist.
        mirror: the address or the path of a Debian mirror; empty for the one that apt uses.
    """
    downloads.mkdir(parents=True, exist_ok=True)
    for name, sha256 in source.sha256.items():
        path = downloads / name
        if not (path.is_file() and sha256_of_file(path) == sha256):
            download(source, name, [mirror] if mirror else configured_mirrors(), path)
    (description,) = (name for name in source.sha256 if name.endswith(".dsc"))
    try:
        run(["dpkg-source", "--extract", downloads / description, target], cwd=downloads)
    except CommandError as error:
        raise MissingError(f"{downloads / description}: cannot be unpacked", cause=error.cause or error.what) from error


def download(source: DebianSource, name: str, mirrors: Sequence[str], target: Path) -> None:
    """Download one file of a source package with apt, using its settings, from the first mirror that has it. Raise
    MissingError if none has the pinned file.
    """
    sha256 = source.sha256[name]
    answers = []
    for mirror in mirrors:
        # The folder of a source package of Debian's main section.
        pool = f"pool/main/{source.package[:4] if source.package.startswith('lib') else source.package[0]}"
        start = mirror.rstrip("/") if "://" in mirror else f"copy://{Path(mirror).expanduser().resolve()}"
        address = f"{start}/{pool}/{source.package}/{name}"
        # In a folder of its own: apt renames a file whose hash differs.
        with tempfile.TemporaryDirectory(prefix="download-", dir=target.parent) as folder:
            done = run([_HELPER, "download-file", address, Path(folder, name), f"SHA256:{sha256}"], check=False)
            if done.returncode == 0:
                Path(folder, name).replace(target)
                return
        answers.append(f"{address}: {done.stdout.strip()}")
    raise MissingError(
        f"{name}, a file of {source.package} {source.version}, cannot be downloaded with the pinned sha256 {sha256}",
        cause="\n".join(answers),
        todo=f"check the network, set SOURCE to another mirror of Debian, or put the file into {target.parent}",
    )


def configured_mirrors() -> list[str]:
    """Return the Debian mirrors in apt's configuration, of any release: a pool contains the files of all releases.
    Raise MissingError if there is none.
    """
    wanted = ["Created-By: Packages", "Origin: Debian", "Label: Debian"]
    try:
        mirrors = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted]).stdout.split()
        cause = "apt has no lists of packages from a mirror of Debian"
    except CommandError as error:
        mirrors, cause = [], error.cause or error.what
    if not mirrors:
        raise MissingError(
            "there is no Debian mirror for the source package",
            cause=cause,
            todo="run `apt-get update`, or set SOURCE to the address of a mirror",
        )
    return list(dict.fromkeys(mirrors))


def refuse_missing_packages(names: Sequence[str]) -> None:
    """Raise MissingError, with a list, if packages of the system are missing."""
    if not names:
        return
    try:
        done = run(["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package}\\n", *names], check=False)
    except CommandError:
        say(f"      this is not Debian; install what corresponds to {', '.join(names)}")
        return
    if missing := [name for name in names if f"installed {name}" not in done.stdout.splitlines()]:
        raise MissingError(
            f"{len(missing)} of the {len(names)} system packages for building PyTorch are missing",
            todo=f"apt-get install --no-install-recommends {' '.join(missing)}",
        )
