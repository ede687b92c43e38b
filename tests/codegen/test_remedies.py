"""What ``make check`` says to write instead: it is written, and check finds no mistake any more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from corpus import BROKEN, files_of
from graft.check.__main__ import check
from graft.check.base import BaseOperators
from graft.core.errors import Finding
from graft.inputs.native import load_natives
from helpers import write

# What a remedy of an entry may leave to write: the kernel, its formulas.
NEXT = ("kernel-missing", "formula-missing", "meta-missing", "dispatch-stub")


def found(files: dict[str, str], known: BaseOperators, folder: Path) -> list[Finding]:
    return sorted(check(load_natives([write(folder, files)]), known).found)


@pytest.mark.parametrize("case", [case for case in BROKEN if "expect" in case], ids=lambda case: case["mistake"])
def test_what_is_written_as_a_remedy_says_has_no_mistake(
    case: dict[str, Any], known: BaseOperators, tmp_path: Path
) -> None:
    before = files_of(case)
    (finding,) = found(before, known, tmp_path / "before")
    if "fixed" in case:
        after = replaced(before, case["fixed"])
        assert follows(finding.todo, before, after), finding.todo
    else:
        after = written(finding, before, tmp_path / "before")
    left = [str(each) for each in found(after, known, tmp_path / "after") if is_mistake(each, finding)]
    assert left == [], f"{finding}\n{after}"


def is_mistake(each: Finding, first: Finding) -> bool:
    return each.what == first.what or each.code not in NEXT


def replaced(files: dict[str, str], texts: dict[str, str]) -> dict[str, str]:
    """Return the files with other texts, or other names."""
    for old, new in texts.items():
        assert any(old in text for pair in files.items() for text in pair), f"the case has no text {old!r}"
        files = {name.replace(old, new): text.replace(old, new) for name, text in files.items()}
    return files


def follows(todo: str, before: dict[str, str], after: dict[str, str]) -> bool:
    """Return whether one of the texts that the remedy quotes, if it does, was written or left out."""
    quoted = [text for text in re.findall("`(.+?)`", todo) if not text.endswith(":")]  # that is where to write it
    return (
        not quoted
        or todo.startswith("leave it out")
        or any(count(text, before) != count(text, after) for text in quoted)
    )


def count(quoted: str, files: dict[str, str]) -> int:
    """Return how often a text is in the files and their names. ``<...>`` in it stands for any."""
    pattern = re.sub(r"<\w+>|\\\.\\\.\\\.", ".+", re.escape(quoted))
    # `str` is not in `str[]`, nor `Tensor[]` in `Tensor[]?`.
    before = r"(?<!\w)" if quoted[0].isalnum() else ""
    behind = r"(?![\w\[?])" if quoted[-1].isalnum() else r"(?!\?)"
    return sum(len(re.findall(f"{before}{pattern}{behind}", text)) for pair in files.items() for text in pair)


def written(finding: Finding, files: dict[str, str], folder: Path) -> dict[str, str]:
    """Return the files of a case with what the remedy of the finding quotes."""
    name = str(finding.file.relative_to(folder))
    lines = files[name].splitlines(keepends=True)
    head, rest = "".join(lines[: finding.line - 1]), "".join(lines[finding.line - 1 :])
    remedy = re.match("(?:did you )?(mean|write|add|define) `(.+?)`", finding.todo)
    assert remedy, f"`fixed` is missing for: {finding.todo}"
    verb, text = remedy.groups()
    if verb == "mean":
        words = [*re.findall(r"`(\w+)`", finding.what)[-1:], re.findall(r"\w+", finding.what)[-1]]
        wrong = next(word for word in words if word in rest)
        return files | {name: head + rest.replace(wrong, text, 1)}
    if verb == "write" and name.endswith((".cpp", ".cu")):
        return files | {name: head + re.sub(r"[^;{]*?(?=\s*\{)", lambda _: text, rest, count=1)}
    if verb == "write" and " -> " in text:
        return files | {name: head + re.sub("(?<=: ).*", lambda _: text, rest, count=1)}
    if verb == "add":
        return files | {name: head + re.sub("(?<=\n)", f"  {text}\n", rest, count=1)}
    namespace = re.search(r"defines (\w+::\w+)", finding.what)
    assert namespace, f"`fixed` is missing for: {finding.todo}"
    return files | {"More.cpp": f"namespace {namespace[1]} {{\n{text} {{}}\n}}\n"}
