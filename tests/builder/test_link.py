"""Linking: each symbol that a library needs is defined somewhere, or the build fails; no wheel fails at import."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from faked_compiler import snapshot_of
from graft.base.base import Base, Library
from graft.base.elf import ElfFile
from graft.base.symbols import SymbolFile
from graft.compile import libraries, link, ninja
from graft.compile.link import Linker
from graft.compile.units import CXX, LINKED, Product, Unit
from graft.core.console import StepLine
from graft.core.errors import CompileError, LinkError
from graft.core.layout import Layout, TorchVersion
from graft.inputs.native import load_natives
from graft.inputs.toolchain import Toolchain

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
    """A build in the current folder."""

    layout: Layout
    base: Base
    toolchain: Toolchain

    @property
    def like(self) -> Library:
        """A library of the base."""
        return self.base.library("lib/libtorch_cpu.so")

    def source(self, name: str, text: str) -> Unit:
        """Write a file of the native folder, and the copy of it that is compiled."""
        unit = Unit(Path(f"src/ATen/native/{name}.cpp"), Path(f"objects/{name}.o"))
        for path in (self.layout.native / f"{name}.cpp", unit.source):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return unit

    def unit(self, name: str, text: str, *flags: str) -> Unit:
        """Write and compile a source."""
        unit = self.source(name, text)
        unit.target.parent.mkdir(parents=True, exist_ok=True)
        command = ["g++", "-c", "-O1", "-fPIC", "-fvisibility=hidden", *flags, str(unit.source), "-o", str(unit.target)]
        subprocess.run(command, check=True)
        return unit

    def linker(self, product: Product) -> Linker:
        """Return the linker that ninja's command makes of the plan."""
        snapshot = snapshot_of(Path(), self.toolchain, load_natives([self.layout.native]))
        snapshot.lay_out()
        return Linker(product.plan(self.base, self.toolchain, snapshot.note))

    def bound(self, *units: Unit, provided: tuple[Unit, ...] = ()) -> dict[str, list[str]]:
        """Return the functions of each library that are bound for ``units`` in torch._C."""
        product = Product("torch/_C.so", units, BOUND, self.like, provided=provided, is_python_extension=True)
        linker = self.linker(product)
        return {library.name: list(functions) for library, functions in linker.bound(linker.unresolved())}

    def refused(self, *units: Unit, provided: tuple[Unit, ...] = ()) -> LinkError:
        """Return the error that ends the build."""
        with pytest.raises(LinkError) as caught:
            self.bound(*units, provided=provided)
        return caught.value

    def make(self, *products: Product) -> dict[str, Path]:
        """Compile and link with ninja."""
        snapshot = snapshot_of(Path(), self.toolchain, load_natives([self.layout.native]))
        snapshot.lay_out()
        given = (self.layout, snapshot, products, self.base, {CXX: self.toolchain})
        linked, _ = ninja.make(*given, jobs=2, line=StepLine("compile"))
        return linked


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    libraries = tmp_path / "tree/torch/lib"
    libraries.mkdir(parents=True)
    for name in BOUND:
        make_library(libraries, name)
    layout = Layout(TorchVersion("1.0"), (tmp_path / "mine",), tmp_path / "out")
    monkeypatch.setattr(Layout, "work", tmp_path / "work")
    monkeypatch.setattr(Layout, "store", tmp_path / "store")
    shutil.copytree(TEMPLATES, layout.work / "fixed")
    monkeypatch.chdir(layout.work)
    layout.native.mkdir()
    (layout.native / "native_functions.yaml").touch()
    return Build(layout, Base(tmp_path / "torch.whl", tmp_path / "tree"), Toolchain("g++", "a compiler", "c++20"))


def make_library(folder: Path, name: str, more: str = "") -> None:
    """Link a library of the base."""
    source = folder / f"{name}.cpp"
    source.write_text(LIBRARY.format(name=name.removesuffix(".so")) + more)
    command = ["g++", "-shared", "-fPIC", "-O1", "-Wl,--build-id=sha1", str(source), "-o", str(folder / name)]
    subprocess.run([*command, f"-Wl,-soname,{name}", *RPATH], check=True)


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
    place = f"{build.layout.native}/Mine.cpp:1"
    assert error.what.startswith(f"{place}: calls libtorch_python::variable, which is not defined; ")
    assert error.cause == "other libraries cannot use hidden variables of libtorch_python.so"


