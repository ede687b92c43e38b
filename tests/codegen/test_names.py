"""Arguments with a name that generated code uses are refused at their place, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from corpus import BROKEN, files_of
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
from helpers import write
from test_types import errors_of

GENERATED = [case for case in BROKEN if "generated" in case]

OPERATORS: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text())
REFUSED = {(schema.partition("(")[0], name) for schema, each in OPERATORS.items() for name in each["refused"]}


def write_folder(folder: Path, schemas: Iterable[str]) -> Path:
    functions = formulas = ""
    for schema in schemas:
        name, formula = schema.partition("(")[0], OPERATORS[schema].get("formula")
        functions += f"- func: {schema} -> Tensor\n  variants: function, method\n  dispatch:\n    CPU, Meta: {name}\n"
        functions += f"  autogen: {name}.out\n"
        formulas += f"- name: {schema} -> Tensor\n  self: {formula}\n" if formula else ""
    return write(folder, {"native_functions.yaml": functions, "derivatives.yaml": formulas})


def refused(folder: Path, base: Path, out: Path) -> str:
    """What generation says of a folder."""
    try:
        generate(base, load_natives([folder]), out, judge=partial(check_generated, load_natives([folder])))
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("case", GENERATED, ids=lambda case: case["mistake"])
def test_name_is_refused_at_its_place(case: dict[str, str], base: Path, tmp_path: Path) -> None:
    write(tmp_path, files_of(case))
    assert refused(tmp_path, base, tmp_path / "out") == f"{tmp_path}/{case['generated']} [argument-name]"


def test_names_that_generated_code_uses(base: Path, known: BaseOperators, tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "native", OPERATORS)
    found = check(load_natives([folder]), known).errors
    assert [error for error in found if error.code != "kernel-missing"] == []
    said = refused(folder, base, tmp_path / "out")
    assert set(re.findall(r"generates for (\w+) already uses `(\w+)`", said)) == REFUSED


@pytest.mark.slow
def test_pytorch_s_arguments_are_not_refused(everything: Operators, tmp_path: Path) -> None:
    """PyTorch builds from this text, so each finding would be false."""
    # torchgen leaves it out, since it is written by hand.
    part = Selection(everything, [f for f in everything.functions if f.root_name != "max_pool2d"])
    unit = Output(tmp_path)
    for generate_part in (generate_aten_sources, generate_autograd_sources, generate_bindings, generate_unit_headers):
        generate_part(part, unit)
    arguments = {a.name for f in part.functions for a in f.func.arguments.flat_all}
    assert clashes((unit.read(name) for name in unit.names if name.suffix in (".cpp", ".h")), arguments) == set()


@pytest.mark.slow
def test_compiler_agrees(base: Path, tmp_path: Path) -> None:
    """What is accepted compiles, and each operator with a refused name does not."""
    fine = [schema for schema, each in OPERATORS.items() if not each["refused"]]
    assert errors_of(write_folder(tmp_path / "fine", fine), base, tmp_path / "out") == ""
    for number, (schema, each) in enumerate(OPERATORS.items()):
        if each["refused"]:
            folder = write_folder(tmp_path / f"wrong{number}", [schema])
            assert errors_of(folder, base, tmp_path / f"out{number}"), schema
