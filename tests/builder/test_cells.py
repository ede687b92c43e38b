"""The text of a cell as texts of ``load_inline``, messages about it, and the line of ``%%graft``."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from graft.core.errors import BuildError, Finding, GraftError, UsageError
from graft.session.cell import Cell
from graft.session.cells import load_cell
from graft.session.inline import Texts
from graft.session.notebook import arguments
from graft.session.text_messages import TextMessages
from helpers import beside, refused

CASES = beside(__file__)


SCHEMA = "soft_clip(Tensor self, Scalar limit=1) -> Tensor"
KERNEL = """
Tensor soft_clip(const Tensor& self, const Scalar& limit) {
  return self.div(limit).tanh().mul(limit);
}
"""
ENTRIES = f"""
Tensor a();
  /* yaml
  - func: {SCHEMA}
    variants: function

  # the gradient
  - name: {SCHEMA}
    self: grad
  - func: twice(Tensor self) -> Tensor
  */
{KERNEL}"""
FOLDER = "/home/some one/.cache/graft/inline/soft_clip-0a1b2c3d"


def told(cell: Cell) -> TextMessages:
    return TextMessages(Texts(cell.functions, cell.derivatives, cpp=cell.cpp), cell.written)


@pytest.mark.parametrize(("comments", "formulas"), CASES["formulas"])
def test_formulas_are_comments_at_the_top(comments: str, formulas: dict[str, str]) -> None:
    cell = Cell(f"\n{comments}\n{KERNEL}\n// self: not at the top\n", SCHEMA)
    (entry,) = yaml.safe_load(cell.derivatives) if formulas else ({"name": SCHEMA},)
    assert entry == {"name": SCHEMA, **formulas}
    assert cell.cpp == cell.text


def test_formulas_keep_their_lines_and_columns() -> None:
    cell = Cell(f"\n// A clip.\n// self: grad\n//   + 0\n// result: auto_linear{KERNEL}", SCHEMA)
    lines = cell.derivatives.split("\n")
    assert lines[0] == f"- name: {SCHEMA}"
    for number, text in ((3, "grad"), (4, "+ 0"), (5, "auto_linear")):
        assert lines[number - 1].index(text) == cell.written.lines[number - 1].index(text)


def test_entries_in_a_comment() -> None:
    cell = Cell(ENTRIES)
    assert [each["func"] for each in yaml.safe_load(cell.functions)] == [SCHEMA, "twice(Tensor self) -> Tensor"]
    assert yaml.safe_load(cell.derivatives) == [{"name": SCHEMA, "self": "grad"}]
    assert cell.cpp == ENTRIES
    for text in (cell.functions, cell.derivatives):
        for number, line in enumerate(text.split("\n")):
            assert line in cell.written.lines[number]


def test_schema_with_an_entry_for_its_formulas() -> None:
    cell = Cell(f"\n/* yaml\n  - name: {SCHEMA}\n    self: grad\n*/{KERNEL}", SCHEMA)
    assert cell.functions == SCHEMA
    assert yaml.safe_load(cell.derivatives) == [{"name": SCHEMA, "self": "grad"}]


def test_entries_alone_have_no_source() -> None:
    assert Cell("\n/* yaml\n- name: log1p(Tensor self) -> Tensor\n  replace: True\n  self: grad\n*/\n").cpp == ""


def filled(text: str) -> str:
    return text.replace("ENTRIES", ENTRIES).replace("KERNEL", KERNEL).replace("SCHEMA", SCHEMA)


@pytest.mark.parametrize(("text", "schema", "line", "word"), CASES["refused"])
def test_what_is_no_cell_is_refused_with_its_line(text: str, schema: str, line: int, word: str) -> None:
    error = refused(UsageError, Cell, filled(text), filled(schema), magic="%%graft line")
    first, shown = error.what.split("\n")
    assert first.startswith(f"cell:{line}: ") and word in first
    assert shown == f"{line:>5} | {'%%graft line' if line == 1 else filled(text).splitlines()[line - 1]}"
    assert error.todo


def test_message_of_a_compiler() -> None:
    cell = Cell(KERNEL.replace("self.div", "slf.div"), SCHEMA)
    error = BuildError(
        f"{FOLDER}/SoftClip.cpp:2:24: error: one\n    2 | namespace at::native {{ {cell.written.lines[1]}\n"
        f"      | {' ' * 23}^~~~~~\n"
        f"{FOLDER}/SoftClip.cpp:3:10: error: two\n    3 |   return slf.div\n      |          ^~~",
        todo=f"fix {FOLDER}/SoftClip.cpp and build again",
        findings=[
            Finding(Path(FOLDER, "SoftClip.cpp"), 2, 24, "one", ""),
            Finding(Path(FOLDER, "SoftClip.cpp"), 3, 10, "two", ""),
            Finding(Path("/include/ATen/Scalar.h"), 3, 10, "three", ""),
        ],
    )
    retold = told(cell).retold(error)
    assert str(retold) == (
        f"cell:2:1: error: one\n    2 | {cell.written.lines[1]}\n      | ^~~~~~\n"
        "cell:3:10: error: two\n    3 |   return slf.div\n      |          ^~~\n"
        "  next: fix the cell and build again"
    )
    assert isinstance(retold, BuildError) and retold.args == (retold.what,)
    assert [(str(each.file), each.line, each.column) for each in retold.findings] == [
        ("cell", 2, 1),
        ("cell", 3, 10),
        ("/include/ATen/Scalar.h", 3, 10),
    ]


def test_message_about_entries_gets_the_line() -> None:
    cell = Cell(ENTRIES)
    said = told(cell).of(
        f"{FOLDER}/native_functions.yaml:5:3: unknown key\n{FOLDER}/derivatives.yaml:9: warning: see "
        f"{FOLDER}/SoftClip.cpp:14; write it"
    )
    assert said == (
        "cell:5:5: unknown key\n    5 |     variants: function\n      |     ^\n"
        "cell:9: warning: see cell:14; write it\n    9 |     self: grad"
    )


def test_message_about_the_schema_names_its_line() -> None:
    cell = Cell(f"\n\n\n// self: gard{KERNEL}", SCHEMA, 3, f'%%graft "{SCHEMA}"')
    for place in ("native_functions.yaml:1", "native_functions.yaml:3:3", "derivatives.yaml:3"):
        assert told(cell).of(f"{FOLDER}/{place}: what") == f"cell:3: what\n    3 | {cell.magic}"
    marked = f"cell:3:10: what\n    3 | {cell.magic}\n      | {' ' * 9}^"
    assert told(cell).of("native_functions.yaml:1:9: what") == marked
    assert told(cell).of("derivatives.yaml:4:9: gard") == ("cell:4:9: gard\n    4 | // self: gard\n      |         ^")


def test_line_behind_the_cell_is_its_last() -> None:
    """The end of the file has the end of a namespace, too."""
    cell = Cell(KERNEL.rstrip(), SCHEMA)
    last = len(cell.written.lines)
    said = told(cell).of(f"{FOLDER}/SoftClip.cpp:{last + 2}:2: error: expected")
    assert said.startswith(f"cell:{last}:2: error: expected\n    {last} | }}\n")


def test_other_paths_stay() -> None:
    for text in (
        "write derivatives.yaml, or SoftClip.cpp",
        "/usr/include/MySoftClip.cpp:3: a",
        "SoftClip.cpps b",
        "derivatives.yaml.old:3: c",
    ):
        assert told(Cell(KERNEL, SCHEMA)).of(text) == text


def test_error_of_the_texts_themselves_is_retold() -> None:
    of_cell = told(Cell(f"\nint a;{KERNEL}\n#include <vector>\n", SCHEMA))
    error = refused(UsageError, of_cell.texts.files)
    said = str(of_cell.retold(error))
    assert said.startswith("cell:7: #include <vector> is behind code\n    7 | #include <vector>\n  next: ")


@pytest.mark.parametrize("given", [{"cell": 1}, {"cell": KERNEL, "schema": None}])
def test_other_types_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(GraftError, match="instead of text"):
        load_cell(**given)  # type: ignore[arg-type]


def test_text_that_begins_in_the_line_of_its_quotes() -> None:
    with pytest.raises(UsageError, match="cell:2: soft_clip has no argument sefl"):
        load_cell("// sefl: grad", SCHEMA)


@pytest.mark.parametrize(("line", "read"), CASES["lines"])
def test_line_of_the_magic(line: str, read: tuple[str, str, bool]) -> None:
    schema, *rest = read
    assert arguments(filled(line)) == (filled(schema), *rest)


@pytest.mark.parametrize(
    "line, word",
    [("--nmae x", "--nmae"), ("--name", "--name"), ("--verbose=2", "--verbose"), (f'"{SCHEMA}" "{SCHEMA}"', "yaml")],
)
def test_wrong_line_is_refused(line: str, word: str) -> None:
    error = refused(UsageError, arguments, line)
    assert word in str(error)
