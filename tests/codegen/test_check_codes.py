"""The codes of findings: each is used and explained, and its example has the mistake."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from graft.check.__main__ import check
from graft.check.base import BaseOperators
from graft.check.codes import EXPLAINED, sections
from graft.core.errors import Finding
from graft.core.layout import PACKAGE
from graft.inputs.native import load_natives
from helpers import write

SECTIONS = sections()
CODE = re.compile("[a-z]+(-[a-z0-9]+)+")
# These are about two folders, about bytes, or about much code.
WITHOUT_EXAMPLE = {"file-conflict", "file-encoding", "formula-function-many"}


def example(code: str, mark: str) -> dict[str, str]:
    """Return the files of the example of a code: with the mistake for the ``mark`` ``-``, or without for ``+``."""
    files: dict[str, str] = {}
    name = ""
    for line in re.findall(r"(?<=```diff\n).*?(?=^```)", SECTIONS[code], re.M | re.S)[0].splitlines():
        if line.startswith(("--- ", f"{mark * 3} ")):
            name = line[4:]
        if line[:4] in ("--- ", "+++ "):
            continue
        if not line or line[0] in (" ", mark):
            files[name] = f"{files.get(name, '')}{line[1:]}\n"
    return files


def found(code: str, mark: str, known: BaseOperators, folder: Path) -> list[Finding]:
    findings = check(load_natives([write(folder, example(code, mark))]), known).found
    return [each for each in findings if each.code == code]


def test_each_code_in_the_source_is_explained_and_no_other() -> None:
    nodes = (node for file in EXPLAINED.parent.glob("*.py") for node in ast.walk(ast.parse(file.read_text())))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert {text for text in texts if CODE.fullmatch(text)} - {"utf-8"} == SECTIONS.keys()


def test_adopt_asks_for_codes_that_findings_have() -> None:
    asked = re.findall(r'\.code == "(.+?)"', (PACKAGE / "adopt/__main__.py").read_text())
    assert asked and {*asked} <= SECTIONS.keys()


@pytest.mark.parametrize("code", SECTIONS)
def test_section_is_short_and_names_what_is_wrong(code: str) -> None:
    first, *rest = SECTIONS[code].splitlines()
    assert CODE.fullmatch(code)
    assert first.endswith(".") and len(first) <= 100
    assert not rest or rest[0] == ""
    assert ("```diff" in SECTIONS[code]) == (code not in WITHOUT_EXAMPLE)


@pytest.mark.parametrize("code", [code for code in SECTIONS if code not in WITHOUT_EXAMPLE])
def test_example_has_the_mistake_on_one_side(code: str, known: BaseOperators, tmp_path: Path) -> None:
    wrong = found(code, "-", known, tmp_path / "wrong")
    assert wrong and {each.is_warning for each in wrong} == {"A warning" in SECTIONS[code]}
    assert found(code, "+", known, tmp_path / "right") == []
