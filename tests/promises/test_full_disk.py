"""A disk that is full at each step: what the build reports, what it leaves, and that the next one works."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from place import STEPS, Outcome, Place
from snippets import write_shown_folder

# More than a build requires before it downloads a base.
ENOUGH = 4 << 30


class Room:
    """A file system in memory, visible only to processes started with ``prefix``. It ends with its process."""

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
            self._holder.communicate()
            pytest.skip(f"nobody may mount a file system here: {said.decode()}")
        self.prefix = ["nsenter", f"--target={self._holder.pid}", "--user", "--mount", "--preserve-credentials"]

    def run(self, *command: str | Path) -> str:
        """Return the output of a command that sees the file system."""
        return subprocess.run([*self.prefix, *command], stdout=subprocess.PIPE, check=True, text=True).stdout

    def used(self) -> int:
        """Return the number of used bytes."""
        return int(self.run("df", "--block-size=1", "--output=used", self.folder).split()[-1])

    def resize(self, size: int) -> None:
        """Set its size in bytes."""
        self.run("mount", "-o", f"remount,size={size}", self.folder)

    def close(self) -> None:
        """Delete it."""
        self._holder.kill()
        self._holder.communicate()


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[list[Room]]:
    rooms: list[Room] = []
    yield rooms
    for room in rooms:
        room.close()


def place_in(room: Room, base: Path, folder: Path) -> Place:
    """A place with all its output and temporary files in ``room``."""
    place = Place(folder, base, shares=(), TMPDIR=str(room.folder / "tmp"))
    place.variables["XDG_CACHE_HOME"] = str(room.folder / "cache")
    write_shown_folder(place.home / "my_ops")
    for name in ("build", "out", "tmp"):
        room.run("mkdir", room.folder / name)
    (place.repository / "build").symlink_to(room.folder / "build")
    place.out, place.prefix = room.folder / "out", [*room.prefix, f"--wd={place.repository}"]
    return place


def wheels_in(room: Room) -> list[tuple[str, str]]:
    """Return the hash and the name of each file."""
    lines = room.run("sh", "-c", f"sha256sum {room.folder}/out/*").splitlines()
    return [(line.split()[0], Path(line).name) for line in lines]


def taken_at_steps(place: Place, room: Room, command: list[str | Path]) -> list[int]:
    """Return the used space at the start of each step, and at the end, of an undisturbed build."""
    taken: list[int] = []

    def note(_: object, said: bytes) -> None:
        if len(taken) < len(STEPS) and f"{STEPS[len(taken)]}: ".encode() in said:
            taken.append(room.used())

    done = place.on_terminal(command, note)
    assert done.code == 0, done.said
    return [*taken, room.used()]


def stopped_by_lack_of_room(
    place: Place, room: Room, command: list[str | Path], taken: list[int]
) -> dict[str, Outcome]:
    """Return the messages of builds for which each writing step had half of the space that it needs."""
    failed = {}
    for step, before, after in zip(STEPS, taken, taken[1:], strict=False):
        if after - before < 1 << 16:
            continue
        if step in ("unpack it", "pack"):  # earlier steps may need more space temporarily than they keep
            room.resize(ENOUGH)
            place.stop_at(f"{step}: ", signal.SIGINT, command)
        room.resize((before + after) // 2)
        failed[step] = place.run(command)
        assert not room.run("find", place.out, "-type", "f")
    room.resize(ENOUGH)
    return failed


@pytest.mark.slow
def test_file_system_that_is_full_at_each_step(base: Path, tmp_path: Path, rooms: list[Room]) -> None:
    rooms += [Room(tmp_path / "first"), Room(tmp_path / "second")]
    measured, filled = (place_in(room, base, tmp_path / f"place-{room.folder.name}") for room in rooms)
    (wheel,) = base.glob("*.whl")
    taken = taken_at_steps(measured, rooms[0], measured.command("build", "--wheel", wheel))
    assert len(taken) == len(STEPS) + 1
    command = filled.command("build", "--wheel", wheel)
    failed = stopped_by_lack_of_room(filled, rooms[1], command, taken)
    assert failed.keys() - {"compose"} == {*STEPS} - {"compose"}
    # Without space for the whole build, the base is not downloaded.
    assert failed[STEPS[0]].code == 3
    assert "base: less than 3 GiB are free\n  next: free some space" in failed[STEPS[0]].said
    for step, outcome in list(failed.items())[1:]:
        assert outcome.code == (1 if step == "pack" else 3), outcome.said
        assert re.search(rf"^{step}: .*failed$", outcome.said, re.M), outcome.said
        assert "No space left on device" in outcome.said and "Traceback" not in outcome.said
        assert "\n  next: free some space on the file system of " in outcome.said
        assert str(tmp_path) in outcome.said.partition("  next: ")[2]
    done = filled.run(command)
    assert done.code == 0, done.said
    assert wheels_in(rooms[1]) == wheels_in(rooms[0])
