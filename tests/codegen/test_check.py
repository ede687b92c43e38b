"""``make check``: each mistake is found, at its place; and what is right is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scripts.check.__main__ import check
from scripts.check.arguments import check_arguments
from scripts.check.base import BaseOperators
from scripts.check.derivatives import check_derivatives
from scripts.check.entries import read_entries
from scripts.check.finding import Findings
from scripts.check.functions import PYTHON_MODULES, check_functions
from scripts.check.groups import check_groups
from scripts.common.layout import REPOSITORY
from scripts.generate.places import PLACES

# Native folders with one mistake each, written out: a key for each file, and the beginning of the line to print.
BROKEN: list[dict[str, str]] = [
    case
    for file in sorted((Path(__file__).parent / "broken").glob("*.yaml"))
    for case in yaml.safe_load(file.read_text())
]


def test_python_modules_are_those_that_bindings_are_generated_for() -> None:
    """The check does not import the generator, which takes longer than the whole check."""
    modules = {place.module for place in PLACES if place.module not in (None, "torch")}
    assert {f"torch.{name}" for name in PYTHON_MODULES} == modules


@pytest.fixture(scope="module")
def known(base: Path) -> BaseOperators:
    return BaseOperators(base)


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case["mistake"])
def test_mistake_is_found_at_its_place(case: dict[str, str], known: BaseOperators, tmp_path: Path) -> None:
    for name in case.keys() - {"mistake", "expect"}:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(case[name])
    (line,) = (line.removeprefix(f"{tmp_path}/") for line in check([tmp_path], known).lines())
    assert line.startswith(case["expect"])
    assert "; " in line, "a finding says what to write instead"


def test_there_is_a_corpus() -> None:
    assert len(BROKEN) >= 60
    assert len({case["mistake"] for case in BROKEN}) == len(BROKEN)


@pytest.mark.parametrize("folder", ["native", "tests/wheel/grammar"])
def test_folders_that_build_have_no_mistake(folder: str, known: BaseOperators) -> None:
    assert check([REPOSITORY / folder], known).errors == []


def test_pytorch_s_own_entries_have_no_mistake(base: Path) -> None:
    """An oracle that was not written for this: what is found in PyTorch's own YAML is wrong, or a known oddity."""
    nothing = BaseOperators(base)
    # Read now: they depend on what is taken away next.
    assert nothing.torch_names and nothing.tensor_names and nothing.formula_words
    nothing.schemas, nothing.derivatives, nothing.base_names = {}, set(), set()
    findings, packaged = Findings(), base / "torchgen/packaged"
    entries = read_entries(packaged / "ATen/native/native_functions.yaml", findings)
    functions = check_functions(entries, nothing, findings)
    check_arguments(functions, findings)
    check_groups(entries, functions, nothing, findings)
    check_derivatives(
        read_entries(packaged / "autograd/derivatives.yaml", findings), functions, set(), [], nothing, findings
    )
    assert len(functions) > 2000
    found = [finding.what for finding in findings.errors if "manual_cpp_binding" not in finding.what]
    # Each name of each formula is in a header, though no formula is read to know it.
    # Three arguments are named `from` (torchgen excepts them), and one_hot has an entry beside a composite kernel.
    assert sorted(what.split()[0] for what in found) == ["`from`", "`from`", "`from`", "one_hot"]
