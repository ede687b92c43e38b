"""The README's folder, built once as in the README: later builds of it have little to do."""

from __future__ import annotations

import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import DERIVED, of_the_base_wheel
from place import Disturbed, Outcome, Place
from snippets import write_shown_folder

BUILD = "make patch-and-build NATIVE=~/my_ops OUT=~/my_wheel"


@pytest.fixture(scope="session")
def base() -> Path:
    """The base wheel and its unpacked tree."""
    return of_the_base_wheel("GRAFT_BASE_FOLDER")


@pytest.fixture(scope="session")
def plain(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place with the README's folder and its wheel, which each test leaves unchanged."""
    folder = tmp_path_factory.mktemp("plain")
    place = Place(folder, base)
    write_shown_folder(place.home / "my_ops")
    done = place.run(["bash", "-c", f"{BUILD} PIN={base.parents[1].name}"])
    assert done.code == 0, done.said
    yield place
    shutil.rmtree(folder)


@pytest.fixture
def fetching(base: Path, tmp_path: Path) -> Iterator[Place]:
    """A place with the README's folder that downloads the base, which takes a gigabyte."""
    place = Place(tmp_path / "place", base, shares=DERIVED)
    write_shown_folder(place.home / "my_ops")
    yield place
    shutil.rmtree(tmp_path / "place")


# A limit of file sizes in bytes: below the wheel's size, above any object file's.
FULL = 50_000_000

# Differences that must not affect the wheel. The folder and the number of compilers differ, too.
OTHERWISE = {"TZ": "Pacific/Chatham", "LC_ALL": "C", "LANGUAGE": "de", "PYTHONHASHSEED": "4242"}


@pytest.fixture(scope="session")
def disturbed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disturbed]:
    """The README's folder: interrupted, killed, with limited file sizes, then built. It shares only the base with
    ``plain``, and its surroundings differ.
    """
    folder = tmp_path_factory.mktemp("another")
    place = Place(folder / "deep/er $HOME|folder", base, shares=("base",), umask=0o077, **OTHERWISE)
    write_shown_folder(place.home / "my_ops")
    command = place.command("build", "--jobs", "3")
    result = Disturbed(place, {}, {})

    def note(name: str, outcome: Outcome) -> None:
        result.stopped[name] = outcome
        result.left[name] = [path.name for path in place.out.glob("*")]

    note("interrupted", place.stop_at("compile and link: [1/", signal.SIGINT, command))
    note("killed", place.stop_at("compile and link: [1/", signal.SIGKILL, command))
    note("no room", place.run(command, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (FULL, FULL))))
    note("built", place.run(command))
    yield result
    shutil.rmtree(folder)
