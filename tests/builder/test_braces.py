"""The brace that a text does not close is found by its indentation."""

from __future__ import annotations

import pytest
from graft.core.layout import REPOSITORY
from graft.cpp.braces import open_brace


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("int f() { return 1; }\n", None),
        ("int f(int x) {\n  if (x) {\n    x = 3;\n  return x;\n}\n", (2, 10)),
        ("namespace n {\nint f() {\n  return 1;\n\nint g() { return 1; }\n}\n", (2, 9)),
        ("namespace n { int f() {\n  return 1;\n} // namespace n\n", (1, 23)),
        ("int f(int x)\n{\n  if (x)\n  {\n    return x;\n  }\n", (2, 1)),
        ("int f(\n    int x) {\n  return x;\n", (2, 12)),
        ('int f() {\n  // }\n  puts("}");\n', (1, 9)),
        ("namespace n {\n", (1, 13)),
        ("", None),
    ],
)
def test_brace_without_its_end(text: str, place: tuple[int, int] | None) -> None:
    assert open_brace(text) == place


def test_lines_of_shipped_kernels_without_the_end_of_a_function() -> None:
    """The brace is in the function that lacks its end, in nearly all of them."""
    right = wrong = 0
    for file in sorted((REPOSITORY / "native").rglob("*.cpp")):
        lines = file.read_text(encoding="utf-8").splitlines()
        assert open_brace("\n".join(lines)) is None, file
        begin = 0
        for number, line in enumerate(lines):
            begin = number if line[:1].strip() and line[0] not in "}#/" else begin
            if line == "}":
                found = open_brace("\n".join([*lines[:number], *lines[number + 1 :]]))
                is_there = found is not None and begin < found[0] <= number
                right, wrong = right + is_there, wrong + (not is_there)
    assert right > 100 and wrong < right / 10
