"""``make check-incremental``: check that objects skipped by incremental builds equal those of a whole build."""

from __future__ import annotations

import json
import random
import shlex
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..base.elf import ElfFile
from ..core.console import Steps, say
from ..core.errors import SourceError, UsageError
from ..core.layout import Layout
from ..core.lock import build_lock
from ..core.process import run
from .build import load_input, prepare
from .configure import Configured
from .incremental import left_as_they_were
from .tree import count


def check_incremental(layout: Layout, *, source: str | None, jobs: int, objects: int) -> None:
    """Recompile random objects that incremental builds skipped, and compare them byte for byte.

    Args:
        layout: the pin and the native folders of the build.
        source: a checkout, or a place to clone from; None for the pin's.
        jobs: part of the settings that the tree was configured with.
        objects: the number of objects; all if there are fewer.

    Raises:
        UsageError: no incremental build skipped anything.
        SourceError: an object differs, so a header did not only gain declarations.
    """
    given = load_input(layout)
    with build_lock(given.cache.folder), given.snapshot.translated():
        steps = Steps()
        configured = prepare(given, source, jobs, steps)
        with steps.step("compile again") as line, tempfile.TemporaryDirectory(dir=configured.tree / "build") as folder:
            done, otherwise = 0, []
            for name in left_alone(configured, shuffled_objects(configured)):
                if not compare(name, Path(folder) / "again.o", configured):
                    otherwise.append(name.rpartition("/")[2])
                done += 1
                line.update(f"{done}/{objects} {name.rpartition('/')[2]}")
                if done == objects:
                    break
            line.note = f"{count(done, 'object')}, the same bytes"
            line.note += f" but for what the compiler inlines in {', '.join(otherwise)}" if otherwise else ""
    if not done:
        raise UsageError(
            f"{configured.tree}: no incremental build skipped an object",
            todo="add an operator and build with BUILD=source first",
        )
    say(f"{configured.tree}: {count(done, 'object')} skipped by incremental builds are up to date")


def shuffled_objects(configured: Configured) -> list[str]:
    """Return the objects of the build by name in build.ninja, in random order."""
    entries = json.loads((configured.tree / "build/compile_commands.json").read_text(encoding="utf-8"))
    names = [str(entry["output"]) for entry in entries]
    random.shuffle(names)
    return names


def left_alone(configured: Configured, names: Iterable[str]) -> Iterator[str]:
    """Yield those of the objects ``names`` that are older than the text of a header they include.

    The headers' modification times were restored; the status change time shows when the text was written.
    """
    tree = configured.tree
    written = {name: (tree / name).stat().st_ctime for name in left_as_they_were(tree) if (tree / name).is_file()}
    for name in names:
        path = tree / "build" / name
        times = [written[header] for header in written.keys() & included(configured, name)]
        if times and path.is_file() and path.stat().st_mtime < max(times):
            yield name


def included(configured: Configured, name: str) -> set[str]:
    """Return the files that an object was compiled from, by name in the tree, as recorded by ninja."""
    build = configured.tree / "build"
    lines = ask_ninja(configured, "deps", name)
    paths = ((build / line.strip()).resolve() for line in lines if line.startswith("    "))
    return {path.relative_to(configured.tree).as_posix() for path in paths if path.is_relative_to(configured.tree)}


def compare(name: str, again: Path, configured: Configured) -> bool:
    """Compile an object into ``again`` with the build's own command, including ccache, which changes paths in it.

    Returns:
        Return whether the bytes are equal. In a large source, an added declaration may change which functions GCC
        inlines or clones. Such an object has other code, but defines and needs the same functions. Since this does not
        prove the rest, the object's name is shown to the user.

    Raises:
        SourceError: it differs in another way.
    """
    words = shlex.split(ask_ninja(configured, "commands", "-s", name)[-1])
    for option, path in (("-o", again), ("-MF", again.with_suffix(".d"))):
        if option in words:
            words[words.index(option) + 1] = str(path)
    run(words, cwd=configured.tree / "build", env=configured.variables)
    there = configured.tree / "build" / name
    if again.read_bytes() == there.read_bytes():
        return True
    if described(again) != described(there):
        raise SourceError(
            f"{there}: the incremental build skipped it, but recompiling gives a different object",
            cause="a new declaration changes the meaning of old code, for example a better matching overload",
            todo="build with INCREMENTAL=0",
        )
    return False


def described(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return what an object file defines, without inline functions, and what it needs."""
    elf = ElfFile(path)
    return elf.defined(weak=False), elf.undefined()


def ask_ninja(configured: Configured, tool: str, *arguments: str) -> list[str]:
    """Return the output lines of one of ninja's tools."""
    command: list[str | Path] = ["ninja", "-C", configured.tree / "build", "-t", tool, *arguments]
    return run(command, env=configured.variables).stdout.splitlines()
