"""``make test-nightly``: run what CI leaves out, step by step, and write the results into the table of tests/README.md.

nights.yaml has the steps, each a list of commands, whose results are kept: after a run that was stopped, the next call
goes on with those that have not passed with the same sources.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import yaml
from graft.core.console import say
from graft.core.errors import UsageError
from graft.core.files import file_lock, write_atomically
from graft.core.layout import HOME, REPOSITORY
from graft.options import Request

from .kept import OF_OTHERS, Kept, commit
from .markdown import markdown_table, within
from .parts import TestsFailed
from .rows import followed, results_in
from .seconds import README

# The results of commands, a file for each step.
FOLDER = HOME / "night"

# How old a result may be.
_OLDEST = datetime.timedelta(days=7)
_TABLE, _HEAD = "night", ("step", "result", "seconds", "date", "commit")
_NEVER = ("not run", "", "", "")

# What commands count, other than tests.
_COUNTED = re.compile(r"(\d+ (?:mutants: |calls, |commands: ).*)")


@dataclass(frozen=True)
class Step:
    """A step: what it shows, its commands, and the programs that they need besides, which not every machine has."""

    shows: str
    commands: Sequence[str]
    programs: Sequence[str] = ()


@dataclass(frozen=True)
class Ran:
    """How a command ended: how many tests passed, what else it counted, and its error; the date and the commit."""

    seconds: float
    passed: int
    counted: str
    error: str
    date: str
    commit: str


def steps() -> dict[str, Step]:
    """Return the steps, in order."""
    found = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return {name: Step(**fields) for name, fields in found.items()}


def test_nightly(_: Request, given: argparse.Namespace) -> None:
    """Run the chosen steps, or all, whatever fails. ``dates`` checks that each passed within a week."""
    known = steps()
    if unknown := [name for name in given.chosen if name not in {*known, "dates"}]:
        raise UsageError(f"{' '.join(unknown)}: no such step", todo=f"choose among {', '.join(known)}, dates")
    if given.list:
        print("\n".join(f"{name}: {step.shows}{_last(name)}" for name, step in known.items()))
        return
    os.environ.update({OF_OTHERS: "1"} if given.keep else {})  # also for mutants
    failed: list[str] = []
    with file_lock(FOLDER / "lock", "another call runs steps"):
        for name in (name for name in known if name in (given.chosen or known)):
            say(f"\n== {name}: {known[name].shows}{_last(name)}")
            if missing := [each for each in known[name].programs if not shutil.which(each)]:
                say(f"not run: {', '.join(missing)}: not installed")
                continue
            row = run_step(name, known[name], given.again)
            rows = {**rows_of(README.read_text(encoding="utf-8")), name: row}
            write_atomically(README, written(README.read_text(encoding="utf-8"), rows, known))
            say(f"{name}: {row[0]}")
            failed += [f"{name}: {row[0]}"] if row[0].startswith("FAILED") else []
    if "dates" in (given.chosen or ["dates"]):
        failed += faults_of(README.read_text(encoding="utf-8"), known, datetime.date.today())
    if failed:
        raise TestsFailed("\n".join(["tests/README.md:", *dict.fromkeys(failed)]), todo="the next call goes on")


def run_step(name: str, step: Step, again: bool) -> Sequence[str]:
    """Run the commands of a step that have not passed, or ``again`` all. Return its row without its name."""
    kept, results = Kept(FOLDER / f"{name}.json"), []
    if again:
        kept.forget()
    for command in step.commands:
        found = kept.get(command)
        if found is None or found["error"]:
            found = asdict(ran(command))
            kept.put(command, found)
        results.append((command, Ran(**found)))
    return row_of(results)


def ran(command: str) -> Ran:
    """Run a command, and show what it prints."""
    say(f"$ {command}")
    # Of the variables of the make that runs this, commands get those that concern all steps.
    env = {"MAKEFLAGS": "", "MFLAGS": "", "ARGS": "", "PYTHON": os.environ.get("GRAFT_PYTHON", "python3")}
    env |= {"JOBS": os.environ["GRAFT_JOBS"]} if "GRAFT_JOBS" in os.environ else {}
    start, since = time.monotonic(), commit()
    error, printed = followed(["bash", "-c", command], partial(print, end="", flush=True), cwd=REPOSITORY, env=env)
    today = datetime.date.today().isoformat()
    return Ran(time.monotonic() - start, *counts_in(printed), error, today, since)


def counts_in(lines: Sequence[str]) -> tuple[int, str]:
    """Return how many tests passed according to the output of a command, and what else it counted."""
    passed = sum(int(number) for text in results_in(lines) for number in re.findall(r"(\d+) passed", text))
    return passed, next((match[1].strip() for match in map(_COUNTED.match, reversed(lines)) if match), "")


def row_of(results: Sequence[tuple[str, Ran]]) -> tuple[str, ...]:
    """Return the row of a step in the table, without its name."""
    failed = [f"FAILED: `{command}`: {each.error}" for command, each in results if each.error]
    passed = sum(each.passed for _, each in results)
    counted = [f"{passed:,} passed"] if passed else []
    said = [*failed, *counted, *(each.counted for _, each in results if each.counted)] or ["passed"]
    numbers = Counter(each.commit for _, each in results)
    commits = [name if len(numbers) == 1 else f"{name} ({number})" for name, number in numbers.items()]
    text = "; ".join(said).replace(f"{REPOSITORY}/", "").replace(str(Path.home()), "~").replace("|", r"\|")
    seconds, dates = sum(each.seconds for _, each in results), [each.date for _, each in results]
    return " ".join(text.split()), f"{seconds:,.0f}", max(dates), ", ".join(commits)


def rows_of(text: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of the table in a README, by step."""
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in within(text, _TABLE).splitlines()[2:]]
    return {name.strip(): tuple(cell.strip() for cell in cells) for name, *cells in lines}


def written(text: str, rows: Mapping[str, Sequence[str]], known: Iterable[str]) -> str:
    """Return the README with another table, which has a row for each known step."""
    lines = [_HEAD, ["---", "---", "--:", "---", "---"], *([name, *rows.get(name, _NEVER)] for name in known)]
    return within(text, _TABLE, markdown_table(lines))


def faults_of(text: str, known: Collection[str], today: datetime.date) -> list[str]:
    """Return the faults of the table: a step that did not pass, a date that is too old."""
    rows = rows_of(text)
    faults = [f"{name}: there is no such step" for name in rows if name not in known]
    for name in known:
        result, _, date, _ = rows.get(name, _NEVER)
        if not date or result.startswith("FAILED"):
            faults.append(f"{name}: {result}")
        elif (age := today - datetime.date.fromisoformat(date)) > _OLDEST:
            faults.append(f"{name}: it last passed on {date}, {age.days} days ago")
    return faults


def _last(name: str) -> str:
    _, seconds, date, _ = rows_of(README.read_text(encoding="utf-8")).get(name, _NEVER)
    return f"; {seconds} seconds on {date}" if date else "; it has not run yet"
