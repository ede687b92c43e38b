"""The time that a command takes: until it ends, and of processors."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Stopwatch:
    """What the body of ``measured`` took, in seconds.

    Args:
        wall: from its begin to its end.
        cpu: of the processors, in child processes. Machines differ less in this than in ``wall``.
    """

    wall: float = 0
    cpu: float = 0


@contextmanager
def measured() -> Iterator[Stopwatch]:
    """Measure the body. Child processes count once they have been waited for."""
    result, start, before = Stopwatch(), time.perf_counter(), _of_children()
    yield result
    result.wall, result.cpu = time.perf_counter() - start, _of_children() - before


def _of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
