"""The equipment behind the Makefile: linters, what runs by night, the matrix of releases. `nox -l` lists the sessions.

They run in the builder's environment.
"""

from __future__ import annotations

import datetime
import shutil
import sys
from pathlib import Path

import nox
import nox.registry

REPOSITORY = Path(__file__).parent
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "scripts")]

from graft.core.errors import GraftError  # noqa: E402

from tests.kit import matrix as of_releases  # noqa: E402
from tests.kit import nights  # noqa: E402

nox.needs_version = ">=2026.1"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint"]

LINTERS = ("ruff", "mypy", "types-PyYAML", "import-linter", "pytest", "hypothesis", "clang-format")
PYTHON_CODE = ("scripts", "tests", "native", "noxfile.py")

# A step that is interrupted may have to delete environments.
PATIENCE = 180


def make(session: nox.Session, target: str, *variables: str) -> None:
    """Run a target. make passes on the variables of its command line, but these ARGS are a session's names."""
    session.run("make", "ARGS=", target, *variables, interrupt_timeout=PATIENCE)


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


def step(name: str, shows: str, target: str, *variables: str) -> None:
    """Define a session of `make test-nightly`."""

    def run(session: nox.Session) -> None:
        make(session, target, *variables)

    run.__doc__ = shows
    nox.session(name=name, tags=["nightly"], default=False)(run)


@nox.session(tags=["nightly"], default=False)
def commands(session: nox.Session) -> None:
    """Every command that a README shows, typed into a fresh clone; parts of their texts follow `--`."""
    from tests.kit.commands import main  # and with it the READMEs, which nothing else here needs

    try:
        main(session.posargs)
    except GraftError as error:
        session.error(str(error))


step("sanitizers", "the sanitizers find nothing in the operators' tests", "test-sanitize")
step("fuzz", "random calls return results or raise errors", "fuzz", "ARGS=--minutes 20")
step("slow", "large tensors, PyTorch's own operators, auditwheel", "test-all", "ARGS=-- -m slow")
step("surfaces", "the wheel and develop have every surface", "surfaces", "DELIVERY=wheel develop")
step("emulated", "CUDA kernels on all parameters", "test", "ARGS=--parts emulated", "GRAFT_EMULATED_ALL=1")
step("mutants", "a test fails for each wrong line of tests/mutants", "test-mutants")
step("bases", "wheels for CUDA and for another Python", "test", "ARGS=--parts bases")
step("fixes", "bugs of PyTorch are fixed, in what uses them, too", "test", "NATIVE=native/fixes", "OUT=build/fixes")
step("peers", "calls and builds compared with other ways to add an operator", "bench-peers")


@nox.session(tags=["nightly"], default=False)
def faster(session: nox.Session) -> None:
    """Faster kernels of PyTorch's own operators, whose bits are PyTorch's where they can be; all are timed."""
    both = "NATIVE=native native/faster", "OUT=build/faster"
    make(session, "test", *both)
    make(session, "bench", *both, "ARGS=replaced models --folder build/faster/results")


@nox.session(tags=["nightly"], default=False)
def arm(session: nox.Session) -> None:
    """Wheels for ARM, from a cross compiler, run below an emulator."""
    if missing := [name for name in ("aarch64-linux-gnu-g++", "qemu-aarch64-static") if not shutil.which(name)]:
        session.skip(f"not installed: {', '.join(missing)}")
    session.run("tests/arm.sh", external=True)
    session.run("tests/arm.sh", "--tests", "SVE256", external=True)


@nox.session(tags=["nightly"], default=False)
@nox.parametrize("suite", ["testing", "stable"], ids=["testing", "stable"])
def debian(session: nox.Session, suite: str) -> None:
    """The README's two commands on a bare Debian."""
    if not shutil.which("debootstrap"):
        session.skip("not installed: debootstrap")
    session.run("tests/debian.sh", suite, external=True)


@nox.session(tags=["nightly"], default=False)
def dates(session: nox.Session) -> None:
    """Each step passed within a week, as the table in tests/README.md says."""
    steps = {name for name, each in nox.registry.get().items() if "nightly" in each.tags} - {"dates"}
    if faults := nights.faults_of(nights.README.read_text(encoding="utf-8"), steps, datetime.date.today()):
        session.error("\n".join(["tests/README.md:", *faults]))


ROWS = of_releases.rows()


@nox.session(tags=["nightly"], default=False, allow_parallel=True)
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
