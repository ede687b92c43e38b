"""Reading ELF files, compared with nm, readelf and a disassembler on libraries compiled here."""

from __future__ import annotations

import ast
import platform
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from graft.base.callers import direct_callers, kept_calls, python_overrides
from graft.base.symbols import DATA, EXPORTED, FUNCTION, SymbolFile, SymbolIndex, keep_indexes
from graft.compile.trampolines import bind_hidden, in_pytorch
from graft.core.elf import ElfFile
from graft.core.errors import BuildError
from graft.deliver.wheel import newer_symbols
from graft.inputs.entries import read_entries
from helpers import Patch, beside, compiled, write

CASES = beside(__file__)
HIDDEN, CALLER = CASES["hidden"], CASES["caller"]


SHARED = ("-shared", "-Wl,--build-id=sha1")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(HIDDEN, tmp_path_factory.mktemp("elf") / "libhidden.so", *SHARED)


@pytest.fixture(scope="module")
def caller(library: Path) -> Path:
    return compiled(CALLER, library.parent / "caller.o", "-c")


def nm(path: Path, *flags: str) -> list[str]:
    return subprocess.run(["nm", *flags, str(path)], capture_output=True, text=True, check=True).stdout.splitlines()


def test_exported_and_undefined_symbols_are_those_nm_lists(library: Path, caller: Path) -> None:
    exported = {line.split()[-1] for line in nm(library, "--dynamic", "--defined-only")}
    assert "exported" in exported and SymbolFile(library).exported() == exported
    assert SymbolFile(caller).undefined() == {line.split()[-1] for line in nm(caller, "--undefined-only")}


def test_weak_reference_may_stay_unbound(library: Path) -> None:
    text = 'extern "C" { int some(int) __attribute__((weak)); int other(int); int f() { return some ? 1 : other(2); } }'
    undefined = SymbolFile(compiled(text, library.parent / "weak.o", "-c")).undefined()
    assert {"some", "other"} & undefined == {"other"}


def test_version_that_a_source_asks_for_is_no_part_of_a_name(library: Path) -> None:
    text = """
__asm__(".symver pow,pow@GLIBC_2.2.5");
extern "C" double pow(double, double);
double f(double x) { return pow(x, x); }
"""
    undefined = SymbolFile(compiled(text, library.parent / "versioned.o", "-c", "-O0")).undefined()
    assert "pow" in undefined and not any("@" in name for name in undefined)


def index_of(library: Path, cache: Path | None = None) -> SymbolIndex:
    return SymbolIndex(library, cache or library.parent / "symbols")


def test_hidden_symbols_are_found_where_nm_says(library: Path) -> None:
    places = {line.split()[2]: int(line.split()[0], 16) for line in nm(library) if len(line.split()) == 3}
    # `answer` is the tail of `hidden_answer`: linkers store both in one string.
    index, names = index_of(library), ["hidden_answer", "answer", "hidden_data", "exported", "nowhere"]
    functions = {name: [places[name]] for name in ("hidden_answer", "answer", "exported")}
    assert index.find(names, FUNCTION) == functions
    assert index.find(names, DATA) == {"hidden_data": [places["hidden_data"]]}
    assert set(index.find(names, EXPORTED)) == {"exported"}


def test_thread_local_variables_are_exported_too(tmp_path: Path) -> None:
    """They have no address that a trampoline could jump to."""
    source = "thread_local int counter = 1; extern const int exported_data = 2;"
    index = index_of(compiled(source, tmp_path / "libdata.so", *SHARED))
    assert set(index.find(["counter", "exported_data"], EXPORTED)) == {"counter", "exported_data"}
    assert set(index.find(["counter", "exported_data"], FUNCTION | DATA)) == {"exported_data"}


def test_indexes_are_read_while_python_is_parsed(library: Path, tmp_path: Path) -> None:
    """Python 3.11 counts the depth of syntax trees for all threads together."""
    index_of(library, tmp_path)
    failed: list[Exception] = []
    text = "".join(f"def f{i}(a, b={{'c': [1, (2, 3)]}}):\n    return a + [b, (i, (i,))][0]\n" for i in range(300))

    def parse() -> None:
        try:
            for _ in range(20):
                ast.parse(text)
        except Exception as error:
            failed.append(error)

    parsing = threading.Thread(target=parse)
    parsing.start()
    while parsing.is_alive():
        index_of(library, tmp_path)
    parsing.join()
    assert not failed


