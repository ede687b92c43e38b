"""The inputs of a build, read once: their stamp, their copies, and the user's files in messages."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from graft.compile.messages import named
from graft.compose.appending import our_files
from graft.core.layout import REPOSITORY, Layout, TorchVersion
from graft.inputs import snapshot
from graft.inputs.native import FUNCTIONS, saved_natives
from graft.inputs.settings import OF_TOOLS
from graft.inputs.snapshot import take_snapshot
from helpers import Patch, beside, program, write

CASES = beside(__file__)

PIN = """version: 1.0
source: {git: {repository: none, tag: none, commit: none}}
wheel: {requirement: torch==1.0, sha256: {}}
compiler: {gxx: 11, standard: c++20}
"""
PATCH = "Subject: text: say two\n\n--- a/torch/text.py\n+++ b/torch/text.py\n@@ -1 +1 @@\n-one\n+two\n"
PATCHES = {"1.0/pin.yaml": PIN, "1.0/series": "mine.patch\n../0.9/theirs.patch\n"}
PATCHES |= {"1.0/mine.patch": PATCH, "0.9/theirs.patch": PATCH}

# The second folder's texts: one without a final newline, one indented.
FIRST = CASES["first"]
SECOND = CASES["second"]


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: Patch) -> Layout:
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


def test_stamp_depends_on_patches_pin_and_the_places_of_files(both: Layout) -> None:
    first, second = both.natives
    stamps = [take_snapshot(both).stamp]

    def is_new() -> bool:
        stamps.append(take_snapshot(both).stamp)
        return stamps[-1] not in stamps[:-1]

    for path in (both.patches / "mine.patch", both.patches / "pin.yaml", both.patches.parent / "0.9/theirs.patch"):
        path.write_text(path.read_text().replace("two", "three") + "\n")
        assert is_new()
    (first / "One.cpp").rename(first / "Another.cpp")
    assert is_new()
    # A file moves from one folder to the other.
    (first / "Another.cpp").rename(second / "Another.cpp")
    assert is_new()


def test_stamp_depends_on_settings_and_sanitizers(layout: Layout) -> None:
    taken = take_snapshot(layout)
    others = [replace(taken, settings=("CPython", "3.99.0")), take_snapshot(layout.sanitized())]
    assert len({taken.stamp, *(other.stamp for other in others)}) == 3
    # torchgen's output depends on neither.
    assert {other.stamp_of_generated for other in others} == {taken.stamp_of_generated}


def test_later_edits_are_not_seen(both: Layout) -> None:
    taken = take_snapshot(both)
    first, second = both.natives
    for path in (first / "One.cpp", first / FUNCTIONS, second / "python/text.py", both.patches / "mine.patch"):
        path.write_text("edited while it is built\n")
    (first / "docs/one.rst").unlink()
    natives = taken.lay_out()
    for folder, texts in zip(natives.folders, (FIRST, SECOND), strict=True):
        read = texts.keys() - {"notes.txt", "tests/test_one.py"}
        assert {str(name): folder.text(name) for name in folder.files} == {name: texts[name] for name in read}
    assert [patch.text for patch in taken.series] == [PATCH, PATCH]
    assert natives.folders[0].unread == (Path("notes.txt"),)


def test_of_two_different_files_of_one_name_both_are_kept(both: Layout) -> None:
    """The check refuses them, and names both. Kernels may include registrations of another folder."""
    write(both.natives[0], {"cpu/Register.h": "REGISTER_DISPATCH(stub, &kernel)\n"})
    write(both.natives[1], {"One.cpp": "// another\n", "cpu/K.cpp": '#include "Register.h"\n'})
    natives = take_snapshot(both).lay_out()
    assert [folder.text(Path("One.cpp")) for folder in natives.folders] == ["// one\n", "// another\n"]
    assert natives.text(Path("One.cpp")) == "// one\n"
    assert Path("cpu/K.cpp") in natives.vectorized


def test_compilers_read_the_copies_of_all_folders_in_one(both: Layout) -> None:
    natives = take_snapshot(both).lay_out()
    there = {name.relative_to(both.sources) for name in both.sources.rglob("*.cpp")}
    assert there == {*natives.cplusplus} == {Path(name) for name in ("One.cpp", "Two.cpp", "cpu/OneKernel.cpp")}
    assert all(natives.paths[name] == both.sources / name for name in there)
    assert not any(path.suffix == ".cpp" for path in (both.work / "snapshot").rglob("*"))


def test_next_snapshot_takes_the_place_of_the_last(layout: Layout) -> None:
    natives = take_snapshot(layout).lay_out()
    times = {place: place.stat().st_mtime_ns for place in natives.paths.values()}
    (layout.native / "One.cpp").unlink()
    again = take_snapshot(layout).lay_out()
    assert again.sources == [] and not natives.paths[Path("One.cpp")].exists()
    assert all(place.stat().st_mtime_ns == times[place] for place in again.paths.values())


def test_other_processes_find_the_user_s_files_and_their_copies(both: Layout) -> None:
    snapshot = take_snapshot(both)
    snapshot.lay_out()
    natives = saved_natives(snapshot.note)
    first, second = both.natives
    assert natives == snapshot.natives and natives.title == f"{first} {second}"
    assert natives.file(Path("Two.cpp")) == second / "Two.cpp"
    assert natives.copy_of(second / "Two.cpp") == both.sources / "Two.cpp"
    assert natives.copy_of(first / "docs/one.rst").read_text() == FIRST["docs/one.rst"]
    assert natives.texts(Path("python/text.py")) == {
        first / "python/text.py": "one = 1\n",
        second / "python/text.py": "two = 2\n",
    }
    entries = [(entry.operator, entry.file, entry.line) for entry in natives.entries(FUNCTIONS)]
    files = first / FUNCTIONS, second / FUNCTIONS
    assert entries == [("one", files[0], 2), ("two", files[1], 1), ("more", files[1], 3)]


def test_compilers_paths_become_the_user_s(both: Layout, tmp_path: Path) -> None:
    more = tuple(write(tmp_path / f"n{n}", {"native_functions.yaml": "", f"N{n}.h": ""}) for n in range(11))
    first, second = both.natives
    snapshot = take_snapshot(replace(both, natives=(first, second, *more)))
    sources = snapshot.searched / "ATen/native"
    for said, expected in {
        f"{sources}/Two.cpp:1:4: error: `{sources}/One.cpp'": f"{second}/Two.cpp:1:4: error: `{first}/One.cpp'",
        f"({sources}/N10.h:3)": f"({more[10]}/N10.h:3)",
        f"{snapshot.searched}0/One.cpp": f"{snapshot.searched}0/One.cpp",
    }.items():
        assert named(said, snapshot.natives, snapshot.searched) == expected


def test_folders_are_read_in_the_order_in_which_they_are_named(both: Layout) -> None:
    there, back = take_snapshot(both), take_snapshot(replace(both, natives=both.natives[::-1]))
    assert there.stamp != back.stamp
    operators = [[entry.operator for entry in each.lay_out().entries(FUNCTIONS)] for each in (there, back)]
    assert operators == [["one", "two", "more"], ["two", "more", "one"]]


# Files that a build reads; generated code depends on these YAML files only.
YAML = {
    "native_functions.yaml": "- func: probe(Tensor self) -> Tensor\n",
    "derivatives.yaml": "- name: probe(Tensor self) -> Tensor\n  self: grad\n",
    "autocast.yaml": "fp32: [probe]\n",
}
CPLUSPLUS = ("Probe.cpp", "Probe.h", "Probe.inl", "Table.inc", "cpu/ProbeKernel.cpp")
CUDA = ("cuda/Probe.cu", "cuda/Helper.cpp", "cuda/Helper.h")
PYTHON = ("python/probe.py", "python/_C/_nn.pyi", "docs/probe.rst")
READ = YAML | dict.fromkeys((*CPLUSPLUS, *CUDA, *PYTHON), "# one\n")


@pytest.fixture
def stamps(tmp_path: Path, monkeypatch: Patch) -> Callable[..., tuple[str, str]]:
    """Return the stamps of a folder's build, and of the generated code, by a copy of the builder."""
    shutil.copytree(REPOSITORY / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(snapshot, "PACKAGE", tmp_path / "scripts/graft")
    native = write(tmp_path / "native", {**READ, "README.md": "one\n"})
    pin = max(path.name for path in (REPOSITORY / "patches").iterdir() if (path / "pin.yaml").is_file())

    snapshot.hash_of_builder.cache_clear()

    def stamps(cxx: str = "g++") -> tuple[str, str]:
        taken = take_snapshot(Layout(TorchVersion(pin), (native,), tmp_path / "out", cxx=cxx))
        return taken.stamp, taken.stamp_of_generated

    return stamps


def test_stamp_is_of_every_file_that_a_build_reads(stamps: Callable[[], tuple[str, str]], tmp_path: Path) -> None:
    seen = {stamps()}
    for name in READ:
        path = tmp_path / "native" / name
        before, text = len(seen), path.read_text(encoding="utf-8")
        path.write_text(text + "\n", encoding="utf-8")
        seen.add(stamps())
        assert len(seen) == before + 1, name
        assert len({generated for _, generated in seen}) == 1 + (name in YAML), name
        path.write_text(text, encoding="utf-8")
        seen = {stamps()}
    for name in ("README.md", "samples.py", "new.md", ".hidden", "tests/test_more.py"):
        write(tmp_path / "native", {name: "two\n"})
        assert {stamps()} == seen, name


def test_stamp_is_of_the_compiler_and_its_version(stamps: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    seen = [stamps()]
    for version in ("first", "second"):
        body = f'case " $* " in *" --version "*) g++ --version | sed "1s/$/ {version}/"; exit;; esac\nexec g++ "$@"'
        seen.append(stamps(str(program(tmp_path / "g++", body))))
    assert [len({*each}) for each in zip(*seen, strict=True)] == [3, 1]


def test_stamp_is_of_the_code_that_makes_wheels(stamps: Callable[[], tuple[str, str]], tmp_path: Path) -> None:
    def after_edits(*names: str) -> tuple[str, str]:
        for path in (tmp_path / "scripts" / name for name in names):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes((path.read_bytes() if path.is_file() else b"") + b"\n")
        snapshot.hash_of_builder.cache_clear()
        return stamps()

    of_editors = [
        f"graft/{name}" for name in (".build.py.swp", ".#build.py", "#build.py#", "verbs.py~", "verbs.py.orig")
    ]
    before = stamps()
    assert after_edits("requirements.txt", "graft/__pycache__/build.cpython-311.pyc", *of_editors) == before
    templates = ("codegen/templates/RegisterSchema.cpp", "compile/templates/module.cpp")
    for name in ("build.py", "codegen/operators.py", *templates):
        now = after_edits(f"graft/{name}")
        assert [one != other for one, other in zip(before, now, strict=True)] == [True, True], name
        before = now


def test_every_kind_of_file_of_the_builder_is_in_the_stamp() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "scripts/graft"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    # Explanations in .md files, and the schemas in .json files for editors, change no build.
    assert {Path(name).suffix for name in listed.stdout.split()} - {".md", ".json"} == set(snapshot._OWN)


def test_what_changed_since_a_build_leaves_out_links_for_editors_and_to_nowhere(
    layout: Layout, tmp_path: Path, monkeypatch: Patch
) -> None:
    """As `python -m torch._graft` lists it, without this builder."""
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    own = runpy.run_path(str(our_files()["torch/_graft.py"]))
    assert own["_OF_TOOLS"] == OF_TOOLS
    folder, commands = layout.native, write(tmp_path / "commands", {"compile_commands.json": "[]"})
    write(folder, {"notes.txt": "mine"})
    files = take_snapshot(layout).hashes()[str(folder)]
    (folder / "compile_commands.json").symlink_to(commands / "compile_commands.json")
    (folder / "link").symlink_to("nowhere")
    (folder / ".graft").symlink_to(tmp_path)
    assert take_snapshot(layout).hashes()[str(folder)] == files
    assert own["changed"](str(folder), files) == []
    shutil.rmtree(commands)
    assert own["changed"](str(folder), files) == []
    write(folder, {"notes.txt": "changed"})
    assert own["changed"](str(folder), files) == ["notes.txt"]
