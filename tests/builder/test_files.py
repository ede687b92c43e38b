"""Files that are written whole or deleted, links in folders, locks; folders that are created once and shared, also if
a process is killed or the content changes; and how the builder opens text.
"""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from graft.core import files
from graft.core.errors import UsageError
from graft.core.layout import PACKAGE, REPOSITORY
from helpers import Patch, refused, started, write


def test_unchanged_file_keeps_its_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert files.write_if_changed(path, "a")
    os.utime(path, ns=(1, 1))
    assert not files.write_if_changed(path, "a")
    assert path.stat().st_mtime_ns == 1
    assert files.write_if_changed(path, "b")
    assert list(tmp_path.iterdir()) == [path]


def test_no_planted_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / f"mine.partial-{os.getpid()}").symlink_to("theirs")
    files.write_atomically(tmp_path / "mine", "mine")
    assert (tmp_path / "theirs").read_text() == "theirs" and (tmp_path / "mine").read_text() == "mine"


def test_folder_and_file_take_each_other_s_place(tmp_path: Path) -> None:
    files.lay_out_files(tmp_path, {"a/b.h": b"", "c": b""})
    files.lay_out_files(tmp_path, {"a": b"", "c/d/e.h": b""})
    assert files.files_below(tmp_path) == [Path("a"), Path("c/d/e.h")]
    files.lay_out_files(tmp_path, {"a/b.h": b""})
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a/b.h"]


def test_content_has_a_folder_and_the_last_used_are_kept(tmp_path: Path) -> None:
    first, second = (files.folder_of(tmp_path, {"a/b": content}, 2, "mine-") for content in (b"1", b"2"))
    assert first.name.startswith("mine-") and [(each / "a/b").read_bytes() for each in (first, second)] == [b"1", b"2"]
    os.utime(first, ns=(2, 2)), os.utime(second, ns=(1, 1))
    assert files.folder_of(tmp_path, {"a/b": b"2"}, 2, "mine-") == second
    third = files.folder_of(tmp_path, {"a": b"", "b": b"2"}, 2, "mine-")
    assert sorted(tmp_path.iterdir()) == sorted([second, third])


def test_content_that_another_process_has_written_first(tmp_path: Path, monkeypatch: Patch) -> None:
    upstreams = files.lay_out_files

    def late(folder: Path, contents: dict[str, bytes]) -> None:
        upstreams(folder, contents)
        monkeypatch.setattr(files, "lay_out_files", upstreams)
        files.folder_of(tmp_path, contents, 2)

    monkeypatch.setattr(files, "lay_out_files", late)
    folder = files.folder_of(tmp_path, {"a": b"1"}, 2)
    assert list(tmp_path.iterdir()) == [folder] and (folder / "a").read_bytes() == b"1"


THEIRS = [Path("a"), Path("b/c")]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder that no build may change."""
    return write(tmp_path / "theirs", {"a": "a", "b/c": "c"})


@pytest.mark.parametrize(
    "act", [lambda folder: files.lay_out_files(folder, {"a": b"mine"}), lambda folder: files.remove_others(folder, [])]
)
def test_folder_that_is_a_link_is_refused(tmp_path: Path, theirs: Path, act: Callable[[Path], None]) -> None:
    folder = tmp_path / "link"
    folder.symlink_to(theirs)
    error = refused(UsageError, act, folder)
    assert str(error).startswith(f"{folder}: it is a link to {theirs}") and error.todo
    assert files.files_below(theirs) == THEIRS and (theirs / "a").read_text() == "a"


def test_links_in_a_folder_that_is_laid_out_are_deleted(tmp_path: Path, theirs: Path) -> None:
    """Also one with the name of a file or a folder that belongs there."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, target in {"a": "a", "b": "b", "other": "b", "gone": "gone"}.items():
        (folder / name).symlink_to(theirs / target)
    files.lay_out_files(folder, {"a": b"a", "b/c": b"mine", "b/d": b"d"})
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    assert files.files_below(folder) == [Path("a"), Path("b/c"), Path("b/d")]
    assert files.files_below(theirs) == THEIRS and (theirs / "b/c").read_text() == "c"


