"""Kernels for dispatch stubs of the base, and other names of the base that a folder defines, in linked libraries."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builds import TEMPLATES, LinkedBuild, make_library
from graft.base.symbols import SymbolFile
from graft.compile.products import LINKED
from graft.compile.stubs import replaced_stubs, stub_of
from helpers import beside

# The stubs, the library of the base and ours, in C++.
TEXTS = beside(__file__)
BASE, OURS = (TEXTS["stubs"] + TEXTS[name] for name in ("base", "ours"))


def library_of(linked: LinkedBuild) -> Path:
    """Return a library with replaced kernels, beside that of the base."""
    make_library(linked.base.libraries, "libtorch_cpu.so", BASE)
    names = ("trampolines", "compatibility")
    common = [linked.unit(name, (TEMPLATES / f"{name}.cpp").read_text(), "-Ifixed") for name in names]
    units = [*common, linked.unit("Ours", OURS)]
    return linked.linker(linked.product(*units, name="libours.so", bound=("libtorch_cpu.so",))).link()


def printed(linked: LinkedBuild, program: str) -> list[str]:
    """Return what a program prints, which has both libraries; the stubs of the base have been called before."""
    start = f"""import ctypes
base = ctypes.CDLL("{linked.base.libraries / "libtorch_cpu.so"}", mode=ctypes.RTLD_GLOBAL)
base.call_one(), base.call_two()
ours = ctypes.CDLL("{library_of(linked).resolve()}")
"""
    done = subprocess.run([sys.executable, "-c", start + program], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


def test_stubs_use_our_kernels_until_they_are_switched_off(linked: LinkedBuild) -> None:
    switched = "".join(f"ours.graft_replace({on})\nprint(base.call_one(), base.call_two())\n" for on in (1, 0, 1))
    program = f"print(base.call_one(), base.call_two())\n{switched}"
    assert printed(linked, program) == ["10", "10", "10", "10", "1", "2", "10", "10"]


def test_a_name_of_the_base_is_ours_inside_our_library_only(linked: LinkedBuild) -> None:
    """Loaded after the base, the loader would take the base's for both."""
    assert printed(linked, "print(base.call_named(), ours.our_named())") == ["3", "30"]
    exported = SymbolFile(LINKED / "libours.so").exported()
    assert {name for name in exported if "named" in name or "DispatchStub" in name} == {"our_named"}


@pytest.mark.parametrize("is_for_edits", [False, True])
def test_pytorchs_own_can_be_called(linked: LinkedBuild, is_for_edits: bool) -> None:
    """The kernels of stubs, for each capability; and a function that ours is named after."""
    if is_for_edits:
        linked.toolchain = replace(linked.toolchain, capabilities=("AVX2",), is_for_edits=True)
    program = "print(ours.stocks_function(), ours.stock_one(), ours.stock_two())"
    assert printed(linked, f"ours.graft_replace(0)\n{program}\nours.graft_replace(1)\n{program}") == ["3", "1", "2"] * 2


def test_stub_that_is_defined_again_has_what_the_base_registered_for_devices(linked: LinkedBuild) -> None:
    """And its kernel is not the one that the base had chosen."""
    assert printed(linked, "print(ours.our_device(), ours.our_three())") == ["2", "10"]


def test_one_capability_stands_for_all(linked: LinkedBuild) -> None:
    """As in `make develop`, where AVX2 alone is compiled: a program may ask for another."""
    linked.toolchain = replace(linked.toolchain, capabilities=("AVX2",), is_for_edits=True)
    program = """member = "_ZN2at6native12DispatchStubIPFivENS0_30one_stub_DECLARE_DISPATCH_typeEE7DEFAULTE"
print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.c_void_p.in_dll(base, member).value)())"""
    assert printed(linked, program) == ["10"]


def test_replaced_stubs_are_named(linked: LinkedBuild) -> None:
    make_library(linked.base.libraries, "libtorch_cpu.so", BASE)
    unit = linked.unit("Ours", OURS)
    assert replaced_stubs([unit], Path(), [linked.base.libraries / "libtorch_cpu.so"]) == [
        "one_stub",
        "three_stub",
        "two_stub",
    ]


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
