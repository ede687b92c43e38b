"""``make lint``: ruff, mypy --strict and clang-format."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from graft.core.console import say
from graft.core.environments import install
from graft.core.errors import GraftError
from graft.core.layout import REPOSITORY
from graft.core.lock import file_lock
from graft.core.process import run

_TOOLS = ("ruff", "mypy", "types-PyYAML", "hypothesis", "clang-format")


class LintError(GraftError):
    """A linter reported an error."""

    exit_code = 13


def lint() -> None:
    """Run every linter, even if an earlier one fails.

    Raises:
        LintError: lists the linters that failed.
    """
    folder = _environment()
    binaries = folder / "bin"
    tracked = run(["git", "ls-files"], cwd=REPOSITORY).stdout.split()
    # Templates are not valid C++.
    sources = [
        name for name in tracked if name.endswith((".cpp", ".h", ".cu", ".cuh")) and not name.startswith("scripts/")
    ]
    commands: dict[str, list[str | Path]] = {
        "ruff check": [binaries / "ruff", "check", "scripts", "tests", "native"],
        "ruff format": [binaries / "ruff", "format", "--check", "scripts", "tests", "native"],
        "mypy --strict": [binaries / "mypy"],
        "clang-format": [binaries / "clang-format", "--dry-run", "--Werror", *sources],
    }
    failed = []
    for name, command in commands.items():
        if subprocess.run(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, check=False).returncode == 0:
            say(f"{name}: clean")
        else:
            failed.append(name)
    if failed:
        raise LintError(
            f"{', '.join(failed)} reported errors", todo="fix them; `ruff format` and `clang-format -i` fix the layout"
        )


def _environment() -> Path:
    """Return the builder's environment with the linters. mypy reads the types of the builder's packages there."""
    folder = Path(sys.prefix)
    wanted = " ".join(_TOOLS)
    mark = folder / "linters"
    with file_lock(folder / "linters.lock", "another process installs the linters"):
        if not mark.is_file() or mark.read_text(encoding="utf-8") != wanted:
            install(folder, *_TOOLS, what="the linters")
            mark.write_text(wanted, encoding="utf-8")
    return folder
