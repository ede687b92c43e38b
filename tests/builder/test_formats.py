"""Findings for other programs: annotations for GitHub, and JSON for editors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from graft.check.formats import reported
from graft.core.errors import BuildError, Finding, UsageError
from graft.options import FORMATS
from helpers import Capture, Patch


def findings(folder: Path) -> list[Finding]:
    file = folder / "a,b/ops.yaml"
    return [
        Finding(file, 2, 0, "no formula", "", is_warning=True, code="formula-missing"),
        Finding(file, 9, 3, "100% wrong\nin two lines", "write `x: y`", code="unknown-type"),
    ]


def said(folder: Path, wanted: str | None, capsys: Capture) -> str:
    with pytest.raises(BuildError), reported(wanted):
        raise BuildError("as text", findings=findings(folder))
    return capsys.readouterr().out


def test_annotations_have_paths_from_the_root_and_errors_come_first(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / ".git").mkdir()
    assert said(tmp_path, "github", capsys).splitlines() == [
        "::error file=a%2Cb/ops.yaml,line=9,col=3,title=unknown-type::100%25 wrong%0Ain two lines; write `x: y`",
        "::warning file=a%2Cb/ops.yaml,line=2,title=formula-missing::no formula",
    ]


def test_objects_for_editors(tmp_path: Path, capsys: Capture) -> None:
    first, second = json.loads(said(tmp_path, "json", capsys))
    assert first == {
        "severity": "error",
        "code": "unknown-type",
        "file": f"{tmp_path}/a,b/ops.yaml",
        "line": 9,
        "column": 3,
        "text": "100% wrong\nin two lines",
        "remedy": "write `x: y`",
    }
    assert (second["severity"], second["column"]) == ("warning", 0)


def test_text_alone_unless_it_is_a_workflow(tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert said(tmp_path, None, capsys) == ""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert said(tmp_path, None, capsys).startswith("::error ")
    assert said(tmp_path, "text", capsys) == ""


@pytest.mark.parametrize("wanted", FORMATS)
def test_warnings_alone_and_nothing(tmp_path: Path, wanted: str, capsys: Capture) -> None:
    with reported(wanted) as found:
        pass
    assert capsys.readouterr().out.strip() == ("[]" if wanted == "json" else "")
    with reported(wanted) as found:
        found.add(findings(tmp_path)[0])
    assert ("no formula" in capsys.readouterr().out) == (wanted != "text")


def test_error_without_a_place(capsys: Capture) -> None:
    with pytest.raises(UsageError), reported("github"):
        raise UsageError("no such key", todo="leave it out")
    assert capsys.readouterr().out == "::error title=graft::no such key; leave it out\n"
    with pytest.raises(UsageError), reported("json"):
        raise UsageError("no such key", todo="leave it out")
    (only,) = json.loads(capsys.readouterr().out)
    assert (only["file"], only["line"], only["text"]) == ("", 0, "no such key")
