"""The process that builds a watched folder after each save. The user's process has no thread for it: a worker that it
forks would lack that, and Python warns.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import time
from pathlib import Path

from ..core.bugs import expected
from ..core.console import heard_by
from ..core.files import write_atomically
from ..inputs.saves import times, wait_for_save
from .building import Wanted, build

# Seconds between two looks at whether the user's process is there.
_PAUSE = 0.5


def main() -> None:
    """Build again after each save, until the user's process has ended. Each result replaces the file of the answers.

    The arguments are that process and this file, which says at first what is wanted.
    """
    parent, answers = int(sys.argv[1]), Path(sys.argv[2])
    what: Wanted = pickle.loads(answers.read_bytes())
    seen = times([what.folder])
    threading.Thread(target=_end_after, args=(parent, answers), daemon=True).start()
    with heard_by(lambda level, text: None):
        _answer(answers, what)  # for a save since the user's process has built
        while True:
            seen = wait_for_save([what.folder], seen)
            _answer(answers, what)


def _answer(answers: Path, what: Wanted) -> None:
    """Build, and write the result, unless the folder was saved meanwhile: then the next build has it."""
    before = times([what.folder])
    try:
        result = {"built": str(build(what))}
    except Exception as error:
        result = {"error": str(expected(error))}
    if times([what.folder]) == before:
        write_atomically(answers, json.dumps(result))


def _end_after(parent: int, answers: Path) -> None:
    while os.getppid() == parent:
        time.sleep(_PAUSE)
    answers.unlink(missing_ok=True)
    os._exit(0)
