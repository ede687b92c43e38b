"""The tool where it is installed: what it brings, where it writes, what it deletes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from asking import asked
from graft import cli, deliveries, verbs
from graft.adopt.builds import their_build
from graft.core import environments, wording
from graft.core.bugs import say_error
from graft.core.errors import BuildError, CommandError, MissingError, UsageError
from graft.core.layout import REPOSITORY, TorchVersion
from graft.inputs.pyproject import read_toml
from graft.options import AS_VARIABLES, OPTIONS, SHARED
from helpers import Capture, Patch, write
from packaging.requirements import Requirement


def test_an_error_of_one_of_several_torches_names_it(monkeypatch: Patch) -> None:
    def run(delivery: deliveries.Delivery, _: object) -> deliveries.Delivered:
        if delivery.layout.pin == "2.14.1":
            raise BuildError("a.cpp:1: error: no member")
        return deliveries.Delivered(Path())

    monkeypatch.setattr(verbs, "run", run)
    monkeypatch.setattr(verbs, "fetch_unpinned", lambda *_: None)
    with pytest.raises(BuildError, match=r"for torch 2\.14\.1:\na\.cpp:1"):
        verbs.thin_files(asked(), "ops", [TorchVersion("2.13.0"), TorchVersion("2.14.1")])
    with pytest.raises(BuildError, match=r"^a\.cpp:1"):
        verbs.thin_files(asked(), "ops", [TorchVersion("2.14.1")])


def test_what_the_tests_of_any_folder_need_is_installed() -> None:
    settings = read_toml(REPOSITORY / "pyproject.toml")
    brought = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {place for place in brought.values() if not place.startswith("graft/repository/")} == set()
    assert all(f"graft/repository/{name}" == place for name, place in brought.items())
    assert all((REPOSITORY / name).exists() for name in brought)


def test_what_the_tool_runs_it_depends_on() -> None:
    """uv's environments have no pip, and pip hides itself in isolated verbs."""
    wanted = read_toml(REPOSITORY / "pyproject.toml")["project"]["dependencies"]
    names = {Requirement(each).name for each in wanted}
    texts = [path.read_text() for path in (REPOSITORY / "scripts/graft").rglob("*.py") if "fork" not in path.parts]
    run = {name for text in texts for name in re.findall(r'"-m", "([a-z_]+)"', text)}
    assert run - {"venv", "graft"} == {"pip"}
    assert run - {"venv", "graft"} <= names


@pytest.fixture
def typed(monkeypatch: Patch) -> None:
    """Messages are spelled as where the tool is installed."""
    for each in OPTIONS.values():
        monkeypatch.setitem(wording.SPELLED, each.word, (each.flag, each.flag))


def run(capsys: Capture, monkeypatch: Patch, *words: str) -> tuple[int, str]:
    """Run the command ``graft``. Return its exit code, and what it prints."""
    monkeypatch.setattr(sys, "argv", ["graft", *words])
    try:
        code = cli.command()
    except SystemExit as end:
        code = int(str(end.code))
    return code, "".join(capsys.readouterr())


@pytest.mark.usefixtures("typed")
def test_bare_command_and_version(capsys: Capture, monkeypatch: Patch) -> None:
    """A screen shows all verbs that are for any folder."""
    code, said = run(capsys, monkeypatch)
    assert code == 0 and said.startswith("usage: graft ") and len(said.splitlines()) <= 24
    for verb in ("build", "develop", "thin-wheel", "check", "new", "test", "pin", "clean"):
        assert re.search(rf"^    {verb}\s", said, re.M)
    assert "check-" not in said  # aliases
    version = read_toml(REPOSITORY / "pyproject.toml")["project"]["version"]
    assert run(capsys, monkeypatch, "--version") == (0, f"graft {version}\n")


