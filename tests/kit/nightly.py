"""``make test-nightly``: what CI leaves out because it takes hours, one step after another."""

from __future__ import annotations

import datetime
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graft.core.console import say
from graft.core.errors import UsageError
from graft.core.layout import REPOSITORY

from .parts import TestsFailed


@dataclass(frozen=True)
class Step:
    """A target of the Makefile.

    Args:
        name: its name in ``ARGS``.
        shows: what it tests, for the table.
        command: the arguments of make.
    """

    name: str
    shows: str
    command: Sequence[str]


STEPS = (
    Step("sanitizers", "the sanitizers find nothing in the operators' tests", ["test-sanitize"]),
    Step("fuzz", "random calls return results or raise errors", ["fuzz", "ARGS=--minutes 20"]),
    Step("slow", "large tensors, PyTorch's own operators, auditwheel", ["test", "ARGS=-- -m slow"]),
    Step("emulated", "CUDA kernels on all parameters", ["test", "ARGS=--parts emulated", "GRAFT_EMULATED_ALL=1"]),
    Step("mutants", "a test fails for each wrong line of tests/mutants", ["test-mutants"]),
    Step("source", "PyTorch's own build compiles the operators", ["check-source", "ARGS=--if-possible"]),
    Step("bases", "wheels for CUDA and for another Python", ["test", "ARGS=--parts bases"]),
    Step("peers", "calls and builds compared with other ways to add an operator", ["bench-peers"]),
    Step("matrix", "the other releases and Pythons", ["test-matrix"]),
)


def test_nightly(
    chosen: Sequence[str], steps: Sequence[Step] = STEPS, variables: Mapping[str, str] = os.environ
) -> None:
    """Run the steps, even if an earlier one fails, and print a table.

    Args:
        chosen: the names of steps; empty for all.
        steps: the available steps.
        variables: environment variables, including those set by make.

    Raises:
        TestsFailed: lists the steps that failed.
        UsageError: there is no step of a chosen name.
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
        # make passes on the variables of its command line. These ARGS are the names of steps.
        done = subprocess.run(["make", "ARGS=", *step.command], cwd=REPOSITORY, env=variables, check=False)
        failed += [step.name] if done.returncode else []
        minutes, date = (time.monotonic() - start) / 60, datetime.date.today().isoformat()
        rows.append(
            f"| {step.name} | {step.shows} | {'FAILED' if done.returncode else 'passed'} | {minutes:.0f} | {date} |"
        )
    print("\n".join(["", "| step | shows | | minutes | date |", "|---|---|---|--:|---|", *rows]))
    if failed:
        raise TestsFailed(f"steps failed: {', '.join(failed)}", todo="run `make test-nightly ARGS=STEP` again")
