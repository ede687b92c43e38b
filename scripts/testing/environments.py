"""The virtual environments that tests, random calls and benchmarks run in: each holds a rebuilt wheel.

There is one for each native folder, pin, Python and purpose, so that none takes the place of another's. A new wheel is
installed over the old one; anything else that changes makes the environment anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..common.console import say
from ..common.environments import (
    ENVIRONMENTS,
    Layer,
    held,
    install,
    make_virtual_environment,
    name_of_python,
)
from ..common.errors import UsageError
from ..common.layout import REPOSITORY, Layout
from ..common.lock import take
from ..common.process import run
from ..deliver.built import GRAFT, Built, load_built

REQUIREMENTS = REPOSITORY / "tests/requirements.txt"

# What environments are for.
TEST, TEST_SOURCE, SANITIZED, BENCH = "test", "test-source", "sanitized", "bench"


def folder_of(purpose: str, layout: Layout) -> Path:
    """Where something lies that no other native folder, pin or Python shares."""
    itself = f"{layout.title}\0{layout.pin}\0{name_of_python()}"
    return ENVIRONMENTS / f"{purpose}-{hashlib.sha256(itself.encode()).hexdigest()[:12]}"


@contextmanager
def wheel_environment(
    layout: Layout, purpose: str, wheel: Path, requirements: Path = REQUIREMENTS, more: Sequence[Layer] = ()
) -> Iterator[Path]:
    """Hold a virtual environment with ``wheel``, what is required and ``more``; yields its Python."""
    with environment_in(folder_of(purpose, layout), wheel, requirements, more) as python:
        yield python


@contextmanager
def environment_in(folder: Path, wheel: Path, requirements: Path, more: Sequence[Layer] = ()) -> Iterator[Path]:
    """The same in a folder that is given; ``more`` may need the wheel."""

    def make(target: Path) -> None:
        say(f"making a fresh environment in {folder}")
        make_virtual_environment(target)
        install(target, "--requirement", requirements)

    def add_wheel(target: Path) -> None:
        is_there = any(target.glob("lib/python*/site-packages/torch"))
        if is_there:
            say(f"installing the new wheel in {folder}")
        install(target, *(["--force-reinstall", "--no-deps"] if is_there else []), wheel)

    required = hashlib.sha256(requirements.read_bytes()).hexdigest()
    with held(folder, [Layer(required, make), Layer(identity(wheel), add_wheel), *more]):
        yield folder / "bin/python"


@contextmanager
def unpacked(layout: Layout, purpose: str, wheel: Path) -> Iterator[Path]:
    """Hold a folder with ``wheel`` alone, for tests that look at another torch than the environment's."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]

    def add(target: Path) -> None:
        run([*command, "--no-compile", "--target", target, wheel])

    folder = folder_of(purpose, layout)
    with held(folder, [Layer(identity(wheel), add)]):
        yield folder


def discard(layout: Layout, purposes: Sequence[str]) -> None:
    """Delete what lies there for these purposes, once nobody uses it; one of a CUDA wheel takes 5 GB.

    The file of the lock stays: who waits for it would hold another than who makes a new one.
    """
    for folder in (folder_of(purpose, layout) for purpose in purposes):
        if folder.is_dir():
            with folder.with_name(f"{folder.name}.lock").open("a+", encoding="utf-8") as file:
                take(file, f"another process uses {folder}", fcntl.LOCK_EX)
                old = folder.parent / "old" / folder.name  # half deleted where it was, it would look whole
                shutil.rmtree(old, ignore_errors=True)
                old.parent.mkdir(exist_ok=True)
                folder.rename(old)
                shutil.rmtree(old)


def identity(wheel: Path) -> str:
    """Says which build of a wheel it is."""
    return f"{wheel.name} {wheel.stat().st_mtime_ns}"


def base_wheel_of(layout: Layout) -> Path:
    """The base wheel."""
    return next(iter(layout.base.glob("*.whl")))


def wheel_of(layout: Layout, build: str = GRAFT) -> Built:
    """What was built last.

    Raises:
        UsageError: nothing was.
    """
    built = load_built(layout, build)
    if built is None or not built.is_there():
        raise UsageError("there is no wheel yet", todo="run `make patch-and-build` with the same variables first")
    return built


def in_test_environment(layout: Layout, command: Sequence[str | Path], variables: Mapping[str, str] = {}) -> int:
    """Run a Python program with ``layout``'s wheel, what it prints going to the terminal; return its exit code."""
    with wheel_environment(layout, TEST, Path(wheel_of(layout).wheel)) as python:
        return run_python(python, command, variables)


def run_python(python: Path, command: Sequence[str | Path], variables: Mapping[str, str]) -> int:
    """Run a Python program in the repository, what it prints going to the terminal; return its exit code."""
    env = {**os.environ, **variables}
    return subprocess.run([python, *command], cwd=REPOSITORY, env=env, stdin=subprocess.DEVNULL, check=False).returncode
