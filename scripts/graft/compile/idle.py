"""What a build leaves for the time until the next one, while its user reads or writes: headers to precompile."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..core.process import end_with_parent

Work = Callable[[], object]

_later: list[Work] | None = None


def may_wait() -> bool:
    """Return whether work can be left: in ``postponing``, and not in CI, where nobody edits."""
    return _later is not None and not os.environ.get("CI")


def leave(work: Work) -> None:
    """Leave work for later."""
    assert _later is not None
    _later.append(work)


@contextmanager
def postponing() -> Iterator[list[Work]]:
    """Let builds in the body leave work. Yield the list that they add it to."""
    global _later
    before, _later = _later, []
    try:
        yield _later
    finally:
        _later = before


def do(works: Sequence[Work]) -> None:
    """Do what was left, in the background of everything else. The process is for nothing else afterwards."""
    os.nice(19)
    for work in works:
        work()


@contextmanager
def doing(works: Sequence[Work]) -> Iterator[None]:
    """Do what was left in another process, which ends with the body."""
    child = os.fork() if works else 0
    if works and not child:
        try:
            end_with_parent()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            do(works)
        finally:
            os._exit(0)
    try:
        yield
    finally:
        if child:
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
