"""Errors of the operating system are reported with a remedy."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path

import pytest
from graft import cli as command_line
from graft import validation
from graft.core import bugs
from graft.core.errors import BuildError, RefusedError
from graft.core.layout import REPOSITORY
from graft.core.system_errors import refuse_full
from graft.inputs import patches
from helpers import Capture, Patch, beside


@pytest.mark.parametrize(("name", "path", "remedy"), beside(__file__)["remedies"])
def test_what_the_system_refuses(
    name: str, path: str | None, remedy: str, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    code = getattr(errno, name)

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code), *([path.format(tmp_path)] if path else []))

    monkeypatch.setattr(command_line, "_run", fail)
    assert command_line.main(arguments=["undevelop"]) == 3
    where, meant = f"{path}: " if path else "", remedy.replace("BUILD", f"{REPOSITORY}/build")
    expected = rf"error: {where}{os.strerror(code)}\n  next: {meant}\n".replace("{}", str(tmp_path))
    assert re.fullmatch(expected, capsys.readouterr().err)


def test_program_that_finds_no_space(tmp_path: Path) -> None:
    """A compiler or torchgen, whose other errors are about the user's files."""
    refuse_full("a.cpp:1: error: no such name", tmp_path)
    with pytest.raises(RefusedError) as caught:
        refuse_full("a.cpp: fatal error: error writing to a.s: No space left on device", tmp_path / "made")
    assert caught.value.what.startswith("a.cpp: fatal error")
    assert caught.value.todo.startswith(f"free some space on the file system of {tmp_path}, where ")


def test_bug_of_graft_is_called_so(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    """Any exception that is none of ours, with its traceback in a file."""
    monkeypatch.setattr(bugs, "HOME", tmp_path)
    monkeypatch.setattr(validation, "complete", lambda *_: patches.load_series(None))  # type: ignore[arg-type]
    assert command_line.main(arguments=["undevelop"]) == 4
    said = capsys.readouterr().err
    assert re.match(r"error: TypeError: unsupported .*\n  why:  this is a bug of Graft in its stage inputs ", said)
    assert "Traceback" not in said and "(inputs/patches.py:" in said
    (report,) = (tmp_path / "bugs").iterdir()
    assert f"report it as an issue of Graft, with {report}, which has" in said
    text = report.read_text(encoding="utf-8")
    assert "Traceback (most recent call last)" in text and "undevelop" not in text.partition("command: ")[0]
    assert f"Python {sys.version}" in text and "patches.py" in text


@pytest.mark.parametrize(
    ("raised", "named"), [(BuildError("of the pack"), "BuildError"), (KeyError("of the pack"), "KeyError")]
)
def test_error_is_shown_once_behind_its_traceback(
    raised: Exception, named: str, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """What led to it is shown, too, but not if that only has another form of the same text."""

    def fail(*_: object) -> None:
        try:
            try:
                int("x")
            except ValueError as error:
                raise BuildError(str(raised)) from error
        except BuildError:
            raise raised  # noqa: B904

    monkeypatch.setattr(command_line, "_run", fail)
    monkeypatch.setattr(bugs, "HOME", tmp_path)
    command_line.main(arguments=["undevelop", "-v"])
    error = capsys.readouterr().err
    assert error.count("of the pack") == 1
    traceback, _, shown = error.partition("error: ")
    assert "of the pack" in shown
    assert "ValueError: invalid literal" in traceback
    assert f"\n{named}\n" in traceback
    assert traceback.count("Traceback (most recent call last):") == 3
    assert "in fail" in traceback
