"""``python -m tests.kit VERB``: the equipment that builds, or needs a build. `nox -l` lists the rest."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from graft.cli import BASE, LIVE, main
from graft.options import LAST, Verb


def _extra(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("extra", nargs="*", help="after --: arguments for pytest, or for the program that runs")


def _tests(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", help="which tests: builder, codegen, wheel, operators, ...")
    parser.add_argument("--junit", type=Path, metavar="FOLDER", help="a folder for each part's results, as XML")
    parser.add_argument("--discard", action="store_true", help="delete the environments of the tests afterwards")
    _extra(parser)


def _rows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="a row; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the rows")
    parser.add_argument("--repeat", type=int, help="repetitions (default: from nothing 1, the others 3)")
    _writing(parser)


def _writing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--write", action="store_true", help="write the tables and their date into scripts/guides")


def _mutants(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chosen", nargs="*", help="numbers (12, 3-7) and parts of file names (default: all)")
    parser.add_argument("--list", action="store_true", help="list the mutants")


def _steps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chosen", nargs="*", help="steps (default: all, and dates, which checks the table)")
    parser.add_argument("--list", action="store_true", help="list the steps, and how long each took")
    parser.add_argument("--again", action="store_true", help="run also what passed with the same sources")
    parser.add_argument("--keep", action="store_true", help="let what passed with other sources count, too")


def _commands(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chosen", nargs="*", help="parts of commands or of places (README.md:13); all by default")


# Most bring the build that they use up to date first.
_KIT, _BUILT = "tests.kit", f"{BASE} out"
_ON_BUILT, _ON_DELIVERY = (_BUILT, LAST, _extra), (f"{_BUILT} build {LIVE} delivery", LAST, _tests)
VERBS = (
    Verb("test", "test the wheel in a new environment", f"{_KIT}.testing:test", *_ON_DELIVERY),
    Verb("test-all", "test the builder, too, and what the READMEs say", f"{_KIT}.testing:test_all", *_ON_DELIVERY),
    Verb("test-sanitize", "build with sanitizers and run the tests", f"{_KIT}.sanitize:test_sanitized", *_ON_BUILT),
    Verb("test-mutants", "does a test find each wrong line?", f"{_KIT}.mutants:test_mutants", BASE, LAST, _mutants),
    Verb("test-nightly", "what takes hours, step by step", f"{_KIT}.nights:test_nightly", own=_steps),
    Verb("commands", "type every command that a README shows", f"{_KIT}.commands:type_commands", own=_commands),
    Verb("fuzz", "call the operators at random", f"{_KIT}.sanitize:fuzz", *_ON_BUILT),
    Verb(
        *("surfaces", "compare the operators with PyTorch's own", f"{_KIT}.surface_table:show_surfaces"),
        *(f"{_BUILT} delivery", LAST, _extra),
    ),
    Verb(
        *("bench", "time the operators and their alternatives", f"{_KIT}.benchmarks:bench"),
        *(f"{_BUILT} {LIVE}", LAST, _extra),
    ),
    Verb("bench-build", "time builds in a copy", f"{_KIT}.builds:time_builds", _BUILT, LAST, _rows),
    Verb(
        "bench-peers", "compare other ways to add an operator", f"{_KIT}.benchmarks:bench_peers", _BUILT, LAST, _writing
    ),
)

if __name__ == "__main__":
    sys.exit(main(VERBS))
