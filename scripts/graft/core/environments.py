"""Virtual environments, mainly the builder's own. Uses only the standard library: packages are not installed yet."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import sysconfig
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .architecture import require_program
from .bugs import say_error
from .console import StepLine, say
from .errors import GraftError, MissingError
from .files import Layer, delete, held, write_if_changed
from .layout import BYTECODE, DISTRIBUTION, HOME, IS_CHECKOUT, PACKAGE, PACKAGES, REPOSITORY, store
from .pip import INDEX, indexes_of_uv
from .process import environment, follow, run

# The folder of environments, in the store and in ``HOME``.
ENVIRONMENTS = "environments"

_REQUIREMENTS = "requirements.txt"

# The beginnings of lines of pip's output that report no error.
_PROGRESS = ("Collecting ", "  Downloading ", "  Using cached ", "Requirement already ", "Looking in ", "Processing ")


# The program that another Python runs to enter its environment. Its first argument is the parent folder of this
# package.
_ENTER = (
    "import sys; sys.path.insert(0, sys.argv[1]); from graft.core.environments import enter; "
    "sys.exit(enter(sys.argv[2], sys.argv[3:], sys.argv[1]))"
)


def command_on(python: str | Path, module: str | Path) -> list[str | Path]:
    """Return the command that runs a module of the builder on another Python, in a virtual environment for it."""
    if IS_CHECKOUT:
        return [python, REPOSITORY / "scripts/environment.py", module]
    os.environ["GRAFT_HOME"] = str(HOME)
    return [python, "-c", _ENTER, package_alone(), module]


def package_alone() -> Path:
    """Return a folder from which another Python can import this package, with a list of its requirements. An installed
    package cannot be imported from its own folder: the packages beside it are for this Python.
    """
    if IS_CHECKOUT:
        return PACKAGES
    needed = [each for each in importlib.metadata.requires(DISTRIBUTION) or () if "extra ==" not in each]
    text = "".join(f"{each}\n" for each in needed)
    folder = HOME / f"package-{hashlib.sha256(f'{PACKAGE} {text}'.encode()).hexdigest()[:8]}"
    write_if_changed(folder / _REQUIREMENTS, text)
    if not (folder / PACKAGE.name).is_symlink():
        (folder / PACKAGE.name).symlink_to(PACKAGE)
    return folder


def enter(module: str, arguments: Sequence[str], packages: str | Path = PACKAGES) -> int:
    """Replace this process by ``python -m module`` with ``arguments``. Return an exit code if that fails.

    ``packages`` is the folder with this package and its requirements.txt.
    """
    # The user's modules may have the names of the builder's.
    for name in (os.environ.keys() - environment().keys()) | {"PYTHONPATH"}:
        os.environ.pop(name, None)
    requirements = Path(packages, _REQUIREMENTS)
    content = hashlib.sha256(requirements.read_bytes()).hexdigest()
    folder = shared_environment("builder", content)

    def make(folder: Path) -> None:
        say(f"creating the builder's virtual environment for {sys.executable}")
        make_virtual_environment(folder)
        install(folder, "--requirement", requirements, what="the builder's packages")

    try:
        if not {"-h", "--help"} & set(arguments) and arguments[:1] not in (["undevelop"], ["nox"]):
            require_all()
        with held(folder, [Layer(content, make)]) as lock:
            python = folder / "bin/python"
            # The process keeps the lock until the build ends.
            os.set_inheritable(lock, True)
            os.environ["PYTHONPATH"] = str(packages)
            os.environ.setdefault("PYTHONPYCACHEPREFIX", str(BYTECODE))
            os.execv(python, [str(python), "-m", module, *arguments])
    except (GraftError, OSError) as error:
        return say_error(error)
    except KeyboardInterrupt:
        return 130


def shared_environment(purpose: str, content: str) -> Path:
    """Return the folder in the store for an environment of this Python. Its name includes a hash of its content, since
    clones of other versions need other environments.
    """
    return store() / ENVIRONMENTS / f"{purpose}-{name_of_python()}-{content[:12]}"


def require_all() -> None:
    """Check that this machine has all tools that builds need. The error lists the missing ones and their packages."""
    compiler = os.environ.get("CXX") or "g++"
    require_program(compiler)
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    has_modules = all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))
    is_packaged = sys.base_prefix == "/usr"
    cross = re.fullmatch(r"(\w+-linux-gnu)-g\+\+", compiler)
    target = f"-{cross[1]}" if cross else ""
    compilers = (f"g++{target}", f"gcc-c++{target}") if cross or compiler == "g++" else ()
    another = f"set PYTHON to another Python: {sys.executable} was installed without it"
    # For each: its name in messages, whether it is there, its packages in Debian and in Fedora, and another remedy.
    wanted: list[tuple[str, object, tuple[str, ...], str]] = [
        (compiler, shutil.which(compiler), compilers, "set CXX to a g++"),
        ("git", shutil.which("git"), ("git", "git"), ""),
        ("make", shutil.which("make"), ("make", "make"), ""),
        (str(header), header.is_file(), (f"{python}-dev", "python3-devel") if is_packaged else (), another),
        ("Python's module ensurepip", has_modules, (f"{python}-venv", "python3") if is_packaged else (), another),
    ]
    missing = [(name, packages, instead) for name, is_there, packages, instead in wanted if not is_there]
    if not missing:
        return
    debian, fedora = (
        " ".join(dict.fromkeys(packages[number] for _, packages, _ in missing if packages)) for number in (0, 1)
    )
    todo = [f"`apt-get install {debian}` (Debian, Ubuntu) or `dnf install {fedora}` (Fedora)"] if debian else []
    todo += [instead for _, packages, instead in missing if not packages]
    raise MissingError(f"not found: {', '.join(name for name, *_ in missing)}", todo="; ".join(dict.fromkeys(todo)))


def name_of_python() -> str:
    """Return a name for this Python. It is the same in all virtual environments created from it."""
    itself = f"{sys.base_prefix} {sys.abiflags}{'' if platform.machine() == 'x86_64' else platform.machine()}"
    return f"{sys.implementation.cache_tag}-{hashlib.sha256(itself.encode()).hexdigest()[:8]}"


def make_virtual_environment(folder: Path) -> None:
    """Create a virtual environment of this Python, with pip."""
    run([sys.executable, "-m", "venv", folder])


def install(environment: Path, *arguments: str | Path, what: str) -> None:
    """Install packages with the pip of a virtual environment, and show the progress. Bytecode is compiled at the first
    import. ``what`` names the packages in messages.
    """
    start, line, output = time.perf_counter(), StepLine(f"  installing {what}"), [""]

    def read(text: str) -> None:
        output.append(text)
        if (words := text.split())[:1] in (["Downloading"], ["Installing"]):
            line.update(" ".join(words)[:100])

    pip: list[str | Path] = [environment / "bin/python", "-m", "pip", "install", "--progress-bar=off"]
    command = [*pip, "--disable-pip-version-check", "--no-compile", "--prefer-binary", *arguments]
    if follow(command, read, env=indexes_of_uv()) != 0:
        line.end("failed")
        errors = [text for text in output if not text.startswith(_PROGRESS)]
        raise MissingError(
            f"{what} could not be installed: {' '.join(map(str, arguments))}",
            cause="".join(errors).strip()[-4000:],
            todo=f"check the network, or name an index that holds them in {INDEX}",
        )
    line.end(f"{time.perf_counter() - start:.1f} s")
    if sys.pycache_prefix:  # a module replaced within a second could look unchanged
        cached = Path(sys.pycache_prefix) / environment.absolute().relative_to("/")
        with suppress(OSError):  # another process writes into it
            delete(cached)
