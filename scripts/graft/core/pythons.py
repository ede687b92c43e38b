"""Other Pythons of this machine, found by version, name or path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import CommandError, UsageError
from .process import run

# Prints the version, and the parts of `INTERPRETER` and `ABI` in layout.py.
_PROBE = "import sys; print(*sys.version_info[:3], sys.implementation.name, 'flags' + sys.abiflags)"

# The folders below the home folder where other programs install Pythons.
_BELOW_HOME = (
    ".local/share/uv/python/cpython-*/bin",
    "mini*3/bin",
    "mini*3/envs/*/bin",
    "anaconda3/bin",
    "anaconda3/envs/*/bin",
)


@dataclass(frozen=True)
class Python:
    """A Python that runs.

    Args:
        path: the program.
        version: the complete version, for example ``(3, 12, 1)``.
        interpreter: its name in the tags of wheels, for example ``cp312``.
        abi: the ABI, which names a build's folder: ``cp312`` or ``cp313t``.
    """

    path: Path
    version: tuple[int, ...]
    interpreter: str
    abi: str

    @property
    def tag(self) -> str:
        """The tag of its wheels, for example ``cp312-cp312``."""
        return f"{self.interpreter}-{self.abi}"

    @property
    def release(self) -> str:
        """The release: ``3.12``, ``3.13t``."""
        return f"{self.version[0]}.{self.version[1]}{self.abi.removeprefix(self.interpreter)}"


def find_pythons(words: Sequence[str]) -> list[Python]:
    """Return the Pythons that ``words`` name, each release once."""
    found = {word: find_python(word) for word in words}
    if missing := [word for word, python in found.items() if python is None]:
        raise UsageError(
            f"Python not found, or it does not run: {', '.join(missing)}",
            cause="versions are searched on PATH, then among the Pythons of pyenv, uv and conda",
            todo="install it, or give its path in PYTHONS",
        )
    return list({python.release: python for python in reversed(found.values()) if python}.values())[::-1]


def find_python(word: str) -> Python | None:
    """Return the first matching Python that runs, or None. pyenv has shims for versions that are not installed, too."""
    wanted = tuple(map(int, word.split("."))) if re.fullmatch(r"\d+(\.\d+)+", word) else ()
    for path in _places(word, wanted):
        python = probed(path) if os.access(path, os.X_OK) and path.is_file() else None
        if python and python.version[: len(wanted)] == wanted:
            return python
    return None


def _places(word: str, wanted: tuple[int, ...]) -> Iterator[Path]:
    if os.sep in word:
        yield Path(word).expanduser().absolute()
        return
    name = f"python{wanted[0]}.{wanted[1]}" if wanted else word
    yield from (Path(folder).absolute() / name for folder in os.get_exec_path() if folder)
    if wanted:
        home = Path.home()
        pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
        for folders in (pyenv.glob(f"{word}*/bin"), *map(home.glob, _BELOW_HOME)):
            yield from (folder / name for folder in sorted(folders, key=_numbers, reverse=True))


def _numbers(folder: Path) -> list[int]:
    """Return a key that sorts versions: 3.12.10 is newer than 3.12.9."""
    return [int(digits) for digits in re.findall(r"\d+", str(folder))]


def probed(path: Path) -> Python | None:
    """Return a Python's properties; None if it does not run."""
    try:
        done = run([path, "-c", _PROBE], check=False)
    except (OSError, CommandError):
        return None
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 5:
        return None
    version, (name, flags) = tuple(map(int, words[:3])), words[3:]
    interpreter = f"{'cp' if name == 'cpython' else name}{version[0]}{version[1]}"
    return Python(path, version, interpreter, interpreter + flags.removeprefix("flags"))
