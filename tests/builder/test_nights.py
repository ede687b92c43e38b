"""``make test-nightly``: which steps run, what goes on after a stop, and the table of results."""

from __future__ import annotations

import datetime
import os
import re
import signal
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from asking import asked
from graft.core.errors import UsageError
from graft.core.layout import REPOSITORY
from helpers import Capture, Patch

from tests.kit import commands, kept, nights
from tests.kit.kept import Kept
from tests.kit.nights import Ran, Step, counts_in, faults_of, row_of, rows_of, steps, written
from tests.kit.parts import TestsFailed as Failed  # otherwise pytest would collect it
from tests.shared.snippets import Snippet

TODAY = datetime.date.today().isoformat()
TABLE = """before
<!-- generated: night -->
| step | result | seconds | date | commit |
|---|---|--:|---|---|
| fuzz | FAILED: `make fuzz`: a \\| b | 9 | 2026-11-20 | 1234abcd |
| slow | 9 passed | 1,234 | 2026-11-11 | 1234abcd |
| arm | not run | | | |
| other | passed | 3 | 2026-11-20 | 1234abcd |
<!-- end -->
after
"""


@pytest.fixture
def night(tmp_path: Path, monkeypatch: Patch) -> Iterator[Path]:
    """A folder with a README, in which the steps write. Interrupts count, also in a job in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    for step, commands_ in {
        "first": ['echo "$ARGS-$MAKEFLAGS-$JOBS" >>ran', "echo 'test it: 1200 passed, 3.1 s'; false"],
        "second": ["test -e go || { kill -INT $PPID; exit 1; }; echo second >>ran", "echo third >>ran"],
        "third": ["true"],
    }.items():
        known[step] = Step(f"the {step}", commands_, ["no-such-program"] if step == "third" else [])
    monkeypatch.setattr(nights, "steps", lambda: known)
    monkeypatch.setattr(nights, "REPOSITORY", tmp_path)
    monkeypatch.setattr(nights, "FOLDER", tmp_path / "night")
    monkeypatch.setattr(nights, "README", tmp_path / "README.md")
    monkeypatch.setattr(nights, "commit", lambda: "1234abcd")
    monkeypatch.setattr(kept, "sources", lambda: (tmp_path / "sources").read_text())
    for name, value in {"ARGS": "first", "MAKEFLAGS": " -- JOBS=3", "GRAFT_JOBS": "3"}.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "README.md").write_text(TABLE)
    (tmp_path / "sources").write_text("one")
    yield tmp_path
    signal.signal(signal.SIGINT, before)


known: dict[str, Step] = {}


def call(*chosen: str, again: bool = False, keep: bool = False) -> None:
    nights.test_nightly(asked(), Namespace(chosen=list(chosen), again=again, keep=keep, list=False))


def ran(folder: Path) -> list[str]:
    path = folder / "ran"
    lines = path.read_text().split() if path.exists() else []
    path.unlink(missing_ok=True)
    return lines


# A command is not waited for once it was told to end.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_steps_go_on_after_a_failure_and_after_a_stop(night: Path, monkeypatch: Patch, capfd: Capture) -> None:
    with pytest.raises(KeyboardInterrupt):
        call()
    assert ran(night) == ["--3"]
    assert "== first: the first; it has not run yet\n" in capfd.readouterr().err
    row = ("FAILED: `echo 'test it: 1200 passed, 3.1 s'; false`: test it: 1200 passed, 3.1 s; 1,200 passed", TODAY)
    rows = rows_of((night / "README.md").read_text())
    assert {name: (cells[0], *cells[2:]) for name, cells in rows.items()} == {
        "first": (*row, "1234abcd"),
        **dict.fromkeys(("second", "third"), ("not run", "", "")),
    }
    (night / "go").touch()
    with pytest.raises(Failed, match=r"^tests/README.md:\nfirst: FAILED: .*\nthird: not run\n"):
        call()
    assert ran(night) == ["second", "third"]  # what passed does not run again
    said = capfd.readouterr().err
    assert (
        re.search(rf"== first: the first; \d+ seconds on {TODAY}\n", said)
        and "not run: no-such-program: not installed" in said
    )
    call("second")
    assert ran(night) == []
    call("second", again=True)
    assert ran(night) == ["second", "third"]
    (night / "sources").write_text("two")
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", {**os.environ})
        call("second", keep=True)
    assert ran(night) == []
    call("second")
    assert ran(night) == ["second", "third"]
    with pytest.raises(UsageError, match="fourth: no such step"):
        call("second", "fourth")
    with pytest.raises(Failed, match=r"\nthird: not run\n"):
        call("dates")
    assert ran(night) == []


def test_steps_run_what_there_is() -> None:
    """Commands that bash understands, targets of the Makefile, and files of the repository."""
    targets = set(re.findall(r"^([a-z-]+): ##", (REPOSITORY / "Makefile").read_text(), re.M))
    for command in (each for step in steps().values() for each in step.commands):
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0, command
        assert set(re.findall(r"\bmake ([\w-]+)", command)) <= targets, command
        files = re.findall(r"(?<![\w/])(?:tests|scripts)/[\w./]+", command)
        assert all((REPOSITORY / name).is_file() for name in files) and (
            files or "make " in command or ".ci/" in command
        )
    table = written((REPOSITORY / "tests/README.md").read_text(), {}, steps())
    assert list(rows_of(table)) == list(steps())


def test_rows_of_the_table() -> None:
    """Of several commits, each with the number of its commands."""
    first = Ran(1200.4, 3000, "", "", "2026-11-20", "1234abcd")
    second = Ran(60.2, 89, "9 calls, 0 findings", "", "2026-11-21", "5678abcd")
    failed = Ran(1, 0, "", f"{REPOSITORY}/a: b | c", "2026-11-22", "5678abcd")
    assert row_of([("a", Ran(2, 0, "", "", "2026-11-20", "12"))]) == ("passed", "2", "2026-11-20", "12")
    both = "2026-11-21", "1234abcd (1), 5678abcd (1)"
    assert row_of([("a", first), ("b", second)]) == ("3,089 passed; 9 calls, 0 findings", "1,261", *both)
    cells = row_of([("a", first), ("make b", failed)])
    assert cells[0] == r"FAILED: `make b`: a: b \| c; 3,000 passed"
    text = written(TABLE, {**rows_of(TABLE), "arm": cells}, ["arm", "slow", "new"])
    assert rows_of(text) == {"arm": cells, "slow": rows_of(TABLE)["slow"], "new": ("not run", "", "", "")}
    assert text.startswith("before\n<!--") and text.endswith("\n<!-- end -->\nafter\n")


def test_step_that_passed_long_ago_is_named() -> None:
    assert faults_of(TABLE, ["fuzz", "slow", "arm", "mutants"], datetime.date(2026, 11, 26)) == [
        "other: there is no such step",
        r"fuzz: FAILED: `make fuzz`: a \| b",
        "slow: it last passed on 2026-11-11, 15 days ago",
        "arm: not run",
        "mutants: not run",
    ]
    names = ["fuzz", "slow", "arm", "other"]
    assert "other" not in " ".join(faults_of(TABLE, names, datetime.date(2026, 11, 27)))


@pytest.mark.parametrize(
    ("lines", "counts"),
    [
        # `make test`: a line for each part; of one that fails pytest's output follows, with the same counts.
        (
            [
                "test a: 45%",
                "test a: 1 failed, 8 passed, 3.1 s",
                "test b: 7 passed, 1 s",
                "= 1 failed, 8 passed in 2s =",
            ],
            15,
        ),
        (["== tests of a", "...", "3 passed, 2 deselected in 0.31s", "4 passed in 1.00s"], 7),
        (["| 7 passed, 2 skipped |"], 0),
    ],
)
def test_tests_are_counted(lines: list[str], counts: int) -> None:
    assert counts_in([f"{line}\n" for line in lines]) == (counts, "")


def test_what_else_is_counted() -> None:
    said = ["12 mutants: 11 killed", "", "", "8465 calls, 0 findings", "63 commands: 63 ended as they should"]
    assert [counts_in([f"{line}\n", "x\n"])[1] for line in said] == said


def test_results_are_of_the_sources(tmp_path: Path, monkeypatch: Patch) -> None:
    """What git would commit, whether it is committed or not, but for the file that the night writes."""
    repository = tmp_path / "repository"
    monkeypatch.setattr(kept, "REPOSITORY", repository)
    (repository / "tests").mkdir(parents=True)
    for words in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a", "--allow-empty"]):
        kept.run(["git", *words], cwd=repository)
    found = {}
    for name, text in (("a", "1"), ("tests/README.md", "2"), ("a", "2"), ("b", "1"), (".gitignore", "build")):
        (repository / name).write_text(text)
        found[f"{name} {text}"] = kept.sources()
        results = Kept(tmp_path / "results.json")
        results.put(name, {"text": text})
    assert found.pop("tests/README.md 2") == found["a 1"] and len(set(found.values())) == 4
    assert results.get(".gitignore") == {"text": "build"} and results.get("b") is None
    monkeypatch.setenv(kept.OF_OTHERS, "1")
    assert results.get("b") == {"text": "1"} and len(results.all()) == 4
    assert kept.commit().endswith(" and changes")


class Reader:
    """Notes what is typed and written; a command that contains a word of ``wrong`` fails."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.wrong = "b"

    def write(self, snippet: Snippet) -> None:
        self.did += [f"write {snippet.place}"] if snippet.file else []

    def type(self, place: str, command: str) -> commands.Typed:
        self.did.append(command)
        if self.wrong == "stop":
            raise KeyboardInterrupt
        return commands.Typed(place, command, 1.0, 1, [], is_right=command != self.wrong)


def test_commands_that_ended_well_are_not_typed_again(tmp_path: Path, monkeypatch: Patch) -> None:
    """Files that were written before them stay as they left them; what was prepared is not prepared again."""
    monkeypatch.setattr(kept, "sources", lambda: "one")
    monkeypatch.setattr(commands, "GIVEN", {"x": lambda reader: reader.did.append("prepare")})
    shown = [Snippet(f"x/a.md:{number}", "", "", file="f" if number % 2 else "") for number in range(4)]
    chosen = [(shown[0], "a"), (shown[2], "b"), (shown[2], "c"), (shown[2], "d")]
    results, reader = Kept(tmp_path / "kept.json"), Reader()
    for wrong, did in {
        "b": ["prepare", "a", "write x/a.md:1", "b", "c", "d", "write x/a.md:3"],
        "stop": ["b"],
        "": ["b", "write x/a.md:3"],
    }.items():
        reader.did, reader.wrong = [], wrong
        try:
            ended = commands._type(reader, shown, chosen, results)
            assert [each.command for each in ended if not each.is_right] == [wrong] * bool(wrong)
        except KeyboardInterrupt:
            assert wrong == "stop"
        assert reader.did == did
    assert asdict(ended[0]) == results.get("x/a.md:0: a")
