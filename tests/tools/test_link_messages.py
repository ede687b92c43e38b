"""Messages of the linker name the files and entries of the native folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.compile.link_messages import of_linker

FUNCTIONS = """\
# a comment
- func: soft_clip(Tensor self, Scalar limit=1) -> Tensor
  variants: function
  dispatch:
    CPU, Meta: soft_clip_cpu

- func: soft_add.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU: soft_add_out  # with a comment

- func: soft_sum(Tensor self) -> Tensor
"""


@pytest.fixture
def native(tmp_path: Path) -> Path:
    (tmp_path / "native_functions.yaml").write_text(FUNCTIONS)
    return tmp_path


# Messages as printed by GNU ld 2.40 with LC_ALL=C.


@pytest.mark.parametrize(
    ("symbol", "line", "operator"),
    [
        ("at::native::soft_clip_cpu(at::Tensor const&, c10::Scalar const&)", 4, "soft_clip"),
        ("at::native::structured_soft_add_out::impl(at::Tensor const&, at::Tensor const&)", 9, "soft_add.out"),
        ("at::native::soft_sum(at::Tensor const&)", 12, "soft_sum"),
    ],
)
def test_undefined_symbol_names_the_entry_that_asks_for_it(native: Path, symbol: str, line: int, operator: str) -> None:
    where = "/usr/bin/ld: objects/library_0.o: in function `f':\nlibrary_0.cpp:(.text+0x1)"
    output = f"{where}: undefined reference to `{symbol}'"
    assert of_linker(f"{output}\n{output}\ncollect2: error: ld returned 1 exit status", native) == (
        f"{native}/native_functions.yaml:{line}: no file defines {symbol}, the kernel of {operator}; "
        "define it in a .cpp file with exactly these parameters"
    )


def test_undefined_symbol_that_no_entry_asks_for_names_its_caller(native: Path) -> None:
    output = "/usr/bin/ld: Soft.cpp:(.text._Z1fv+0x1c): undefined reference to `helper(int)'"
    assert of_linker(output, native).startswith("Soft.cpp: calls helper(int), which is not defined; define it")


MINE = """\
namespace at::native {
int helper(int x);

int twice(int x) { return x; }

int once(int x) { return helper(x); }
}
"""


def test_undefined_symbol_is_told_at_the_line_that_calls_it(native: Path) -> None:
    (native / "Mine.cpp").write_text(MINE)
    line = f"{native}/Mine.cpp: undefined reference to `at::native::helper(int)'"
    called = f"{native}/Mine.cpp:6: calls at::native::helper(int), which is not defined; "
    assert of_linker(line, native) == called + "define it in a .cpp file of the folder, or do not call it"
    (native / "Other.cpp").write_text("int helper(long x) { return 0; }\n")
    assert of_linker(line, native).startswith(f"{called}{native}/Other.cpp:1 defines `int helper(long)`: declare")


REPEATED = """\
/usr/bin/ld: /w/Mine.o: in function `at::native::twice(int)':
Mine.cpp:(.text+0x0): multiple definition of `at::native::twice(int)'; /w/A.o:A.cpp:(.text+0x0): first defined here
collect2: error: ld returned 1 exit status
"""


BY_GOLD = """\
/usr/bin/ld.gold: error: objects/native/Mine.o: multiple definition of 'at::native::twice(int)'
/usr/bin/ld.gold: objects/native/A.o: previous definition here
collect2: error: ld returned 1 exit status
"""
WITH_LINES = """\
/usr/bin/ld: /w/Mine.o: in function `at::native::twice(int)':
/w/Mine.cpp:1: multiple definition of `at::native::twice(int)'; /w/A.o:/w/A.cpp:1: first defined here
collect2: error: ld returned 1 exit status
"""


@pytest.mark.parametrize("said", [REPEATED, BY_GOLD, WITH_LINES])
def test_symbol_that_is_there_twice_is_told_at_both_lines(native: Path, said: str) -> None:
    (native / "Mine.cpp").write_text(MINE)
    (native / "A.cpp").write_text(
        "namespace at::native {\nint twice(int, int) { return 2; }\nint twice(int) { return 1; }\n}\n"
    )
    assert of_linker(said, native) == (
        f"{native}/Mine.cpp:4: defines at::native::twice(int), which {native}/A.cpp:3 defines, too; "
        "give one another name, or write `static` before both"
    )


def test_function_of_a_header_that_is_there_twice_is_told_at_its_line(native: Path) -> None:
    (native / "Twice.h").write_text("namespace at::native {\nint twice(int x) { return x; }\n}\n")
    assert of_linker(REPEATED, native) == (
        f"{native}/Twice.h:2: defines at::native::twice(int) in a header, included by Mine.cpp and A.cpp; "
        "write `inline` before it"
    )


def test_other_complaints_of_the_linker_are_passed_on(native: Path) -> None:
    assert of_linker("ld: cannot find -lm", native) == "ld: cannot find -lm"
