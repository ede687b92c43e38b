"""Linking: each symbol that a library needs is defined somewhere, or the build fails; no wheel fails at import."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from graft.base.base import Base, Library
from graft.base.elf import ElfFile
from graft.compile import link
from graft.compile.link import Linker, Product
from graft.compile.ninja import Names
from graft.compile.units import Unit
from graft.core.errors import LinkError
from graft.core.layout import Layout
from graft.inputs.toolchain import CPU_CAPABILITIES, Toolchain

# Each library of the base exports a function and hides another, and a variable.
LIBRARY = """
#define HIDDEN __attribute__((visibility("hidden")))
namespace {name} {{
HIDDEN int variable = 7;
HIDDEN int hidden() {{ return variable; }}
int exported() {{ return hidden(); }}
}}
"""
BOUND = ("libtorch_python.so", "libtorch_cpu.so")

# As in the official CUDA wheels, where it also applies to loaded libraries.
RPATH = ("-Wl,-rpath,$ORIGIN/../../nvidia/cu13/lib:$ORIGIN", "-Wl,--disable-new-dtags")
TEMPLATES = Path(link.__file__).with_name("templates")


@dataclass
class Build:
    """A build whose objects are compiled already."""

    layout: Layout
    linker: Linker
    base: Base

    @property
    def like(self) -> Library:
        """A library of the base."""
        return self.base.library("lib/libtorch_cpu.so")

    def unit(self, name: str, source: str, *flags: str) -> Unit:
        """Compile ``source``, a file of the native folder."""
        unit = Unit(Path(f"src/ATen/native/{name}.cpp"), Path(f"objects/{name}.o"))
        for path in (unit.source, unit.target):
            (self.layout.work / path).parent.mkdir(parents=True, exist_ok=True)
        (self.layout.work / unit.source).write_text(source)
        command = ["g++", "-c", "-O1", "-fPIC", "-fvisibility=hidden", *flags, str(unit.source), "-o", str(unit.target)]
        subprocess.run(command, cwd=self.layout.work, check=True)
        return unit

    def bound(self, *units: Unit, provided: tuple[Unit, ...] = ()) -> dict[str, list[str]]:
        """Return the functions of each library that are bound for ``units`` in torch._C."""
        product = Product("torch/_C.so", units, BOUND, self.like, provided=provided, is_python_extension=True)
        found = self.linker.hidden_functions(product, self.linker.unresolved(product))
        return {library.name: [symbol.name for symbol in library.symbols] for library in found}

    def refused(self, *units: Unit, provided: tuple[Unit, ...] = ()) -> LinkError:
        """Return the error that ends the build."""
        with pytest.raises(LinkError) as caught:
            self.bound(*units, provided=provided)
        return caught.value


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    monkeypatch.setattr(Layout, "pin_build", tmp_path / "made")
    libraries = tmp_path / "tree/torch/lib"
    libraries.mkdir(parents=True)
    for name in BOUND:
        source = libraries / f"{name}.cpp"
        source.write_text(LIBRARY.format(name=name.removesuffix(".so")))
        command = ["g++", "-shared", "-fPIC", "-O1", "-Wl,--build-id=sha1", str(source), "-o", str(libraries / name)]
        subprocess.run([*command, f"-Wl,-soname,{name}", *RPATH], check=True)
    (tmp_path / "mine").mkdir()
    layout = Layout("1.0", (tmp_path / "mine",), tmp_path / "out")
    names = Names(Path("/copy"), lambda text: text.replace("/copy/", "/mine/"))
    toolchain = Toolchain("g++", "a compiler", "c++20")
    base = Base(tmp_path / "torch.whl", tmp_path / "tree")
    return Build(layout, Linker(layout, base, toolchain, names), base)


def test_hidden_functions_are_bound_and_exported_ones_are_not(build: Build) -> None:
    mine = """namespace libtorch_cpu { int exported(); int hidden(); }
