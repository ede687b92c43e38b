"""Settings of a native folder, in [tool.graft] of pyproject.toml: what they mean, and each mistake with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builds import GXX
from graft.core.architecture import require_program
from graft.core.errors import GraftError, UsageError
from graft.core.keys import KEYS, OF_EXTENSIONS
from graft.core.layout import REPOSITORY
from graft.cpp.includes import looked_for
from graft.inputs.accepted import require_accepted, tell, tell_processors
from graft.inputs.native import load_native, load_natives
from graft.inputs.settings import NO_SETTINGS, Settings, settings_of
from graft.inputs.watch import states
from helpers import Capture, Patch, beside, refused, write

CASES = beside(__file__)

FUNCTIONS = "- func: probe(Tensor self) -> Tensor\n"


def folder(tmp_path: Path, table: str, files: dict[str, str] | None = None) -> Path:
    """Write a project whose native folder is ``native``, and return that folder."""
    project = f'[project]\nname = "x"\n\n[tool.graft]\nnative = "native"\n{table}\n'
    write(tmp_path, {"pyproject.toml": project, "native/native_functions.yaml": FUNCTIONS, **(files or {})})
    return tmp_path.resolve() / "native"


def test_nearest_file_that_names_the_folder_counts(tmp_path: Path) -> None:
    outer = '[tool.graft]\nnative = ["a/b/native"]\ndefine = "OUTER"\n'
    files = {"pyproject.toml": outer, "a/pyproject.toml": '[tool.graft]\nnative = "other"\ndefine = "OTHER"\n'}
    native = write(tmp_path, {**files, "a/b/native/native_functions.yaml": FUNCTIONS}).resolve() / "a/b/native"
    assert settings_of(native).flags.cflags == ("-DOUTER",)
    write(tmp_path, {"a/b/pyproject.toml": '[tool.graft]\nnative = "native"\ndefine = "INNER"\n'})
    assert settings_of(native).flags.cflags == ("-DINNER",)
    write(tmp_path, {"a/b/native/pyproject.toml": '[tool.graft]\ndefine = "OWN"\n'})
    assert settings_of(native).flags.cflags == ("-DOWN",)


def test_other_files_do_not_count(tmp_path: Path) -> None:
    native = write(tmp_path, {"native/native_functions.yaml": FUNCTIONS}).resolve() / "native"
    for text in ("", "this is no TOML [", '[tool.graft]\nnative = "elsewhere"\nno-such-key = 1\n'):
        write(tmp_path, {"pyproject.toml": text})
        assert settings_of(native) == NO_SETTINGS == Settings() and NO_SETTINGS.stamp == ()


def test_stamp_holds_what_is_written_and_no_path(tmp_path: Path) -> None:
    stamps = {}
    for name in ("one", "two"):
        native = folder(tmp_path / name, 'include-dirs = "include"', {"include/a.h": ""})
        stamps[name] = settings_of(native).stamp
    assert stamps["one"] == stamps["two"] and "include" in stamps["one"][0]
    assert settings_of(folder(tmp_path / "one", 'define = "A"', {})).stamp != stamps["two"]


LAYOUT = CASES["layout"]


def test_layouts(tmp_path: Path) -> None:
    table = 'sources = ["csrc/*.cc", "csrc/deep/*"]\nexclude = "csrc/test.cc"\ninclude-dirs = ["include"]'
    native = load_native(folder(tmp_path, table, LAYOUT))
    assert [*map(str, native.sources)] == ["Own.cpp", "csrc/a.cc", "csrc/deep/b.cxx"]
    assert [*map(str, native.cuda)] == ["csrc/deep/c.cu"]
    read = {"csrc/impl.cpp", "csrc/local.hpp", "include/field/a.h", "include/field/b.hh"}
    assert {*map(str, native.included)} == read
    assert native.place(Path("csrc/a.cc")) == tmp_path.resolve() / "csrc/a.cc"
    assert native.place(Path("Own.cpp")) == tmp_path.resolve() / "native/Own.cpp"
    # Sources may be at their paths in the build, but headers of include-dirs are not installed.
    assert [*map(str, native.installed)] == ["csrc/impl.cpp", "csrc/local.hpp"]


@pytest.mark.parametrize(
    ("table", "files", "expected"),
    [pytest.param(*row, id=name) for name, row in CASES["kinds"].items()],
)
def test_files_of_each_kind(tmp_path: Path, table: str, files: dict[str, str], expected: dict[str, str]) -> None:
    native = load_native(folder(tmp_path, table, files))
    assert {kind: " ".join(sorted(map(str, getattr(native, kind)))) for kind in expected} == expected


@pytest.mark.parametrize(
    ("table", "files", "ambiguous"),
    [
        ('sources = "*.cpp"', ["Own.cpp", "native/Own.cpp"], "Own.cpp"),
        ('sources = "csrc/*.cc"', ["csrc/a.cc", "native/csrc/a.cc"], "csrc/a.cc"),
        ('sources = ["csrc/*.cc", "native/csrc/*.cc"]', ["csrc/a.cc", "native/csrc/a.cc"], "csrc/a.cc"),
        ('include-dirs = "include"', ["native/A.cpp", "include/a.h", "native/include/a.h"], "include/a.h"),
    ],
)
def test_name_that_two_files_would_have(tmp_path: Path, table: str, files: list[str], ambiguous: str) -> None:
    with pytest.raises(UsageError, match=rf"^{tmp_path.resolve()}/{ambiguous}: .* has the same name in the build"):
        load_native(folder(tmp_path, table, dict.fromkeys(files, "#include <a.h>\n")))


def test_each_source_has_one_folder(tmp_path: Path) -> None:
    table = '[tool.graft]\nnative = ["a", "b"]\nsources = ["csrc/*.cc", "a/x/*.cc", "b/x/*.cc"]\n'
    files = {f"{name}/native_functions.yaml": FUNCTIONS for name in ("a", "b")}
    files |= {"csrc/f.cc": "", "a/x/g.cc": "", "b/x/h.cc": ""}
    write(tmp_path, {"pyproject.toml": table, **files})
    natives = load_natives([tmp_path.resolve() / "a", tmp_path.resolve() / "b"])
    assert [[*map(str, each.sources)] for each in natives.folders] == [["csrc/f.cc", "x/g.cc"], ["x/h.cc"]]


def test_editable_install_watches_the_project(tmp_path: Path) -> None:
    native = load_native(folder(tmp_path, 'sources = "csrc/*.cc"\ninclude-dirs = "include"', LAYOUT))
    looked = looked_for(native.path, native.cplusplus, native.searched, native.place)
    assert native.path / "csrc/deep/field/a.h" not in looked
    assert native.path / "csrc/impl.cpp" in looked  # a file there would be ambiguous


def test_a_save_of_any_of_them_is_seen(tmp_path: Path) -> None:
    table = 'sources = "csrc/*.cc"\ninclude-dirs = "include"\nlicense-files = "LICENSE"'
    native = folder(tmp_path, table, {**LAYOUT, "LICENSE": "free"})
    seen = {str(path.relative_to(tmp_path.resolve())) for path in states([native])}
    assert seen >= {"pyproject.toml", "csrc/a.cc", "csrc/test.cc", "csrc/impl.cpp", "include/field/b.hh", "LICENSE"}


@pytest.mark.parametrize(
    ("table", "line", "what"),
    CASES["mistakes"],
    ids=lambda value: str(value)[:40],
)
def test_mistake_is_one_line_with_its_place(tmp_path: Path, table: str, line: int, what: str) -> None:
    native = folder(tmp_path, table, {"csrc/a.cc": "", "csrc/a.h": "", "my inc/a.h": ""})
    error = refused(UsageError, load_native, native)
    said = error.what
    assert said.startswith(f"{tmp_path.resolve()}/pyproject.toml:{line}: [tool.graft] ") and "\n" not in said
    assert what in said


def test_all_mistakes_are_listed(tmp_path: Path) -> None:
    error = refused(UsageError, settings_of, folder(tmp_path, 'sources = "a.cc"\ninclude-dirs = "b"\ndefine = "1"'))
    assert {*re.findall(r"toml:(\d+): ", error.what)} == {"6", "7", "8"}


@pytest.mark.parametrize(
    ("table", "line", "what"),
    [
        ('define = "A"\ncxx-flags = ["-O3", "-fno-such-flag"]', 7, "-fno-such-flag"),
        ('cxx-flags = "-std=c++14"', 6, "this PyTorch's headers need C++20"),
        ('cpu-flags = {"csrc/*.cc" = "-mno_such"}', 6, "-mno_such"),
    ],
)
def test_flag_that_the_compiler_refuses(tmp_path: Path, table: str, line: int, what: str) -> None:
    settings = settings_of(folder(tmp_path, table, {"csrc/a.cc": ""}))
    error = refused(UsageError, require_accepted, settings, GXX)
    assert error.what.startswith(f"{tmp_path.resolve()}/pyproject.toml:{line}: ")
    assert what in error.what and "\n" not in error.what


@pytest.mark.parametrize(
    ("table", "flag"),
    [
        ('cxx-flags = ["-O3", "-march=native"]', "-march=native"),
        ('cxx-flags = ["-O3", "-mtune=native"]', "-mtune=native"),
        ('nvcc-flags = "-Xcompiler=-march=native,-O3"', "-march=native"),
    ],
)
def test_this_processor_is_refused_for_wheels_and_told_otherwise(
    tmp_path: Path, table: str, flag: str, capsys: Capture
) -> None:
    settings = settings_of(folder(tmp_path, table))
    where = rf"toml:6: \[tool.graft\] {table.partition(' ')[0]}: {flag}"
    with pytest.raises(UsageError, match=f"{where}: a wheel is for other processors"):
        tell_processors(settings, stays=False)
    tell_processors(settings, stays=True)
    told = f"{flag}: what is built crashes on other processors"
    assert (told in capsys.readouterr().err) == (flag != "-mtune=native")
    assert any("GRAFT_PROCESSOR" in each for each in settings.stamp)


def test_other_processors_are_told(tmp_path: Path, capsys: Capture) -> None:
    tell_processors(settings_of(folder(tmp_path, 'cxx-flags = ["-mavx2", "-O3"]')), stays=False)
    said = capsys.readouterr().err
    assert "-mavx2: what is built crashes on other processors; cpu-flags give an error there" in said
    assert "-O3" not in said


@pytest.mark.parametrize(
    ("compiler", "todo"),
    [
        ("g++ -O3 -g", 'set CXX=g++, and write cxx-flags = ["-O3", "-g"] into [tool.graft] of pyproject.toml'),
        ("ccache g++", "set CXX=g++ and LAUNCHER=ccache"),
    ],
)
def test_compiler_with_more_than_its_name(compiler: str, todo: str) -> None:
    error = refused(GraftError, require_program, compiler)
    assert f"CXX={compiler}: " in error.what and error.todo == todo


def test_variables_that_do_not_count_are_told(monkeypatch: Patch, capsys: Capture) -> None:
    for name in ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "CXXFLAGS", "LDFLAGS"):
        monkeypatch.delenv(name, raising=False)
    tell([], stays=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/x")
    tell([], stays=False)
    told = "CPLUS_INCLUDE_PATH is not used; write `include-dirs` into [tool.graft] of pyproject.toml\n"
    assert capsys.readouterr().err == told


def test_readme_lists_the_settings() -> None:
    text = (REPOSITORY / "scripts/guides/settings.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([\w-]+)` \| ([^|]*) \| ([^|]*) \|$", text, re.M) == [
        (name, key.holds, key.help) for name, key in (*KEYS.items(), *OF_EXTENSIONS.items())
    ]
