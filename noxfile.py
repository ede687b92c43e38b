"""The equipment behind the Makefile: linters, and the matrix of releases. `nox -l` lists the sessions.

They run in the builder's environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nox

REPOSITORY = Path(__file__).parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "scripts")]

from graft.core.errors import GraftError  # noqa: E402

from tests.kit import matrix as of_releases  # noqa: E402

nox.needs_version = ">=2026.1"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint"]

LINTERS = ("ruff", "mypy", "types-PyYAML", "import-linter", "pytest", "hypothesis", "clang-format")
PYTHON_CODE = ("scripts", "tests", "native", "noxfile.py")


@nox.session
def lint(session: nox.Session) -> None:
    """ruff, mypy --strict, the layers of imports, and clang-format."""
    # mypy reads the types of the builder's packages in its environment.
    session.run(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *LINTERS, log=False)
    binaries = Path(sys.executable).parent
    tracked = str(session.run("git", "ls-files", "*.cpp", "*.h", "*.cu", "*.cuh", silent=True)).split()
    sources = [name for name in tracked if not name.startswith("scripts/")]  # templates are not valid C++
    commands: list[list[str | Path]] = [
        [binaries / "ruff", "check", *PYTHON_CODE],
        [binaries / "ruff", "format", "--check", *PYTHON_CODE],
        [binaries / "mypy"],
        [binaries / "lint-imports", "--no-logo"],
        [binaries / "clang-format", "--dry-run", "--Werror", *sources],
    ]
    failed = [command for command in commands if not passes(session, *command)]
    if failed:
        session.error("fix what is reported; `ruff format` and `clang-format -i` fix the layout")


def passes(session: nox.Session, *command: str | Path) -> bool:
    """Run a command. Return whether it succeeded."""
    try:
        session.run(*command)
    except nox.command.CommandFailed:
        return False
    return True


ROWS = of_releases.rows()


@nox.session(default=False, allow_parallel=True)
@nox.parametrize("row", list(ROWS), ids=list(ROWS))
def matrix(session: nox.Session, row: str) -> None:
    """Build and test one release on one Python; `make test-matrix`."""
    try:
        result, is_new = of_releases.test_row(ROWS[row], session.posargs)
    except GraftError as error:
        session.error(str(error))
    if result.error:
        session.error(f"{result.error}; see {result.log}")
    if not is_new:
        session.skip(f"{result.wheel} passed on {result.date}; ARGS=--again tests it again")
