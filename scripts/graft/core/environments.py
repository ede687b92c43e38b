"""Folders that are costly to create, such as virtual environments. They are made in place: a folder is complete once
its stamp is written, and does not change while in use.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from .console import StepLine, say
from .errors import ToolchainError
from .layout import REPOSITORY
from .lock import take
from .process import follow, run

ENVIRONMENTS = REPOSITORY / "build/environments"

# The file that describes the content of such a folder. It is written last, and deleted first.
_STAMP = "holds.json"

# Lines of pip's that report no error.
_PROGRESS = ("Collecting ", "  Downloading ", "  Using cached ", "Requirement already ", "Looking in ", "Processing ")


@dataclass(frozen=True)
class Layer:
    """A part of a folder's content.

    Args:
        content: identifies the content; the folder is updated when it changes.
        add: writes the layer into the folder, also over an older version of it.
    """

    content: str
    add: Callable[[Path], None]


@contextmanager
def held(folder: Path, layers: Sequence[Layer]) -> Iterator[int]:
    """Bring ``folder`` up to date and keep it unchanged while the body runs. Yields the descriptor of the lock.

    If only later layers than the first changed, they are added; otherwise the folder is created again. Processes that
    need the same content share the lock; a process that needs other content waits for them.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a+", encoding="utf-8") as file:
        busy, is_said = f"another process uses {folder}", False
        while True:
            take(file, busy, fcntl.LOCK_SH)
            if _content(folder) == [layer.content for layer in layers]:
                break
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                # Retry instead of waiting for every holder to finish: another process may already have created this
                # content.
                fcntl.flock(file, fcntl.LOCK_UN)
                if not is_said:
                    say(f"{busy}; waiting for it to end")
                    is_said = True
                time.sleep(0.1)
                continue
            _bring_up_to_date(folder, layers)
        yield file.fileno()


def delete(folder: Path) -> None:
    """Delete such a folder, or what is left of it. If this is interrupted, the rest does not look complete."""
    (folder / _STAMP).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _bring_up_to_date(folder: Path, layers: Sequence[Layer]) -> None:
    wanted, there = [layer.content for layer in layers], _content(folder)
    if there[:1] != wanted[:1] or len(there) != len(wanted):
        delete(folder)
        folder.mkdir()
        there = []
    (folder / _STAMP).unlink(missing_ok=True)
    for layer, old in zip_longest(layers, there):
        if layer.content != old:
            layer.add(folder)
    (folder / _STAMP).write_text(json.dumps(wanted), encoding="utf-8")


def _content(folder: Path) -> list[str]:
    try:
        return list(json.loads((folder / _STAMP).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []


def name_of_python() -> str:
    """Return a name for this Python. It is the same in all virtual environments created from it."""
    itself = f"{sys.base_prefix} {sys.abiflags}"
    return f"{sys.implementation.cache_tag}-{hashlib.sha256(itself.encode()).hexdigest()[:8]}"


def make_virtual_environment(folder: Path) -> None:
    """Create a virtual environment of this Python, with pip.

    Raises:
        CommandError: venv's message.
    """
    run([sys.executable, "-m", "venv", folder])


def install(environment: Path, *arguments: str | Path, what: str) -> None:
    """Install packages with the pip of a virtual environment, and show what is downloaded. Bytecode is compiled at the
    first import.

    Args:
        environment: the virtual environment.
        arguments: for ``pip install``.
        what: what is installed, for messages.

    Raises:
        ToolchainError: pip's message.
    """
    start, line, output = time.perf_counter(), StepLine(f"  installing {what}"), [""]

    def read(text: str) -> None:
        output.append(text)
        if (words := text.split())[:1] in (["Downloading"], ["Installing"]):
            line.update(" ".join(words)[:100])

    pip: list[str | Path] = [environment / "bin/python", "-m", "pip", "install", "--progress-bar=off"]
    command = [*pip, "--disable-pip-version-check", "--no-compile", "--prefer-binary", *arguments]
    if follow(command, read, env={}) != 0:
        line.end("failed")
        errors = [text for text in output if not text.startswith(_PROGRESS)]
        raise ToolchainError(
            f"{what} could not be installed: {' '.join(map(str, arguments))}",
            cause="".join(errors).strip()[-4000:],
            todo="check the network, or name an index that holds them in PIP_INDEX_URL",
        )
    line.end(f"{time.perf_counter() - start:.1f} s")
    if sys.pycache_prefix:  # a module replaced within a second could look unchanged
        cached = Path(sys.pycache_prefix) / environment.absolute().relative_to("/")
        shutil.rmtree(cached, ignore_errors=True)
