"""``make develop`` and ``make undevelop``: add operators to an installed torch while you write them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from .base.installed import Environment, base_of, find_environment, look
from .core.console import Steps, say
from .core.errors import GraftError
from .core.layout import DEBUG, DEVELOP, REPOSITORY, Layout
from .core.lock import build_lock, file_lock
from .deliver.develop import add_tree, developed, remove_trees
from .inputs.cuda_toolkit import request
from .inputs.pin import known_pins
from .inputs.snapshot import Snapshot, take_snapshot

# Seconds between two checks of the files.
_PAUSE = 0.2


def develop(layout: Layout, python: str, *, jobs: int) -> dict[str, float]:
    """Add the operators to the torch that is installed in an environment. Return the seconds that each step took.

    Args:
        layout: the native folders.
        python: the Python of the environment.
        jobs: the maximum number of compilers to run at once.

    Raises:
        GraftError: the build failed; torch is unchanged.
    """
    environment = find_environment(python)
    layout = replace(installed(layout, environment), kind=DEBUG if os.environ.get("GRAFT_DEBUG") == "1" else DEVELOP)
    snapshot = take_snapshot(layout)
    stamp = f"{snapshot.stamp} {request()}"
    lock = file_lock(layout.pin_build / "lock", f"another process is adding operators to the torch of {python}")
    with build_lock(layout.work), lock, snapshot.translated():
        there = developed(environment)
        if there.get("stamp") == stamp and there.get("base") == environment.key:
            say(f"nothing changed: {environment.site}/torch has the operators of {layout.title}")
            return {}
        from .compile.link import products  # importing these takes as long as everything before them
        from .compose.files import compose
        from .deliver.wheel import with_graft
        from .stages import Graft

        steps = Steps(total=5)
        base = base_of(environment, layout.base)
        made = Graft(layout, snapshot, base, jobs, steps).make(products)
        with steps.step("compose"):
            note = {"delivery": "develop", "base": base.version, "hash": made.hash_, "folders": sources(snapshot)}
            files = compose(base.tree, made, with_graft(base.version, made.hash_), note)
        with steps.step("add to the installed torch"):
            tree = add_tree(environment, base, files, stamp)
    say(f"{environment.site}/torch now has the operators of {layout.title}, from {tree}")
    say(f"  {sum(steps.seconds.values()):.1f} s in all; `{python} -m torch._graft` lists them")
    return steps.seconds


def watch(layout: Layout, python: str, *, jobs: int) -> NoReturn:
    """Run ``develop`` after every save, until interrupted. Report errors and wait for the next save."""
    seen: dict[Path, int] = {}
    while True:
        found = _times(layout.natives)
        if found == seen:
            time.sleep(_PAUSE)
            continue
        # An editor, or git, may write several files one after another.
        while (later := _times(layout.natives)) != found:
            found = later
            time.sleep(_PAUSE)
        seen = found
        try:
            develop(layout, python, jobs=jobs)
            say("ready; waiting for the next save (Ctrl-C to end)")
        except GraftError as error:
            say(f"error: {error}\nwaiting for the next save; torch is unchanged (Ctrl-C to end)")


def _times(folders: Iterable[Path]) -> dict[Path, int]:
    """Return the modification time of each file."""
    found = {}
    for path in (path for folder in folders for path in folder.rglob("*")):
        with suppress(OSError):  # it is being replaced
            found[path] = path.stat().st_mtime_ns
    return found


def undevelop(python: str) -> None:
    """Restore the environment's original torch.

    Raises:
        GraftError: a file cannot be deleted.
    """
    packages, site, _ = look(python)
    torch = f"{site}/torch is the installed one again" if site else f"{packages} no longer has torch"
    say(torch if remove_trees(packages) else f"nothing to do: make develop has not added anything to {packages}")


def installed(layout: Layout, environment: Environment) -> Layout:
    """Return the folders of a build for an installed torch. Warn if its version was never tested."""
    version = environment.version
    known = known_pins(REPOSITORY / "patches")
    release = version.partition("+")[0]
    if release not in (name.partition("+")[0] for name in known):
        say(f"torch {version} is untested; tested are {', '.join(known)}")
        release = max(known, key=lambda name: [int(part) for part in name.partition("+")[0].split(".")])
        release = release.partition("+")[0]
    return replace(layout, pin=version, installed=environment.key, release=release)


def sources(snapshot: Snapshot) -> Mapping[str, Mapping[str, str]]:
    """Return the hash of each file of the native folders, by folder."""
    found: dict[str, dict[str, str]] = {str(origin): {} for origin in snapshot.origins}
    for origin, files in zip(snapshot.origins, snapshot.natives_content(), strict=True):
        found[str(origin)] = {str(name): hashlib.sha256(content).hexdigest() for name, content in files.items()}
    for name in snapshot.unread:
        _, number, *rest = Path(name).parts
        path = snapshot.origins[int(number)] / Path(*rest)
        found[str(snapshot.origins[int(number)])][str(Path(*rest))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
