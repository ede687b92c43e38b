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
