"""``make test``: install the wheel into a fresh environment and run the tests on it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..common.console import say
from ..common.errors import GraftError, UsageError
from ..common.layout import REPOSITORY, Layout
from ..common.process import run
from ..deliver.built import GRAFT, SOURCE, Built, load_built
from ..graft import build

TESTS = REPOSITORY / "tests"
GRAMMAR = TESTS / "wheel/grammar"
ENVIRONMENT = REPOSITORY / "build/test-environment"
SOURCE_ENVIRONMENT = REPOSITORY / "build/test-environment-source"

# The plugin that puts the kernels of native/cuda in place of those for CPUs.
EMULATED = {
    "PYTHONPATH": str(TESTS / "emulated"),
    "PYTEST_ADDOPTS": "-p emulated_cuda",
    "GRAFT_EMULATED": str(REPOSITORY / "build/emulated"),
}

# What the profiler and the compilers say to those who run them on purpose.
QUIET = {"KINETO_LOG_LEVEL": "6", "TORCH_LOGS": "-all"}

# pytest's exit code where no test ran (pytest.ExitCode.NO_TESTS_COLLECTED), as when -k chooses tests of another part.
_NOTHING_COLLECTED = 5


class TestsFailed(GraftError):
    """A test failed, or none ran."""

    exit_code = 12


def run_tests(layout: Layout, *, base_wheel: Path | None, jobs: int, extra: Sequence[str]) -> None:
    """Run every test that applies to ``layout``'s wheel, which is built already.

    The tools and the shipped operators have tests of their own, which run for the shipped folder only; another native
    folder may bring a ``tests`` folder, which runs too.

    Raises:
        TestsFailed: naming the parts that failed.
    """
    built = wheel_of(layout)
    python = make_environment(ENVIRONMENT, Path(built.wheel))
    variables = test_variables(layout, built.wheel)
    parts: list[tuple[str, list[Path], Mapping[str, str]]] = [("the wheel", [TESTS / "wheel/any"], {})]
    if is_shipped(layout):
        grammar = replace(layout, natives=(GRAMMAR,), out=REPOSITORY / "build/grammar")
        wheel = build(grammar, base_wheel=base_wheel, jobs=jobs).wheel
        there = {"PYTHONPATH": str(unpacked(wheel, REPOSITORY / "build/grammar-unpacked"))}
        parts = [
            ("the tools", [TESTS / "tools"], {}),
            ("code generation", [TESTS / "codegen"], {"PYTHONPATH": str(layout.base / "tree")}),
            *parts,
            ("the shipped operators", [TESTS / "wheel/shipped"], {}),
            ("the grammar of native_functions.yaml", [GRAMMAR / "tests"], there),
            ("the kernels for CUDA, emulated", emulated_tests(layout.native), EMULATED),
        ]
    elif (layout.native / "tests").is_dir():
        parts.append(("the folder's own tests", [layout.native / "tests"], {}))
    failed = [name for name, paths, more in parts if not run_pytest(python, name, paths, {**variables, **more}, extra)]
    if failed:
        raise TestsFailed(f"tests failed: {', '.join(failed)}")
    say("all tests passed")


def run_source_tests(layout: Layout, tree: Path, whole: Path | None, extra: Sequence[str]) -> None:
    """Run the tests on the wheel of a source build, which is built already, and PyTorch's own of its OpInfos.

    Args:
        layout: the pin and the native folder.
        tree: the source tree, which holds PyTorch's own tests.
        whole: the wheel of a whole build, which that of an incremental one is compared with; None if there is none.
        extra: arguments for pytest.

    Raises:
        TestsFailed: naming the parts that failed.
    """
    built = wheel_of(layout, SOURCE)
    python = make_environment(SOURCE_ENVIRONMENT, Path(built.wheel))
    variables = {"GRAFT_WHEEL": built.wheel, "GRAFT_NATIVE": str(layout.native), "GRAFT_TREE": str(tree)}
    parts = [("the tools", TESTS / "tools"), ("the wheel", TESTS / "wheel/any")]
    if is_shipped(layout):
        parts.append(("the shipped operators", TESTS / "wheel/shipped"))
    elif (layout.native / "tests").is_dir():
        parts.append(("the folder's own tests", layout.native / "tests"))
    parts.append(("PyTorch, for the folder's operators", TESTS / "wheel/upstream"))
    if whole:
        variables["GRAFT_WHOLE"] = str(unpacked(whole, REPOSITORY / "build/whole"))
        parts.append(("the wheel beside that of a whole build", TESTS / "wheel/whole"))
    say("not run: tests of the graft's code generation, and those of the grammar folder, whose wheel is a graft")
    failed = [name for name, path in parts if not run_pytest(python, name, [path], variables, extra)]
    if failed:
        raise TestsFailed(f"tests failed: {', '.join(failed)}")
    say("all tests passed")


def emulated_tests(native: Path) -> list[Path]:
    """The tests of the shipped operators that have a source in ``cuda/``: of RoiPoolKernel.cu test_roi_pool.py."""
    stems = [source.stem.removesuffix("Kernel") for source in sorted(native.glob("cuda/*.cu"))]
    names = [re.sub(r"(?<!^)(?=[A-Z])", "_", stem).lower() for stem in stems]
    return [TESTS / f"wheel/shipped/test_{name}.py" for name in names]


def wheel_of(layout: Layout, build: str = GRAFT) -> Built:
    """What was built last.

    Raises:
        UsageError: nothing was.
    """
    built = load_built(layout, build)
    if built is None or not built.is_there():
        raise UsageError("there is no wheel yet", todo="run `make patch-and-build` with the same variables first")
    return built


def show_surfaces(layout: Layout, extra: Sequence[str]) -> None:
    """Print where ``layout``'s operators show up, beside operators of PyTorch's own.

    Raises:
        TestsFailed: an operator of the folder is not where they are.
    """
    try:
        in_test_environment(layout, ["-m", "scripts.measure.surfaces", *extra], QUIET)
    except subprocess.CalledProcessError as error:
        raise TestsFailed(
            "an operator differs from PyTorch's own",
            todo="mend what the table names, or give the reason in samples.py: `SURFACES = {(title, name): reason}`",
        ) from error


def in_test_environment(layout: Layout, command: Sequence[str | Path], variables: Mapping[str, str] = {}) -> None:
    """Run a Python program with ``layout``'s wheel, what it prints going to the terminal."""
    python = make_environment(ENVIRONMENT, Path(wheel_of(layout).wheel))
    env = {**os.environ, **variables}
    subprocess.run([python, *command], cwd=REPOSITORY, env=env, stdin=subprocess.DEVNULL, check=True)


