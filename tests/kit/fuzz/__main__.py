"""``python -m tests.kit.fuzz``: make random calls in another process, since a call may crash. Report findings.

That process (``--folder``) writes each call to disk before it makes it, so the last one written is the finding. If the
outcome of a call is invalid, hypothesis looks for a smaller one like it, and makes it last.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import itertools
import json
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import torch
from graft.core.console import table
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from ..made_up import limit_memory
from .calls import calls
from .judge import CallOutcome, is_large, judge
from .rounding import InvalidOutcome
from .valid import Call, overload_of, valid_calls

# The time limits in seconds: until the first call, of a call, and of one with huge sizes, which may take forever.
START, LONGEST, LONGEST_BEYOND = 600, 120, 20
TOO_LONG = "Timeout ("  # faulthandler's message
# With sanitizers operator new does not throw if there is no memory, but ends the process.
NO_MEMORY = ("AddressSanitizer: allocator is out of memory", "AddressSanitizer: requested allocation size")
# Address space in MB, in addition to what is used before the calls. Sanitizers reserve more, and have their own limit.
MEMORY = 4096
# The calls of a seed. hypothesis remembers them, so they are few.
BATCH = settings(
    max_examples=500,
    phases=[Phase.generate, Phase.shrink],
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    verbosity=Verbosity.quiet,
)
# Calls with findings. Each later run makes them first, until `make clean`.
KEPT = Path("build/fuzz")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz ARGS=", description="Call the operators at random.")
    parser.add_argument("--minutes", type=float, default=1, help="minutes to run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 40), help="the seed of the calls")
    parser.add_argument("--again", type=Path, metavar="FILE", help="make the call of a finding again")
    parser.add_argument("--sanitized", action="store_true", help="the wheel was built with sanitizers")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    if options.folder:
        return make_calls(options, end)
    tally: Counter[tuple[str, str]] = Counter()
    for kept in [] if options.again else sorted(KEPT.glob("*.pickle")):
        print(f"again, since it was a finding: {kept}", flush=True)
        watch_calls(argparse.Namespace(**{**vars(options), "again": kept}), end, tally)
    while True:
        print(f"seed {options.seed}", flush=True)
        options.seed = 1 + watch_calls(options, end, tally)
        if options.again or time.monotonic() > end:
            break
    names, kinds = (sorted({key[at] for key in tally}) for at in (0, 1))
    rows = [(name, *(str(tally[name, kind]) for kind in kinds)) for name in names]
    findings = sum(tally[name, "finding"] for name in names)
    print(f"\n{table([('', *kinds), *rows])}\n{sum(tally.values())} calls, {findings} findings")
    return 1 if findings else 0


def watch_calls(options: argparse.Namespace, end: float, tally: Counter[tuple[str, str]]) -> int:
    """Make calls in another process until it ends. Count and report outcomes. Return the last seed.

    Raises:
        RuntimeError: it ended before its first call.
    """
    minutes = (end - time.monotonic()) / 60
    # Warnings would hide the message at the end of a crashed process.
    env = {**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"}
    with tempfile.TemporaryDirectory() as name, (Path(name) / "stderr").open("w+", encoding="utf-8") as errors:
        command = [sys.executable, "-m", "tests.kit.fuzz", "--folder", name, f"--minutes={minutes}"]
        command += [f"--seed={options.seed}", *(["--sanitized"] if options.sanitized else [])]
        command += ["--again", str(options.again)] if options.again else []
        done = subprocess.run(command, stderr=errors, env=env, check=False)
        errors.seek(0)
        # Lines that do not belong to the call are left out.
        said = "".join(line for line in errors if not re.search("failed to allocate|/hypothesis/", line))[:6000]
        last = Path(name) / "call.json"
        if not last.is_file() and not done.returncode:
            return int(options.seed)  # the time was over
        if not last.is_file():
            raise RuntimeError(f"no call was made:\n{said}")
        call = json.loads(last.read_text(encoding="utf-8"))
        outcomes = (Path(name) / "outcomes").read_text(encoding="utf-8").splitlines()
        tally.update((operator, kind) for operator, kind in (line.split() for line in outcomes))
        if done.returncode:
            kind = kind_of_end(said, call["is_large"])
            tally[call["operator"], kind] += 1
            if kind == "finding":
                kept = KEPT / f"{hashlib.sha256(call['text'].encode()).hexdigest()[:12]}.pickle"
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes((Path(name) / "call.pickle").read_bytes())
                said = said if done.returncode == 1 else f"the process ended with {done.returncode}:\n{said}"
                print(f"\nFINDING {call['text']}\n  {said}\n  again: make fuzz ARGS='--again {kept}'", flush=True)
        return int(call["seed"])


def kind_of_end(said: str, is_large: bool) -> str:
    """Return the outcome of a call that ended the process with the message ``said``."""
    if is_large and any(part in said for part in NO_MEMORY):
        return "no-memory"
    return "given-up" if is_large and TOO_LONG in said else "finding"


def make_calls(options: argparse.Namespace, end: float) -> int:
    """Make calls until the time ``end``, or until the outcome of one is invalid. Return the exit code."""
    warnings.simplefilter("ignore")
    faulthandler.dump_traceback_later(START, exit=True)
    (options.folder / "outcomes").touch()
    valid = {} if options.again else valid_calls()
    if not options.sanitized:
        limit_memory(MEMORY << 20)
    try:
        if options.again:
            print(make(options.folder, options.seed, *pickle.loads(options.again.read_bytes())), flush=True)
            return 0
        for number in itertools.count(options.seed):
            make_batch(options.folder, number, end, calls(valid))
    except (InvalidOutcome, Flaky) as finding:
        print(f"{type(finding).__name__}: {finding}", file=sys.stderr)
    return 1


def make_batch(folder: Path, number: int, end: float, drawn: st.SearchStrategy[tuple[str, Call]]) -> None:
    """Make the calls of the seed ``number``.

    Raises:
        InvalidOutcome: the outcome of the last one is invalid.
    """
    found: list[InvalidOutcome] = []

    @seed(number)
    @BATCH
    @given(drawn, st.integers(0, 3))
    def batch(call: tuple[str, Call], variant: int) -> None:
        if time.monotonic() > end and not found:
            os._exit(0)
        try:
            make(folder, number, *call, variant)
        except InvalidOutcome as finding:
            found.append(finding)
            raise

    batch()


def make(folder: Path, number: int, name: str, call: Call, variant: int) -> CallOutcome:
    """Write a call to ``folder``, then make it. ``variant`` determines random numbers and the number of threads."""
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    torch.manual_seed(variant)
    torch.set_num_threads(1 + variant % 2)
    text = f"{name}({', '.join(f'{key}={value}' for key, value in call.items())})"
    about = {"seed": number, "operator": name, "text": text, "is_large": False}
    (folder / "call.pickle").write_bytes(pickle.dumps((name, call, variant)))
    (folder / "call.json").write_text(json.dumps(about), encoding="utf-8")
    overload = overload_of(name)
    if large := is_large(overload, call):
        faulthandler.dump_traceback_later(LONGEST_BEYOND, exit=True)
        (folder / "call.json").write_text(json.dumps({**about, "is_large": True}), encoding="utf-8")
    outcome = judge(overload, call, large)
    with (folder / "outcomes").open("a", encoding="utf-8") as file:
        file.write(f"{name} {outcome.kind}\n")
    return outcome


if __name__ == "__main__":
    sys.exit(main())