@pytest.mark.usefixtures("typed")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-x"], "error: the following arguments are required: VERB\n  next: `graft --help` lists the verbs"),
        (["biuld"], "error: argument VERB: invalid choice: 'biuld'"),
        (["check", "--jbos", "2"], "error: unrecognized arguments: --jbos\n  next: `graft --help` lists the verbs"),
        (["check", "--wheel", "/no.whl"], "error: --wheel /no.whl: no such file\n  next: set --wheel to a wheel file"),
    ],
)
def test_mistakes_are_told_in_the_words_of_the_command(
    words: list[str], said: str, capsys: Capture, monkeypatch: Patch
) -> None:
    code, shown = run(capsys, monkeypatch, *words)
    assert code and shown.startswith(said)
    assert re.findall(r"\bmake\b|ARGS|\b(?:NATIVE|WHEEL|JOBS)\b", shown) == []


def test_help_of_each_verb_names_its_options(typed: None, capsys: Capture, monkeypatch: Patch) -> None:
    words = "|".join(each.word for each in OPTIONS.values() if each.word not in SHARED)
    for verb in ["", "test", *(verb.name for verb in cli.VERBS)]:
        _, said = run(capsys, monkeypatch, *verb.split(), "--help")
        assert re.findall(rf"\bmake [a-z]|ARGS|\b(?:{words})\b", said) == [], verb


@pytest.mark.usefixtures("typed")
@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            "set JOBS, or use `make pin TORCH=2.1` or make check PIN=2.1",
            "set --jobs, or use `graft pin --torch 2.1` or graft check --pin 2.1",
        ),
        ("WHEEL=a: no such file; `make` lists them", "--wheel a: no such file; `graft --help` lists them"),
        ("`make patch-and-build` after `make new-op`", "`graft build` after `graft new`"),
        ("use `make check ARGS='--source --syntax'`", "use `graft check --source --syntax`"),
        ("use `make adopt PACKAGE=torchao NATIVE=~/ops`", "use `graft adopt torchao --native ~/ops`"),
        # The user's own words.
        ("a.cpp:1: 'SOURCE' was not declared; see /my/WHEEL", "a.cpp:1: 'SOURCE' was not declared; see /my/WHEEL"),
    ],
)
def test_one_function_spells_messages(written: str, expected: str) -> None:
    assert wording.as_typed(written) == expected
    with wording.spelling(AS_VARIABLES):
        as_variables = expected.replace("set --jobs", "set GRAFT_JOBS").replace("--wheel a", "GRAFT_WHEEL=a")
        assert wording.as_typed(written) == as_variables


@pytest.mark.usefixtures("typed")
def test_output_of_other_programs_is_not_spelled(monkeypatch: Patch) -> None:
    monkeypatch.setattr(wording, "_QUOTED", set())
    theirs = "OSError: CUDA_HOME environment variable is not set"
    said = f"setup.py: {wording.quoted(theirs)}\n  next: set CUDA_HOME"
    assert wording.as_typed(said) == f"setup.py: {theirs}\n  next: set --cuda-home"
    command = CommandError("x", cause=wording.quoted("first\n  use CXX=g++ (a+b)\nuse CXX=g++"))
    assert wording.as_typed(f"{command}") == f"{command}"


def test_a_setup_that_fails_is_quoted(typed: None, tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path, {"setup.py": "raise OSError('CUDA_HOME environment variable is not set')\n"})
    with pytest.raises(UsageError) as error:
        their_build(tmp_path, sys.executable)
    say_error(error.value)
    assert "OSError: CUDA_HOME environment variable is not set" in capsys.readouterr().err


def test_error_before_the_builder_s_environment_is_spelled_too(
    typed: None, capsys: Capture, monkeypatch: Patch
) -> None:
    def refuse() -> None:
        raise MissingError("not found: g++", todo="set CXX to a g++; set PYTHON to another Python")

    monkeypatch.setattr(environments, "require_all", refuse)
    for name in list(os.environ):  # which it changes
        monkeypatch.setenv(name, os.environ[name])
    assert environments.enter("graft", ["build"]) == MissingError.exit_code
    said = capsys.readouterr().err
    assert said == "error: not found: g++\n  next: set --cxx to a g++; set --python to another Python\n"
