"""``python -m tests.kit.fuzz``: start a worker, monitor it, restart it after a crash, report findings."""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

# The time limit of a call in seconds. Calls with huge sizes can take forever, so they have a short limit.
LONGEST = 120
LONGEST_BEYOND = 20
# Seconds until a worker makes its first call.
START = 600
# With sanitizers operator new does not throw if there is no memory, but ends the process.
NO_MEMORY = ("AddressSanitizer: allocator is out of memory", "AddressSanitizer: requested allocation size")
# Address space in MB, in addition to what is used before the calls. Sanitizers reserve more than any limit and have
# their own.
MEMORY = 4096


@dataclass
class Tally:
    """The outcomes of the calls."""

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def note(self, operator: str, kind: str) -> None:
        self.kinds[operator, kind] += 1

    def find(self, seed: int, call: str, text: str) -> None:
        self.findings.append(f"{call}\n  {text}\n  again: make fuzz ARGS='--seed {seed}'")
        print(f"\nFINDING {self.findings[-1]}", flush=True)

    def table(self) -> str:
        """Return a table with a row for each operator and a column for each kind of outcome."""
        names = sorted({name for name, _ in self.kinds})
        kinds = sorted({kind for _, kind in self.kinds})
        width = max((len(name) for name in names), default=0)
        lines = ["".ljust(width) + "".join(f"{kind:>12}" for kind in kinds)]
        lines += [name.ljust(width) + "".join(f"{self.kinds[name, kind]:12}" for kind in kinds) for name in names]
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1, help="minutes to run (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="repeat the call of a finding")
    parser.add_argument("--first", type=int, help="the seed of the first call (default: any)")
    parser.add_argument("--sanitized", action="store_true", help="the wheel was built with sanitizers")
    options = parser.parse_args()
    first = options.seed if options.seed is not None else options.first
    first = random.randrange(1 << 40) if first is None else first
    tally = Tally()
    end = time.monotonic() + 60 * options.minutes
    print(f"first seed {first}", flush=True)
    seed = first
    while time.monotonic() < end:
        seed = follow(seed, end, tally, options)
        if options.seed is not None:
            break
    print(f"\n{tally.table()}\n{sum(tally.kinds.values())} calls, {len(tally.findings)} findings")
    return 1 if tally.findings else 0


@contextmanager
def worker(first: int, sanitized: bool) -> Iterator[tuple[subprocess.Popen[str], queue.Queue[Any], IO[str]]]:
    """A worker, its output line by line (None at its end), and the file of its stderr."""
    command = [sys.executable, "-m", "tests.kit.fuzz.worker", str(first)]
    command += [] if sanitized else ["--memory", str(MEMORY)]
    lines: queue.Queue[Any] = queue.Queue()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            # Warnings would hide the message at the end of a crashed process.
            env={**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"},
        ) as process,
    ):

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(json.loads(line))
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        try:
            yield process, lines, errors
        finally:
            process.kill()


def follow(first: int, end: float, tally: Tally, options: argparse.Namespace) -> int:
    """Let a worker make calls until the time is over or the worker ends. Return the next seed.

    Raises:
        RuntimeError: the worker ends before its first call.
    """
    call: tuple[int, str, bool] | None = None
    with worker(first, options.sanitized) as (process, lines, errors):
        while True:
            try:
                longest = START if call is None else LONGEST_BEYOND if call[2] else LONGEST
                said = lines.get(timeout=longest)
            except queue.Empty:
                said = ["slow"]
            if said is None or said == ["slow"]:
                if call is None:
                    process.kill()
                    raise RuntimeError(f"the worker did not start:\n{stderr_of(errors)}")
                give_up(call, said is None, process, errors, tally)
                return call[0] + 1
            if said[0] == "begin":
                call = (said[1], said[2], False)
            elif said[0] == "large":
                assert call is not None
                call = (call[0], call[1], True)
            elif said[0] == "end":
                assert call is not None
                tally.note(said[2], said[3])
                if said[3] == "finding":
                    tally.find(call[0], call[1], said[4])
                if options.seed is not None:
                    print(f"{call[1]}\n  {said[3]}: {said[4]}")
                if options.seed is not None or time.monotonic() > end:
                    return call[0] + 1


def give_up(
    call: tuple[int, str, bool], ended: bool, process: subprocess.Popen[str], errors: IO[str], tally: Tally
) -> None:
    """Record a call that did not return."""
    seed, text, is_large = call
    operator = text.partition("(")[0]
    code = process.wait() if ended else 0
    told = stderr_of(errors)
    if ended and is_large and any(part in told for part in NO_MEMORY):
        tally.note(operator, "no memory")
    elif ended:
        tally.note(operator, "finding")
        tally.find(seed, text, f"the process ended with {code}:\n{told}")
    elif is_large:
        tally.note(operator, "given up")
    else:
        tally.note(operator, "finding")
        tally.find(seed, text, f"no result after {LONGEST} seconds")


def stderr_of(errors: IO[str]) -> str:
    """Return what a worker printed on stderr, shortened."""
    errors.seek(0)
    lines = [line for line in errors if "failed to allocate" not in line]  # not attributed to a call
    return "".join(lines)[:6000]


if __name__ == "__main__":
    sys.exit(main())
