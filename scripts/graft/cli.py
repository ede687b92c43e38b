"""The command line: verbs, the options that each takes, and what an error looks like."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn

from .core.errors import GraftError, RefusedError, UsageError
from .core.files import write_atomically
<<<<<<< HEAD
from .core.layout import BYTECODE
from .options import FOUND, NONE, OLDEST, OPTIONS, RELEASE, Request, Verb, request_of
=======
from .core.layout import BYTECODE, REPOSITORY, Layout, expanded, native_folders
from .deliver.built import GRAFT, SOURCE, last_build
from .given import INSTALLED, check_before_download, check_given
from .inputs.cuda_toolkit import architectures_in

if TYPE_CHECKING:
    from .build import Result

# Each verb imports only what it runs: starting Python is a large part of a build that has nothing to do.
>>>>>>> pin/h-pin


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--report", help="write the result and the seconds of each step into this file, as JSON")


def _source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--syntax", action="store_true", help="only parse the folder's sources, without a build")
    parser.add_argument("--if-possible", action="store_true", help="skip if packages or sources are missing")


# The options of verbs that build for one base.
BASE = "pin native wheel jobs launcher cuda_archs"
# Those of verbs that use PyTorch's sources.
_TREE = "pin native jobs source"

VERBS = (
    Verb(
        *("build", "build the torch wheel with the operators", "graft.build:build"),
        *(f"{BASE} out build source", FOUND, _report),
    ),
    Verb(
        *("develop", "add the operators to the torch that PYTHON has", "graft.build:develop"),
        *(f"{BASE} python watch debug", NONE, _report),
    ),
    Verb("undevelop", "restore the torch that PYTHON had", "graft.build:undevelop", "python"),
    Verb(
        *("thin-wheel", "build the operators as a wheel of their own", "graft.build:thin_wheel"),
        *(f"{BASE} out python name version", FOUND, _report),
    ),
    Verb("check", "find errors in the native folder without building", "graft.build:check", BASE, FOUND),
    Verb("check-cuda", "compile the CUDA sources of the native folder", "graft.build:check_cuda", BASE, RELEASE),
    Verb(
        *("check-source", "compile the operators in PyTorch's source tree", "graft.fork.check:check_source"),
        *(_TREE, OLDEST, _source),
    ),
    Verb(
        *("new-op", "write the skeleton of a new operator", "graft.new.new_op:new_op"),
        *("pin native wheel schema kind variants", FOUND),
    ),
    Verb("pin", "write the pin of a release", "graft.pin.pin:make_pin", "torch index jobs"),
    Verb("apply", "turn a PyTorch checkout into the fork", "graft.fork.apply:apply", _TREE, RELEASE),
    Verb("export", "write that fork as patches", "graft.fork.export:export", f"{_TREE} out", RELEASE),
)


def main(verbs: Sequence[Verb] = VERBS, arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    own = words[: words.index("--")] if "--" in words else words
    is_verbose = "-v" in own or "--verbose" in own
    try:
        verb, request, given = read(verbs, words)
        _run(verb, request, given)
    except (GraftError, OSError) as error:
        if is_verbose:
            traceback.print_exc()
        expected = error if isinstance(error, GraftError) else RefusedError.of(error)
        print(f"error: {expected}", file=sys.stderr)
        if isinstance(expected, RefusedError):
            # On a full disk Python writes truncated bytecode without an error, and later imports would fail.
            shutil.rmtree(BYTECODE, ignore_errors=True)
        return expected.exit_code
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        return 130
    return 0


def _run(verb: Verb, request: Request, given: argparse.Namespace) -> None:
    from .given import complete

    request = complete(verb, request, given)
    module, _, function = verb.run.partition(":")
    run: Callable[..., Any] = getattr(import_module(module), function)
    result = run(request, given) if verb.own and verb.own is not _report else run(request)
    if report := getattr(given, "report", None):
        write_atomically(report, json.dumps(result.report))


class _Parser(argparse.ArgumentParser):
    """Reports errors in the builder's format."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, todo=f"`{self.prog} --help` lists the options")