def make_environment(folder: Path, wheel: Path, requirements: Path = TESTS / "requirements.txt") -> Path:
    """Make a virtual environment that holds ``wheel`` and what is required; return its Python."""
    python = folder / "bin/python"
    mark = folder / "ready"
    wanted = f"{wheel.name} {wheel.stat().st_mtime_ns} {hashlib.sha256(requirements.read_bytes()).hexdigest()}"
    if mark.is_file() and mark.read_text() == wanted:
        return python
    say(f"making a fresh environment in {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", folder])
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, "-r", requirements])
    mark.write_text(wanted)
    return python


def unpacked(wheel: Path, folder: Path) -> Path:
    """Install ``wheel`` alone into ``folder``, for tests that look at another torch than the environment's."""
    mark = folder / "ready"
    wanted = f"{wheel.name} {wheel.stat().st_mtime_ns}"
    if not (mark.is_file() and mark.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        run([*command, "--no-compile", "--target", folder, wheel])
        mark.write_text(wanted)
    return folder


def is_shipped(layout: Layout) -> bool:
    """Whether the native folder is the one of this repository."""
    return layout.native == REPOSITORY / "native"


def test_variables(layout: Layout, wheel: str) -> dict[str, str]:
    """What the tests are told of the build."""
    stock = unpacked(next(iter(layout.base.glob("*.whl"))), REPOSITORY / "build/stock")
    return {
        "GRAFT_WHEEL": wheel,
        "GRAFT_BASE": str(layout.base),
        "GRAFT_STOCK": str(stock),
        "GRAFT_NATIVE": str(layout.native),
    }


def run_pytest(python: Path, name: str, paths: Sequence[Path], more: Mapping[str, str], extra: Sequence[str]) -> bool:
    """Run the tests in ``paths``; return whether they passed, or ``extra`` chose none of them."""
    say(f"\n== tests of {name}")
    command: list[str | Path] = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *extra, *paths]
    done = subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **more}, stdin=subprocess.DEVNULL, check=False)
    nothing_chosen = bool(extra) and done.returncode == _NOTHING_COLLECTED
    return done.returncode == 0 or nothing_chosen
