"""``make test-nightly``: what CI leaves out because it takes hours, one step after the other."""

from __future__ import annotations

import datetime
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..common.console import say
from ..common.errors import UsageError
from ..common.layout import REPOSITORY
from .parts import TestsFailed


@dataclass(frozen=True)
class Step:
    """A target of the Makefile.

    Args:
        name: as ``ARGS`` chooses it.
        shows: what it shows, for the table.
        command: what make is told.
    """

    name: str
    shows: str
    command: Sequence[str]


STEPS = (
    Step("sanitizers", "no finding of the sanitizers in the operators' tests", ["test-sanitize"]),
    Step("fuzz", "random calls end in results or errors", ["fuzz", "ARGS=--minutes 20"]),
    Step("slow", "large tensors, PyTorch's own operators, auditwheel", ["test", "ARGS=-- -m slow"]),
    Step("emulated", "CUDA kernels on all parameters", ["test", "ARGS=--parts emulated", "GRAFT_EMULATED_ALL=1"]),
    Step("mutants", "a test fails for each wrong line of tests/mutants", ["test-mutants", "ARGS="]),
    Step("source", "PyTorch's own build compiles the operators", ["check-source", "PIN=2.6.0", "ARGS=--if-possible"]),
    Step("bases", "wheels for CUDA and for another Python", ["test", "ARGS=--parts bases"]),
    Step("peers", "calls and builds beside other ways to add an operator", ["bench-peers"]),
    Step("matrix", "the other releases and Pythons", ["test-matrix"]),
)


def test_nightly(
    chosen: Sequence[str], steps: Sequence[Step] = STEPS, variables: Mapping[str, str] = os.environ
) -> None:
    """Run the steps, all of them even if the first fails, and print a table of them.

    Args:
        chosen: the names of steps; none for all.
        steps: those that there are.
        variables: the environment, in which make has put what it was given.

    Raises:
        TestsFailed: naming the steps that failed.
        UsageError: a step that there is not is chosen.
    """
    names = [step.name for step in steps]
    if unknown := [name for name in chosen if name not in names]:
        raise UsageError(f"{' '.join(unknown)}: no such steps", todo=f"choose among {', '.join(names)}")
    failed, rows = [], []
    for step in steps:
        if chosen and step.name not in chosen:
            continue
        say(f"\n== {step.name}: make {' '.join(step.command)}")
        start = time.monotonic()
        done = subprocess.run(["make", *step.command], cwd=REPOSITORY, env=variables, check=False)
        failed += [step.name] if done.returncode else []
        minutes, date = (time.monotonic() - start) / 60, datetime.date.today().isoformat()
        rows.append(
            f"| {step.name} | {step.shows} | {'FAILED' if done.returncode else 'passed'} | {minutes:.0f} | {date} |"
        )
    print("\n".join(["", "| step | shows | | minutes | date |", "|---|---|---|--:|---|", *rows]))
    if failed:
        raise TestsFailed(f"steps failed: {', '.join(failed)}", todo="run `make test-nightly ARGS=STEP` again")
