"""Files that are written whole or deleted, links in folders, the lock on one; and how the builder opens text."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from graft.core.errors import UsageError
from graft.core.files import delete, files_below, lay_out_files, remove_others, write_atomically, write_if_changed
from graft.core.layout import PACKAGE, REPOSITORY
from helpers import write


def test_unchanged_file_keeps_its_time(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert write_if_changed(path, "a")
    os.utime(path, ns=(1, 1))
    assert not write_if_changed(path, "a")
    assert path.stat().st_mtime_ns == 1
    assert write_if_changed(path, "b")
    assert list(tmp_path.iterdir()) == [path]


def test_no_planted_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / f"mine.partial-{os.getpid()}").symlink_to("theirs")
    write_atomically(tmp_path / "mine", "mine")
    assert (tmp_path / "theirs").read_text() == "theirs" and (tmp_path / "mine").read_text() == "mine"


def test_folder_that_is_laid_out_holds_nothing_else_and_keeps_times(tmp_path: Path) -> None:
    lay_out_files(tmp_path, {"A.cpp": b"a", "A.h": b"h", "cpu/B.cpp": b"b"})
    for name in ("A.cpp", "cpu/B.cpp"):
        os.utime(tmp_path / name, ns=(1, 1))
    lay_out_files(tmp_path, {"A.cpp": b"a", "cpu/B.cpp": b"other"})
    assert files_below(tmp_path) == [Path("A.cpp"), Path("cpu/B.cpp")]
    assert (tmp_path / "A.cpp").stat().st_mtime_ns == 1
    assert (tmp_path / "cpu/B.cpp").read_bytes() == b"other"
    assert (tmp_path / "cpu/B.cpp").stat().st_mtime_ns > 1


def test_folder_and_file_take_each_other_s_place(tmp_path: Path) -> None:
    lay_out_files(tmp_path, {"a/b.h": b"", "c": b""})
    lay_out_files(tmp_path, {"a": b"", "c/d/e.h": b""})
    assert files_below(tmp_path) == [Path("a"), Path("c/d/e.h")]
    lay_out_files(tmp_path, {"a/b.h": b""})
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a/b.h"]


THEIRS = [Path("a"), Path("b/c")]


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder that no build may change."""
    return write(tmp_path / "theirs", {"a": "a", "b/c": "c"})


@pytest.mark.parametrize(
    "act", [lambda folder: lay_out_files(folder, {"a": b"mine"}), lambda folder: remove_others(folder, [])]
)
def test_folder_that_is_a_link_is_refused(tmp_path: Path, theirs: Path, act: Callable[[Path], None]) -> None:
    folder = tmp_path / "link"
    folder.symlink_to(theirs)
    with pytest.raises(UsageError) as caught:
        act(folder)
    assert str(caught.value).startswith(f"{folder}: it is a link to {theirs}") and caught.value.todo
    assert files_below(theirs) == THEIRS and (theirs / "a").read_text() == "a"


def test_links_in_a_folder_that_is_laid_out_are_deleted(tmp_path: Path, theirs: Path) -> None:
    """Also one with the name of a file or a folder that belongs there."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, target in {"a": "a", "b": "b", "other": "b", "gone": "gone"}.items():
        (folder / name).symlink_to(theirs / target)
    lay_out_files(folder, {"a": b"a", "b/c": b"mine", "b/d": b"d"})
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    assert files_below(folder) == [Path("a"), Path("b/c"), Path("b/d")]
    assert files_below(theirs) == THEIRS and (theirs / "b/c").read_text() == "c"


def test_deleting_follows_no_link(tmp_path: Path, theirs: Path) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    for path in (folder / "link", link):
        path.symlink_to(theirs)
    for path in (folder, link, tmp_path / "nothing"):
        delete(path)
        assert not os.path.lexists(path)
    assert files_below(theirs) == THEIRS


def test_links_above_are_the_user_s(tmp_path: Path) -> None:
    """A home, or a checkout's build, may be on another disk."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "build").symlink_to(tmp_path / "disk")
    lay_out_files(tmp_path / "build/folder", {"a": b"a", "b": b"b"})
    lay_out_files(tmp_path / "build/folder", {"a": b"a"})
    assert files_below(tmp_path / "disk") == [Path("folder/a")]
    delete(tmp_path / "build/folder")
    assert not list((tmp_path / "disk").iterdir())


def test_one_function_deletes_folders() -> None:
    others = [path for path in PACKAGE.rglob("*.py") if "rmtree(" in path.read_text(encoding="utf-8")]
    assert others == [PACKAGE / "core/files.py"]


HOLD = "from pathlib import Path\nfrom graft.core.files import build_lock\n" + (
    "with build_lock(Path({folder!r})):\n    {body}\n"
)


def holding(folder: Path, body: str) -> subprocess.Popen[str]:
    """A process that holds the lock while it runs ``body``."""
    command = [sys.executable, "-c", HOLD.format(folder=str(folder), body=body)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


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


def test_lock_of_a_killed_build_is_free(tmp_path: Path) -> None:
    body = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", HOLD.format(folder=str(tmp_path), body=body)], cwd=REPOSITORY, check=False)
    after = [sys.executable, "-c", HOLD.format(folder=str(tmp_path), body="print('mine')")]
    done = subprocess.run(after, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("mine\n", "")


TEXT = {"read_text", "write_text", "open", "run", "Popen"}
SCRIPTS = REPOSITORY / "scripts"
FILES = sorted(path for path in SCRIPTS.rglob("*.py") if "appended" not in path.parts)


def reads_or_writes_text(call: ast.Call) -> bool:
    """Return whether a call decodes or encodes text."""
    is_method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("ZipFile", "os"):
        return False  # members are bytes, and descriptors are of bytes
    if name not in TEXT or (name in ("read_text", "write_text") and not is_method):
        return False
    if name in ("run", "Popen"):
        return any(keyword.arg in ("text", "universal_newlines") for keyword in call.keywords)
    modes = [word.value for word in [*call.args, *(k.value for k in call.keywords)] if isinstance(word, ast.Constant)]
    return name != "open" or not any("b" in mode for mode in modes if isinstance(mode, str) and len(mode) < 4)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SCRIPTS)))
def test_text_says_its_encoding(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call)]
    without = [
        f"{path}:{call.lineno}"
        for call in calls
        if reads_or_writes_text(call) and not any(keyword.arg == "encoding" for keyword in call.keywords)
    ]
    assert not without
