"""``python -m tests.kit VERB``: the equipment that builds, or needs a build. `nox -l` lists the rest."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from graft.build import build
from graft.cli import BASE, main
from graft.core.errors import UsageError
from graft.core.layout import expanded
from graft.options import LAST, SOURCE, WHEEL, Request, Verb

from .todos import ending_with_todos

# The options of verbs that use a build, and bring it up to date first.
_BUILT = f"{BASE} out build source"


def _extra(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("extra", nargs="*", help="after --: arguments for pytest, or for the program that runs")


def _tests(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", help="which tests: tools, codegen, wheel, operators, ...")
    parser.add_argument("--junit", type=Path, metavar="FOLDER", help="a folder for each part's results, as XML")
    parser.add_argument("--discard", action="store_true", help="delete the environments of the tests afterwards")
    _extra(parser)


def _rows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="a row; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the rows")
    parser.add_argument("--repeat", type=int, help="repetitions (default: from nothing 1, the others 3)")


def _mutants(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chosen", nargs="*", help="numbers (12, 3-7) and parts of file names (default: all)")
    parser.add_argument("--list", action="store_true", help="list the mutants")


VERBS = (
    Verb("test", "test the wheel in a new environment", "tests.kit.__main__:test", f"{_BUILT} delivery", LAST, _tests),
    Verb(
        *("test-sanitize", "build with sanitizers and run the tests", "tests.kit.__main__:test_sanitize"),
        *(f"{BASE} out", LAST, _extra),
    ),
    Verb(
        *("test-mutants", "does a test find each wrong line?", "tests.kit.__main__:test_mutants"),
        *(BASE, LAST, _mutants),
    ),
    Verb("fuzz", "call the operators at random", "tests.kit.__main__:fuzz", f"{BASE} out", LAST, _extra),
    Verb(
        *("surfaces", "compare the operators with PyTorch's own", "tests.kit.__main__:surfaces"),
        *(f"{BASE} out delivery", LAST, _extra),
    ),
    Verb("bench", "time the operators and their alternatives", "tests.kit.__main__:bench", f"{BASE} out", LAST, _extra),
    Verb("bench-build", "time builds in a copy", "tests.kit.__main__:bench_build", f"{BASE} out", LAST, _rows),
    Verb(
        "bench-peers",
        "compare with other ways to add an operator",
        "tests.kit.__main__:bench_peers",
        f"{BASE} out",
        LAST,
    ),
)


def test(request: Request, given: argparse.Namespace) -> None:
    """Build what is asked for, unless it is up to date, and test it."""
    from .delivered import test_delivered
    from .run import run_source_tests, run_tests

    with ending_with_todos(request.native):
        if request.build == SOURCE and (given.parts or given.junit or given.discard):
            raise UsageError("BUILD=source has no --parts, --junit or --discard", todo="leave them out")
        if len(request.delivery.split()) > 1:
            raise UsageError(f"DELIVERY={request.delivery}: tests run on one delivery", todo="name one of them")
        if request.delivery != WHEEL:
            test_delivered(request, given.extra, given.parts or ())
            return
        build(request)
        if request.build == SOURCE:
            run_source_tests(request, given.extra)
        else:
            junit = expanded(given.junit) if given.junit else None
            run_tests(request, given.extra, given.parts or (), junit, given.discard)


def test_sanitize(request: Request, given: argparse.Namespace) -> None:
    """Build with sanitizers, and run the tests of the operators."""
    from .sanitize import test_sanitized

    test_sanitized(request, given.extra)


def test_mutants(request: Request, given: argparse.Namespace) -> None:
    """Insert one wrong line at a time."""
    from .mutant_list import list_mutants
    from .mutants import test_mutants

    if given.list:
        list_mutants(given.chosen)
    else:
        test_mutants(request, given.chosen)


def fuzz(request: Request, given: argparse.Namespace) -> None:
    """Call the operators at random."""
    from .sanitize import fuzz

    build(request)
    fuzz(request, given.extra)


def surfaces(request: Request, given: argparse.Namespace) -> None:
    """Compare the operators with PyTorch's own."""
    from .delivered import show_surfaces

    if WHEEL in request.delivery.split():
        build(request)
    show_surfaces(request, given.extra)


def bench(request: Request, given: argparse.Namespace) -> None:
    """Time the operators."""
    from .bench.environment import bench

    build(request)
    bench(request.layout, given.extra)


def bench_build(request: Request, given: argparse.Namespace) -> None:
    """Time builds."""
    from .builds import bench_build, list_builds

    if given.list:
        list_builds(request.layout)
    else:
        bench_build(request, only=given.only, repeat=given.repeat)


def bench_peers(request: Request) -> None:
    """Compare with other ways to add an operator."""
    from .peers.run import bench_peers

    build(request)
    bench_peers(request)


if __name__ == "__main__":
    sys.exit(main(VERBS))
