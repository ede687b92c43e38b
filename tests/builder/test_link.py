"""Linking: each symbol that a library needs is defined somewhere, or the build fails; no wheel fails at import. Kernels
for dispatch stubs of the base, and other names of the base that a folder defines, in linked libraries.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builds import BOUND, SHOWN, TEMPLATES, LinkedBuild, make_library
from graft.base.base import Library
from graft.base.symbols import SymbolFile
from graft.compile import libraries
from graft.compile.extensions import link_extension
from graft.compile.linker import Link
from graft.compile.products import LINKED, Product
from graft.compile.stubs import replaced_stubs, stub_of
from graft.compile.units import Unit
from graft.core.elf import ElfFile
from graft.core.errors import BuildError
from graft.inputs.libraries import NO_LIBRARIES
from helpers import Capture, Patch, beside, compiled, refused

CASES = beside(__file__)


def bound(linked: LinkedBuild, *units: Unit, provided: tuple[Unit, ...] = ()) -> list[str]:
    """Return the functions of libtorch_cpu that are bound for ``units`` in torch._C, and of no other library."""
    linker = linked.linker(linked.product(*units, provided=provided, is_python_extension=True))
    others, ours = (list(functions) for _, functions in linker.bound(linker.unresolved()))
    assert not others
    return ours


def test_hidden_functions_are_bound_and_exported_ones_are_not(linked: LinkedBuild) -> None:
    mine = """namespace libtorch_cpu { int exported(); int hidden(); }
namespace libtorch_python { int exported(); int hidden(); }
int f() { return libtorch_cpu::exported() + libtorch_cpu::hidden() + libtorch_python::exported(); }
"""
    assert bound(linked, linked.unit("Mine", mine)) == ["_ZN12libtorch_cpu6hiddenEv"]


def test_hidden_variable_ends_the_build(linked: LinkedBuild) -> None:
    """The linker would accept it, since torch._C may find missing symbols in the interpreter."""
    declared = "namespace libtorch_python { extern int variable; int hidden(); }\n"
    unit = linked.source(
        "Mine", f"{declared}int f() {{ return libtorch_python::variable + libtorch_python::hidden(); }}"
    )
    what = refused(BuildError, linked.make, linked.product(unit, name="torch/_C.so", is_python_extension=True)).what
    place = f"{linked.layout.native}/Mine.cpp:1"
    assert what.startswith(f"{place}: calls libtorch_python::variable, which is not defined; ")
    assert "\n  why:  other libraries cannot use hidden variables of libtorch_python.so" in what


@pytest.mark.parametrize("capabilities", [("AVX2",), ("DEFAULT", "AVX2")])
def test_function_that_each_capability_would_define_ends_the_build(
    linked: LinkedBuild, capabilities: tuple[str, ...]
) -> None:
    """Also where only one is compiled, for develop: the wheel would be refused."""
    units = []
    for capability in capabilities:
        text = f"int twice() {{ return 2; }}\nnamespace {capability} {{ int once() {{ return 1; }} }}\n"
        unit = linked.unit("K", f"{text}inline int many() {{ return 3; }}\nstatic int own = many();\n")
        target = unit.target.rename(f"objects/K.cpp.{capability}.o")
        units.append(replace(unit, target=target, capability=capability))
    linked.toolchain = replace(linked.toolchain, capabilities=capabilities, is_for_edits=len(capabilities) == 1)
    error = refused(BuildError, bound, linked, *units)
    assert error.what == (
        f"{linked.layout.native}/K.cpp:1: twice() is defined once for each CPU capability; "
        "move it to a .cpp file outside of cpu/"
    )


def test_what_the_other_library_hides_is_not_there(linked: LinkedBuild) -> None:
    """torch._C links to libtorch.so, and sees only the symbols that it exports."""
    library = linked.unit("Library", f"{SHOWN} int shown() {{ return 1; }}\nint unseen() {{ return 2; }}")
    calls_shown = linked.unit("CallsShown", "int shown(); int f() { return shown(); }")
    calls_unseen = linked.unit("CallsUnseen", "int unseen();\nint f() { return unseen(); }")
    assert bound(linked, calls_shown, provided=(library,)) == []
    with pytest.raises(BuildError, match=rf"^{linked.layout.native}/CallsUnseen\.cpp:2: calls unseen\(\)") as caught:
        bound(linked, calls_unseen, provided=(library,))
    assert caught.value.cause == ""
    # Within one library it is visible.
    assert bound(linked, calls_unseen, library) == []


def test_python_s_and_the_compiler_s_own_functions_are_there(linked: LinkedBuild) -> None:
    source = """#include <Python.h>