namespace libtorch_python { int exported(); int hidden(); }
int f() { return libtorch_cpu::exported() + libtorch_cpu::hidden() + libtorch_python::exported(); }
"""
    unit = build.unit("Mine", mine)
    assert build.bound(unit) == {"libtorch_python.so": [], "libtorch_cpu.so": ["_ZN12libtorch_cpu6hiddenEv"]}


def test_hidden_variable_ends_the_build(build: Build) -> None:
    """The linker would accept it, since torch._C may find missing symbols in the interpreter."""
    declared = "namespace libtorch_python { extern int variable; int hidden(); }\n"
    unit = build.unit("Mine", f"{declared}int f() {{ return libtorch_python::variable + libtorch_python::hidden(); }}")
    error = build.refused(unit)
    assert error.what.startswith("/mine/Mine.cpp: calls libtorch_python::variable, which is not defined; ")
    assert error.cause == "other libraries cannot use hidden variables of libtorch_python.so"


def test_symbol_that_is_nowhere_ends_the_build(build: Build) -> None:
    unit = build.unit("Mine", "int nowhere(long); int f() { return nowhere(1); }")
    error = build.refused(unit)
    assert error.what.startswith("/mine/Mine.cpp: calls nowhere(long), which is not defined; ")
    assert error.cause == ""


def test_what_the_other_library_hides_is_not_there(build: Build) -> None:
    """torch._C links to libtorch.so, and sees only the symbols that it exports."""
    shown = '__attribute__((visibility("default"))) int shown() { return 1; }\n'
    library = build.unit("Library", f"{shown}int unseen() {{ return 2; }}")
    calls_shown = build.unit("CallsShown", "int shown(); int f() { return shown(); }")
    calls_unseen = build.unit("CallsUnseen", "int unseen(); int f() { return unseen(); }")
    assert not any(build.bound(calls_shown, provided=(library,)).values())
    assert build.refused(calls_unseen, provided=(library,)).what.startswith("/mine/CallsUnseen.cpp: calls unseen()")
    # Within one library it is visible.
    assert not any(build.bound(calls_unseen, library).values())


def test_python_s_and_the_compiler_s_own_functions_are_there(build: Build) -> None:
    source = """#include <Python.h>
