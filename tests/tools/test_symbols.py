"""Reading ELF files, against what nm and readelf say of libraries compiled here."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from scripts.base.elf import ElfFile
from scripts.common.errors import LinkError
from scripts.compile.trampolines import bind_hidden, trampoline_source
from scripts.deliver.platform_tag import newer_symbols

HIDDEN = """
extern "C" {
__attribute__((visibility("hidden"))) int hidden_answer(int x) { return x + 42; }
__attribute__((visibility("hidden"))) int answer(int x) { return hidden_answer(x) * 2; }
__attribute__((visibility("hidden"))) int hidden_data = 7;
int exported(int x) { return answer(x) + hidden_data; }
}
"""
CALLER = (
    'extern "C" { int hidden_answer(int); int answer(int); int call(int x) { return hidden_answer(x) + answer(x); } }'
)


def compile_cpp(source: str, target: Path, *flags: str) -> Path:
    path = target.with_suffix(".cpp")
    path.write_text(source)
    subprocess.run(["g++", "-O1", "-fPIC", str(path), "-o", str(target), *flags], check=True)
    return target


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_cpp(HIDDEN, tmp_path_factory.mktemp("elf") / "libhidden.so", "-shared", "-Wl,--build-id=sha1")


@pytest.fixture(scope="module")
def caller(library: Path) -> Path:
    return compile_cpp(CALLER, library.parent / "caller.o", "-c")


def nm(path: Path, *flags: str) -> list[str]:
    return subprocess.run(["nm", *flags, str(path)], capture_output=True, text=True, check=True).stdout.splitlines()


def test_exported_symbols_are_those_nm_lists(library: Path) -> None:
    expected = {line.split()[-1] for line in nm(library, "--dynamic", "--defined-only")}
    assert "exported" in expected
    assert ElfFile(library).exported() == expected


def test_undefined_symbols_are_those_nm_lists(caller: Path) -> None:
    expected = {line.split()[-1] for line in nm(caller, "--undefined-only")}
    assert ElfFile(caller).undefined() == expected


def test_hidden_symbols_are_found_where_nm_says(library: Path) -> None:
    places = {line.split()[2]: int(line.split()[0], 16) for line in nm(library) if len(line.split()) == 3}
    # `answer` is the tail of `hidden_answer`: linkers store both in one string.
    found = ElfFile(library).find_defined(["hidden_answer", "answer", "hidden_data", "nowhere"])
    assert {name: symbols[0].value for name, symbols in found.items()} == {
        name: places[name] for name in ("hidden_answer", "answer", "hidden_data")
    }
    assert [found[name][0].is_function for name in ("answer", "hidden_data")] == [True, False]


def test_build_id_is_what_readelf_says(library: Path) -> None:
    text = subprocess.run(["readelf", "-n", str(library)], capture_output=True, text=True, check=True).stdout
    assert ElfFile(library).build_id in text
    assert len(ElfFile(library).build_id) == 40


def test_library_without_build_id_is_refused(library: Path) -> None:
    bare = compile_cpp(HIDDEN, library.parent / "libbare.so", "-shared", "-Wl,--build-id=none")
    with pytest.raises(LinkError, match="no build-id"):
        bind_hidden(["hidden_answer"], [ElfFile(bare)])


def bound_caller(library: Path, caller: Path, name: str, **options: bool) -> Path:
    bound = bind_hidden(ElfFile(caller).undefined(), [ElfFile(library)])
    source = trampoline_source(bound, version="1.0", is_python_extension=options.get("is_python_extension", False))
    glue = compile_cpp(source, library.parent / f"glue_{name}.o", "-c", "-std=c++20")
    target = library.parent / f"lib{name}.so"
    link = ["-shared", "-Wl,--no-undefined", "-Wl,--no-as-needed", str(library), "-Wl,-rpath,$ORIGIN"]
    subprocess.run(["g++", str(caller), str(glue), "-o", str(target), *link], check=True)
    return target


def test_trampolines_call_the_hidden_functions(library: Path, caller: Path) -> None:
    assert ctypes.CDLL(str(bound_caller(library, caller, "bound"))).call(1) == 43 + 2 * 43


PROGRAM = 'extern "C" int call(int); int main() { return call(1) == 129 ? 0 : 2; }'


def test_another_build_of_the_library_is_refused_at_load(library: Path, caller: Path) -> None:
    bound = bound_caller(library, caller, "strict")
    program = library.parent / "program"
    link = [str(bound), "-Wl,-rpath,$ORIGIN", f"-Wl,-rpath-link,{library.parent}"]
    compile_cpp(PROGRAM, program, *link)
    assert subprocess.run([str(program)], check=False).returncode == 0
    expected = ElfFile(library).build_id
    original = library.read_bytes()
    compile_cpp(HIDDEN + "int more;", library.parent / "libother.so", "-shared", "-Wl,--build-id=sha1")
    try:
        library.unlink()
        (library.parent / "libother.so").rename(library)
        done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    finally:
        library.write_bytes(original)
        library.chmod(0o755)
    assert done.returncode == 1
    assert f"grafted onto a libhidden.so with build-id {expected}, but the one loaded is" in done.stderr


def test_needed_versions_are_those_readelf_and_nm_list(library: Path) -> None:
    source = '#include <cmath>\n#include <cstdio>\nint main(int n, char**) { std::puts(std::exp(n) > 9 ? "" : "-"); }'
    program = compile_cpp(source, library.parent / "versions")
    text = subprocess.run(["readelf", "-V", str(program)], capture_output=True, text=True, check=True).stdout
    named = [line.split()[-1] for line in nm(program, "--dynamic") if "@" in line]
    needed = ElfFile(program).needed_versions()
    assert {f"{symbol}@{version}" for version, symbols in needed.items() for symbol in symbols} == set(named)
    assert any(name.startswith("exp@GLIBC_") for name in named)
    assert all(f"Name: {version}" in text for version in needed)


def test_symbols_that_make_a_platform_newer_are_named() -> None:
    needed = [{"GLIBC_2.2.5": {"puts"}, "GLIBC_2.29": {"log2", "exp"}}, {"GLIBC_2.29": {"pow"}, "MINE_1": {"f"}}]
    assert newer_symbols(needed, {"GLIBC": ["2.2.5", "2.28"]}) == "exp, log2, pow (GLIBC_2.29)"