def test_symbols_are_kept_for_the_next_time(library: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    names = [name for name, _, _ in SymbolFile(library).definitions()]
    assert "hidden_answer" in names
    first = index_of(library, tmp_path)
    (kept,) = tmp_path.glob("*.table")
    assert ElfFile(library).build_id in kept.name
    monkeypatch.delattr(SymbolFile, "definitions")  # nothing is read again
    again = index_of(library, tmp_path)
    assert (again.name, again.build_id) == (first.name, first.build_id)
    for kind in (FUNCTION, DATA, EXPORTED):
        assert again.find(names, kind) == first.find(names, kind) != {}


def test_symbols_of_another_build_are_read_anew(library: Path, tmp_path: Path) -> None:
    index_of(library, tmp_path / "cache")
    other = compiled(HIDDEN + "int more;", tmp_path / library.name, *SHARED)
    assert index_of(other, tmp_path / "cache").find(["more"], EXPORTED).keys() == {"more"}


def test_indexes_are_kept_of_what_can_be_read(library: Path, tmp_path: Path) -> None:
    write(tmp_path, {"libempty.so": "", "libdamaged.so": "\x7fELF"})
    damaged = [tmp_path / name for name in ("libmissing.so", "libempty.so", "libdamaged.so")]
    keep_indexes([*damaged, library], tmp_path / "kept")
    (kept,) = (tmp_path / "kept").glob("*.table")
    assert kept.name.startswith(library.name)


def test_build_id_is_what_readelf_says(library: Path) -> None:
    text = subprocess.run(["readelf", "-n", str(library)], capture_output=True, text=True, check=True).stdout
    assert ElfFile(library).build_id in text
    assert len(ElfFile(library).build_id) == 40


def test_name_that_stands_for_two_functions_is_refused(tmp_path: Path) -> None:
    for number in (1, 2):
        source = f"static int twice() {{ return {number}; }} int f{number}() {{ return twice(); }}"
        compiled(source, tmp_path / f"{number}.o", "-c", "-O0")
    target = compiled("", tmp_path / "libtwice.so", *SHARED, *tmp_path.glob("*.o"))
    with pytest.raises(BuildError, match="has 2 hidden functions named _ZL5twicev") as caught:
        bind_hidden(["_ZL5twicev"], [index_of(target)])
    assert caught.value.todo == "do not call it; copy its code into the native folder"


def test_function_of_a_namespace_below_has_the_symbol_of_pytorchs(tmp_path: Path) -> None:
    """Symbols repeat parts of names by number, of which PyTorch's have one less."""
    types = "using T = const Tensor&; template <typename A> struct Or {}; template <typename A, int n> struct Array {};"
    many = ", ".join(f"P<{number}>, P<{number}>" for number in range(40))
    functions = f"Or<Tensor> f_S1_2x(T, Or<Tensor>, Array<bool, 3>, Or<Array<Tensor, 12>>, Or<Tensor>, {many});"
    functions += "struct Op { void impl(T, Or<Tensor>, T); };"
    calls = "(decltype(&NAMEf_S1_2x) f, decltype(&NAMEOp::impl) g) { (f == NAMEf_S1_2x) + (g == &NAMEOp::impl); }"
    text = f"namespace at {{ struct Tensor; {types} template <int> struct P {{}}; namespace native {{ {functions}\n"
    text += f"namespace stock {{ {functions} }}\n"
    text += "".join(
        f"bool {name}{calls.replace('NAME', scope).replace('{ ', '{ return ')}\n"
        for name, scope in (("a", ""), ("b", "stock::"))
    )
    found = compiled(text + "}}", tmp_path / "names.o", "-c")
    symbols = sorted(SymbolFile(found).undefined() - {"_GLOBAL_OFFSET_TABLE_"})
    ours = [name for name in symbols if "5stock" in name]
    assert len(ours) == 2
    assert sorted(map(in_pytorch, ours)) == [name for name in symbols if name not in ours]


def test_needed_versions_are_those_readelf_and_nm_list(library: Path) -> None:
    source = '#include <cmath>\n#include <cstdio>\nint main(int n, char**) { std::puts(std::exp(n) > 9 ? "" : "-"); }'
    program = compiled(source, library.parent / "versions")
    text = subprocess.run(["readelf", "-V", str(program)], capture_output=True, text=True, check=True).stdout
    named = [line.split()[-1] for line in nm(program, "--dynamic") if "@" in line]
    needed = ElfFile(program).needed_versions()
    assert {f"{symbol}@{version}" for version, symbols in needed.items() for symbol in symbols} == set(named)
    assert any(name.startswith("exp@GLIBC_") for name in named)
    assert all(f"Name: {version}" in text for version in needed)


def test_symbols_that_make_a_platform_newer_are_named() -> None:
    needed = [{"GLIBC_2.2.5": {"puts"}, "GLIBC_2.29": {"log2", "exp"}}, {"GLIBC_2.29": {"pow"}, "MINE_1": {"f"}}]
    assert newer_symbols(needed, {"GLIBC": ["2.2.5", "2.28"]}) == "exp, log2, pow (GLIBC_2.29)"


SOURCE = CASES["source"]
# The end of `mov %ebp, %eax` and what follows have the bytes of a call.
APART = CASES["apart"]
ENTRIES = CASES["entries"]
THEIRS = CASES["theirs"]
TRACE = "_ZN2at6native9trace_cpuEi"


def disassembled(path: Path, objdump: str, called: str) -> set[str]:
    """Return the functions whose instructions name another."""
    text = subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    ).stdout
    bodies = re.findall(r"^[0-9a-f]+ <([^>@]+)>:\n((?:.+\n)+)", text, re.M)
    return {name for name, body in bodies if re.search(rf"\b(?:call|jmp|bl|b)\s+[0-9a-f]+ <{called}(?:@plt)?>", body)}


