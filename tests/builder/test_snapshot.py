"""The inputs of a build, read once: their stamp, places in messages, and several folders as one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from graft.core.errors import PinError
from graft.core.layout import Layout, TorchVersion
from graft.inputs.merge import merge_folders
from graft.inputs.native import load_native
from graft.inputs.snapshot import Snapshot, take_snapshot
from graft.inputs.toolchain import Toolchain
from helpers import write

PIN = """version: 1.0
source: {git: {repository: none, tag: none, commit: none}}
wheel: {requirement: torch==1.0, sha256: {}}
compiler: {gxx: 11, standard: c++20}
"""
PATCH = "Subject: text: say two\n\n--- a/torch/text.py\n+++ b/torch/text.py\n@@ -1 +1 @@\n-one\n+two\n"
PATCHES = {"1.0/pin.yaml": PIN, "1.0/series": "mine.patch\n../0.9/theirs.patch\n"}
PATCHES |= {"1.0/mine.patch": PATCH, "0.9/theirs.patch": PATCH}

# The second folder's texts: one without a final newline, one indented.
FIRST = {
    "native_functions.yaml": "# mine\n- func: one(Tensor self) -> Tensor\n\n",
    "derivatives.yaml": "- name: one(Tensor self) -> Tensor\n  self: grad",
    "python/text.py": "one = 1\n",
    "docs/one.rst": "What one does.\n",
    "samples.py": "def one(make): ...\n",
    "One.cpp": "// one\n",
    "cpu/OneKernel.cpp": "REGISTER_DISPATCH(one_stub, &one_kernel)\n",
    "notes.txt": "read by nobody\n",
    "tests/test_one.py": "pass\n",
}
SECOND = {
    "native_functions.yaml": "  - func: two(Tensor self) -> Tensor\n    variants: method\n  - func: more() -> ()\n",
    "derivatives.yaml": "- name: two(Tensor self) -> Tensor\n  self: grad\n",
    "python/text.py": "two = 2\n",
    "python/other.py": "other = 2\n",
    "docs/two.rst": "What two does.\n",
    "Two.cpp": "// two\n",
}


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """For one folder."""
    patches = write(tmp_path / "patches", PATCHES)
    monkeypatch.setattr(Layout, "patches", patches / "1.0")
    monkeypatch.setattr(Layout, "pin_build", tmp_path / "made")
    return Layout(TorchVersion("1.0"), (write(tmp_path / "first", FIRST),), tmp_path / "out")


@pytest.fixture
def both(layout: Layout, tmp_path: Path) -> Layout:
    """For two folders."""
    return replace(layout, natives=(*layout.natives, write(tmp_path / "second one", SECOND)))


def test_stamp_does_not_depend_on_places(layout: Layout, both: Layout, tmp_path: Path) -> None:
    for each, copies in ((layout, 1), (both, 2)):
        elsewhere = tuple(write(tmp_path / f"deep/er/{n}", texts) for n, texts in enumerate((FIRST, SECOND)))
        moved = replace(each, natives=elsewhere[:copies], out=tmp_path / "elsewhere")
        assert take_snapshot(moved).stamp == take_snapshot(each).stamp


def test_stamp_depends_on_all_that_is_read(both: Layout) -> None:
    first, second = both.natives
    stamps = [take_snapshot(both).stamp]

    def is_new() -> bool:
        stamps.append(take_snapshot(both).stamp)
        return stamps[-1] not in stamps[:-1]

    for path in (first / "One.cpp", second / "docs/two.rst", both.patches / "mine.patch", both.patches / "pin.yaml"):
        path.write_text(f"{path.read_text()}\n")
        assert is_new()
    other = both.patches.parent / "0.9/theirs.patch"
    other.write_text(other.read_text().replace("two", "three"))
    assert is_new()
    (first / "One.cpp").rename(first / "Another.cpp")
    assert is_new()
    # A file moves from one folder to the other.
    (first / "Another.cpp").rename(second / "Another.cpp")
    assert is_new()


def test_stamp_does_not_depend_on_what_no_build_reads(layout: Layout) -> None:
    before = take_snapshot(layout)
    write(layout.native, {"notes.txt": "another\n", "tests/test_more.py": "pass\n", ".hidden": "", "new.md": "text\n"})
    after = take_snapshot(layout)
    assert after.stamp == before.stamp
    assert after.unread != before.unread  # their names are checked


def test_stamp_depends_on_compiler_and_settings(layout: Layout) -> None:
    snapshot = take_snapshot(layout)
    others = [
        replace(snapshot, toolchain=Toolchain("g++", "g++ 99", "c++20")),
        replace(snapshot, settings=("CPython", "3.99.0")),
        take_snapshot(layout.sanitized()),
    ]
    assert len({snapshot.stamp, *(other.stamp for other in others)}) == 4
    # torchgen's output depends on neither.
    assert {other.stamp_of_generated for other in others} == {snapshot.stamp_of_generated}


def test_generated_code_depends_on_yaml_alone(both: Layout) -> None:
    before = take_snapshot(both).stamp_of_generated
    write(both.natives[1], {"Two.cpp": "// another\n", "docs/two.rst": "another\n", "python/other.py": "other = 3\n"})
    assert take_snapshot(both).stamp_of_generated == before
    write(both.natives[1], {"derivatives.yaml": "# another\n"})
    assert take_snapshot(both).stamp_of_generated != before


def test_later_edits_are_not_seen(layout: Layout) -> None:
    snapshot = take_snapshot(layout)
    write(layout.native, {"One.cpp": "// edited while it is built\n"})
    (layout.native / "docs/one.rst").unlink()
    native = snapshot.lay_out()
    assert native.path.is_relative_to(layout.snapshot)
    assert (native.path / "One.cpp").read_text() == FIRST["One.cpp"]
    assert native.docs == (Path("docs/one.rst"),)
    assert (snapshot.patches / "mine.patch").read_text() == PATCH
    assert (snapshot.patches / "../0.9/theirs.patch").read_text() == PATCH
    assert native.unread == (Path("notes.txt"),)


def test_next_snapshot_takes_the_place_of_the_last(layout: Layout) -> None:
    native = take_snapshot(layout).lay_out()
    times = {name: (native.path / name).stat().st_mtime_ns for name in native.files}
    (layout.native / "One.cpp").unlink()
    again = take_snapshot(layout).lay_out()
    assert again.path == native.path and again.sources == ()
    assert {name: (again.path / name).stat().st_mtime_ns for name in again.files} == {n: times[n] for n in again.files}


def test_places_in_one_folder_s_copy_are_the_user_s(layout: Layout) -> None:
    snapshot = take_snapshot(layout)
    native, origin = snapshot.lay_out(), layout.native
    for name in ("native_functions.yaml:2:3: wrong", "python/text.py:1", "docs/one.rst", "One.cpp:7:1: error: x"):
        assert snapshot.translate(f"in {native.path}/{name}") == f"in {origin}/{name}"
    assert snapshot.translate(f"`{native.path}` is empty") == f"`{origin}` is empty"
    assert snapshot.translate(f"{snapshot.patches}/mine.patch:4: wrong") == f"{layout.patches}/mine.patch:4: wrong"
    assert snapshot.translate(f"{native.path}0/x") == f"{native.path}0/x"


def test_each_line_of_the_merged_folder_is_the_user_s_line(both: Layout) -> None:
    snapshot = take_snapshot(both)
    native = snapshot.lay_out()
    origins = set()
    for name in native.files:
        for number, line in enumerate((native.path / name).read_text().splitlines(), 1):
            place = re.fullmatch(r"(.*):(\d+): wrong", snapshot.translate(f"{native.path / name}:{number}: wrong"))
            assert place and Path(place[1]).name == name.name
            if line:  # there may be an empty line between two texts
                assert Path(place[1]).read_text().splitlines()[int(place[2]) - 1].strip() == line.strip()
            origins.add(Path(place[1]).relative_to(both.natives[0].parent).parts[0])
    assert origins == {"first", "second one"}


def test_places_in_two_folders_are_told_apart(both: Layout) -> None:
    snapshot = take_snapshot(both)
    merged = snapshot.lay_out().path
    first, second = both.natives
    for said, expected in {
        f"{merged}/native_functions.yaml:2:3: wrong": f"{first}/native_functions.yaml:2:3: wrong",
        f"{merged}/native_functions.yaml:6:3: wrong": f"{second}/native_functions.yaml:2:3: wrong",
        f"{merged}/derivatives.yaml:3: one\n{merged}/derivatives.yaml:2: other": f"{second}/derivatives.yaml:1: one\n"
        f"{first}/derivatives.yaml:2: other",
        f"{merged}/python/text.py:3": f"{second}/python/text.py:1",
        f"{merged}/python/other.py:1": f"{second}/python/other.py:1",
        f"{merged}/docs/two.rst: no title": f"{second}/docs/two.rst: no title",
        f"({merged}/Two.cpp)": f"({second}/Two.cpp)",
        f"{merged}/Two.cpp:1:4: error: `{merged}/One.cpp'": f"{second}/Two.cpp:1:4: error: `{first}/One.cpp'",
        # What reads the copies one by one.
        f"{snapshot.natives[1]}/Two.cpp:7": f"{second}/Two.cpp:7",
    }.items():
        assert snapshot.translate(said) == expected


def test_eleventh_folder_is_not_taken_for_the_second(layout: Layout, tmp_path: Path) -> None:
    more = tuple(write(tmp_path / f"n{number}", {"native_functions.yaml": ""}) for number in range(11))
    snapshot = take_snapshot(replace(layout, natives=(*layout.natives, *more)))
    assert snapshot.translate(f"{snapshot.natives[10]}/A.cpp") == f"{more[9]}/A.cpp"


def test_errors_name_the_user_s_files(both: Layout) -> None:
    snapshot = take_snapshot(both)
    path = snapshot.patches / "mine.patch"
    with pytest.raises(PinError) as caught, snapshot.translated():
        raise PinError(f"{path}:4: wrong", cause=f"{snapshot.merged}/One.cpp:1", todo=f"edit {path}")
    patch = both.patches / "mine.patch"
    expected = f"{patch}:4: wrong\n  why:  {both.natives[0]}/One.cpp:1\n  next: edit {patch}"
    assert str(caught.value) == expected


def folders(*files: Mapping[str, str]) -> list[dict[Path, bytes]]:
    return [{Path(name): text.encode() for name, text in each.items()} for each in files]


def test_lists_and_python_texts_follow_each_other() -> None:
    merged = merge_folders(folders(FIRST, SECOND))
    assert [entry["func"].partition("(")[0] for entry in yaml.safe_load(merged[Path("native_functions.yaml")])] == [
        "one",
        "two",
        "more",
    ]
    assert len(yaml.safe_load(merged[Path("derivatives.yaml")])) == 2
    assert merged[Path("python/text.py")].decode().split() == ["one", "=", "1", "two", "=", "2"]
    assert merged[Path("python/other.py")].decode() == SECOND["python/other.py"]
    assert set(merged) == {Path(name) for name in (*FIRST, *SECOND)} - {Path("samples.py")}


def test_autocast_policies_are_joined() -> None:
    first = "fp32: [one]\nlower_precision_fp: [other]\n"
    merged = merge_folders(folders({"autocast.yaml": first}, {"autocast.yaml": "fp32: [two]\npromote: [more]\n"}, {}))
    policies = {"fp32": ["one", "two"], "lower_precision_fp": ["other"], "promote": ["more"]}
    assert yaml.safe_load(merged[Path("autocast.yaml")]) == policies
    assert merge_folders(folders({"autocast.yaml": "# none\n"}, {}))[Path("autocast.yaml")].strip() == b"{}"


@pytest.mark.parametrize("text", ["fp32: [\n", "- one\n", "fp32:\n", "\xff"])
def test_policies_that_are_none_are_left_to_the_checks(text: str) -> None:
    good = {Path("autocast.yaml"): b"fp32: [two]\n"}
    merged = merge_folders([{Path("autocast.yaml"): text.encode("latin-1")}, good])
    assert b"[two]" in merged[Path("autocast.yaml")]


def test_one_folder_is_taken_as_it_is(layout: Layout, both: Layout) -> None:
    one, two = take_snapshot(layout), take_snapshot(both)
    assert one.merged == one.natives[0]
    assert two.merged not in two.natives
    assert load_native(one.lay_out().path).files == load_native(layout.native).files
    names = {*load_native(both.natives[0]).files, *load_native(both.natives[1]).files} - {Path("samples.py")}
    assert set(two.lay_out().files) == names


def test_folders_are_read_in_the_order_in_which_they_are_named(both: Layout) -> None:
    there, back = take_snapshot(both), take_snapshot(replace(both, natives=both.natives[::-1]))
    assert there.stamp != back.stamp

    def functions(snapshot: Snapshot) -> list[str]:
        path = snapshot.lay_out().path / "native_functions.yaml"
        return [entry["func"].partition("(")[0] for entry in yaml.safe_load(path.read_text())]

    assert functions(there) == ["one", "two", "more"]
    assert functions(back) == ["two", "more", "one"]