#include <stdexcept>
#include <string>
thread_local std::string text;
void f(PyObject* o) { try { PyObject_Repr(o); text += "x"; } catch (const std::exception&) { throw; } }
int g() { return __builtin_cpu_supports("avx2"); }
"""
    assert bound(linked, linked.unit("Mine", source, f"-I{linked.toolchain.python_include}")) == []


def test_extension_is_linked_and_names_what_nothing_defines(linked: LinkedBuild, capsys: Capture) -> None:
    """It may call only what PyTorch's libraries export: nothing binds hidden functions for it."""
    functions = "namespace libtorch_cpu { int exported(); int hidden(); }\nint none(int);\n"
    calls = "libtorch_cpu::exported() + libtorch_cpu::hidden() + none(1)"
    unit, base = linked.unit("Mine", f"{functions}int f() {{ return {calls}; }}"), linked.base.libraries
    link = Link(Path("linked/_C.so"), (unit.target,), linked.toolchain, base, (), (), (base / BOUND[1],), NO_LIBRARIES)
    link_extension(link)
    said = "_C.so: nothing that it is linked with defines none(int), libtorch_cpu::hidden()\n"
    assert capsys.readouterr().err.endswith(said) and ElfFile(link.target).dynamic()["DT_NEEDED"][0] == BOUND[1]
    error = refused(BuildError, link_extension, replace(link, options=("-lno_such_library",)))
    assert error.what.startswith("_C.so: ") and "-lno_such_library" in error.what


OBJECT, LIBRARY_FILE = Path("objects/Mine.o"), LINKED / "torch/lib/libtorch.so"
TABLE = Path("objects/trampolines/torch.lib.libtorch.o")


def changed(linked: LinkedBuild, *products: Product) -> set[Path]:
    """Build. Return which of the source's object, the table of bound functions and the library were written."""

    def times() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (OBJECT, TABLE, LIBRARY_FILE) if path.is_file()}

    before = times()
    linked.make(*products)
    return {path for path, time in times().items() if before.get(path) != time}


def test_library_is_linked_again_only_if_an_input_changed(linked: LinkedBuild, monkeypatch: Patch) -> None:
    product = linked.product(linked.source("Mine", "int f() { return 1; }"))
    assert changed(linked, product) == {OBJECT, TABLE, LIBRARY_FILE}
    assert changed(linked, product) == set()
    linked.source("Mine", "int f() { return 2; }")
    assert changed(linked, product) == {OBJECT, LIBRARY_FILE}
    # The table of bound functions is recompiled if it or the compiler changed.
    linked.source("Mine", "namespace libtorch_cpu { int hidden(); } int f() { return libtorch_cpu::hidden(); }")
    assert changed(linked, product) == {OBJECT, TABLE, LIBRARY_FILE}
    make_library(linked.base.libraries, BOUND[1], "namespace libtorch_cpu { int more() { return 1; } }")
    assert changed(linked, product) >= {LIBRARY_FILE}
    with monkeypatch.context() as other:
        other.setattr(libraries, "hash_of_builder", lambda: "another builder")
        assert changed(linked, product) == {LIBRARY_FILE}
    assert changed(linked, product) == {LIBRARY_FILE}
    linked.toolchain = replace(linked.toolchain, description="another")
    assert changed(linked, product) == {OBJECT, TABLE, LIBRARY_FILE}
    assert changed(linked, replace(product, like=Library((), "$ORIGIN", "--enable-new-dtags"))) == {LIBRARY_FILE}
    LIBRARY_FILE.unlink()
    assert changed(linked, product) == {LIBRARY_FILE}
    assert changed(linked, product) == set()