@pytest.mark.parametrize("is_for_edits", [True, False])
def test_function_that_each_capability_would_define_ends_the_build(build: Build, is_for_edits: bool) -> None:
    """Also where only one is compiled, for develop: the wheel would be refused."""
    units = []
    capabilities = ("AVX2",) if is_for_edits else ("DEFAULT", "AVX2")
    for capability in capabilities:
        text = f"int twice() {{ return 2; }}\nnamespace {capability} {{ int once() {{ return 1; }} }}\n"
        unit = build.unit("K", f"{text}inline int many() {{ return 3; }}\nstatic int own = many();\n")
        units.append(replace(unit, target=Path(f"objects/K.cpp.{capability}.o")))
        unit.target.rename(units[-1].target)
    build.toolchain = replace(build.toolchain, capabilities=capabilities, is_for_edits=is_for_edits)
    assert build.refused(*units).what == (
        f"{build.layout.native}/K.cpp:1: twice() is defined once for each CPU capability; "
        "move it to a .cpp file outside of cpu/"
    )


def test_symbol_that_is_nowhere_ends_the_build(build: Build) -> None:
    unit = build.unit("Mine", "int nowhere(long);\nint f() { return nowhere(1); }")
    error = build.refused(unit)
    assert error.what.startswith(f"{build.layout.native}/Mine.cpp:2: calls nowhere(long), which is not defined; ")
    assert error.cause == ""


def test_what_the_other_library_hides_is_not_there(build: Build) -> None:
    """torch._C links to libtorch.so, and sees only the symbols that it exports."""
    shown = '__attribute__((visibility("default"))) int shown() { return 1; }\n'
    library = build.unit("Library", f"{shown}int unseen() {{ return 2; }}")
    calls_shown = build.unit("CallsShown", "int shown(); int f() { return shown(); }")
    calls_unseen = build.unit("CallsUnseen", "int unseen();\nint f() { return unseen(); }")
    assert not any(build.bound(calls_shown, provided=(library,)).values())
    what = f"{build.layout.native}/CallsUnseen.cpp:2: calls unseen()"
    assert build.refused(calls_unseen, provided=(library,)).what.startswith(what)
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


OBJECT, LIBRARY_FILE = Path("objects/Mine.o"), LINKED / "torch/lib/libtorch.so"
TABLE = Path("objects/trampolines/torch.lib.libtorch.o")


def changed(build: Build, *products: Product) -> set[Path]:
    """Build. Return which of the source's object, the table of bound functions and the library were written."""

    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (OBJECT, TABLE, LIBRARY_FILE) if path.is_file()}

    before = times()
    build.make(*products)
    return {path for path, time in times().items() if before.get(path) != time}


