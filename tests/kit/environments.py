"""The virtual environments for tests, random calls and benchmarks: each contains a rebuilt wheel.

There is one for each native folder, pin, Python and purpose. A new wheel is installed over the old one; after any other
change the environment is created again. Its other packages are links to those of one environment for each Python and
list of requirements, which all clones share.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from zipfile import ZipFile

from graft.core.console import say
from graft.core.environments import (
    ENVIRONMENTS,
    install,
    make_virtual_environment,
    name_of_python,
    package_alone,
    shared_environment,
)
from graft.core.errors import RefusedError, UsageError
from graft.core.files import STAMP, Layer, delete, free_bytes, held, take
from graft.core.layout import BYTECODE, HOME, IS_CHECKOUT, REPOSITORY, Layout
from graft.core.process import follow, run
from graft.deliver.built import load_built
from graft.options import GRAFT

REQUIREMENTS = REPOSITORY / "tests/requirements.txt"

# The space for the other packages of an environment, and for NVIDIA's, which a torch for CUDA requires.
_OTHER_PACKAGES, _CUDA_PACKAGES, _CUDA_DOWNLOAD = 1024**3, 5 * 1024**3, 3 * 1024**3

# Purposes of environments.
TEST, SANITIZED = "test", "sanitized"


def folder_of(purpose: str, layout: Layout) -> Path:
    """Return a folder that no other native folder, pin or Python shares."""
    itself = f"{layout.title}\0{layout.pin}\0{name_of_python()}"
    return HOME / ENVIRONMENTS / f"{purpose}-{hashlib.sha256(itself.encode()).hexdigest()[:12]}"


def wheel_environment(
    layout: Layout, purpose: str, wheel: Path, requirements: Path = REQUIREMENTS, more: Sequence[Layer] = ()
) -> AbstractContextManager[Path]:
    """Hold a virtual environment with ``wheel``, the requirements and ``more``, which may need the wheel. Yields its
    Python.
    """
    return environment_in(folder_of(purpose, layout), wheel, requirements, more)


@contextmanager
def environment_in(folder: Path, wheel: Path, requirements: Path, more: Sequence[Layer] = ()) -> Iterator[Path]:
    """Hold such an environment in ``folder``."""

    required = hashlib.sha256(requirements.read_bytes()).hexdigest()

    def make_packages(target: Path) -> None:
        make_virtual_environment(target)
        install(target, "--requirement", requirements, what="what the tests need")

    def make(target: Path) -> None:
        say(f"creating an environment in {folder}")
        require_space(target, wheel)
        packages = shared_environment("packages", required)
        with held(packages, [Layer(required, make_packages)]):
            copy_environment(packages, target)

    def add_wheel(target: Path) -> None:
        if any(target.glob("lib/python*/site-packages/torch")):
            say(f"updating the environment in {folder}")
            install(target, "--force-reinstall", "--no-deps", wheel, what=wheel.name)
        else:
            install(target, wheel, what=f"{wheel.name} and what it requires")

    with held(folder, [Layer(required, make), Layer(identity(wheel), add_wheel), *more]):
        yield folder / "bin/python"


def copy_environment(source: Path, target: Path) -> None:
    """Copy a virtual environment. Its files are links, because copies of gigabytes take longer than most tests: they
    may be replaced, as pip does, but not written to. Its programs name the Python of the copy.
    """
    shutil.copytree(
        source,
        target,
        symlinks=True,
        copy_function=linked,
        ignore=shutil.ignore_patterns(STAMP),
        dirs_exist_ok=True,
    )
    old, new = os.fsencode(source), os.fsencode(target)
    for path in (target / "pyvenv.cfg", *(target / "bin").iterdir()):
        if path.is_file() and not path.is_symlink() and old in (content := path.read_bytes()):
            own = path.with_name(f"{path.name}~")  # the source has the file, too
            shutil.copy2(path, own)
            own.write_bytes(content.replace(old, new))
            own.replace(path)


def linked(source: str, target: str) -> None:
    """For ``copy_function`` of ``copytree``: link files where that is possible. Headers are copied: to a build that
    reads one, another link looks like a change.
    """
    if "/include/" not in source:
        with suppress(OSError):  # another file system
            os.link(source, target)
            return
    shutil.copy2(source, target)


def require_space(folder: Path, wheel: Path) -> None:
    """Print how much space an environment with ``wheel`` takes, and check that there is as much."""
    with ZipFile(wheel) as archive:
        needed = sum(member.file_size for member in archive.infolist()) + _OTHER_PACKAGES
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        is_for_cuda = b"\nRequires-Dist: nvidia-" in archive.read(metadata)
    needed += _CUDA_PACKAGES if is_for_cuda else 0
    free = free_bytes(folder)
    packages = f", with NVIDIA's packages: {_CUDA_DOWNLOAD >> 30} GB to download" if is_for_cuda else ""
    say(f"  {needed / 1e9:.1f} GB{packages}; {free / 1e9:.0f} GB are free")
    if free < needed:
        raise RefusedError(
            f"{folder}: {free / 1e9:.1f} GB are free, but the environment of the tests takes {needed / 1e9:.1f} GB",
            todo="free some space, for example with `make clean`",
        )


@contextmanager
def copied_repository(folder: Path) -> Iterator[None]:
    """Hold a copy of this repository's files, without ignored ones, in ``folder``."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=REPOSITORY).stdout
        for name in filter(None, listed.split("\0")):
            if (REPOSITORY / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, folder / name)
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def unpacked(layout: Layout, purpose: str, wheel: Path) -> Iterator[Path]:
    """Hold a folder with only ``wheel``, for tests that read another torch than the environment's."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]

    def add(target: Path) -> None:
        run([*command, "--no-compile", "--target", target, wheel])

    folder = folder_of(purpose, layout)
    with held(folder, [Layer(identity(wheel), add)]):
        yield folder


def discard(layout: Layout, purposes: Sequence[str]) -> None:
    """Delete the folders of these purposes once they are unused; the environment of a CUDA wheel takes 5 GB.

    The lock file stays: otherwise a waiting process and a later one would lock different files.
    """
    for folder in (folder_of(purpose, layout) for purpose in purposes):
        if folder.is_dir():
            with folder.with_name(f"{folder.name}.lock").open("a+", encoding="utf-8") as file:
                take(file, f"another process uses {folder}", fcntl.LOCK_EX)
                delete(folder)


def identity(wheel: Path) -> str:
    """Identify a build of a wheel."""
    return f"{wheel.name} {wheel.stat().st_mtime_ns}"


def base_wheel_of(layout: Layout) -> Path:
    """Return the base wheel."""
    return next(iter(layout.base.glob("*.whl")))


def wheel_of(layout: Layout, build: str = GRAFT) -> Path:
    """Return the wheel of the last build."""
    built = load_built(layout, build)
    if built is None or not built.is_there():
        raise UsageError("no wheel was built yet", todo="run `make patch-and-build` with the same variables first")
    return built.path


def named(layout: Layout) -> str:
    """Format the native folders for ``native_folders``."""
    return shlex.join(map(str, layout.natives))


def run_python(
    python: Path,
    command: Sequence[str | Path],
    variables: Mapping[str, str],
    read: Callable[[str], None] | None = None,
) -> int:
    """Run a Python program in the repository. It prints to the terminal, or ``read`` gets each line. Return its exit
    code.
    """
    paths = [str(package_alone()), *filter(None, [variables.get("PYTHONPATH")])]
    # Nothing is written into an installed package.
    caches = {"HYPOTHESIS_STORAGE_DIRECTORY": str(HOME / "hypothesis"), "PYTHONPYCACHEPREFIX": str(BYTECODE)}
    caches |= {} if IS_CHECKOUT else {"GRAFT_HOME": str(HOME)}
    env = {**caches, **variables, "PYTHONPATH": os.pathsep.join(paths)}
    if read:
        return follow([python, *command], read, cwd=REPOSITORY, env=env)
    env = {**os.environ, **env}
    return subprocess.run([python, *command], cwd=REPOSITORY, env=env, stdin=subprocess.DEVNULL, check=False).returncode