@pytest.mark.parametrize("flags", [[], ["-Wl,-Bsymbolic"], ["-fcf-protection", "-Wl,-z,ibtplt"]])
@pytest.mark.parametrize("prefix", ["", "aarch64-linux-gnu-"])
def test_callers_are_those_a_disassembler_shows(tmp_path: Path, prefix: str, flags: list[str]) -> None:
    if not shutil.which(f"{prefix}g++"):
        pytest.skip(f"there is no {prefix}g++")
    if prefix and "-fcf-protection" in flags:
        flags = ["-mbranch-protection=none"]
    path = compiled(SOURCE, tmp_path / "library.so", "-O2", *SHARED, *flags, compiler=f"{prefix}g++")
    expected = disassembled(path, f"{prefix}objdump", TRACE)
    assert len(expected) == 4
    assert {*direct_callers(path, ["_ZN2at6native9trace_cpuE"])[TRACE]} == expected


def test_calls_of_the_dispatcher_are_not_told(tmp_path: Path) -> None:
    (tmp_path / "native_functions.yaml").write_text(ENTRIES)
    entries = read_entries(tmp_path / "native_functions.yaml")
    source = SOURCE + (APART if platform.machine() == "x86_64" else "")
    path = compiled(source, tmp_path / "library.so", "-O2", *SHARED, "-Wl,-Bsymbolic")
    note = tmp_path / "note.json"
    expected = {
        "at::native::trace_cpu": ["at::native::inside", "at::native::last"],
        "at::cpu::renorm_": ["at::runtime"],
    }
    for _ in range(2):  # the second time from the note
        assert kept_calls(path, zip(entries, THEIRS, strict=True), note) == expected
    assert kept_calls(path, [], note) == {}


def test_overrides_in_python_are_named(tmp_path: Path) -> None:
    """By the operator's name and the dispatch key, which may be in different statements."""
    override = 'KEYS = ("CPU", "XPU")\nfor key in KEYS:\n    register_op_override("aten", "NAME", key, cond, impl)\n'
    files = {
        "torch/_native/ops/a.py": override.replace("NAME", "renorm_"),
        "torch/_native/ops/b/c.py": override.replace("NAME", "trace").replace("CPU", "CUDA"),
        "torch/_native/ops/d.py": override.replace("NAME", "trace_backward"),
        "torch/_native/other.py": override.replace("NAME", "trace"),
    }
    write(tmp_path, {"native_functions.yaml": ENTRIES, **files})
    entries = read_entries(tmp_path / "native_functions.yaml")
    assert python_overrides(tmp_path, entries) == ["renorm.out (CPU) in torch/_native/ops/a.py"]
