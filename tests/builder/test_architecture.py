"""Architectures: a compiler for another one builds for it, and whatever disagrees with it is refused."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest
from graft.base import fetch as fetch_module
from graft.base.base import Base
from graft.base.fetch import fetch
from graft.base.symbols import SymbolFile, SymbolIndex
from graft.compile import units
from graft.compile.linker import undefined
from graft.compile.trampolines import bind_hidden, trampoline_table
from graft.core.console import StepLine
from graft.core.elf import ElfFile
from graft.core.errors import MissingError, UsageError
from graft.core.files import lay_out_files
from graft.core.layout import REPOSITORY, Layout, TorchVersion
from graft.deliver.wheel import platform_tag
from graft.inputs.libraries import NO_LIBRARIES
from graft.inputs.pin import load_pin, pin_of, pinned_file
from graft.inputs.toolchain import Toolchain, find_toolchain
from helpers import Patch, compiled, program, refused, write

CROSS = "aarch64-linux-gnu-g++"
QEMU = next(filter(None, map(shutil.which, ("qemu-aarch64-static", "qemu-aarch64"))), None)
PIN = TorchVersion("2.13.0")

needs_cross = pytest.mark.skipif(not shutil.which(CROSS), reason="no C++ compiler for another architecture")
COMPILERS = [pytest.param("g++", id="native"), pytest.param(CROSS, id="cross", marks=needs_cross)]

# As in ATen/native/DispatchStub.h.
STUBS = """namespace at::native {{
template <typename F, typename T> struct DispatchStub {{ static F {members}; }};
struct add_stub_type;
{definitions}
}}"""


def toolchain_of(compiler: str) -> Toolchain:
    return find_toolchain(load_pin(REPOSITORY / "patches/2.13.0"), compiler)


def base_of(compiler: str, folder: Path, *members: str) -> Base:
    """A base whose libtorch_cpu has kernels for these CPU capabilities."""
    of_stub = "template <> int (*DispatchStub<int (*)(), add_stub_type>::{})() = nullptr;"
    definitions = "\n".join(map(of_stub.format, members))
    text = STUBS.format(members=", ".join(["OTHER", *members]), definitions=definitions)
    compiled(text, folder / "tree/torch/lib/libtorch_cpu.so", "-shared", compiler=compiler)
    wheel = f"torch-2.13.0-cp311-cp311-manylinux_2_28_{toolchain_of(compiler).machine}.whl"
    return Base(folder / wheel, folder / "tree")


HIDDEN = """extern "C" {
__attribute__((visibility("hidden"))) int first(int x) { return x + 42; }
__attribute__((visibility("hidden"))) double second(int a, long b, double c, float d) { return first(a) + b * c - d; }
__attribute__((visibility("default"))) double shown() { return second(1, 2, 3, 4); }
}"""
CALLER = """extern "C" { int first(int); double second(int, long, double, float); }
int main() { return first(1) == 43 && second(1, 2, 3, 4) == 45 && second(0, 0, 0.5, 0) == 42 ? 0 : 2; }"""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_program_calls_hidden_functions_through_jumps(compiler: str, tmp_path: Path) -> None:
    library = compiled(HIDDEN, tmp_path / "libhidden.so", "-shared", "-Wl,--build-id=sha1", compiler=compiler)
    caller = compiled(CALLER, tmp_path / "caller.o", "-c", compiler=compiler)
    bound = bind_hidden(SymbolFile(caller).undefined(), [SymbolIndex(library, tmp_path)])
    assert [set(functions) for _, functions in bound] == [{"first", "second"}]
    toolchain, include = toolchain_of(compiler), f"-I{Path(units.__file__).with_name('templates')}"
    table = trampoline_table(bound, {}, toolchain.architecture.jump, is_python_extension=False)
    flags = [*toolchain.flags, include, caller, "-Wl,--no-as-needed", library, "-Wl,-rpath,$ORIGIN"]
    text = f'{table}\n#include "trampolines.cpp"'
    linked = compiled(text, tmp_path / "program", *flags, compiler=compiler)
    assert ElfFile(linked).machine == toolchain.architecture.elf
    emulator = [] if toolchain.machine == platform.machine() else [QEMU, "-L", f"/usr/{toolchain.machine}-linux-gnu"]
    if None not in emulator:  # otherwise the program is linked, and not run
        assert subprocess.run([*emulator, str(linked)], check=False).returncode == 0


@pytest.mark.parametrize("compiler", COMPILERS)
def test_libraries_of_the_system_are_those_of_the_architecture(compiler: str) -> None:
    toolchain = toolchain_of(compiler)
    found = {path.name: SymbolFile(path) for path in toolchain.system_libraries}
    assert {file.machine for file in found.values()} == {toolchain.architecture.elf}
    assert "__tls_get_addr" in found[toolchain.architecture.loader].exported()
    # Atomic operations, and checks of processor features.
    assert {"x86_64": "__cpu_model", "aarch64": "__aarch64_ldadd8_relax"}[toolchain.machine] in toolchain.linked_in


@pytest.mark.parametrize("compiler", COMPILERS)
def test_what_the_c_library_does_not_share_is_defined(compiler: str, tmp_path: Path) -> None:
    """nvcc's objects call atexit; libc.so.6 does not export it."""
    text = "#include <stdlib.h>\nint f(void (*g)()) { return atexit(g) + at_quick_exit(g); }"
    caller = SymbolFile(compiled(text, tmp_path / "caller.o", "-c", compiler=compiler))
    assert {"atexit", "at_quick_exit"} <= caller.undefined()
    assert not undefined([caller], toolchain_of(compiler), [], NO_LIBRARIES, [])


