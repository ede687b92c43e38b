"""Folders that are costly to create, such as virtual environments. A folder is complete or absent, and is kept while in
use.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from .console import StepLine, say
from .errors import ToolchainError
from .layout import REPOSITORY
from .lock import take
from .process import follow

ENVIRONMENTS = REPOSITORY / "build/environments"

# The file that describes the content of such a folder.
_HOLDS = "holds.json"

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

    A new folder is created under another name and renamed. If only later layers than the first changed, they are added
    in place. Processes that need the same content share the lock; a process that needs other content waits for them.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a+", encoding="utf-8") as file:
        busy, is_said = f"another process uses {folder}", False
        while True:
            take(file, busy, fcntl.LOCK_SH)
            if _held(folder) == [layer.content for layer in layers]:
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


def _bring_up_to_date(folder: Path, layers: Sequence[Layer]) -> None:
    wanted, there = [layer.content for layer in layers], _held(folder)
    if there == wanted:
        return
    if there[:1] == wanted[:1] and len(there) == len(wanted):
        (folder / _HOLDS).unlink()  # if killed from here on, the folder is created again
        for layer, old in zip(layers[1:], there[1:], strict=True):
            if layer.content != old:
                layer.add(folder)
        (folder / _HOLDS).write_text(json.dumps(wanted), encoding="utf-8")
        return
    partial, old_folder = (folder.parent / kind / folder.name for kind in ("partial", "old"))
    for each in (partial, old_folder):
        shutil.rmtree(each, ignore_errors=True)
        each.parent.mkdir(exist_ok=True)
    for layer in layers:
        layer.add(partial)
    _name_programs(partial, folder)
    (partial / _HOLDS).write_text(json.dumps(wanted), encoding="utf-8")
    if folder.exists():
        folder.rename(old_folder)
    partial.rename(folder)
    shutil.rmtree(old_folder, ignore_errors=True)


def _held(folder: Path) -> list[str]:
    try:
        return list(json.loads((folder / _HOLDS).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []


def _name_programs(environment: Path, target: Path) -> None:
    """Make the programs of a virtual environment refer to ``target``, its final path."""
    for path in environment.glob("bin/*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if os.fsencode(environment) in content:
                path.write_bytes(content.replace(os.fsencode(environment), os.fsencode(target)))


def name_of_python() -> str:
    """Return a name for this Python. It is the same in all virtual environments created from it."""
    itself = f"{sys.base_prefix} {sys.abiflags}"
    return f"{sys.implementation.cache_tag}-{hashlib.sha256(itself.encode()).hexdigest()[:8]}"


def make_virtual_environment(folder: Path) -> None:
    """Create a virtual environment with pip, a hundred times faster than ``python -m venv``.

    Python ships wheels of pip and, before 3.12, of setuptools. They are unpacked; venv would run pip to install them.

    Raises:
        ToolchainError: this Python comes without pip.
    """
    # Some distributions ship these modules separately; ``requirements`` asks for them.
    import venv

    wheels = _wheels_of_python()
    venv.EnvBuilder(symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for wheel in wheels:
        with ZipFile(wheel) as archive:
            archive.extractall(packages)


def _wheels_of_python() -> list[Path]:
    """Return the newest bundled wheels of pip and setuptools. Debian keeps them in another folder."""
    import ensurepip

    folders = [sysconfig.get_config_var("WHEEL_PKG_DIR"), Path(ensurepip.__file__).parent / "_bundled"]
    found = []
    for name in ("pip", "setuptools"):
        wheels = [path for folder in folders if folder for path in sorted(Path(folder).glob(f"{name}-*.whl"))]
        found += wheels[-1:]
    if not found:
        raise ToolchainError(f"{sys.executable} comes without pip", todo="set PYTHON to another Python")
    return found


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