def read(verbs: Sequence[Verb], words: Sequence[str]) -> tuple[Verb, Request, argparse.Namespace]:
    """Read the command line, and the variables that make exports.

<<<<<<< HEAD
    Raises:
        UsageError: an option is unknown, or its value cannot be read.
    """
    parser = _Parser(prog="graft", description="Build native operators into PyTorch.")
    parsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in verbs:
        one = parsers.add_parser(verb.name, help=verb.help, description=verb.help)
        for option in map(OPTIONS.__getitem__, verb.takes.split()):
            one.add_argument(option.flag, help=option.help.replace("%", "%%"), metavar="...")
        one.add_argument("-v", "--verbose", action="store_true", help="show tracebacks")
        if verb.own:
            verb.own(one)
    given = parser.parse_args(words)
    chosen = next(verb for verb in verbs if verb.name == given.verb)
    texts, spelled = {}, {}
    for name, option in OPTIONS.items():
        flag = getattr(given, name, None)
        texts[name] = option.given(os.environ) if flag is None else flag
        spelled[name] = f"{option.variable}" if flag is None else option.flag
        # What this process starts gets its options on its command line.
        os.environ.pop(option.variable, None)
    try:
        return chosen, request_of(texts, spelled), given
    except ValueError as error:
        raise UsageError(str(error), todo=f"`graft {chosen.name} --help` lists the options") from error
=======

