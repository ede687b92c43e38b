"""``make test``: install the operators, in any delivery, into a new environment, and run the tests on them."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path

import yaml
from graft.base.fetch import get_base
from graft.core.console import INFO, Steps, heard_by, say
from graft.core.environments import install
from graft.core.errors import UsageError
from graft.core.files import Layer, file_lock
from graft.core.layout import HOME, REPOSITORY, Layout, expanded
from graft.deliveries import Wheel, run
from graft.fork.fetch import tree_of_build
from graft.inputs.native import FUNCTIONS, load_natives
from graft.inputs.pin import pin_of
from graft.options import DEVELOP, SOURCE, THIN, WHEEL, Request
from graft.verbs import build, develop, of_checkout, thin_wheel

from .environments import (
    TEST,
    base_wheel_of,
    discard,
    folder_of,
    identity,
    named,
    unpacked,
    wheel_environment,
    wheel_of,
)
from .parts import Suite, run_parts
from .seconds import measured, seconds_of
from .todos import ending_with_todos

TESTS = REPOSITORY / "tests"
SHIPPED = REPOSITORY / "native"
GRAMMAR = TESTS / "wheel/grammar"

# Not a delivery: the official torch.
STOCK = "stock-torch"

# Tests in native folders find the operators in op_db.
OPINFOS = {"PYTEST_ADDOPTS": "-p tests.kit.opinfos"}

# The seconds of the part `wheel` for any folder, and for each of its operators more: 214 for a folder with one
# operator, on a shared EPYC, 2026-11-30, and those of seconds.json for the nine of native/.
_FIRST, _EACH = 207, 7

# The values of ``--parts``.
PARTS = (
    *("builder", "codegen", "promises", "wheel", "operators", "grammar", "emulated", "bases", "deliveries", "loaded"),
    "upstream",
)

# Those of `make test` for the wheel of native/: what its users want to know.
_OF_WHEEL = ("wheel", "operators", "emulated")

# Those of `make test-all`, and of other folders and deliveries. What is left takes gigabytes.
_ALL = tuple(part for part in PARTS if part != "bases")


def test_all(request: Request, given: argparse.Namespace) -> None:
    """Run all tests of what is asked for: also those of the builder and of what the READMEs say."""
    given.parts = given.parts or _ALL
    test(request, given)


def test(request: Request, given: argparse.Namespace) -> None:
    """Build what is asked for, unless it is up to date, and test it."""
    if len(request.delivery.split()) > 1:
        raise UsageError(f"DELIVERY={request.delivery}: tests run on one delivery", todo="name one of them")
    with ending_with_todos(request.native):  # those of a checkout are PyTorch's
        # A thin wheel cannot lay whole files over torch's.
        live = of_checkout(request, is_whole=request.delivery != THIN)
        live.require_something()
        request = live.request
        if request.build == SOURCE or request.delivery == WHEEL:
            build(request)
        junit = expanded(given.junit) if given.junit else None
        run_tests(request, given.extra, given.parts or (), junit, given.discard)
    live.finish()


def run_tests(
    request: Request,
    extra: Sequence[str],
    chosen: Sequence[str] = (),
    junit: Path | None = None,
    is_discarding: bool = False,
) -> None:
    """Run every test that applies to what is asked for; a wheel must be built.

    Args:
        request: the build and the delivery.
        extra: arguments for pytest.
        chosen: the kinds of parts to run, from ``PARTS``; empty for the default.
        junit: a folder for the results of each part, as XML.
        is_discarding: whether to delete the tests' environments afterwards, whatever happens.
    """
    if unknown := [kind for kind in chosen if kind not in PARTS]:
        raise UsageError(f"--parts {' '.join(unknown)}: no such tests", todo=f"choose among {', '.join(PARTS)}")
    layout = request.layout
    delivery = SOURCE if request.build == SOURCE else request.delivery
    with one_at_a_time(layout, purpose_of(delivery)):
        try:
            with ExitStack() as stack:
                usual = _OF_WHEEL if delivery == WHEEL and is_shipped(layout) else _ALL
                parts = _parts(request, delivery, chosen or usual, stack)
                if not extra:
                    say(_costs(layout, parts))
                python, variables = stack.enter_context(delivered(request, delivery))
                pin_of_skips = yaml.safe_load((TESTS / "skips.yaml").read_text(encoding="utf-8"))["pin"]
                is_usual = delivery == WHEEL and is_shipped(layout)
                is_known = is_usual and layout.pin == pin_of_skips
                run_parts(python, parts, variables, extra, junit, is_known, request.jobs, is_usual)
        finally:
            if is_discarding:
                discard(layout, (purpose_of(delivery), "stock", "emulated"))
                discard(_grammar(layout), ("grammar",))


def _parts(request: Request, delivery: str, chosen: Sequence[str], stack: ExitStack) -> list[Suite]:
    """Return the chosen parts that apply. Those of the builder run for the repository's native folder only."""
    layout = request.layout
    title = "the wheel" if delivery in (WHEEL, SOURCE) else f"the operators as {delivery}"
    parts = [Suite("wheel", title, [TESTS / "wheel/any"]), *own_tests(layout)]
    builder = Suite("builder", "the builder", [TESTS / "builder", TESTS / "fork"])
    if delivery == SOURCE:
        upstream = Suite("upstream", "PyTorch, for the folder's operators", [TESTS / "wheel/upstream"])
        parts = [builder, *parts, upstream]
        say("not run: tests of code generation, and of the grammar folder, which need the official wheel")
    elif delivery == WHEEL and is_shipped(layout):
        codegen = {"PYTHONPATH": str(layout.base / "tree")}
        parts = [
            builder,
            Suite("codegen", "code generation", [TESTS / "codegen"], codegen),
            Suite("promises", "what the README promises", [TESTS / "promises"], spread="loadfile"),
            Suite("bases", "other bases", [TESTS / "bases"]),
            Suite("deliveries", "develop and thin wheels", [TESTS / "deliveries"], spread="loadfile"),
            Suite("loaded", "operators in the running process", [TESTS / "loaded"], spread="loadfile"),
            *parts,
        ]
        grammar, emulated = partial(_built_grammar, request, stack), emulated_variables(layout)
        parts += [
            Suite("grammar", "the grammar of native_functions.yaml", [GRAMMAR / "tests"], prepare=grammar),
            Suite("emulated", "the CUDA kernels, emulated", emulated_tests(layout.native), emulated),
        ]
    if found := [part for part in parts if part.kind in chosen]:
        return found
    raise UsageError(
        f"--parts {' '.join(chosen)}: {layout.title} has no such tests",
        todo="choose others: wheel runs for every folder, operators for one with tests/, all for the wheel of native/",
    )


