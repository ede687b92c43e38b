"""``make test-matrix``: which rows there are, when one is tested again, what is stored and shown. What the commands
of a row would write is written here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from graft.core.errors import GraftError
from graft.core.layout import REPOSITORY
from graft.core.pythons import Python
from helpers import program

from tests.kit import kept, matrix, rows
from tests.kit.matrix import RowResult, contents
from tests.kit.rows import error_of


def python_of(release: str) -> Python:
    tag = f"cp{release.replace('.', '')}"
    return Python(Path(f"/python{release}"), (*map(int, release.split(".")), 1), tag, tag)


def write_wheel(path: Path, files: Mapping[str, str | bytes], cuda: str = "None") -> Path:
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr("torch/version.py", f"cuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n")
        archive.writestr(f"{path.stem}.dist-info/METADATA", path.name * 1000)
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@dataclass
class Rows:
    """Runs rows.

    Args:
        folder: contains the table, the wheels and the base.
        stamp: ends the versions of wheels.
        sources: those of the checkout.
        unbuilt, untested: the pins whose build or tests fail.
        calls: the commands, with verb and pin before each.
    """

    folder: Path
    set_variable: Callable[[str, str], None]
    stamp: str = "1"
    sources: str = "one"
    unbuilt: Sequence[str] = ()
    untested: Sequence[str] = ()
    calls: list[tuple[str, list[str]]] = field(default_factory=list)

    def run(self, *arguments: str, pins: str = "2.14.1", pythons: str = "3.11") -> list[RowResult]:
        self.calls.clear()
        self.set_variable("PIN", pins)
        self.set_variable("PYTHONS", pythons)
        return [matrix.test_row(row, arguments)[0] for row in matrix.rows().values()]

    def follow(self, command: Sequence[str | Path], read: Callable[[str], object], **_: object) -> int:
        """Stands in for the builder and for pytest."""
        words = list(map(str, command))
        verb, pin = next(word for word in words if word in ("build", "test")), words[words.index("--pin") + 1]
        self.calls.append((f"{verb} {pin}", words))
        read(f"{verb} begins\n")
        if verb == "build":
            if pin in self.unbuilt:
                read("error: no such compiler\n")
                return 9
            wheel = self.folder / f"torch-{pin}+graft.{self.stamp}.whl"
            write_wheel(wheel, {"torch/a": "a", "torch/b": os.urandom(20_000)})
            Path(words[words.index("--report") + 1]).write_text(json.dumps({"path": str(wheel)}))
            return 0
        is_wrong = pin in self.untested
        read(f"test the wheel: {'1 failed, ' if is_wrong else ''}7 passed, 2 skipped, 1.2 s\n")
        if is_wrong:
            read("error: tests failed: the wheel\n")
        return int(is_wrong)


@pytest.fixture
def faked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    faked = Rows(tmp_path, monkeypatch.setenv)
    base = write_wheel(tmp_path / "base.whl", {"torch/a": "a"})
    monkeypatch.setattr(rows, "follow", faked.follow)
    monkeypatch.setattr(rows, "find_pythons", lambda words: list(map(python_of, words)))
    monkeypatch.setattr(matrix, "base_wheel_of", lambda layout: base)
    monkeypatch.setattr(matrix, "free_bytes", lambda _: 100 << 30)
    monkeypatch.setattr(matrix, "TABLE", tmp_path / "matrix.md")
    monkeypatch.setattr(kept, "sources", lambda: faked.sources)
    for name in ("NATIVE", "OUT"):
        monkeypatch.setenv(name, str(tmp_path))
    return faked


# -- which rows there are


def test_rows_by_default(faked: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIN", "PINS", "PYTHONS"):
        monkeypatch.delenv(name, raising=False)
    expected = [(pin, "3.11") for pin in ("2.11.0", "2.12.1", "2.13.0", "2.13.0+cpu", "2.14.1", "2.15.0")]
    expected += [("2.14.1", python) for python in ("3.10", "3.12", "3.13")]
    assert sorted(matrix.rows()) == sorted(f"torch {pin} on Python {python}" for pin, python in expected)


@pytest.mark.parametrize(
    ("pins", "pythons", "message"),
    [
        ("2.14.1 2.13.0+cpu", "3.11 3.12", "no pin has a wheel of torch 2.13.0+cpu on Python 3.12"),
        ("9.9.9 8.8.8", "3.11", "patches/8.8.8/pin.yaml: no such pin"),
        ("2.6.0", "3.11", "this pin has no wheel"),
        ("2.14.1", "'3.11", "PYTHONS='3.11: No closing quotation"),
    ],
)
def test_rows_that_there_are_not_are_said_before_anything_is_built(
    faked: Rows, pins: str, pythons: str, message: str
) -> None:
    with pytest.raises(GraftError) as caught:
        faked.run(pins=pins, pythons=pythons)
    assert message in str(caught.value)
    assert faked.calls == []


def test_pins_without_a_wheel_for_the_python_are_left_out(faked: Rows, capsys: pytest.CaptureFixture[str]) -> None:
    found = {result.pin for result in faked.run(pins="", pythons="3.10")}
    assert found >= {"2.11.0", "2.14.1"} and not found & {"2.13.0+cpu", "2.15.0", "2.6.0"}
    assert "left out, since no pin has a wheel: torch 2.13.0+cpu on Python 3.10" in capsys.readouterr().err


def test_sessions_of_nox_fail_with_their_rows(tmp_path: Path) -> None:
    """With a Python that builds nothing, or on a machine without the space for a row."""
    python = program(tmp_path / "python", '[ "$1" = -c ] && exec echo 3 11 1 cpython flags; exit 9')
    variables = {"PIN": "2.14.1 2.15.0", "PYTHONS": str(python), "GRAFT_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "nox", "-s", "matrix"]
    done = subprocess.run(
        command, cwd=REPOSITORY, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    for pin in ("2.14.1", "2.15.0"):
        assert f"* matrix(torch {pin} on Python 3.11): aborted" in done.stderr
    assert (tmp_path / "home/test-matrix.md").read_text().count(" | failed ") == 2


# -- the results of rows


def test_result_of_a_row_and_its_line_in_the_table(faked: Rows) -> None:
    _, row, _ = faked.run(pins="2.13.0+cpu 2.14.1 2.15.0")
    assert row.wheel == "torch-2.14.1+graft.1.whl" and row.added > 20_000
    assert row.tests == ["the wheel: 7 passed, 2 skipped, 1.2 s"]
    assert Path(row.log).read_text() == f"build begins\ntest begins\ntest {row.tests[0]}\n"
    text = matrix.TABLE.read_text()
    assert f"{row.machine}; {row.date}:\n\n| PyTorch " in text
    assert text.index("| 2.13.0+cpu | 3.11") < text.index("| 2.14.1 | 3.11") < text.index("| 2.15.0 | 3.11")
    assert text.count(f" | {row.tests[0]} |\n") == 3


def test_commands_of_a_row(faked: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("JOBS", "6"), ("AT_ONCE", "2")):
        monkeypatch.setenv(name, value)
    faked.run()
    assert all(words[words.index("--jobs") + 1] == "3" for _, words in faked.calls)
    assert all({str(faked.folder), "2.14.1", "/python3.11"} < {*words} for _, words in faked.calls)
    tested = faked.calls[1][1]
    assert "--discard" in tested and "--" not in tested
    assert tested[tested.index("--parts") :][:3] == ["--parts", "operators", "wheel"]
    monkeypatch.setenv("KEEP", "1")
    faked.run("--", "-k", "one or two")
    tested = faked.calls[1][1]
    assert "--discard" not in tested and tested[-3:] == ["--", "-k", "one or two"]
    assert matrix.TABLE.read_text().endswith(" |\n\n2.14.1 on Python 3.11: only `pytest -k 'one or two'`\n")


def test_row_that_passed_is_not_tested_again(faked: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    def verbs(*arguments: str) -> list[str]:
        faked.run(*arguments, pins="2.14.1 2.15.0")
        return [what for what, _ in faked.calls]

    both = ["build 2.14.1", "test 2.14.1", "build 2.15.0", "test 2.15.0"]
    faked.untested = ["2.15.0"]
    assert verbs() == both
    faked.untested = []
    assert verbs() == ["build 2.14.1", "build 2.15.0", "test 2.15.0"]
    assert verbs() == ["build 2.14.1", "build 2.15.0"]
    assert verbs("--again") == both
    faked.sources = "two"  # the wheel is the same, the tests are not
    assert verbs() == both
    faked.stamp = "2"
    assert verbs() == both
    assert verbs("--", "-k", "x") == both
    monkeypatch.setenv("NATIVE", str(REPOSITORY / "patches"))
    assert verbs("--", "-k", "x") == both


def test_rows_that_fail(faked: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    faked.unbuilt, faked.untested = ["2.12.1"], ["2.14.1"]
    results = faked.run(pins="2.12.1 2.14.1 2.15.0")
    assert [result.error for result in results] == ["no such compiler", "tests failed: the wheel", ""]
    assert results[1].tests == ["the wheel: 1 failed, 7 passed, 2 skipped, 1.2 s"]
    assert "2.12.1 on Python 3.11: no such compiler\n" in matrix.TABLE.read_text()
    monkeypatch.setattr(matrix, "free_bytes", lambda _: 10 << 30)
    (result,) = faked.run()
    assert result.error == "10 GiB are free, but a row may need 15"


def test_error_of_a_command_is_its_last_one() -> None:
    assert error_of(0, ["error: not counted\n"]) == ""
    assert error_of(6, ["a.cpp:1: error: x\n", "error: first\n", "error: 2 files\n", "  next: y\n"]) == "2 files"
    assert error_of(1, ["Traceback\n", "ValueError: x\n", "\n"]) == "ValueError: x"
    assert error_of(-9, []) == "exit code -9"


def test_contents_of_a_wheel_beside_its_base(tmp_path: Path) -> None:
    same = {"torch/same": b"s" * 5000, "torch/other": b"o" * 5000}
    base = write_wheel(tmp_path / "base.whl", same, "'13.0'")
    files = {**same, "torch/other": os.urandom(5000), "torch/lib/libtorch_operators_cuda.so": b"kernels"}
    new = write_wheel(tmp_path / "new.whl", files, "'13.0'")
    found = contents(new, base)
    assert (found["size"], found["cuda"]) == (new.stat().st_size, "13.0")
    with ZipFile(new) as archive:
        assert found["added"] == sum(archive.getinfo(name).compress_size for name in files.keys() - {"torch/same"})
    assert contents(write_wheel(tmp_path / "cpu.whl", same), base)["cuda"] == ""
