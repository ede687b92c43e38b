"""Libraries that settings name: how they are found, which of them are contained, and under which names."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from builds import GXX
from graft.compile.bundle import bundle
from graft.core.elf import ElfFile
from graft.core.errors import UsageError
from graft.inputs.libraries import LinkedLibraries, linked_libraries
from graft.inputs.settings import settings_of
from helpers import make_archive, make_shared, refused, write


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with two libraries of which one needs the other, and a static one."""
    # Its thread-local variable is read with a function of the dynamic loader.
    make_shared(tmp_path / "lib", "inner", "static __thread int calls; int inner(void) { return calls ? 0 : 3; }")
    make_shared(tmp_path / "lib", "outer", "int inner(void); int outer(void) { return 2 * inner(); }", "inner")
    make_archive(tmp_path / "lib", "own", "int own(void) { return 1; }")
    return tmp_path.resolve()


def found(project: Path, table: str) -> LinkedLibraries:
    text = f"[tool.graft]\n{table}\n"
    write(project, {"pyproject.toml": text, "native_functions.yaml": ""})
    return linked_libraries([settings_of(project)], GXX)


OUTER = 'libraries = "outer"\nlibrary-dirs = "lib"'


@pytest.mark.parametrize(
    ("table", "linked", "contained"),
    [
        pytest.param(OUTER, ["libouter"], ["inner", "outer"], id="what a library needs is contained, too"),
        pytest.param(f'{OUTER}\nexclude-libraries = "libinner.so.*"', ["libouter"], ["outer"], id="excluded"),
        pytest.param(f'{OUTER}\nexclude-libraries = ["lib*.so.1"]', ["libouter"], [], id="all are excluded"),
        pytest.param(OUTER.replace('"outer"', '":libouter.so.1"'), ["libouter"], ["inner", "outer"], id="by its file"),
        pytest.param(
            'libraries = ["own", "z", "m"]\nlibrary-dirs = "lib"', ["libown", "libz", "libm"], [], id="of every Linux"
        ),
        pytest.param('libraries = "gomp"', ["libgomp"], [], id="a second OpenMP"),
    ],
)
def test_which_libraries_are_contained(project: Path, table: str, linked: list[str], contained: list[str]) -> None:
    libraries = found(project, table)
    assert [path.name.partition(".")[0] for path in libraries.linked] == linked
    assert [each.soname for each in libraries.bundled] == [f"lib{name}.so.1" for name in contained]
    assert [each.name for each in libraries.bundled] == [f"lib{name}-{libraries.digest[:8]}.so.1" for name in contained]
    assert [*libraries.archives] == ([project / "lib/libown.a"] if "libown" in linked else [])


def test_folders_are_searched_in_their_order(project: Path) -> None:
    (project / "first").mkdir()
    (project / "lib/libown.a").rename(project / "first/libouter.a")
    libraries = found(project, 'libraries = "outer"\nlibrary-dirs = ["first", "lib"]')
    assert libraries.linked == (project / "first/libouter.a",)


def test_copies_find_each_other_and_no_library_of_the_same_name(project: Path, tmp_path: Path) -> None:
    libraries = found(project, OUTER)
    copies = bundle(libraries.bundled, tmp_path / "out")
    make_shared(tmp_path / "other", "inner", "int inner(void) { return 100; }")
    ctypes.CDLL(str(tmp_path / "other/libinner.so.1"))
    (outer,) = (path for name, path in copies.items() if "outer" in name)
    elsewhere = (tmp_path / "out").rename(tmp_path / "elsewhere")
    assert ctypes.CDLL(str(elsewhere / outer.name)).outer() == 6
    dynamic = ElfFile(elsewhere / outer.name).dynamic()
    assert dynamic["DT_SONAME"] == [outer.name] and dynamic["DT_RPATH"] == ["$ORIGIN"]


def test_another_content_has_another_name(project: Path) -> None:
    table = OUTER
    before = found(project, table)
    for path in (project / "lib").glob("libinner*"):
        path.unlink()
    make_shared(project / "lib", "inner", "int inner(void) { return 4; }")
    after = found(project, table)
    assert before.digest != after.digest and not {*before.bundled} & {*after.bundled}


@pytest.mark.parametrize(
    ("table", "line", "what"),
    [
        (
            'library-dirs = "lib"\nlibraries = ["own",\n "nowhere"]',
            4,
            "libraries: no libnowhere.so or libnowhere.a in library-dirs, nor in the compiler's folders",
        ),
        ('libraries = "broken"\nlibrary-dirs = "lib"', 2, "libbroken.so.1 needs libgone.so.1, which is not found"),
        ('libraries = "foreign"\nlibrary-dirs = "lib"', 2, "libforeign.so.1 is for another processor"),
    ],
)
def test_mistake_is_one_line_with_its_place(project: Path, table: str, line: int, what: str) -> None:
    gone = make_shared(project / "lib", "gone", "int gone(void) { return 1; }")
    make_shared(project / "lib", "broken", "int gone(void); int broken(void) { return gone(); }", "gone")
    gone.unlink()
    foreign = make_shared(project / "lib", "foreign", "int foreign(void) { return 1; }")
    content = bytearray(foreign.read_bytes())
    content[18:20] = (183).to_bytes(2, "little")  # e_machine: EM_AARCH64
    foreign.write_bytes(content)
    error = refused(UsageError, found, project, table)
    assert error.what.startswith(f"{project}/pyproject.toml:{line}: [tool.graft] ")
    assert what in error.what and "\n" not in error.what