def _costs(layout: Layout, parts: Sequence[Suite]) -> str:
    """Return what is about to run, and how long that takes if it is known."""
    kinds, known = dict.fromkeys(part.kind for part in parts), measured()
    seconds = sum(seconds_of(kind, known) for kind in kinds if kind in known)
    if not is_shipped(layout):
        entries = load_natives(layout.natives).entries(FUNCTIONS)
        operators = {each.operator.partition(".")[0].removesuffix("_") for each in entries}
        seconds = _FIRST + _EACH * len(operators) if "wheel" in kinds else 0
    also = ", and the folder's own" if not is_shipped(layout) and "operators" in kinds else ""
    takes = f"; about {ceil(seconds / 60)} minutes on 2 cores{also}" if seconds else ""
    return f"tests: {', '.join(kinds)}{takes}"


def _built_grammar(request: Request, stack: ExitStack) -> dict[str, str]:
    """Build the wheel of the grammar folder, unpacked until ``stack`` is closed. Return its tests' variables."""
    grammar = _grammar(request.layout)
    with without_warnings_about(GRAMMAR):
        wheel = run(Wheel(grammar), request).path
    there = stack.enter_context(unpacked(grammar, "grammar", wheel))
    return {"PYTHONPATH": str(there), "GRAFT_NATIVE": named(grammar)}


