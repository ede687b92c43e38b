"""The process that builds a watched folder after each save. A thread of the user's process would be missing in forked
workers, and Python warns about a fork with threads.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from ..compile.idle import do, postponing
from ..core.bugs import expected
from ..core.console import heard_by
from ..core.files import write_atomically
from ..core.process import end_with_parent
from ..inputs.watch import PAUSE, settled, states
from .building import Wanted, build


def main() -> None:
    """Build after each save, until the user's process has ended. A save cancels a build that still runs.

    The command line has the id of the user's process and the file of answers. At first that file holds a pickled
    ``Wanted`` and the states of its files; each result replaces the content.
    """
    parent, answers = int(sys.argv[1]), Path(sys.argv[2])
    what, seen = pickle.loads(answers.read_bytes())
    look = partial(states, [what.folder])
    if (found := look()) != seen:
        seen = settled(look, seen, found)
    builds = _start(answers, what)  # a file may have been saved since the user's process built
    while os.getppid() == parent:
        time.sleep(PAUSE)
        if builds and os.waitpid(builds, os.WNOHANG)[0]:
            builds = 0
        if (found := look()) != seen:
            _end(builds)
            seen = settled(look, seen, found)
            builds = _start(answers, what)
    _end(builds)
    answers.unlink(missing_ok=True)


def _start(answers: Path, what: Wanted) -> int:
    """Start a process that builds and writes the result to ``answers``. Return its id."""
    if child := os.fork():
        with suppress(OSError):  # the child has set it itself, and has ended
            os.setpgid(child, child)
        return child
    try:
        os.setpgid(0, 0)
        end_with_parent()
        with heard_by(lambda level, text: None), postponing() as later:
            try:
                result = {"built": str(build(what))}
            except Exception as error:
                result = {"error": str(expected(error))}
        write_atomically(answers, json.dumps(result))
        do(later)
    finally:
        os._exit(0)


def _end(builds: int) -> None:
    """End a build with its compilers, if it runs."""
    if builds:
        os.killpg(builds, signal.SIGTERM)  # ninja ends the compilers, which have groups of their own
        os.waitpid(builds, 0)
