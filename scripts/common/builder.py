"""The builder's own virtual environment, one for each Python. Only the standard library is there before it is made."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .console import say
from .environments import ENVIRONMENTS, Layer, held, install, make_virtual_environment, name_of_python
from .errors import GraftError, RefusedError
from .layout import REPOSITORY

_REQUIREMENTS = REPOSITORY / "scripts/requirements.txt"

# Where the builder, and the tests that it runs, cache bytecode.
_BYTECODE = REPOSITORY / "build/bytecode"


def enter(arguments: Sequence[str]) -> int:
    """Become ``python -m scripts`` with ``arguments``; return the exit code where that cannot be."""
    folder = ENVIRONMENTS / f"builder-{name_of_python()}"
    content = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()
    try:
        with held(folder, [Layer(content, _make)]) as lock:
            python = folder / "bin/python"
            # The lock stays with the process, which ends with the build.
            os.set_inheritable(lock, True)
            _cache_bytecode()
            os.execv(python, [str(python), "-m", "scripts", *arguments])
    except (GraftError, OSError) as error:
        expected = error if isinstance(error, GraftError) else RefusedError.of(error)
        print(f"error: {expected}", file=sys.stderr)
        return expected.exit_code
    except KeyboardInterrupt:
        return 130


def _cache_bytecode() -> None:
    """Cache the bytecode of all modules in ``build/``, even if ``PYTHONDONTWRITEBYTECODE`` is set.

    Container images often set it to keep folders clean. Compiling PyTorch's modules each time doubles the time of
    ``import torch``.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(_BYTECODE))


def _make(folder: Path) -> None:
    start = time.perf_counter()
    say(f"making a virtual environment for the builder, for {sys.executable}")
    make_virtual_environment(folder)
    install(folder, "--requirement", _REQUIREMENTS, what="the builder's packages")
    say(f"  {time.perf_counter() - start:.1f} s")