#include <stdexcept>
#include <string>
thread_local std::string text;
void f(PyObject* o) { try { PyObject_Repr(o); text += "x"; } catch (const std::exception&) { throw; } }
int g() { return __builtin_cpu_supports("avx2"); }
"""
    include = Toolchain("g++", "", "c++20").python_include
    unit = build.unit("Mine", source, f"-I{include}")
    assert not any(build.bound(unit).values())


def test_library_is_linked_again_only_for_a_reason(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []

    def run(command: list[str | Path], **options: object) -> subprocess.CompletedProcess[str]:
        words = list(map(str, command))
        commands.append("compile" if "-c" in words else "link")
        Path(words[words.index("-o") + 1]).parent.mkdir(parents=True, exist_ok=True)
        Path(words[words.index("-o") + 1]).touch()
        return subprocess.CompletedProcess(words, 0, "", "")

    def linked(unit: Unit) -> list[str]:
        commands.clear()
        with monkeypatch.context() as here:
            here.setattr(link, "run", run)
            build.linker.link([Product("torch/lib/libtorch.so", [unit], BOUND, build.like)])
        return list(commands)

    unit = build.unit("Mine", "int f() { return 1; }")
    assert linked(unit) == ["compile", "link"]
    with monkeypatch.context() as unread:
        unread.setattr(Linker, "_stamp", None)  # while no file has another time, none is read
        assert linked(unit) == []
    build.unit("Mine", "int f() { return 1; }")
    os.utime(build.layout.work / unit.target, ns=(0, 0))
    assert linked(unit) == []
    with monkeypatch.context() as unread:
        unread.setattr(Linker, "_stamp", None)
        assert linked(unit) == []
    with monkeypatch.context() as other:
        other.setattr(link, "hash_of_builder", lambda: "another builder")
        assert linked(unit) == ["link"]
    assert linked(unit) == ["link"]
    assert linked(build.unit("Mine", "int f() { return 2; }")) == ["link"]
    # The table of bound symbols is recompiled if it or the compiler changed.
    hidden = "namespace libtorch_cpu { int hidden(); } int f() { return libtorch_cpu::hidden(); }"
    assert linked(build.unit("Mine", hidden)) == ["compile", "link"]
    build.linker = Linker(build.layout, build.base, Toolchain("g++", "another", "c++20"), Names(Path("/copy"), str))
    assert linked(unit) == ["compile", "link"]
    assert linked(unit) == []


def test_library_for_cuda_loads_what_it_calls_and_libtorch_loads_it(build: Build, tmp_path: Path) -> None:
    shutil.copytree(TEMPLATES, build.layout.work / "fixed")
    toolkit = []
    for name in ("cudart", "cublas"):
        source, library = tmp_path / f"{name}.cpp", tmp_path / f"lib{name}.so.13"
        source.write_text(f"int {name}() {{ return 1; }}")
        soname = f"-Wl,-soname,{library.name}"
        subprocess.run(["g++", "-shared", "-fPIC", soname, str(source), "-o", str(library)], check=True)
        toolkit.append(library)
    shown = '__attribute__((visibility("default"))) int shown() { return 1; }'
    fixed = build.unit("Trampolines", f'#include "{TEMPLATES}/trampolines.cpp"')
    units = [build.unit("Library", shown), fixed]
    kernels = [build.unit("Kernels", "int shown(); int cudart(); int f() { return shown() + cudart(); }"), fixed]
    cuda = Product("torch/lib/libcuda.so", kernels, BOUND, build.like, offered=toolkit, provided=units)
    umbrella = Product("torch/lib/libtorch.so", units, BOUND, build.like, loaded=[cuda.name])
    linked = build.linker.link([cuda, umbrella])
    of_cuda, of_umbrella = (ElfFile(linked[each.name]).dynamic() for each in (cuda, umbrella))
    assert [name for name in of_cuda["DT_NEEDED"] if "cu" in name] == ["libcudart.so.13"]
    assert of_umbrella["DT_NEEDED"][:3] == [*BOUND, "libcuda.so"]
    assert of_cuda["DT_RPATH"] == of_umbrella["DT_RPATH"] == ["$ORIGIN/../../nvidia/cu13/lib:$ORIGIN"]


# As in ATen/native/DispatchStub.h and REGISTER_DISPATCH.
STUB = """namespace at::native {
template <typename F, typename T> struct DispatchStub {
  __attribute__((visibility("default"))) static F DEFAULT, AVX2, AVX512;
};
struct twice_stub;
using Stub = DispatchStub<int (*)(int), twice_stub>;
DEFINITIONS
}
"""
KERNEL = "int twice(int n) { return 2 * n; } template <> int (*Stub::CAPABILITY)(int) = &twice;\n"
CHOICE = """extern "C" __attribute__((visibility("default"))) int best(int n) { return at::native::Stub::AVX512(n); }
extern "C" __attribute__((visibility("default"))) int least(int n) { return at::native::Stub::DEFAULT(n); }
int f() { return at::native::Stub::AVX2(1); }
"""


def stub_product(build: Build, capability: str) -> Product:
    """A library with a kernel for one capability, and a stub that chooses among all."""
    kernel = build.unit("Kernel", STUB.replace("DEFINITIONS", KERNEL.replace("CAPABILITY", capability)))
    choice = build.unit("Choice", STUB.replace("DEFINITIONS", "") + CHOICE)
    fixed = build.unit("Trampolines", f'#include "{TEMPLATES}/trampolines.cpp"')
    return Product("torch/lib/libtorch.so", [kernel, choice, fixed], BOUND, build.like)


def linker_for(build: Build, *capabilities: str) -> Linker:
    toolchain = Toolchain("g++", "a compiler", "c++20", capabilities=capabilities)
    return Linker(build.layout, build.base, toolchain, Names(Path("/copy"), str))


@pytest.mark.parametrize("capability", ["DEFAULT", "AVX512"])
def test_stub_has_the_kernel_of_the_only_capability_that_is_compiled(build: Build, capability: str) -> None:
    shutil.copytree(TEMPLATES, build.layout.work / "fixed")
    product = stub_product(build, capability)
    library = linker_for(build, capability).link([product])[product.name]
    program = "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); print(library.best(3), library.least(4))"
    env = {**os.environ, "LD_LIBRARY_PATH": str(build.base.libraries)}
    command = [sys.executable, "-c", program, library]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "6 8\n"


def test_stub_that_lacks_a_kernel_ends_the_build_if_all_capabilities_are_compiled(build: Build) -> None:
    product = stub_product(build, "AVX2")
    with pytest.raises(LinkError, match=r"Choice\.cpp: calls at::native::DispatchStub<.*>::AVX512"):
        linker_for(build, *CPU_CAPABILITIES).link([product])
