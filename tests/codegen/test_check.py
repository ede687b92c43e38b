"""``make check``: each mistake is found, at its place; and what is right is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.check.__main__ import check
from scripts.check.base import BaseOperators
from scripts.check.derivatives import check_derivatives
from scripts.check.entries import read_entries
from scripts.check.finding import Findings
from scripts.check.functions import check_functions
from scripts.layout import REPOSITORY

BROKEN: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "broken.yaml").read_text())


@pytest.fixture(scope="module")
def known(base: Path) -> BaseOperators:
    return BaseOperators(base)


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case["expect"][:60])
def test_mistake_is_found_at_its_place(case: dict[str, Any], known: BaseOperators, tmp_path: Path) -> None:
    (tmp_path / "native_functions.yaml").write_text(case["functions"])
    if "derivatives" in case:
        (tmp_path / "derivatives.yaml").write_text(case["derivatives"])
    lines = [line.removeprefix(f"{tmp_path}/") for line in check(tmp_path, known).lines()]
    assert any(line.startswith(case["expect"]) for line in lines), lines
    assert all("; " in line for line in lines), "a finding says what to write instead"


@pytest.mark.parametrize("folder", ["native", "tests/wheel/grammar"])
def test_folders_that_build_have_no_mistake(folder: str, known: BaseOperators) -> None:
    assert check(REPOSITORY / folder, known).errors == []


def test_pytorch_s_own_entries_have_no_mistake(base: Path) -> None:
    """An oracle that was not written for this: what is found in PyTorch's own YAML is wrong, or a known oddity."""
    nothing = BaseOperators(base)
    nothing.schemas, nothing.derivatives = {}, set()
    findings, packaged = Findings(), base / "torchgen/packaged"
    functions = check_functions(
        read_entries(packaged / "ATen/native/native_functions.yaml", findings), nothing, findings
    )
    check_derivatives(
        read_entries(packaged / "autograd/derivatives.yaml", findings), functions, nothing, set(), findings
    )
    assert len(functions) > 2000
    found = [finding.what for finding in findings.errors if "manual_cpp_binding" not in finding.what]
    # Its entry stands beside a CompositeImplicitAutograd kernel only.
    assert [what.split()[0] for what in found] == ["one_hot"]
