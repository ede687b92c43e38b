"""Nothing that a build did earlier is in a wheel unseen: killed compilers, times that went back, headers elsewhere.

Each wheel has the bytes of one that is built from nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from helpers import write
from place import Place, sha256
from snippets import write_shown_folder

# test_random_edits.py does the same, and more, by night.
pytestmark = pytest.mark.slow

# The compiler starts a second later, so that a build can be killed before it has written anything.
SLOWLY = '#!/bin/sh\ntouch "$HOME/began"\nsleep 1\nexec "$@"\n'


@pytest.fixture(scope="module")
def place(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place with the README's folder, whose kernel includes a header that is elsewhere."""
    folder = tmp_path_factory.mktemp("stale")
    place = Place(folder, base)
    write_shown_folder(place.home / "my_ops")
    write(place.home, {"slowly": SLOWLY, "elsewhere.h": "#define FACTOR 1\n"})
    (place.home / "slowly").chmod(0o755)
    save(place, "FACTOR")
    assert built(place)
    yield place
    shutil.rmtree(folder)


def save(place: Place, factor: str) -> None:
    """Save the kernel with another factor."""
    path = place.home / "my_ops/SoftClip.cpp"
    text = path.read_text(encoding="utf-8").rpartition('elsewhere.h"\n')[2]
    text = re.sub(r"return self.*;", f"return self.div(limit).tanh().mul(limit).mul({factor});", text)
    path.write_text(f'#include "{place.home}/elsewhere.h"\n{text}', encoding="utf-8")


def built(place: Place) -> tuple[str, str]:
    """Build the wheel. Return its name and its hash."""
    done = place.build()
    assert done.code == 0, done.said
    return place.wheel.name, sha256(place.wheel)


def from_nothing(place: Place, base: Path, folder: Path) -> tuple[str, str]:
    """Build the same folder in another place. Return the name and the hash of the wheel."""
    other = Place(folder, base)
    shutil.copytree(place.home / "my_ops", other.home / "my_ops")
    found = built(other)
    shutil.rmtree(folder)
    return found


def test_killed_build_leaves_no_compiler(place: Place, base: Path, tmp_path: Path) -> None:
    save(place, "5")
    process = place.start([*place.command(), "--launcher", place.home / "slowly"])
    while not (place.home / "began").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    save(place, "7")
    found = built(place)
    process.communicate()
    assert found == from_nothing(place, base, tmp_path / "fresh")


def test_header_elsewhere_is_an_input_whatever_its_time(place: Place, base: Path, tmp_path: Path) -> None:
    save(place, "FACTOR")
    header = place.home / "elsewhere.h"
    first = built(place)
    header.write_text("#define FACTOR 3\n")
    os.utime(header, (1e9, 1e9))
    second = built(place)
    assert second[0] != first[0]
    assert second == from_nothing(place, base, tmp_path / "fresh")
    header.write_text("#define FACTOR 1\n")
    os.utime(header, (1e9, 1e9))
    assert built(place) == first
    assert place.build().said.startswith("nothing changed: ")


def test_linked_folders_are_delivered(place: Place) -> None:
    """And what is no folder of the operators' is refused by its name."""
    native = place.home / "my_ops"
    write(native, {"pages/soft_clip.rst": "A page behind a link.\n"})
    (native / "docs").symlink_to("pages")
    built(place)
    with ZipFile(place.wheel) as wheel:
        assert b"A page behind a link." in wheel.read("torch/_torch_docs.py")
    (native / "docs").unlink()
    (native / "docs").symlink_to(place.home)
    done = place.build()
    assert done.code == 2 and f"{native}/docs: this link leads out of the native folder, to {place.home}" in done.said
    (native / "docs").unlink()
