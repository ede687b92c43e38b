"""What a process whose output is no terminal shows of a build that takes some seconds."""

from __future__ import annotations

import pytest
from graft.session.progress import Line
from helpers import Capture


@pytest.mark.parametrize("after", [0.0, 1000.0])
def test_first_line_has_the_note(after: float, capsys: Capture) -> None:
    line = Line(None, after, " (30 s)")
    for text in ("ops: generate", "ops: compile"):
        line.update(text)
    said = "" if after else "ops: generate (30 s)\n"
    assert capsys.readouterr().err == said and line.is_shown == bool(said)
    line.end("ops: built")
    assert capsys.readouterr().err == "ops: built\n"
