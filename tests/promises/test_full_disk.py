"""A file system that is full at each step: what the build says, what it leaves, and that the next one works."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from place import STEPS, Outcome, Place
from snippets import write_shown_folder

# More than a build asks for before it fetches a base.
ENOUGH = 4 << 30


class Room:
    """A file system in memory, which only processes behind ``prefix`` see. It goes with the process that holds it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        hold = f"mount -t tmpfs -o size={ENOUGH} none {folder} && echo ready && exec sleep infinity"
        if not (shutil.which("unshare") and shutil.which("nsenter")):
            pytest.skip("nobody may mount a file system here: unshare and nsenter are not installed")
        command = ["unshare", "--map-root-user", "--mount", "sh", "-c", hold]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert self._holder.stdout is not None
        said = self._holder.stdout.readline()
        if said != b"ready\n":
            self._holder.wait()
            pytest.skip(f"nobody may mount a file system here: {said.decode()}")
        self.prefix = ["nsenter", f"--target={self._holder.pid}", "--user", "--mount", "--preserve-credentials"]

    def run(self, *command: str | Path) -> str:
        """What a command prints that sees the file system."""
        return subprocess.run([*self.prefix, *command], stdout=subprocess.PIPE, check=True, text=True).stdout

    def used(self) -> int:
        """How many bytes are taken."""
        return int(self.run("df", "--block-size=1", "--output=used", self.folder).split()[-1])

    def resize(self, size: int) -> None:
        """Let it hold so many bytes."""
        self.run("mount", "-o", f"remount,size={size}", self.folder)

    def close(self) -> None:
        """Let it go."""
        self._holder.kill()
        self._holder.wait()


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[list[Room]]:
    rooms: list[Room] = []
    yield rooms
    for room in rooms:
        room.close()


def place_in(room: Room, base: Path, folder: Path) -> Place:
    """A place that has all that it makes, and temporary files, in ``room``."""
    place = Place(folder, base, is_shared=False, TMPDIR=str(room.folder / "tmp"))
    write_shown_folder(place.home / "my_ops")
    for name in ("build", "out", "tmp"):
        room.run("mkdir", room.folder / name)
    (place.repository / "build").symlink_to(room.folder / "build")
    place.out, place.prefix = room.folder / "out", [*room.prefix, f"--wd={place.repository}"]
    return place


def wheels_in(room: Room) -> list[tuple[str, str]]:
    """The hash and the name of each."""
    lines = room.run("sh", "-c", f"sha256sum {room.folder}/out/*").splitlines()
    return [(line.split()[0], Path(line).name) for line in lines]


def taken_at_steps(place: Place, room: Room, command: list[str | Path]) -> list[int]:
    """How much is taken where each step begins, and at the end, of a build that nothing disturbs."""
    taken: list[int] = []

    def note(_: object, said: bytes) -> None:
        if f"({len(taken) + 1}/{STEPS}) ".encode() in said:
            taken.append(room.used())

    done = place.on_terminal(command, note)
    assert done.code == 0, done.said
    return [*taken, room.used()]


@pytest.mark.slow
def test_file_system_that_is_full_at_each_step(base: Path, tmp_path: Path, rooms: list[Room]) -> None:
    rooms += [Room(tmp_path / "first"), Room(tmp_path / "second")]
    (wheel,) = base.glob("*.whl")
    place = place_in(rooms[0], base, tmp_path / "measured")
    taken = taken_at_steps(place, rooms[0], place.command("build", "--wheel", wheel))
    assert len(taken) == STEPS + 1

    room = rooms[1]
    place = place_in(room, base, tmp_path / "filled")
    command = place.command("build", "--wheel", wheel)
    failed: dict[int, Outcome] = {}
    for step in range(1, STEPS + 1):
        if taken[step] - taken[step - 1] < 1 << 16:
            continue
        if step == 2:  # without room for the whole build, the base is not even fetched
            room.resize(ENOUGH)
            place.stop_at(f"({step}/{STEPS}) ", signal.SIGKILL, command)
        room.resize((taken[step] + taken[step - 1]) // 2)
        failed[step] = place.run(command)
        print(step, taken[step - 1], taken[step], failed[step])
        assert not room.run("find", room.folder / "out", "-type", "f")
    room.resize(ENOUGH)
    done = place.run(command)
    assert done.code == 0, done.said
    assert wheels_in(room) == wheels_in(rooms[0])
    assert 0
