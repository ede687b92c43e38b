"""Time both sides of a case alternately, so that their ratio is right even if the machine's speed drifts."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass

import torch
from torch.utils.benchmark import Timer

from .case import Case, Side
from .memory import settle


@dataclass(frozen=True)
class Measured:
    """The result of a case.

    Args:
        operator, peer, name, step, aim, group: see ``Case``.
        threads: the number of threads of both sides.
        ratios: the peer's time divided by ours, in each round.
        seconds: the minimum times, ours and the peer's.
        peak_bytes: the maximum memory that each allocated at once.
    """

    operator: str
    peer: str
    name: str
    step: str
    aim: float
    threads: int
    ratios: list[float]
    seconds: tuple[float, float]
    peak_bytes: tuple[int, int]
    group: str

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)


def measure(case: Case, threads: int, rounds: int, seconds: float) -> Measured:
    """Time ``case`` for about ``seconds`` on each side in each of ``rounds``."""
    torch.set_num_threads(threads)
    sides = case.make()
    if not settle(sides):
        print("some calls get memory from the system, so the ratio includes page faults", file=sys.stderr)
    # One thread's processor time is reliable on a shared machine. With several threads it would exclude waiting.
    clock = time.process_time if threads == 1 else time.perf_counter
    timers = [Timer("side()", timer=clock, globals={"side": side}, num_threads=threads) for side in sides]
    ratios, least = [], [float("inf")] * 2
    for _ in range(rounds):
        times = [timer.blocked_autorange(min_run_time=seconds).median for timer in timers]
        ratios.append(times[1] / times[0])
        least = [min(pair) for pair in zip(least, times, strict=True)]
    peaks = (_peak(sides[0]), _peak(sides[1]))
    return Measured(
        case.operator,
        case.peer,
        case.name,
        case.step,
        case.aim,
        threads,
        ratios,
        (least[0], least[1]),
        peaks,
        case.group,
    )


def _peak(side: Side) -> int:
    """Return the maximum number of bytes that a call allocates at once."""
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        result = side()
    del result
    held = most = 0
    events = profile.profiler.kineto_results.events()
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most
