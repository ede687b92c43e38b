"""Derivative formulas can call every helper of FunctionsManual.h: the base's symbol table has all of them."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

# Declared upstream but not defined: no formula can call them, even in a source build.
NEVER_DEFINED = {
    "fft_backward",
    "reverse_dim",
    "solve_backward_A",
    "solve_backward_self",
    "sparse_constructor_values_backward",
    "var_jvp",
}


def declared(header: str) -> set[str]:
    """Return the functions that the header declares but does not define."""
    code = re.sub(r"//[^\n]*", "", header)
    names = set(re.findall(r"^(?:TORCH_API )?[\w:<>, &]+?\s(\w+)\([^{;]*\);", code, re.M))
    return names - {"size"}


def test_every_helper_is_in_the_symbol_table(base: Path) -> None:
    names = declared((base / "torch/include/torch/csrc/autograd/FunctionsManual.h").read_text())
    assert len(names) > 180
    with (base / "torch/lib/libtorch_cpu.so").open("rb") as file:
        library = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # Itanium C++ ABI, 5.1.4: a nested name is a sequence of identifiers, each after its length.
        found = {match[2][: int(match[1])].decode() for match in re.finditer(rb"9generated7details(\d+)(\w+)", library)}
    assert names - found == NEVER_DEFINED
