"""The remaining TODOs of a folder created by `make new-op` are listed after its tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from graft.new.skeleton import todos

from tests.kit.todos import NO_CODE, ending_with_todos

KERNEL = f"""Tensor f(const Tensor& self) {{
  // TODO: compute the result here.
  TORCH_CHECK_NOT_IMPLEMENTED(false, "f(): {NO_CODE} in F.cpp");
}}
"""


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose operator has tests, but neither a kernel nor a docstring."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    (tmp_path / "docs").mkdir()
    (tmp_path / "F.cpp").write_text(KERNEL)
    (tmp_path / "docs/f.rst").write_text("Adds.\n\nArgs:\n    input (Tensor): TODO.\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra\n")
    (tmp_path / "notes.txt").write_text("TODO: not the builder's\n")
    (tmp_path / "test_f.py").write_text("def test_f():\n    assert 'a long traceback' == ''\n" * 3)
    return tmp_path


def run_pytest(native: Path) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(native)]
    return subprocess.run(command, cwd=native, capture_output=True, text=True, check=False).stdout


def test_places_are_named_by_file_and_line(native: Path) -> None:
    assert [todo.removeprefix(f"{native}/") for todo in todos(native)] == [
        "F.cpp:2: TODO: compute the result here.",
        f"F.cpp:3: {NO_CODE} in F.cpp",
        "docs/f.rst:4: TODO.",
    ]
    assert todos(native, [Path("docs/f.rst")]) == [f"{native}/docs/f.rst:4: TODO."]


def test_tests_of_an_empty_kernel_end_with_what_is_left(native: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), ending_with_todos([native]):
        said = run_pytest(native)
        assert "1 failed" in said and "a long traceback" not in said and "FAILED" not in said
        raise RuntimeError("as failing tests do")
    assert "PYTEST_ADDOPTS" not in os.environ
    lines = "".join(capfd.readouterr()).splitlines()
    assert lines[1:3] == ["3 places are left to complete:", f"{native}/F.cpp:2: TODO: compute the result here."]
    assert "--tb=short" in lines[-1]


def test_tests_of_a_written_kernel_say_what_fails(native: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (native / "F.cpp").write_text("// written\n")
    with ending_with_todos([native]):
        said = run_pytest(native)
        assert "a long traceback" in said and "FAILED" in said
    assert "".join(capfd.readouterr()).splitlines()[1:] == [
        "1 place is left to complete:",
        f"{native}/docs/f.rst:4: TODO.",
    ]


def test_nothing_is_said_where_nothing_is_left(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ending_with_todos([tmp_path, tmp_path / "nowhere"]):
        pass
    assert "".join(capfd.readouterr()) == ""


def test_options_of_the_user_are_kept(native: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "-k f")
    with ending_with_todos([native]):
        assert os.environ["PYTEST_ADDOPTS"].endswith(" -k f")
    assert os.environ["PYTEST_ADDOPTS"] == "-k f"
