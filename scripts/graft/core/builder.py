"""The builder's own virtual environment, one for each Python. Uses only the standard library, which is all there is at
first.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .console import say
from .environments import ENVIRONMENTS, Layer, held, install, make_virtual_environment, name_of_python
from .errors import GraftError, RefusedError
from .layout import BYTECODE, PACKAGES, REPOSITORY
from .requirements import require_all

_REQUIREMENTS = REPOSITORY / "scripts/requirements.txt"


def enter(module: str, arguments: Sequence[str]) -> int:
    """Replace this process by ``python -m module`` with ``arguments``. Return an exit code if that fails."""
    folder = ENVIRONMENTS / f"builder-{name_of_python()}"
    content = hashlib.sha256(_REQUIREMENTS.read_bytes()).hexdigest()
    try:
        if not {"-h", "--help"} & set(arguments) and arguments[:1] not in (["undevelop"], ["nox"]):
            require_all()
        with held(folder, [Layer(content, _make)]) as lock:
            python = folder / "bin/python"
            # The process keeps the lock until the build ends.
            os.set_inheritable(lock, True)
            _cache_bytecode()
            paths = [str(PACKAGES), os.environ.get("PYTHONPATH")]
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            os.execv(python, [str(python), "-m", module, *arguments])
    except (GraftError, OSError) as error:
        expected = error if isinstance(error, GraftError) else RefusedError.of(error)
        print(f"error: {expected}", file=sys.stderr)
        return expected.exit_code
    except KeyboardInterrupt:
        return 130


def _cache_bytecode() -> None:
    """Cache the bytecode of all modules in ``build/``, even if ``PYTHONDONTWRITEBYTECODE`` is set.

    Container images often set it. Without a cache, ``import torch`` takes twice as long.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(BYTECODE))


def _make(folder: Path) -> None:
    say(f"creating the builder's virtual environment for {sys.executable}")
    make_virtual_environment(folder)
    install(folder, "--requirement", _REQUIREMENTS, what="the builder's packages")
