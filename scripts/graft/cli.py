"""The command line: ``python -m graft <verb>``."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from .core.console import say
from .core.errors import GraftError, PackError, RefusedError, UsageError
from .core.files import write_atomically
from .core.layout import BYTECODE, REPOSITORY, Layout, expanded, native_folders
from .deliver.built import GRAFT, SOURCE, last_build
from .inputs.cuda_toolkit import architectures_in
from .inputs.given import INSTALLED, check_before_download, check_given

if TYPE_CHECKING:
    from .build import Result

# Each verb imports only what it runs: starting Python is a large part of a build that has nothing to do.


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    own = words[: words.index("--")] if "--" in words else words
    is_verbose = "-v" in own or "--verbose" in own
    try:
        options = _parser().parse_args(words)
        options.pin = getattr(options, "pin", "") or _default_pin(options)
        check_given(options)
        if options.verb in _FINDING_A_PIN and getattr(options, "build", GRAFT) == GRAFT and not options.list:
            _find_base(options)
        _VERBS[options.verb](options)
    except GraftError as error:
        if is_verbose:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, RefusedError | PackError):
            _forget_bytecode()
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        return 130
    except OSError as error:
        if is_verbose:
            traceback.print_exc()
        refused = RefusedError.of(error)
        print(f"error: {refused}", file=sys.stderr)
        _forget_bytecode()
        return refused.exit_code
    return 0


def _forget_bytecode() -> None:
    """Delete the bytecode cache. On a full disk Python writes truncated files there without an error, and every later
    import of these would fail.
    """
    shutil.rmtree(BYTECODE, ignore_errors=True)


def _default_pin(options: argparse.Namespace) -> str:
    """Return the pin that a verb uses if none is given; empty if it uses none, or it must be found by asking pip."""
    if getattr(options, "wheel", None):
        from .base.fetch import in_name_of

        with suppress(GraftError):  # check_given reports it
            return in_name_of(options.wheel)[0]
        return ""
    build = getattr(options, "build", GRAFT)
    if options.verb in _USING_A_BUILD and (last := last_build(native_folders(options.native), build)):
        pin, built = last
        # make exports this variable even if it is empty.
        os.environ["CUDA_ARCHS"] = os.environ.get("CUDA_ARCHS") or architectures_in(built.cuda)
        say(f"torch {pin}: that of the last build")
        return pin
    if options.verb in _OF_A_RELEASE or build == SOURCE:
        from .base.find import default_release, oldest_release

        return (oldest_release if options.verb == "check-source" else default_release)(REPOSITORY / "patches")
    return ""


def _find_base(options: argparse.Namespace) -> None:
    """Find a pin if none is given. Get a wheel that is not pinned for this Python: its hash is an input of builds."""
    from .base.find import fetch_unpinned, find_pin

    if not options.pin:
        check_before_download(options)
        options.pin = find_pin()
    elif options.pin != INSTALLED:
        fetch_unpinned(_layout(options), options.wheel)


def _build(options: argparse.Namespace) -> None:
    result = _built(options)
    if options.report:
        write_atomically(options.report, json.dumps({"wheel": str(result.wheel), "seconds": result.seconds}))
    if options.timings:
        write_atomically(options.timings, json.dumps(result.seconds))


def _built(options: argparse.Namespace) -> Result:
    """Bring the wheel up to date."""
    build = getattr(options, "build", GRAFT)
    if build == SOURCE:
        from .fork.build import build_source

        return build_source(_layout(options), source=options.source, jobs=options.jobs)
    from .build import build as build_graft

    return build_graft(_layout(options), base_wheel=options.wheel, jobs=options.jobs)


def _develop(options: argparse.Namespace) -> None:
    from .develop import develop, watch

    if options.watch:
        watch(_layout(options), options.python, jobs=options.jobs)
    seconds = develop(_layout(options), options.python, jobs=options.jobs)
    if options.timings:
        write_atomically(options.timings, json.dumps(seconds))


def _thin_wheel(options: argparse.Namespace) -> None:
    from .thin import thin_wheel

    result = thin_wheel(
        _layout(options),
        name=options.name,
        version=options.version,
        python=options.python,
        base_wheel=options.wheel,
        jobs=options.jobs,
    )
    if options.report:
        write_atomically(options.report, json.dumps({"wheel": str(result.wheel), "seconds": result.seconds}))


def _undevelop(options: argparse.Namespace) -> None:
    from .develop import undevelop

    undevelop(options.python)


def _check(options: argparse.Namespace) -> None:
    from .build import check

    check(_layout(options), base_wheel=options.wheel)


def _check_source(options: argparse.Namespace) -> None:
    from .fork.build import check_source, if_possible
    from .fork.syntax import check_syntax

    check = check_syntax if options.syntax else check_source
    with if_possible(options.if_possible, f"whether {options.native} compiles in the source tree of {options.pin}"):
        check(_layout(options), source=options.source, jobs=options.jobs)


def _check_cuda(options: argparse.Namespace) -> None:
    from .build import check_cuda

    check_cuda(_layout(options), base_wheel=options.wheel, jobs=options.jobs)


def _test(options: argparse.Namespace) -> None:
    from .new.todos import ending_with_todos

    with ending_with_todos(native_folders(options.native)):
        _run_tests(options)


def _run_tests(options: argparse.Namespace) -> None:
    from tests.kit.run import WHEEL, run_source_tests, run_tests

    from .fork.fetch import tree_of_build

    if options.delivery != WHEEL:
        from tests.kit.delivered import test_delivered

        test_delivered(
            _layout(options),
            options.delivery,
            base_wheel=options.wheel,
            jobs=options.jobs,
            extra=options.extra,
            chosen=options.parts or (),
        )
        return
    if options.build == SOURCE and (options.parts or options.junit or options.discard):
        raise UsageError("BUILD=source has no --parts, --junit or --discard", todo="leave them out")
    _built(options)
    layout = _layout(options)
    if options.build == SOURCE:
        run_source_tests(layout, tree_of_build(layout, options.source), options.extra, options.jobs)
    else:
        run_tests(
            layout,
            base_wheel=options.wheel,
            jobs=options.jobs,
            extra=options.extra,
            chosen=options.parts or (),
            junit=options.junit and expanded(options.junit),
            is_discarding=options.discard,
        )


def _test_sanitize(options: argparse.Namespace) -> None:
    from tests.kit.sanitize import test_sanitized

    test_sanitized(_layout(options), base_wheel=options.wheel, jobs=options.jobs, extra=options.extra)


def _test_nightly(options: argparse.Namespace) -> None:
    from tests.kit.nightly import test_nightly

    test_nightly(options.steps)


def _test_mutants(options: argparse.Namespace) -> None:
    from tests.kit.mutants import list_mutants, test_mutants

    if options.list:
        list_mutants(options.chosen)
    else:
        test_mutants(_layout(options), options.chosen, base_wheel=options.wheel, jobs=options.jobs)


def _wheels(options: argparse.Namespace) -> None:
    from tests.kit.matrix.wheels import build_wheels

    _refuse_one_base(options)
    thin = None
    if options.delivery == "thin-wheel":
        thin = ["--version", options.version, *(["--name", options.name] if options.name else [])]
    elif options.delivery != "wheel":
        raise UsageError(
            f"DELIVERY={options.delivery}: `make wheels` cannot build this", todo="set it to wheel or thin-wheel"
        )
    build_wheels(_layout(options), options.pins, options.pythons, jobs=options.jobs, thin=thin)


def _test_matrix(options: argparse.Namespace) -> None:
    from tests.kit.matrix.run import test_matrix

    _refuse_one_base(options)
    test_matrix(
        _layout(options),
        options.pins,
        options.pythons,
        jobs=options.jobs,
        at_once=options.at_once,
        parts=options.parts,
        extra=options.extra,
        is_anew=options.again,
        is_kept=options.keep,
        markdown_file=options.markdown,
    )


def _refuse_one_base(options: argparse.Namespace) -> None:
    if options.wheel:
        raise UsageError(
            f"WHEEL={options.wheel}: each pin and Python has its own base wheel",
            todo="leave it out; pip downloads the wheels",
        )


def _fuzz(options: argparse.Namespace) -> None:
    from tests.kit.sanitize import fuzz

    fuzz(_layout(options), options.extra)


def _bench_build(options: argparse.Namespace) -> None:
    from tests.kit.builds import bench_build, list_builds

    if options.list:
        list_builds(_layout(options))
        return
    bench_build(
        _layout(options),
        base_wheel=options.wheel,
        jobs=options.jobs,
        only=options.only,
        repeat=options.repeat,
        folder=expanded(options.copy),
        keep=options.keep,
        result=options.json,
        markdown=options.markdown,
    )


def _bench_peers(options: argparse.Namespace) -> None:
    from tests.kit.peers.run import bench_peers

    _built(options)
    bench_peers(_layout(options), base_wheel=options.wheel, jobs=options.jobs, markdown=options.markdown)


def _bench(options: argparse.Namespace) -> None:
    from tests.kit.bench.environment import bench

    _built(options)
    bench(_layout(options), options.extra)


def _surfaces(options: argparse.Namespace) -> None:
    from tests.kit.delivered import show_surfaces_of
    from tests.kit.run import WHEEL

    layout, deliveries = _layout(options), options.delivery.split()
    if WHEEL in deliveries:
        _built(options)
    show_surfaces_of(layout, deliveries, base_wheel=options.wheel, jobs=options.jobs, extra=options.extra)


def _new_op(options: argparse.Namespace) -> None:
    from .new.new_op import new_op

    new_op(
        _layout(options),
        base_wheel=options.wheel,
        schema=options.schema,
        kind=options.kind,
        variants=options.variants,
    )


def _pin(options: argparse.Namespace) -> None:
    from .pin.pin import make_pin

    make_pin(options.torch, index=options.index, jobs=options.jobs)


def _apply(options: argparse.Namespace) -> None:
    from .fork.apply import apply
    from .fork.fetch import fetched

    layout = _layout(options)
    apply(fetched(layout, options.source), layout)


def _export(options: argparse.Namespace) -> None:
    from .fork.export import export
    from .fork.fetch import fetched

    layout = _layout(options)
    export(fetched(layout, options.source), layout.out)


def _lint(_: argparse.Namespace) -> None:
    from tests.kit.lint import lint

    lint()


_VERBS: dict[str, Callable[[argparse.Namespace], None]] = {
    "build": _build,
    "develop": _develop,
    "undevelop": _undevelop,
    "thin-wheel": _thin_wheel,
    "check": _check,
    "check-source": _check_source,
    "check-cuda": _check_cuda,
    "test": _test,
    "test-sanitize": _test_sanitize,
    "test-nightly": _test_nightly,
    "test-mutants": _test_mutants,
    "wheels": _wheels,
    "test-matrix": _test_matrix,
    "fuzz": _fuzz,
    "new-op": _new_op,
    "pin": _pin,
    "apply": _apply,
    "export": _export,
    "lint": _lint,
    "bench-build": _bench_build,
    "bench": _bench,
    "bench-peers": _bench_peers,
    "surfaces": _surfaces,
}


# Verbs that use a wheel, and build it first if it is not up to date.
_USING_A_BUILD = frozenset({"test", "surfaces", "fuzz", "bench", "bench-peers", "test-sanitize", "test-mutants"})
# Verbs that need a source tree, or a wheel for CUDA.
_OF_A_RELEASE = frozenset({"apply", "export", "check-source", "check-cuda"})
# Verbs that take any torch. Those in no set use the torch of an environment, several pins, or none.
_FINDING_A_PIN = _USING_A_BUILD | {"build", "thin-wheel", "check", "new-op", "bench-build"}


def _layout(options: argparse.Namespace) -> Layout:
    default = "dist" if options.verb != "export" else f"dist/fork-{options.pin.partition('+')[0]}"
    return Layout(options.pin, native_folders(options.native), expanded(options.out or REPOSITORY / default))


class _Parser(argparse.ArgumentParser):
    """Report errors in the builder's format, and name variables of the Makefile as the user wrote them."""

    def error(self, message: str) -> NoReturn:
        named = re.sub(r"argument --(jobs|at-once): ", lambda match: f"{_VARIABLES[match[1]]}: ", message)
        verb = self.prog.rpartition(" ")[2]
        raise UsageError(named, todo=f"`python -m graft {verb} --help` lists the options")


_VARIABLES = {"jobs": "JOBS", "at-once": "AT_ONCE"}


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
        parser_of_build.add_argument("--build", default=GRAFT, help=f"{GRAFT} or {SOURCE} (default: %(default)s)")
    for parser_of_tree in (building, checking, testing):
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
    pinning = verbs.add_parser("pin", parents=[common], help="write the pin of a release, and report what is new in it")
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