def test_deleting_follows_no_link(tmp_path: Path, theirs: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    for path in (folder / "link", link):
        path.symlink_to(theirs)
    for path in (folder, link, tmp_path / "nothing"):
        files.delete(path)
        assert not os.path.lexists(path)
    assert files.files_below(theirs) == THEIRS


def test_links_above_are_the_user_s(tmp_path: Path) -> None:
    """A home, or a checkout's build, may be on another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "build").symlink_to(tmp_path / "disk")
    files.lay_out_files(tmp_path / "build/folder", {"a": b"a", "b": b"b"})
    files.lay_out_files(tmp_path / "build/folder", {"a": b"a"})
    assert files.files_below(tmp_path / "disk") == [Path("folder/a")]
    files.delete(tmp_path / "build/folder")
    assert not list((tmp_path / "disk").iterdir())


def test_one_function_deletes_folders() -> None:
    others = [path for path in PACKAGE.rglob("*.py") if "rmtree(" in path.read_text(encoding="utf-8")]
    assert others == [PACKAGE / "core/files.py"]


LOCK = "from pathlib import Path\nfrom graft.core.files import build_lock\n" + (
    "with build_lock(Path({folder!r})):\n    {body}\n"
)


def holding(folder: Path, body: str) -> subprocess.Popen[str]:
    """A process that holds the lock while it runs ``body``."""
    return started(LOCK.format(folder=str(folder), body=body))


def test_second_build_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    first = holding(tmp_path, "print('held', flush=True); import time; input(); print(time.time())")
    assert first.stdout and first.stdout.readline() == "held\n"
    second = holding(tmp_path, "import time; print(time.time())")
    assert second.stderr
    said = second.stderr.readline()
    end_of_first, _ = first.communicate("\n")
    end_of_second, _ = second.communicate()
    assert f"another build is running here (process {first.pid}); waiting" in said
    assert float(end_of_second) >= float(end_of_first)


# Add two layers to a folder, each a line in its log; then report, wait for a line of input and end.
HOLD = """
import os, sys, time
from pathlib import Path
from graft.core.files import Layer, held
folder = Path(sys.argv[1])
def add(word):
    def fill(folder):
        folder.mkdir(exist_ok=True, parents=True)
        with (folder / "log").open("a") as log:
            log.write(f"{word}\\n")
        if word == "killed":
            os.kill(os.getpid(), 9)
        time.sleep(0.2)
    return fill
with held(folder, [Layer(word, add(word)) for word in sys.argv[2:]]):
    print("held", flush=True)
    input()
    print((folder / "log").read_text().split(), flush=True)
"""


def log_of(process: subprocess.Popen[str]) -> list[str]:
    """Let the process end. Return the log of its folder as it saw it."""
    out, errors = process.communicate("\n")
    assert process.returncode == 0, errors
    return list(ast.literal_eval(out.splitlines()[-1]))


def test_two_at_once_make_it_once_and_hold_it_together(tmp_path: Path) -> None:
    processes = [started(HOLD, tmp_path / "it", "a", "b") for _ in range(2)]
    for process in processes:
        assert process.stdout and process.stdout.readline() == "held\n"
    assert [log_of(process) for process in processes] == [["a", "b"]] * 2


def test_other_content_waits_for_those_who_use_it(tmp_path: Path) -> None:
    user = started(HOLD, tmp_path / "it", "a", "b")
    assert user.stdout and user.stdout.readline() == "held\n"
    other = started(HOLD, tmp_path / "it", "other", "b")
    assert other.stderr and f"another process uses {tmp_path / 'it'}" in other.stderr.readline()
    assert log_of(user) == ["a", "b"]
    assert log_of(other) == ["other", "b"]


@pytest.mark.parametrize(
    ("held_before", "log"),
    [
        # Only the layer that differs is added again.
        ([["a", "b"]], ["a", "b"]),
        ([["a", "c"]], ["a", "c", "b"]),
        ([["d", "b"]], ["a", "b"]),
        # A process that is killed leaves nothing half made.
        ([["killed", "b"]], ["a", "b"]),
        ([["a", "killed"]], ["a", "b"]),
        ([["a", "b"], ["a", "killed"]], ["a", "b"]),
    ],
)
def test_what_was_left_is_used_or_made_anew(tmp_path: Path, held_before: list[list[str]], log: list[str]) -> None:
    for words in held_before:
        process = started(HOLD, tmp_path / "it", *words)
        process.communicate("\n")
        assert process.returncode == (-signal.SIGKILL if "killed" in words else 0)
    assert log_of(started(HOLD, tmp_path / "it", "a", "b")) == log


def test_one_whose_creation_or_deletion_failed_is_made_anew(tmp_path: Path, monkeypatch: Patch) -> None:
    def fail(folder: Path) -> None:
        (folder / "log").write_text("half\n")
        raise ValueError(folder)

    assert log_of(started(HOLD, tmp_path / "it", "a")) == ["a"]
    with pytest.raises(ValueError), files.held(tmp_path / "it", [files.Layer("other", fail)]):
        pass
    for word in ("other", "a"):
        assert log_of(started(HOLD, tmp_path / "it", word)) == [word]
    monkeypatch.setattr(shutil, "rmtree", lambda _: (tmp_path / "it/log").write_text("half\n"))
    files.delete(tmp_path / "it")
    assert log_of(started(HOLD, tmp_path / "it", "a")) == ["a"]


SCRIPTS = REPOSITORY / "scripts"
FILES = sorted(path for path in SCRIPTS.rglob("*.py") if "appended" not in path.parts)


def reads_or_writes_text(call: ast.Call) -> bool:
    """Return whether a call decodes or encodes text."""
    owner, _, name = ast.unparse(call.func).rpartition(".")
    if name in ("read_text", "write_text"):
        return owner != ""
    if name in ("run", "Popen"):
        return any(keyword.arg in ("text", "universal_newlines") for keyword in call.keywords)
    modes = [word.value for word in [*call.args, *(k.value for k in call.keywords)] if isinstance(word, ast.Constant)]
    is_open = name == "open" and owner not in ("ZipFile", "os")  # members are bytes, and descriptors are of bytes
    return is_open and not any("b" in mode for mode in modes if isinstance(mode, str) and len(mode) < 4)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SCRIPTS)))
def test_text_says_its_encoding(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call)]
    without = [
        f"{path}:{call.lineno}"
        for call in calls
        if reads_or_writes_text(call) and not any(keyword.arg == "encoding" for keyword in call.keywords)
    ]
    assert not without
