"""The tables of seconds in tests/README.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit import seconds
from tests.kit.testing import PARTS

TEXT = """
<!-- generated: seconds -->
| after an edit in | its tests | command | the whole part |
|---|---|---|--:|
| one | `a` | `make test ARGS="--parts wheel -- -k 'a or b'"` | 1 |
| two | `b` | `make test ARGS="--parts wheel grammar -- -k b"` | |
| other | `c` | `make test NATIVE=c ARGS="--parts wheel -- -k b"` | 7 |
| unknown | | `make test ARGS="--parts wheel bases -- -k b"` | 9 |
<!-- end -->
<!-- generated: costs -->
<!-- end -->
"""


def test_tables_are_those_of_the_measurements() -> None:
    """After a new measurement: `PYTHONPATH=scripts python3 -m tests.kit.seconds`."""
    text = seconds.README.read_text(encoding="utf-8")
    parts = seconds.measured()
    assert seconds.with_tables(text, parts) == text
    assert parts.keys() <= {*PARTS}


def test_measurements_become_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that was not measured again keeps its own."""
    for name in ("README.md", "seconds.json", "costs"):
        monkeypatch.setattr(
            seconds, {"seconds.json": "_FILE"}.get(name, name.partition(".")[0].upper()), tmp_path / name
        )
    grammar = {"how": "on A, cold", "prepare": 100.4, "wall": 40, "cpu": 0}
    (tmp_path / "README.md").write_text(TEXT)
    (tmp_path / "seconds.json").write_text(json.dumps({"grammar": grammar, "wheel": grammar}))
    monkeypatch.setattr(seconds, "commit", lambda: "1234abcd")
    seconds.keep("wheel", {"prepare": 0.2, "wall": 250.3, "cpu": 1009.4}, 2)
    seconds.write("warm cache")
    text = (tmp_path / "README.md").read_text()
    assert [line.rpartition("` | ")[2] for line in text.splitlines()[4:8]] == ["250 |", "390 |", "|", "|"]
    assert "| `wheel` | 250 |  | 1,009 |\n" in text and "| `grammar` | 40 | 100 |  |\n" in text
    assert "- `grammar`: on A, cold\n- `wheel`: JOBS=2 on " in text and ", 1234abcd, warm cache\n" in text
    assert seconds.measured()["wheel"]["cpu"] == 1009 and seconds.measured()["grammar"] == grammar
