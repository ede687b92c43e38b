"""Watch folders: build them in another process after each save, and load the results on ``swap``."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.console import WARNING, say
from ..core.files import write_atomically
from ..core.layout import HOME, PACKAGES
from ..core.process import environment, python_path
from ..inputs.watch import states
from . import loads
from .building import Wanted
from .call_guards import outside, trace

_FOLDER = HOME / "watches"


@dataclass
class Watch:
    """A folder that is watched.

    Args:
        what: what is built, of the folder.
        process: the id of the process that builds.
        answers: the file to which it writes the result of its last build.
        seen: the content of that file when it was last used.
    """

    what: Wanted
    process: int
    answers: Path
    seen: bytes


def start(what: Wanted) -> None:
    """Start the process that builds the folder of a load after each save."""
    answers = _FOLDER / f"{os.getpid()}-{what.name}"
    wanted = pickle.dumps((what, states([what.folder])))
    write_atomically(answers, wanted)
    program = f"import sys; sys.path.insert(0, {str(PACKAGES)!r}); from graft.session.watcher import main; main()"
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    # Not subprocess.Popen: Python warns if its process still runs at exit, and in forked workers.
    process = os.posix_spawn(
        sys.executable,
        [sys.executable, "-c", program, str(os.getpid()), str(answers)],
        environment({"PYTHONPATH": python_path(PACKAGES)}),
        file_actions=nowhere,
        setpgroup=0,  # Ctrl-C in a terminal must not end it
    )
    loads.state().watches[what.name] = Watch(what, process, answers, wanted)


def stop(name: str) -> None:
    """Stop watching the folder of a load, if it is watched."""
    if watch := loads.state().watches.pop(name, None):
        with suppress(OSError):
            os.kill(watch.process, signal.SIGTERM)
            os.waitpid(watch.process, 0)
        watch.answers.unlink(missing_ok=True)


def renew() -> None:
    """Start the processes again that do not know the operators which other loads have now."""
    for name, watch in [*loads.state().watches.items()]:
        if watch.what.declared != (now := loads.declared(name)):
            stop(name)
            start(replace(watch.what, declared=now))


def swap(but: str = "") -> list[str]:
    """Load the new builds of watched folders, except for the load ``but``. Return the names of the changed loads."""
    now = loads.state()
    if not now.watches or trace() or _is_stock():
        return []
    with outside("graft.swap"), now.lock:
        return [name for name, watch in now.watches.items() if name != but and _swapped(name, watch)]


def _swapped(name: str, watch: Watch) -> bool:
    """Load the last build of a watched folder, if it is new. Return whether the load changed."""
    with suppress(OSError):
        answer = watch.answers.read_bytes()
        if answer == watch.seen:
            return False
        watch.seen = answer
        result: dict[str, Any] = json.loads(answer)
        before = loads.state().loads[name].built
        if "error" in result:
            first, *others = result["error"].splitlines()
            more = "; `graft.load` shows all of it" if others else ""
            say(f"{name}: the old code stays, since the edited does not build: {first}{more}", WARNING)
            return False
        loads.use(name, Path(result["built"]), watch.what.folder)
        return loads.state().loads[name].built != before
    return False


def _is_stock() -> bool:
    return bool(getattr(sys.modules.get("torch._graft"), "_uses", 0))
