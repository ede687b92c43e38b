"""The tool where it is installed: what it brings, where it writes, what it deletes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from asking import asked
from graft import build as builds
from graft import cli, deliveries
from graft.core.errors import CompileError
from graft.core.layout import REPOSITORY, TorchVersion
from graft.project.settings import tomllib
from helpers import write
from packaging.requirements import Requirement


def test_clean_deletes_builds_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``GRAFT_HOME`` may be a folder with other things."""
    monkeypatch.setattr(builds, "HOME", tmp_path)
    write(tmp_path, {"2.13.0+cpu/cp311/base/a": "ab", "environments/b": "c", "notes.txt": "", "2.13/mine": ""})
    (tmp_path / "symbols").symlink_to(tmp_path / "2.13")
    builds.clean(asked())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.13", "notes.txt", "symbols"]
    assert (tmp_path / "2.13/mine").is_file()
    assert f"deleted 0.0 GB in {tmp_path}" in capsys.readouterr().err


def test_an_error_of_one_of_several_torches_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(delivery: deliveries.Delivery, _: object) -> deliveries.Result:
        if delivery.layout.pin == "2.14.1":
            raise CompileError("a.cpp:1: error: no member")
        return deliveries.Result(Path())

    monkeypatch.setattr(builds, "run", run)
    monkeypatch.setattr(builds, "fetch_unpinned", lambda *_: None)
    with pytest.raises(CompileError, match=r"for torch 2\.14\.1:\na\.cpp:1"):
        builds.thin_files(asked(), "ops", [TorchVersion("2.13.0"), TorchVersion("2.14.1")])
    with pytest.raises(CompileError, match=r"^a\.cpp:1"):
        builds.thin_files(asked(), "ops", [TorchVersion("2.14.1")])


def test_what_the_tests_of_any_folder_need_is_installed() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    brought = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {place for place in brought.values() if not place.startswith("graft/repository/")} == set()
    assert all(f"graft/repository/{name}" == place for name, place in brought.items())
    assert all((REPOSITORY / name).exists() for name in brought)


def test_what_the_tool_runs_it_depends_on() -> None:
    """uv's environments have no pip, and pip hides itself in isolated builds."""
    wanted = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {Requirement(each).name for each in wanted}
    texts = [path.read_text() for path in (REPOSITORY / "scripts/graft").rglob("*.py") if "fork" not in path.parts]
    run = {name for text in texts for name in re.findall(r'"-m", "([a-z_]+)"', text)}
    assert run - {"venv", "graft"} == {"pip"}
    assert run - {"venv", "graft"} <= names


def test_the_command_has_every_verb_of_a_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["graft", "--help"])
    with pytest.raises(SystemExit):
        cli.command()
    said = capsys.readouterr().out
    for verb in ("build", "develop", "thin-wheel", "check", "new", "test", "wheels", "pin", "clean"):
        assert f"\n    {verb} " in said
    assert len(said.splitlines()) <= 24
