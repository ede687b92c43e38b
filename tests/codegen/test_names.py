"""Arguments with a name that generated code uses are refused at their place, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
from corpus import BROKEN, files_of, lay_out
from graft.check.__main__ import check
from graft.check.base import BaseOperators
from graft.check.generated import check_generated, clashes
from graft.codegen.__main__ import generate
from graft.codegen.bindings import generate_bindings
from graft.codegen.headers import generate_unit_headers
from graft.codegen.operators import Operators, Selection
from graft.codegen.output import Output
from graft.codegen.sources import generate_aten_sources, generate_autograd_sources
from graft.inputs.native import load_natives
from test_types import errors_of

GENERATED = [case for case in BROKEN if "generated" in case]

# The arguments and the derivative formula of operators, and which of their names generated code uses.
OPERATORS = {
    "nm_a(Tensor self, Tensor result, int op, int r)": ("", {"result", "op"}),
    "nm_b(Tensor self, int called, int name, int saved, int args)": (
        "grad * called * name * saved * args",
        {"called", "name", "saved", "args"},
    ),
    "nm_c(Tensor self, int unpack, Tensor self_, int copy_range, int std)": (
        "grad * copy_range",
        {"unpack", "self_", "copy_range"},
    ),
    "nm_d(Tensor self, int unpack, int self_)": ("", {"self_"}),
    "nm_e(Tensor self, int size, int node, int m)": ("", {"node"}),
    "nm_f(Tensor self, int no_gil, int parser, int options, int _r, int kwargs)": ("", {"no_gil"}),
    "nm_g(Tensor self, int Scalar, int tracer_state, int _any_requires_grad)": (
        "grad",
        {"tracer_state", "_any_requires_grad"},
    ),
    "nm_h(Tensor self, int batch_rule, int cur_level, Tensor grad_output)": ("", {"batch_rule", "cur_level"}),
    "nm_i(Tensor self, Tensor gen, Tensor grad, Tensor weight)": ("at::mul(grad, gen) * weight", {"gen", "grad"}),
    "nm_j(Tensor self, int unpack, int r, int at, int c10, int std, int size, int m, int jit, int x)": ("", set()),
    "nm_k(Tensor self, int at, int c10, int std, int size, int m, int result_, int x)": ("grad * x * size", set()),
}
REFUSED = {(schema.partition("(")[0], name) for schema, (_, names) in OPERATORS.items() for name in names}


def write_folder(folder: Path, schemas: Iterable[str]) -> Path:
    folder.mkdir(exist_ok=True)
    functions = formulas = ""
    for schema in schemas:
        name, formula = schema.partition("(")[0], OPERATORS[schema][0]
        functions += f"- func: {schema} -> Tensor\n  variants: function, method\n  dispatch:\n    CPU, Meta: {name}\n"
        functions += f"  autogen: {name}.out\n"
        formulas += f"- name: {schema} -> Tensor\n  self: {formula}\n" if formula else ""
    (folder / "native_functions.yaml").write_text(functions)
    (folder / "derivatives.yaml").write_text(formulas)
    return folder


def refused(folder: Path, base: Path, out: Path) -> str:
    """What generation says of a folder."""
    try:
        generate(base, load_natives([folder]), out, judge=partial(check_generated, load_natives([folder])))
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", GENERATED, ids=lambda case: case["mistake"])
def test_name_is_refused_at_its_place(case: dict[str, str], base: Path, tmp_path: Path) -> None:
    lay_out(files_of(case), tmp_path)
    assert refused(tmp_path, base, tmp_path / "out") == f"{tmp_path}/{case['generated']}"


def test_names_that_generated_code_uses(base: Path, known: BaseOperators, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "native", OPERATORS)
    found = check(load_natives([folder]), known).errors
    assert [error for error in found if "no file of the folder defines" not in error.what] == []
    said = refused(folder, base, tmp_path / "out")
    assert set(re.findall(r"generates for (\w+) already uses `(\w+)`", said)) == REFUSED


@pytest.mark.slow
def test_pytorch_s_arguments_are_not_refused(everything: Operators, tmp_path: Path) -> None:
    """PyTorch builds from this text, so each finding would be false."""
    # torchgen leaves it out, since it is written by hand.
    part = Selection(everything, [f for f in everything.functions if f.root_name != "max_pool2d"])
    unit = Output(tmp_path)
    for write in (generate_aten_sources, generate_autograd_sources, generate_bindings, generate_unit_headers):
        write(part, unit)
    arguments = {a.name for f in part.functions for a in f.func.arguments.flat_all}
    assert clashes((unit.read(name) for name in unit.names if name.suffix in (".cpp", ".h")), arguments) == set()


@pytest.mark.slow
def test_compiler_agrees(base: Path, tmp_path: Path) -> None:
    """What is accepted compiles, and each operator with a refused name does not."""
    fine = [schema for schema, (_, names) in OPERATORS.items() if not names]
    assert errors_of(write_folder(tmp_path / "fine", fine), base, tmp_path / "out") == ""
    for number, (schema, (_, names)) in enumerate(OPERATORS.items()):
        if names:
            folder = write_folder(tmp_path / f"wrong{number}", [schema])
            assert errors_of(folder, base, tmp_path / f"out{number}"), schema