BFLOAT16 = "#include <arm_neon.h>\n#include <arm_sve.h>\nbfloat16x4_t f(bfloat16x8_t v) { return vget_low_bf16(v); }\n"
FIXED = "typedef svfloat32_t T __attribute__((arm_sve_vector_bits({bits})));\nstatic_assert(sizeof(T) * 8 == {bits});\n"


@needs_cross
@pytest.mark.parametrize("bits", [128, 256])
def test_vectors_have_the_length_of_their_capability(bits: int, tmp_path: Path) -> None:
    flags = toolchain_of(CROSS).capability_flags(f"SVE{bits}")
    compiled(BFLOAT16 + FIXED.format(bits=bits), tmp_path / "vectors.o", "-c", *flags, compiler=CROSS)


@pytest.mark.parametrize(
    ("compiler", "members", "expected"),
    [
        pytest.param("g++", ["DEFAULT", "AVX2"], ("DEFAULT", "AVX2"), id="native"),
        pytest.param(CROSS, ["DEFAULT", "SVE256"], ("DEFAULT", "SVE256"), id="as-2.10", marks=needs_cross),
        pytest.param(CROSS, ["SVE256", "SVE128", "DEFAULT"], ("DEFAULT", "SVE128", "SVE256"), marks=needs_cross),
    ],
)
def test_kernels_and_platform_are_those_of_the_base(
    compiler: str, members: list[str], expected: tuple[str, ...], tmp_path: Path
) -> None:
    base, toolchain = base_of(compiler, tmp_path, *members), toolchain_of(compiler)
    assert base.capabilities == base.fitted(toolchain).capabilities == expected
    edited = base.fitted(replace(toolchain, capabilities=expected[:1], is_for_edits=True))
    assert edited.capabilities == expected[:1]
    assert platform_tag(base, [base.libraries / "libtorch_cpu.so"]) == f"manylinux_2_28_{base.machine}"


@needs_cross
def test_base_and_compiler_that_disagree_are_refused(tmp_path: Path) -> None:
    arm, ours = base_of(CROSS, tmp_path / "arm", "DEFAULT"), base_of("g++", tmp_path / "ours", "DEFAULT")
    said = r"it is for aarch64, but the C\+\+ compiler compiles for x86_64"
    error = refused(UsageError, arm.fitted, toolchain_of("g++"), match=said)
    assert "set CXX to a g++ for aarch64, such as aarch64-linux-gnu-g++" in error.todo
    with pytest.raises(UsageError, match=r"it is for x86_64, but the .* compiles for aarch64"):
        ours.fitted(toolchain_of(CROSS))


def test_compiler_for_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    body = 'case "$1" in -dumpm*) echo riscv64-linux-gnu;; -dump*) echo 13.2.0;; *) echo g++;; esac'
    with pytest.raises(UsageError, match="compiles for riscv64, but only x86_64 and aarch64 are supported"):
        toolchain_of(str(program(tmp_path / "riscv-g++", body)))


@needs_cross
def test_pin_and_folders_are_those_of_the_compiler_s_architecture() -> None:
    native, cross = (
        Layout(PIN, (), Path(), pin_folder=REPOSITORY / "patches/2.13.0", cxx=cxx) for cxx in ("g++", CROSS)
    )
    tags = [pinned_file(pin_of(layout))[0] for layout in (native, cross)]
    assert [tag.rpartition("_2_28_")[2] for tag in tags] == [platform.machine(), "aarch64"]
    assert len({native.base, cross.base}) == len({native.work, cross.work}) == 2
    assert len(native.work.parents) == len(cross.work.parents)


@needs_cross
def test_pip_is_asked_for_the_architecture(tmp_path: Path, monkeypatch: Patch) -> None:
    asked: list[list[str]] = []

    def pip_into(folder: Path, verb: str, packages: object, line: object, *options: str) -> None:
        asked.append(list(options))
        raise MissingError("asked")

    monkeypatch.setattr(fetch_module, "pip_into", pip_into)
    for cxx in ("g++", CROSS):
        layout = Layout(PIN, (), Path(), pin_folder=REPOSITORY / "patches/2.13.0", cxx=cxx)
        with pytest.raises(MissingError, match="asked"):
            fetch(pin_of(layout), tmp_path, None, StepLine("fetch"))
    native, cross = ([word for word in words if word.startswith("--platform=")] for words in asked)
    assert not native and "--platform=manylinux_2_28_aarch64" in cross
    assert all(word.endswith("_aarch64") for word in cross)


@needs_cross
def test_python_s_headers_compile_for_another_architecture(tmp_path: Path, monkeypatch: Patch) -> None:
    """Debian's Python.h includes a file that only Python's package for that architecture has."""
    own = f"{platform.machine()}-linux-gnu"
    include = write(tmp_path / "include", {f"{own}/python3.11/pyconfig.h": "#define SIZEOF_LONG 8\n"}) / "python3.11"
    write(include, {"Python.h": "#include <aarch64-linux-gnu/python3.11/pyconfig.h>\n"})
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(include))
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: own)
    assert not toolchain_of("g++").python_configuration
    lay_out_files(tmp_path / "fixed", toolchain_of(CROSS).python_configuration)
    text = "#include <Python.h>\nstatic_assert(sizeof(long) == SIZEOF_LONG);\n"
    compiled(text, tmp_path / "python.o", "-c", f"-I{include}", f"-I{tmp_path}/fixed", compiler=CROSS)