def _parser() -> argparse.ArgumentParser:
    common = _Parser(add_help=False)
    common.add_argument("--pin", default="", help="one of patches/ (default: the first that can be had)")
    common.add_argument("--native", default=str(REPOSITORY / "native"), help="native folders, separated by spaces")
    common.add_argument("--out", type=Path, help="output folder (default: dist, or for export dist/fork-RELEASE)")
    common.add_argument("--wheel", type=expanded, help="the base wheel as a file, instead of a download")
    common.add_argument("--jobs", type=_positive, default=os.cpu_count() or 1, help="parallel compilers (%(default)s)")
    common.add_argument("-v", "--verbose", action="store_true", help="show tracebacks")
    common.set_defaults(list=False)

    parser = _Parser(prog="python -m graft", description="Build native operators into PyTorch.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    building = verbs.add_parser("build", parents=[common], help="build the wheel of a native folder")
    thin = verbs.add_parser("thin-wheel", parents=[common], help="build the operators as a wheel of their own")
    checking = verbs.add_parser("check-source", parents=[common], help="compile the operators in PyTorch's source tree")
    checking.add_argument("--syntax", action="store_true", help="only parse the folder's sources, without a build")
    checking.add_argument("--if-possible", action="store_true", help="skip if packages or sources are missing")
    comparing = verbs.add_parser("check-incremental", parents=[common], help="verify skipped objects")
    comparing.add_argument("--objects", type=_positive, default=20, help="how many, at random (%(default)s)")
    building.add_argument("--timings", type=Path, help="write the seconds of each step into this file, as JSON")
    for parser_of_report in (building, thin):
        parser_of_report.add_argument(
            "--report", type=Path, help="write the wheel's path and these seconds into this file, as JSON"
        )
    developing = verbs.add_parser("develop", parents=[common], help="add the operators to the installed torch")
    developing.add_argument("--watch", action="store_true", help="build again on every save")
    developing.add_argument("--timings", type=Path, help="write the seconds of each step into this file, as JSON")
    leaving = verbs.add_parser("undevelop", parents=[common], help="remove them again")
    for parser_of_environment in (developing, leaving, thin):
        parser_of_environment.add_argument("--python", default=sys.executable, help="the environment's Python")
    verbs.add_parser("check", parents=[common], help="find errors in the native folder without building")
    verbs.add_parser("check-cuda", parents=[common], help="compile the CUDA sources of the native folder")
    testing = verbs.add_parser("test", parents=[common], help="test the wheel in a new environment")
    testing.add_argument("--whole", type=Path, help="source: compare with this wheel of a whole build")
    testing.add_argument("--parts", nargs="+", help="which tests: tools, codegen, wheel, operators, ...")
    testing.add_argument("--junit", type=Path, metavar="FOLDER", help="a folder for each part's results, as XML")
    testing.add_argument("--discard", action="store_true", help="delete the environments of the tests afterwards")
    several = verbs.add_parser("wheels", parents=[common], help="build wheels for several pins and Pythons")
    table = verbs.add_parser("test-matrix", parents=[common], help="build and test wheels, and write a table")
    for parser_of_thin in (thin, several):
        parser_of_thin.add_argument("--name", default="", help="the name of the thin wheel (default: the folder's)")
        parser_of_thin.add_argument("--version", default="0.1", help="of the thin wheel (default: %(default)s)")
    for parser_of_rows in (several, table):
        parser_of_rows.add_argument("--pins", default="", help="separated by spaces (default: all with a wheel)")
        parser_of_rows.add_argument("--pythons", default="", help="versions, names or paths, separated by spaces")
    table.add_argument("--at-once", type=_positive, default=1, help="rows to run at once (default: %(default)s)")
    table.add_argument("--parts", nargs="+", default=["operators", "wheel"], help="which tests (%(default)s)")
    table.add_argument("--again", action="store_true", help="test wheels again that passed before")
    table.add_argument("--keep", action="store_true", help="keep each row's test environments, up to 7 GB")
    table.add_argument("--markdown", type=Path, help="also write the table into this file, for a README")
    for parser_of_build in (building, testing):
        parser_of_build.add_argument(
            "--incremental", action="store_true", help="source: recompile only what a change affects"
        )
        parser_of_build.add_argument("--build", default=GRAFT, help=f"{GRAFT} or {SOURCE} (default: %(default)s)")
    for parser_of_tree in (building, checking, comparing, testing):
        parser_of_tree.add_argument("--source", help="a checkout of PyTorch, or where to download it")
    watching = verbs.add_parser("test-sanitize", parents=[common], help="build with sanitizers and run the tests")
    for parser_of_tests in (testing, watching, table):
        parser_of_tests.add_argument("extra", nargs="*", help="arguments for pytest, after --")
    calling = verbs.add_parser("fuzz", parents=[common], help="call the operators at random")
    calling.add_argument("extra", nargs="*", help="after --: --minutes, or --seed to repeat one call")
    showing = verbs.add_parser("surfaces", parents=[common], help="compare the operators with PyTorch's own")
    showing.add_argument("extra", nargs="*", help="after --: --only with a part of a surface's title")
    for parser_of_delivery in (testing, showing, several):
        parser_of_delivery.add_argument(
            "--delivery", default="wheel", help="wheel, develop or thin-wheel (%(default)s)"
        )
    for verb, text in (("apply", "turn a PyTorch checkout into the fork"), ("export", "write that fork as patches")):
        sourcing = verbs.add_parser(verb, parents=[common], help=text)
        sourcing.add_argument("--source", help="the top folder of a PyTorch checkout, instead of a download")
    benching = verbs.add_parser("bench-build", parents=[common], help="time builds in a copy of this repository")
    benching.add_argument("--json", type=Path, default=REPOSITORY / "build/bench-build.json", help="the output file")
    benching.add_argument("--markdown", type=Path, help="also write the table into this file, for a README")
    benching.add_argument(
        "--only", action="append", default=[], metavar="ROW", help="a row to measure; may be repeated"
    )
    benching.add_argument("--list", action="store_true", help="list the rows")
    benching.add_argument("--repeat", type=_positive, help="repetitions (default: from nothing 1, the others 3)")
    benching.add_argument("--copy", type=Path, default=REPOSITORY / "build/bench", help="the folder of the copy")
    benching.add_argument("--keep", action="store_true", help="keep the copy")
    peers = verbs.add_parser("bench-peers", parents=[common], help="compare Graft with other ways to add an operator")
    peers.add_argument("--markdown", type=Path, help="also write the table into this file, for a README")
    timing = verbs.add_parser("bench", parents=[common], help="time the operators and their alternatives")
    timing.add_argument("extra", nargs="*", help="operators and options of the benchmark, after --")
    adding = verbs.add_parser("new-op", parents=[common], help="write the skeleton of a new operator")
    adding.add_argument("--schema", required=True, help="of the functional variant, as in native_functions.yaml")
    adding.add_argument("--kind", default="plain", help="plain, pointwise or composite (default: %(default)s)")
    adding.add_argument("--variants", default="", help="inplace, out, or both, separated by a comma")
    pinning = verbs.add_parser("pin", parents=[common], help="write the pin of a release, and build upon it")
    pinning.add_argument("--torch", required=True, help="a version, such as 2.13.0+cpu, or a wheel file")
    pinning.add_argument("--index", default="", help="an additional index for pip")
    mutating = verbs.add_parser("test-mutants", parents=[common], help="does a test find each wrong line?")
    mutating.add_argument("chosen", nargs="*", help="numbers (12, 3-7) and parts of file names (default: all)")
    mutating.add_argument("--list", action="store_true", help="list the mutants")
    nightly = verbs.add_parser("test-nightly", help="run the tests that take hours: sanitizers, fuzz, slow tests, ...")
    nightly.add_argument("steps", nargs="*", help="the steps to run (default: all)")
    verbs.add_parser("lint", help="run the linters")
    return parser


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text or 'nothing'} is not a positive number")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
>>>>>>> pin/h-pin
