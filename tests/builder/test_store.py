"""Objects are used again exactly where a compiler would find the same. The compiler is faked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from builds import ALL, COMPILER, GXX, LIBRARY, NARROW_HEADERS, A, B, Build
from graft.compile import store
from graft.core.errors import BuildError
from graft.core.layout import DEBUG, Layout
from helpers import Patch


def set_back(path: Path) -> None:
    """Give a file the time of a clock that went back, or of a package."""
    os.utime(path, (1e9, 1e9))


def test_content_decides_where_times_do_not(build: Build) -> None:
    build.run()
    build.write(A, "// another\n")
    set_back(build.layout.work / A)
    assert build.run() == {A}
    build.write("header.h", "// another\n")
    set_back(build.layout.work / "header.h")
    assert build.run() == ALL
    assert build.run() == set()


def test_content_decides_after_a_build_that_failed(build: Build) -> None:
    build.write(A, "wrong\n")
    with pytest.raises(BuildError):
        build.run()
    build.write(B, "// another\n")
    set_back(build.layout.work / B)
    build.write(A, "// right\n")
    assert build.run() == {A, B}


@pytest.fixture
def elsewhere(build: Build, tmp_path: Path, monkeypatch: Patch) -> Build:
    """The same sources in another folder, after a build in the first."""
    stock = "../base/tree/torch/include/c10/stock.h"
    build.write(stock, "// stock\n")
    build.write(A, f"// {stock}\n")
    assert build.run() == ALL
    assert build.compiled_before == ""
    without = shutil.ignore_patterns("objects", "build.ninja", ".ninja_*")
    for name in ("work", "base"):
        shutil.copytree(tmp_path / name, tmp_path / "other" / name, ignore=without)
    monkeypatch.setattr(Layout, "work", tmp_path / "other/work")
    return build


def test_what_another_folder_compiled_is_used(elsewhere: Build, tmp_path: Path) -> None:
    assert elsewhere.run() == set()
    assert elsewhere.compiled_before == "3 compiled before"
    for unit in elsewhere.units:
        assert (elsewhere.layout.work / unit.target).read_bytes() == (tmp_path / "work" / unit.target).read_bytes()
    assert elsewhere.run() == set()
    assert elsewhere.compiled_before == ""


def written(name: str) -> Callable[[Build], object]:
    return lambda build: build.write(name, "// another\n")


def with_flags(build: Build) -> None:
    build.units[1] = replace(build.units[1], flags=("-O1",))


@pytest.mark.parametrize(
    ("change", "compiled"),
    [
        (written(A), {A}),
        (written("header.h"), ALL),
        (with_flags, {B}),
        (lambda build: setattr(build.compiler, "flags", ("-O2", "-g")), ALL),
        # A package installed a newer compiler; or the compiler is a script, whose version stays.
        (lambda build: setattr(build.compiler, "description", "version 2"), ALL),
        (lambda build: Path(build.compiler.compiler).write_text(f"{COMPILER}# another\n"), ALL),
        # The source may now need no wider ones.
        (written(f"narrow/{NARROW_HEADERS[0]}"), {LIBRARY}),
        # It was not read, but would hide a header of the base: from all, or beside the source.
        (written("src/c10/own.h"), set()),
        (written("src/c10/stock.h"), {A}),
        (written("generated/include/c10/stock.h"), {A}),
        (written("src/ATen/native/c10/stock.h"), {A}),
    ],
    ids=["source", "header", "flags", "compiler's flags", "version", "script", "narrow", "other", *("hides",) * 3],
)
def test_what_decides_about_an_object(elsewhere: Build, change: Callable[[Build], object], compiled: set[str]) -> None:
    change(elsewhere)
    assert elsewhere.run() == compiled
    assert elsewhere.run() == set()


def test_object_without_known_inputs_is_not_stored(build: Build, tmp_path: Path) -> None:
    """As a compiler that was killed leaves it, or one that writes no depfile."""
    program = Path(build.compiler.compiler)
    program.write_text(COMPILER.replace('echo "$object: ', 'true "$object: '))
    build.run()
    assert not [*tmp_path.glob("store/*/*")]


def test_few_objects_of_one_source_are_kept(build: Build, tmp_path: Path) -> None:
    for number in range(store._STATES + 2):
        build.write("header.h", f"// {number}\n")
        assert build.run() == ALL
    for folder in (tmp_path / "store").iterdir():
        assert len([*folder.iterdir()]) == 2 * store._STATES
    build.write("header.h", f"// {store._STATES}\n")
    assert build.run() == set()


def cut_off(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()  # the work folder has the same file
    path.write_bytes(data[:-1])


@pytest.mark.parametrize("damage", ["", "{}", "null", "[]", '{"manifest": null}', "not JSON", cut_off, Path.unlink])
def test_damaged_entry_or_object_means_compile(
    elsewhere: Build, tmp_path: Path, damage: str | Callable[[Path], object]
) -> None:
    for path in (tmp_path / "store").glob("*/*.json" if isinstance(damage, str) else "*/*.o"):
        path.write_text(damage) if isinstance(damage, str) else damage(path)
    assert elsewhere.run() == ALL
    assert elsewhere.run() == set()


def test_objects_with_paths_of_their_folder_are_not_stored(build: Build, tmp_path: Path) -> None:
    build.toolchain = GXX.of_kind(DEBUG)
    assert build.run() == ALL
    assert not [*tmp_path.glob("store/*")]


def test_inputs_with_special_characters_are_known_after_an_object_was_taken(build: Build, tmp_path: Path) -> None:
    header = tmp_path / "a $b#.h"
    header.write_text("// first\n")
    escaped = str(header).replace(" ", "\\ ").replace("#", "\\#").replace("$", "$$")
    build.write(A, f"// {escaped}\n")
    build.run()
    (build.layout.work / "objects/A.o").unlink()
    assert build.run() == set()
    assert build.compiled_before == "1 compiled before"
    assert build.run() == set()
    header.write_text("// second\n")
    assert build.run() == {A}


def test_store_deletes_what_was_not_used_for_longest(build: Build, tmp_path: Path, monkeypatch: Patch) -> None:
    build.run()
    first = {*tmp_path.glob("store/*/*")}
    for path in first:
        set_back(path)
    size = sum(path.stat().st_size for path in first)
    monkeypatch.setattr(store, "_LIMIT", size + 1)
    build.write(A, "// another\n")
    build.run()
    left = {*tmp_path.glob("store/*/*")}
    assert len(left) == len(first) and len(left - first) == 2
    assert all([*folder.iterdir()] for folder in (tmp_path / "store").iterdir())
    assert sum(path.stat().st_size for path in left) <= size + 1


def test_store_deletes_what_a_killed_build_left(build: Build, tmp_path: Path, monkeypatch: Patch) -> None:
    left = tmp_path / "store/key/state.o.partial-1"
    left.parent.mkdir(parents=True)
    left.write_text("half of an object" * 1000)
    set_back(left)
    build.run()
    assert left.is_file()
    monkeypatch.setattr(store, "_LIMIT", sum(path.stat().st_size for path in tmp_path.glob("store/*/*")))
    build.write(A, "// another\n")
    build.run()
    assert not left.parent.exists()
    assert len([*tmp_path.glob("store/*/*")]) == 8


def test_objects_that_a_work_folder_has_count(build: Build, tmp_path: Path, monkeypatch: Patch) -> None:
    """Each clone has some, and would escape the limit."""
    monkeypatch.setattr(store, "_LIMIT", 1)
    build.run()
    assert not [*tmp_path.glob("store/*/*")]
    assert all((build.layout.work / unit.target).is_file() for unit in build.units)


def test_what_another_version_noted_is_not_used(elsewhere: Build, monkeypatch: Patch) -> None:
    """It may have noted less than this one looks for."""
    monkeypatch.setattr(store, "_MANIFESTS", "those of another version")
    assert elsewhere.run() == ALL


def test_store_of_another_user(elsewhere: Build, monkeypatch: Patch) -> None:
    """Who may read it, and not change times."""

    def refused(path: Path) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(os, "utime", refused)
    assert elsewhere.run() == set()


def test_link_that_a_killed_process_left_is_not_written_to(tmp_path: Path) -> None:
    first, second, target = (tmp_path / name for name in ("first", "second", "target"))
    first.write_text("first")
    second.write_text("second")
    (tmp_path / f"target.partial-{os.getpid()}").hardlink_to(first)
    store._link(second, target)
    assert (first.read_text(), target.read_text()) == ("first", "second")
