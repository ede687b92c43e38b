"""What is told behind tests: the TODOs of a folder of `make new-op`, and where an operator's code is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from graft.core.layout import REPOSITORY
from graft.new.skeleton import todos
from helpers import Capture, Patch, beside, write

from tests.kit.places import places_of
from tests.kit.todos import NO_CODE, ending_with_todos

KERNEL = f"""Tensor f(const Tensor& self) {{
  // TODO: compute the result here.
  TORCH_CHECK_NOT_IMPLEMENTED(false, "f(): {NO_CODE} in F.cpp");
}}
"""


@pytest.fixture
def native(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder whose operator has tests, but neither a kernel nor a docstring."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    files = {
        "F.cpp": KERNEL,
        "docs/f.rst": "Adds.\n\nArgs:\n    input (Tensor): TODO.\n",
        "notes.txt": "TODO: not ours\n",
    }
    test = "def test_f():\n    assert 'a long traceback' == ''\n" * 3
    return write(tmp_path, {**files, "pytest.ini": "[pytest]\naddopts = -ra\n", "test_f.py": test})


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


def test_tests_of_an_empty_kernel_end_with_what_is_left(native: Path, capfd: Capture) -> None:
    with pytest.raises(RuntimeError), ending_with_todos([native]):
        said = run_pytest(native)
        assert "1 failed" in said and "a long traceback" not in said and "FAILED" not in said
        raise RuntimeError("as failing tests do")
    lines = "".join(capfd.readouterr()).splitlines()
    assert lines[1:3] == ["3 places say TODO:", f"  {native}/F.cpp:2, 3"]
    assert "--tb=short" in lines[-1]


def test_tests_of_a_written_kernel_say_what_fails(native: Path, capfd: Capture) -> None:
    (native / "F.cpp").write_text("// written\n")
    with ending_with_todos([native]):
        said = run_pytest(native)
        assert "a long traceback" in said and "FAILED" in said
    left = ["1 place says TODO:", f"  {native}/docs/f.rst:4"]
    assert "".join(capfd.readouterr()).splitlines()[1:] == left
    (native / "docs/f.rst").unlink()
    with ending_with_todos([native, native / "nowhere"]):
        pass
    assert "".join(capfd.readouterr()) == ""


@pytest.mark.parametrize("options", ["", "-k f"])
def test_options_of_the_user_are_kept(native: Path, monkeypatch: Patch, options: str) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", options)
    with ending_with_todos([native]):
        assert os.environ["PYTEST_ADDOPTS"].endswith(options) and "--tb=no" in os.environ["PYTEST_ADDOPTS"]
    assert os.environ["PYTEST_ADDOPTS"] == options


FILES = beside(__file__)["files"]


@pytest.mark.parametrize(
    ("operator", "places"),
    [
        (
            "soft_clip",
            [
                "derivatives.yaml:3: self: grad * 2",
                "derivatives.yaml:4: result: auto_element_wise",
                "SoftClip.cpp:3: TORCH_IMPL_FUNC(soft_clip_out)(const Tensor& self, const Tensor& out)",
            ],
        ),
        # Without dispatch, it is its own kernel.
        ("soft_clipped", ["derivatives.yaml:7: self: grad", "SoftClip.cpp:6: Tensor soft_clipped("]),
        ("nobody", []),
    ],
)
def test_formulas_come_first_and_then_kernels(tmp_path: Path, operator: str, places: list[str]) -> None:
    write(tmp_path, FILES)
    assert [place.removeprefix(f"{tmp_path}/") for place in places_of(operator, [tmp_path])] == places


def test_each_shipped_operator_has_a_place() -> None:
    names = ("gdh", "twice_plus", "mul_constant", "affine", "depthwise_conv2d", "roi_pool", "fft_rfft2_abs")
    for name in (*names, "correlate2d"):
        assert any(".cpp:" in place for place in places_of(name, [REPOSITORY / "native"])), name