def test_library_is_linked_again_only_if_an_input_changed(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = build.source("Mine", "int f() { return 1; }")
    product = Product("torch/lib/libtorch.so", [unit], BOUND, build.like)
    assert changed(build, product) == {OBJECT, TABLE, LIBRARY_FILE}
    assert changed(build, product) == set()
    build.source("Mine", "int f() { return 2; }")
    assert changed(build, product) == {OBJECT, LIBRARY_FILE}
    # The table of bound functions is recompiled if it or the compiler changed.
    build.source("Mine", "namespace libtorch_cpu { int hidden(); } int f() { return libtorch_cpu::hidden(); }")
    assert changed(build, product) == {OBJECT, TABLE, LIBRARY_FILE}
    make_library(build.base.libraries, BOUND[1], "namespace libtorch_cpu { int more() { return 1; } }")
    assert changed(build, product) >= {LIBRARY_FILE}
    with monkeypatch.context() as other:
        other.setattr(libraries, "hash_of_builder", lambda: "another builder")
        assert changed(build, product) == {LIBRARY_FILE}
    assert changed(build, product) == {LIBRARY_FILE}
    build.toolchain = replace(build.toolchain, description="another")
    assert changed(build, product) == {OBJECT, TABLE, LIBRARY_FILE}
    assert changed(build, replace(product, like=Library((), "$ORIGIN", "--enable-new-dtags"))) == {LIBRARY_FILE}
    LIBRARY_FILE.unlink()
    assert changed(build, product) == {LIBRARY_FILE}
    assert changed(build, product) == set()


# Otherwise the linker leaves it out.
SHOWN = '__attribute__((visibility("default")))'


def test_library_of_a_build_that_failed_is_linked_again(build: Build) -> None:
    """Its objects were reverted, and it is there."""
    one, two = build.source("One", f"{SHOWN} int f() {{ return 1; }}"), build.source("Two", "int g() { return 1; }")
    products = [Product(f"torch/lib/lib{n}.so", [unit], BOUND, build.like) for n, unit in (("one", one), ("two", two))]
    first = build.make(*products)["torch/lib/libone.so"].read_bytes()
    build.source("One", f"{SHOWN} int f() {{ return 2; }}")
    build.source("Two", "int nowhere(); int g() { return nowhere(); }")
    with pytest.raises(CompileError):
        build.make(*products)
    build.source("One", f"{SHOWN} int f() {{ return 1; }}")
    build.source("Two", "int g() { return 1; }")
    assert build.make(*products)["torch/lib/libone.so"].read_bytes() == first


def refused_by_ninja(build: Build, *products: Product) -> CompileError:
    with pytest.raises(CompileError) as caught:
        build.make(*products)
    return caught.value


@pytest.mark.parametrize("capabilities", [("DEFAULT", "AVX2", "AVX512"), ("AVX2",)], ids=["shipped", "edited"])
def test_link_that_fails_is_reported_at_the_user_s_line_and_tried_again(
    build: Build, capabilities: tuple[str, ...]
) -> None:
    build.toolchain = replace(build.toolchain, capabilities=capabilities, is_for_edits=len(capabilities) == 1)
    undefined = build.source("Undefined", "int nowhere(long);\nint f() { return nowhere(1); }\n")
    once, twice = (build.source(name, f"int {name.lower()}();\nint both() {{ return 1; }}\n") for name in ("A", "B"))
    products = [
        Product("torch/lib/libone.so", [undefined], BOUND, build.like),
        Product("torch/lib/libtwo.so", [once, twice], BOUND, build.like),
        Product("torch/lib/libthree.so", [once], BOUND, build.like),
    ]
    native = build.layout.native
    for _ in range(2):
        error = refused_by_ninja(build, *products)
        lines = sorted(error.what.splitlines())
        assert [line.partition("; ")[0] for line in lines] == [
            f"{native}/B.cpp:2: defines both(), which {native}/A.cpp:2 defines, too",
            f"{native}/Undefined.cpp:2: calls nowhere(long), which is not defined",
        ]
        assert error.todo.startswith(f"fix {native}/")
    assert (LINKED / "torch/lib/libthree.so").is_file()
    assert not (LINKED / "torch/lib/libone.so").exists()
    build.source("Undefined", "int f() { return 1; }\n")
    build.source("B", "int g() { return 1; }\n")
    assert set(build.make(*products)) == {product.name for product in products}


def test_other_complaints_of_the_linker_are_passed_on(build: Build) -> None:
    mine = build.unit("Mine", "int f() { return 1; }")
    product = Product("torch/lib/libtorch.so", [mine], BOUND, build.like, linked=["libnowhere.so"])
    with pytest.raises(LinkError, match=r"cannot find .*libnowhere\.so"):
        build.linker(product).link()


def test_cause_and_remedy_of_a_link_that_fails_are_reported(build: Build) -> None:
    mine = build.source("Mine", "extern int variable;\nint f() { return variable; }\n")
    hides = build.base.libraries / BOUND[1]
    make_library(build.base.libraries, BOUND[1], "HIDDEN int variable = 1;")
    what = refused_by_ninja(build, Product("torch/lib/libtorch.so", [mine], BOUND, build.like)).what
    assert f"\n  why:  other libraries cannot use hidden variables of {hides.name}" in what
    # Two functions of one name cannot be told apart.
    static = "static __attribute__((noinline)) int same(int n) {{ return n * {}; }} int {}(int n) {{ return same(n); }}"
    parts = []
    for name in ("first", "second"):
        part = build.base.libraries / f"{name}.cpp"
        part.write_text(static.format(len(name), name))
        parts.append(str(part))
    command = ["g++", "-shared", "-fPIC", "-O1", "-Wl,--build-id=sha1", *parts, "-o", str(hides)]
    subprocess.run([*command, f"-Wl,-soname,{hides.name}"], check=True)
    build.source("Mine", 'int same(int) __asm__("_ZL4samei");\nint f() { return same(1); }\n')
    what = refused_by_ninja(build, Product("torch/lib/libtorch.so", [mine], BOUND, build.like)).what
    assert what.startswith("libtorch_cpu.so has 2 hidden functions named _ZL4samei")
    assert "next: do not call it; copy its code into the native folder" in what


def test_errors_of_compiler_and_linker_are_reported_together(build: Build) -> None:
    wrong = build.source("Wrong", "int f() { return nothing; }\n")
    undefined = build.source("Undefined", "int nowhere(long);\nint f() { return nowhere(1); }\n")
    products = [
        Product("torch/lib/libone.so", [undefined], BOUND, build.like),
        Product("torch/lib/libtwo.so", [wrong], BOUND, build.like),
    ]
    what = refused_by_ninja(build, *products).what
    native = build.layout.native
    assert f"{native}/Wrong.cpp:1:18: error: 'nothing' was not declared in this scope" in what
    assert f"{native}/Undefined.cpp:2: calls nowhere(long), which is not defined" in what


def test_library_for_cuda_loads_what_it_calls_and_libtorch_loads_it(build: Build, tmp_path: Path) -> None:
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
    of_cuda, of_umbrella = (ElfFile(build.linker(each).link()).dynamic() for each in (cuda, umbrella))
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


@pytest.mark.parametrize("capability", ["DEFAULT", "AVX512"])
def test_stub_has_the_kernel_of_the_only_capability_that_is_compiled(build: Build, capability: str) -> None:
    build.toolchain = replace(build.toolchain, capabilities=(capability,), is_for_edits=True)
    library = build.linker(stub_product(build, capability)).link()
    program = "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); print(library.best(3), library.least(4))"
    env = {**os.environ, "LD_LIBRARY_PATH": str(build.base.libraries)}
    command = [sys.executable, "-c", program, library]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "6 8\n"


def test_stub_that_lacks_a_kernel_ends_the_build_if_all_capabilities_are_compiled(build: Build) -> None:
    product = stub_product(build, "AVX2")
    with pytest.raises(LinkError, match=r"Choice\.cpp:2: calls at::native::DispatchStub<.*>::AVX512"):
        build.linker(product).link()


def test_slots_are_read_only_once_they_are_filled(build: Build) -> None:
    """Whoever can write into memory must not be able to redirect a call."""
    text = """namespace libtorch_cpu { int hidden(); }
#include "graft_libraries.h"
extern "C" __attribute__((visibility("default"))) int call() { return libtorch_cpu::hidden(); }
extern "C" __attribute__((visibility("default"))) void** slots() { return graft_slots; }
"""
    caller = build.unit("Caller", text, f"-I{TEMPLATES}")
    fixed = build.unit("Trampolines", f'#include "{TEMPLATES}/trampolines.cpp"')
    library = build.linker(Product("torch/lib/libtorch.so", [caller, fixed], BOUND, build.like)).link()
    program = """import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.slots.restype = ctypes.c_void_p
address = library.slots()
print(library.call())
for line in open("/proc/self/maps"):
    first, last = (int(part, 16) for part in line.split()[0].split("-"))
    if first <= address < last:
        print(line.split()[1], address % 4096)
"""
    env = {**os.environ, "LD_LIBRARY_PATH": str(build.base.libraries)}
    done = subprocess.run([sys.executable, "-c", program, library], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "7\nr--p 0\n"


def test_symbols_of_newer_c_libraries_are_hidden(tmp_path: Path) -> None:
    uses = "#include <functional>\nvoid f() { std::__throw_bad_array_new_length(); }\n"
    (tmp_path / "uses.cpp").write_text(uses)
    command = ["g++", "-shared", "-fPIC", "-Wall", "-Werror", TEMPLATES / "compatibility.cpp", tmp_path / "uses.cpp"]
    subprocess.run([*command, "-o", tmp_path / "library.so"], check=True)
    defined = SymbolFile(tmp_path / "library.so").exported()
    assert "_Z1fv" in defined
    assert not defined & {"_ZSt28__throw_bad_array_new_lengthv", "__libc_single_threaded"}
    # Nor does it need them of others.
    assert "_ZSt28__throw_bad_array_new_lengthv" not in SymbolFile(tmp_path / "library.so").undefined()