def without_warnings_about(fixture: Path) -> AbstractContextManager[None]:
    """Show no warnings about a folder of the tests while the body runs. A test expects them."""
    pattern = re.compile(rf"^{re.escape(str(fixture))}/\S+: warning: .*\n", re.M)

    def show(level: int, text: str) -> None:
        if level >= INFO:
            print(pattern.sub("", f"{text}\n"), end="", file=sys.stderr, flush=True)

    return heard_by(show)


def _grammar(layout: Layout) -> Layout:
    """Return the layout of the folder with all features of native_functions.yaml, for the same pin."""
    return replace(layout, natives=(GRAMMAR,), out=HOME / "grammar")


def purpose_of(delivery: str) -> str:
    """Return the purpose of the environment in which a delivery is tested."""
    return TEST if delivery == WHEEL else f"{TEST}-{delivery}"


@contextmanager
def delivered(request: Request, delivery: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """Hold an environment with the operators, in any delivery or as the wheel of a source build; or, for ``STOCK``,
    with the official torch alone. Yields its Python, and the tests' environment variables.
    """
    layout, purpose = request.layout, purpose_of(delivery)
    if delivery == SOURCE:
        wheel = wheel_of(layout, SOURCE)
        with wheel_environment(layout, purpose, wheel) as python:
            tree = tree_of_build(request)  # which has PyTorch's own tests
            yield python, {"GRAFT_TESTED_WHEEL": str(wheel), "GRAFT_NATIVE": named(layout), "GRAFT_TREE": str(tree)}
    elif delivery == WHEEL:
        wheel = wheel_of(layout)
        with beside_stock(layout, purpose, wheel) as (python, variables):
            yield python, {**variables, "GRAFT_TESTED_WHEEL": str(wheel)}
    else:
        base = get_base(pin_of(layout), layout, request.wheel, Steps()).wheel
        added: list[Layer] = []
        if delivery == THIN:
            out = HOME / "thin" / layout.name
            thin = thin_wheel(replace(request, out=out, name="graft_tested")).path
            options = ("--force-reinstall", "--no-deps", thin)
            added = [Layer(identity(thin), lambda target: install(target, *options, what=thin.name))]
        with beside_stock(layout, purpose, base, added) as (python, variables):
            if delivery == DEVELOP:
                develop(replace(request, python=str(python), watch=False), argparse.Namespace(editor=False))
            yield python, {**variables, "GRAFT_DELIVERY": delivery}


@contextmanager
def beside_stock(
    layout: Layout, purpose: str, wheel: Path, more: Sequence[Layer] = ()
) -> Iterator[tuple[Path, dict[str, str]]]:
    """Hold an environment with ``wheel``, and a folder with the official torch for comparisons. Yields the Python of
    the one, and environment variables that describe the build to tests.
    """
    with (
        wheel_environment(layout, purpose, wheel, more=more) as python,
        unpacked(layout, "stock", base_wheel_of(layout)) as stock,
    ):
        variables = {"GRAFT_BASE_FOLDER": str(layout.base), "GRAFT_STOCK": str(stock), "GRAFT_NATIVE": named(layout)}
        yield python, {**variables, "GRAFT_CUDA_ARCHS": layout.cuda.archs}


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


def own_tests(layout: Layout) -> list[Suite]:
    """Return the tests in native folders."""
    parts: list[Suite] = []
    for native in layout.natives:
        if native == SHIPPED:
            parts.append(Suite("operators", "the shipped operators", [TESTS / "wheel/shipped"]))
        elif any((native / "tests").rglob("*.py")):  # pytest fails if there is none
            parts.append(Suite("operators", f"the operators of {native}", [native / "tests"], OPINFOS))
    return parts