def test_library_of_a_build_that_failed_is_linked_again(linked: LinkedBuild) -> None:
    """Its objects were reverted, and it is there."""

    def sources(one: str, two: str) -> list[Unit]:
        return [linked.source("One", f"{SHOWN} int f() {{ return {one}; }}"), linked.source("Two", two)]

    units = sources("1", "int g() { return 1; }")
    products = [linked.product(unit, name=f"torch/lib/lib{unit.source.stem}.so") for unit in units]
    first = linked.make(*products)["torch/lib/libOne.so"].read_bytes()
    sources("2", "int nowhere(); int g() { return nowhere(); }")
    refused(BuildError, linked.make, *products)
    sources("1", "int g() { return 1; }")
    assert linked.make(*products)["torch/lib/libOne.so"].read_bytes() == first


UNDEFINED = "int nowhere(long);\nint f() { return nowhere(1); }\n"


@pytest.mark.parametrize("capabilities", [("DEFAULT", "AVX2", "AVX512"), ("AVX2",)], ids=["shipped", "edited"])
def test_link_that_fails_is_reported_at_the_user_s_line_and_tried_again(
    linked: LinkedBuild, capabilities: tuple[str, ...]
) -> None:
    """Together with errors of the compiler, and without."""
    linked.toolchain = replace(linked.toolchain, capabilities=capabilities, is_for_edits=len(capabilities) == 1)
    undefined, wrong = linked.source("Undefined", UNDEFINED), linked.source("Wrong", "int f() { return nothing; }\n")
    once, twice = (linked.source(name, f"int {name.lower()}();\nint both() {{ return 1; }}\n") for name in ("A", "B"))
    units = {"one": [undefined], "two": [once, twice], "three": [once], "four": [wrong]}
    products = [linked.product(*each, name=f"torch/lib/lib{name}.so") for name, each in units.items()]
    native = linked.layout.native
    links = [
        f"{native}/B.cpp:2: defines both(), which {native}/A.cpp:2 defines, too",
        f"{native}/Undefined.cpp:2: calls nowhere(long), which is not defined",
    ]
    what = refused(BuildError, linked.make, *products).what
    assert f"{native}/Wrong.cpp:1:18: error: 'nothing' was not declared in this scope" in what
    assert all(line in what for line in links)
    linked.source("Wrong", "int f() { return 1; }\n")
    error = refused(BuildError, linked.make, *products)
    assert [line.partition("; ")[0] for line in sorted(error.what.splitlines())] == links
    assert error.todo.startswith(f"fix {native}/")
    assert (LINKED / "torch/lib/libthree.so").is_file()
    assert not (LINKED / "torch/lib/libone.so").exists()
    linked.source("Undefined", "int f() { return 1; }\n")
    linked.source("B", "int g() { return 1; }\n")
    assert set(linked.make(*products)) == {product.name for product in products}


def test_other_complaints_of_the_linker_are_passed_on(linked: LinkedBuild) -> None:
    product = linked.product(linked.unit("Mine", "int f() { return 1; }"), linked=["libnowhere.so"])
    with pytest.raises(BuildError, match=r"cannot find .*libnowhere\.so"):
        linked.linker(product).link()


def test_library_for_cuda_loads_what_it_calls_and_libtorch_loads_it(linked: LinkedBuild, tmp_path: Path) -> None:
    toolkit = [
        compiled(f"int {name}() {{ return 1; }}", tmp_path / file, "-shared", f"-Wl,-soname,{file}")
        for name, file in (("cudart", "libcudart.so.13"), ("cublas", "libcublas.so.13"))
    ]
    units = [linked.unit("Library", f"{SHOWN} int shown() {{ return 1; }}"), linked.trampolines]
    kernels = linked.unit("Kernels", "int shown(); int cudart(); int f() { return shown() + cudart(); }")
    name = "torch/lib/libcuda.so"
    cuda = linked.product(kernels, linked.trampolines, name=name, offered=toolkit, provided=units)
    umbrella = linked.product(*units, loaded=[name])
    of_cuda, of_umbrella = (ElfFile(linked.linker(each).link()).dynamic() for each in (cuda, umbrella))
    assert [name for name in of_cuda["DT_NEEDED"] if "cu" in name] == ["libcudart.so.13"]
    assert of_umbrella["DT_NEEDED"][:3] == [*BOUND, "libcuda.so"]
    assert of_cuda["DT_RPATH"] == of_umbrella["DT_RPATH"] == ["$ORIGIN/../../nvidia/cu13/lib:$ORIGIN"]


