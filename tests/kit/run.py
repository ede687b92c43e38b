"""``make test``: install the wheel into a new environment and run the tests on it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import yaml
from graft.build import Wheel, run
from graft.core.console import say
from graft.core.errors import UsageError
from graft.core.files import file_lock
from graft.core.layout import REPOSITORY, Layout
from graft.fork.fetch import tree_of_build
from graft.options import SOURCE, Request

from .environments import (
    TEST,
    TEST_SOURCE,
    base_wheel_of,
    discard,
    folder_of,
    named,
    unpacked,
    wheel_environment,
    wheel_of,
)
from .parts import Part, run_parts

TESTS = REPOSITORY / "tests"
SHIPPED = REPOSITORY / "native"
GRAMMAR = TESTS / "wheel/grammar"

# Variables that disable logs of the profiler and the compilers, which tests call on purpose.
QUIET = {"KINETO_LOG_LEVEL": "6", "TORCH_LOGS": "-all"}

# Tests in native folders find the operators in op_db.
OPINFOS = {"PYTEST_ADDOPTS": "-p tests.kit.opinfos"}

# The values of ``--parts``.
PARTS = ("tools", "codegen", "promises", "wheel", "operators", "grammar", "emulated", "bases", "deliveries")

# The parts that run by default. The others take minutes and gigabytes.
_USUAL = PARTS[:-2]


def run_tests(
    request: Request,
    extra: Sequence[str],
    chosen: Sequence[str] = (),
    junit: Path | None = None,
    is_discarding: bool = False,
) -> None:
    """Run every test that applies to the wheel that is asked for, which must be built.

    The tests of the tools run for the repository's native folder only. Other native folders may have a ``tests``
    folder, which runs, too.

    Args:
        request: the build.
        extra: arguments for pytest.
        chosen: the kinds of parts to run, from ``PARTS``; empty for the default.
        junit: a folder for the results of each part, as XML; None for none.
        is_discarding: whether to delete the tests' environments afterwards, whatever happens.

    Raises:
        TestsFailed: lists the parts that failed.
        UsageError: no part of the chosen kinds applies.
    """
    if unknown := [kind for kind in chosen if kind not in PARTS]:
        raise UsageError(f"--parts {' '.join(unknown)}: no such tests", todo=f"choose among {', '.join(PARTS)}")
    layout = request.layout
    with one_at_a_time(layout, TEST):
        try:
            _run_tests(request, extra, chosen or _USUAL, junit)
        finally:
            if is_discarding:
                discard(layout, (TEST, "stock", "emulated"))
                discard(_grammar(layout), ("grammar",))


def _run_tests(request: Request, extra: Sequence[str], chosen: Sequence[str], junit: Path | None) -> None:
    layout = request.layout
    with ExitStack() as stack:
        wheel = wheel_of(layout).wheel
        parts = [Part("wheel", "the wheel", [TESTS / "wheel/any"]), *own_tests(layout)]
        if is_shipped(layout):
            codegen = {"PYTHONPATH": str(layout.base / "tree")}
            parts = [
                Part("tools", "the tools", [TESTS / "tools", TESTS / "fork"]),
                Part("codegen", "code generation", [TESTS / "codegen"], codegen),
                Part("promises", "what the README promises", [TESTS / "promises"], spread="loadfile"),
                Part("bases", "other bases", [TESTS / "bases"]),
                Part("deliveries", "develop and thin wheels", [TESTS / "deliveries"], spread="loadfile"),
                *parts,
            ]
            if "grammar" in chosen:
                grammar = _grammar(layout)
                built = run(Wheel(grammar), request).path
                there = {"PYTHONPATH": str(stack.enter_context(unpacked(grammar, "grammar", built)))}
                there["GRAFT_NATIVE"] = named(grammar)
                parts.append(Part("grammar", "the grammar of native_functions.yaml", [GRAMMAR / "tests"], there))
            emulated = emulated_variables(layout)
            parts.append(Part("emulated", "the CUDA kernels, emulated", emulated_tests(layout.native), emulated))
        parts = [part for part in parts if part.kind in chosen]
        if not parts:
            raise UsageError(
                f"--parts {' '.join(chosen)}: {layout.title} has no such tests",
                todo="choose others: wheel runs for every folder, operators for one with tests/, all for native/",
            )
        python = stack.enter_context(wheel_environment(layout, TEST, Path(wheel)))
        variables = stack.enter_context(test_variables(layout, wheel))
        pin_of_skips = yaml.safe_load((TESTS / "skips.yaml").read_text(encoding="utf-8"))["pin"]
        are_skips_known = is_shipped(layout) and layout.pin == pin_of_skips
        run_parts(python, parts, variables, extra, junit, are_skips_known, request.jobs)


def _grammar(layout: Layout) -> Layout:
    """Return the layout of the folder with all features of native_functions.yaml, for the same pin."""
    return replace(layout, natives=(GRAMMAR,), out=REPOSITORY / "build/grammar")


def run_source_tests(request: Request, extra: Sequence[str]) -> None:
    """Run the tests, and PyTorch's own with its OpInfos, on the wheel of a source build, which must be built.

    Args:
        request: the build. Its source tree has PyTorch's own tests.
        extra: arguments for pytest.

    Raises:
        TestsFailed: lists the parts that failed.
    """
    layout = request.layout
    tree = tree_of_build(request)
    with ExitStack() as stack:
        stack.enter_context(one_at_a_time(layout, TEST_SOURCE))
        built = wheel_of(layout, SOURCE)
        python = stack.enter_context(wheel_environment(layout, TEST_SOURCE, Path(built.wheel)))
        variables = {"GRAFT_WHEEL": built.wheel, "GRAFT_NATIVE": named(layout), "GRAFT_TREE": str(tree)}
        parts = [
            Part("tools", "the tools", [TESTS / "tools", TESTS / "fork"]),
            Part("wheel", "the wheel", [TESTS / "wheel/any"]),
        ]
        parts += own_tests(layout)
        parts.append(Part("upstream", "PyTorch, for the folder's operators", [TESTS / "wheel/upstream"]))
        say("not run: tests of the graft's code generation, and of the grammar folder, which need a graft")
        run_parts(python, parts, variables, extra, jobs=request.jobs)


@contextmanager
def one_at_a_time(layout: Layout, purpose: str) -> Iterator[None]:
    """Make sure that the tests of a native folder run once at a time."""
    folder = folder_of(purpose, layout)
    with file_lock(folder.with_name(f"{folder.name}.running"), f"the tests of {layout.title} are running already"):
        yield


def emulated_variables(layout: Layout) -> dict[str, str]:
    """Return the variables with which pytest replaces CPU kernels by the emulated kernels of native/cuda."""
    return {
        "PYTHONPATH": str(TESTS / "emulated"),
        "PYTEST_ADDOPTS": "-p emulated_cuda",
        "GRAFT_EMULATED": str(folder_of("emulated", layout)),
        "GRAFT_OPERATORS": ",".join(emulated_operators(layout.native)),
    }


def emulated_tests(native: Path) -> list[Path]:
    """Return the tests of the emulation, of the derivatives, and of each operator."""
    own = [TESTS / f"wheel/shipped/test_{name}.py" for name in emulated_operators(native)]
    return [TESTS / "emulated", TESTS / "wheel/any/families/test_gradients.py", *own]


def emulated_operators(native: Path) -> list[str]:
    """Return the operators with a source in ``cuda/``: roi_pool for RoiPoolKernel.cu."""
    stems = [source.stem.removesuffix("Kernel") for source in sorted(native.glob("cuda/*.cu"))]
    return [re.sub(r"(?<!^)(?=[A-Z])", "_", stem).lower() for stem in stems]


def is_shipped(layout: Layout) -> bool:
    """Return whether the only native folder is that of this repository."""
    return layout.natives == (SHIPPED,)


def own_tests(layout: Layout) -> list[Part]:
    """Return the tests in native folders."""
    parts: list[Part] = []
    for native in layout.natives:
        if native == SHIPPED:
            parts.append(Part("operators", "the shipped operators", [TESTS / "wheel/shipped"]))
        elif (native / "tests").is_dir():
            parts.append(Part("operators", f"the operators of {native}", [native / "tests"], OPINFOS))
    return parts


@contextmanager
def test_variables(layout: Layout, wheel: str) -> Iterator[dict[str, str]]:
    """Return environment variables that describe the build to tests."""
    with unpacked(layout, "stock", base_wheel_of(layout)) as stock:
        yield {
            "GRAFT_WHEEL": wheel,
            "GRAFT_BASE": str(layout.base),
            "GRAFT_STOCK": str(stock),
            "GRAFT_NATIVE": named(layout),
            "CUDA_ARCHS": layout.cuda_archs,
        }