# As in ATen/native/DispatchStub.h and REGISTER_DISPATCH.
STUB = CASES["stub"]
KERNEL = CASES["kernel"]
CHOICE = CASES["choice"]


def stub_product(linked: LinkedBuild, capability: str) -> Product:
    """A library with a kernel for one capability, and a stub that chooses among all."""
    kernel = linked.unit("Kernel", STUB.replace("DEFINITIONS", KERNEL.replace("CAPABILITY", capability)))
    return linked.product(kernel, linked.unit("Choice", STUB.replace("DEFINITIONS", "") + CHOICE), linked.trampolines)


@pytest.mark.parametrize("capability", ["DEFAULT", "AVX512"])
def test_stub_has_the_kernel_of_the_only_capability_that_is_compiled(linked: LinkedBuild, capability: str) -> None:
    linked.toolchain = replace(linked.toolchain, capabilities=(capability,), is_for_edits=True)
    library = linked.linker(stub_product(linked, capability)).link()
    assert linked.printed(library, "print(library.best(3), library.least(4))") == "6 8\n"


def test_stub_that_lacks_a_kernel_ends_the_build_if_all_capabilities_are_compiled(linked: LinkedBuild) -> None:
    product = stub_product(linked, "AVX2")
    with pytest.raises(BuildError, match=r"Choice\.cpp:2: calls at::native::DispatchStub<.*>::AVX512"):
        linked.linker(product).link()


def test_slots_are_read_only_once_they_are_filled(linked: LinkedBuild) -> None:
    """Whoever can write into memory must not be able to redirect a call."""
    text = f"""namespace libtorch_cpu {{ int hidden(); }}
#include "graft_libraries.h"
extern "C" {SHOWN} int call() {{ return libtorch_cpu::hidden(); }}
extern "C" {SHOWN} void** slots() {{ return graft_slots; }}
"""
    caller = linked.unit("Caller", text, f"-I{TEMPLATES}")
    library = linked.linker(linked.product(caller, linked.trampolines)).link()
    program = """library.slots.restype = ctypes.c_void_p
address = library.slots()
print(library.call())
for line in open("/proc/self/maps"):
    first, last = (int(part, 16) for part in line.split()[0].split("-"))
    if first <= address < last:
        print(line.split()[1], address % 4096)
"""
    assert linked.printed(library, program) == "7\nr--p 0\n"


@pytest.mark.parametrize("calls", ["libtorch_cpu::hidden()", "1"])
def test_another_build_of_the_base_is_refused_at_load(linked: LinkedBuild, calls: str) -> None:
    """Also by a library that needs no hidden function: members of classes may have other offsets, too."""
    text = f'namespace libtorch_cpu {{ int hidden(); }} extern "C" {SHOWN} int call() {{ return {calls}; }}'
    library = linked.linker(linked.product(linked.unit("Caller", text), linked.trampolines)).link()
    assert linked.printed(library, "print(library.call())") in ("7\n", "1\n")
    known = ElfFile(linked.base.libraries / BOUND[1]).build_id
    make_library(linked.base.libraries, BOUND[1], "int more;")
    error = refused(subprocess.CalledProcessError, linked.printed, library, "print(library.call())")
    assert error.returncode == 1
    assert f"grafted onto a libtorch_cpu.so with build-id {known}, but the one loaded is" in error.stderr


def test_symbols_of_newer_c_libraries_are_hidden(tmp_path: Path) -> None:
    uses = "#include <functional>\nvoid f() { std::__throw_bad_array_new_length(); }\n"
    flags = ("-shared", "-Wall", "-Werror", TEMPLATES / "compatibility.cpp")
    library = SymbolFile(compiled(uses, tmp_path / "library.so", *flags))
    defined = library.exported()
    assert "_Z1fv" in defined
    assert not defined & {"_ZSt28__throw_bad_array_new_lengthv", "__libc_single_threaded"}
    # Nor does it need them of others.
    assert "_ZSt28__throw_bad_array_new_lengthv" not in library.undefined()


# The stubs, the library of the base and ours, in C++.
BASE, OURS = (CASES["stubs"] + CASES[name] for name in ("base", "ours"))


MEMBER = "_ZN2at6native12DispatchStubIPFivENS0_30one_stub_DECLARE_DISPATCH_typeEE7DEFAULTE"

# Programs that have both libraries; the stubs of the base have been called before. And what they print.
STOCK = "print(ours.stocks_function(), ours.stock_one(), ours.stock_two())\n"
PROGRAMS = {
    "stubs use our kernels until they are switched off": (
        "print(base.call_one(), base.call_two())\n"
        + "".join(f"ours.graft_replace({on})\nprint(base.call_one(), base.call_two())\n" for on in (1, 0, 1)),
        ["10", "10", "10", "10", "1", "2", "10", "10"],
    ),
    # Loaded after the base, the loader would take the base's for both.
    "a name of the base is ours inside our library only": ("print(base.call_named(), ours.our_named())", ["3", "30"]),
    "PyTorch's own can be called": (
        f"ours.graft_replace(0)\n{STOCK}ours.graft_replace(1)\n{STOCK}",
        ["3", "1", "2"] * 2,
    ),
    # And its kernel is not the one that the base had chosen.
    "a stub that is defined again has what the base registered for devices": (
        "print(ours.our_device(), ours.our_three())",
        ["2", "10"],
    ),
}
OF_EDITS = {
    # As in `make develop`, where AVX2 alone is compiled: a program may ask for another.
    "one capability stands for all": (
        f"print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.c_void_p.in_dll(base, {MEMBER!r}).value)())",
        ["10"],
    ),
    "PyTorch's own can be called": PROGRAMS["PyTorch's own can be called"],
}


@pytest.mark.parametrize("is_for_edits", [False, True])
def test_replaced_kernels_and_names(linked: LinkedBuild, is_for_edits: bool) -> None:
    if is_for_edits:
        linked.toolchain = replace(linked.toolchain, capabilities=("AVX2",), is_for_edits=True)
    make_library(linked.base.libraries, "libtorch_cpu.so", BASE)
    names = ("trampolines", "compatibility")
    common = [linked.unit(name, (TEMPLATES / f"{name}.cpp").read_text(), "-Ifixed") for name in names]
    unit = linked.unit("Ours", OURS)
    product = linked.product(*common, unit, name="libours.so", bound=("libtorch_cpu.so",))
    start = f"""import ctypes
base = ctypes.CDLL("{linked.base.libraries / "libtorch_cpu.so"}", mode=ctypes.RTLD_GLOBAL)
base.call_one(), base.call_two()
ours = ctypes.CDLL("{linked.linker(product).link().resolve()}")
"""
    for promise, (program, expected) in (OF_EDITS if is_for_edits else PROGRAMS).items():
        done = subprocess.run([sys.executable, "-c", start + program], stdout=subprocess.PIPE, text=True, check=True)
        assert done.stdout.split() == expected, promise
    exported = SymbolFile(LINKED / "libours.so").exported()
    assert {name for name in exported if "named" in name or "DispatchStub" in name} == {"our_named"}
    stubs = replaced_stubs([unit], Path(), [linked.base.libraries / "libtorch_cpu.so"])
    assert stubs == ["one_stub", "three_stub", "two_stub"]


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        ("_ZN2at6native12DispatchStubIPFvvENS0_30one_stub_DECLARE_DISPATCH_typeEE4AVX2E", ("", "one_stub")),
        (
            "_ZN2at6native12DispatchStubIPFvvENS0_7cpublas31axpy_stub_DECLARE_DISPATCH_typeEE7DEFAULTE",
            ("7cpublas", "axpy_stub"),
        ),
        ("_ZN2at6native5traceERKNS_6TensorE", None),
    ],
)
def test_stub_of_a_kernel(symbol: str, expected: tuple[str, str] | None) -> None:
    assert stub_of(symbol) == expected
