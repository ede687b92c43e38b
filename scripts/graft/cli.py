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
from .core.layout import BYTECODE
from .options import FOUND, NONE, OLDEST, OPTIONS, RELEASE, SHARED, Request, Verb, request_of


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--report", help="write the result and the seconds of each step into this file, as JSON")


def _source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--syntax", action="store_true", help="only parse the folder's sources, without a build")
    parser.add_argument("--if-possible", action="store_true", help="skip if packages or sources are missing")


_HELP = "`make` lists the variables, and ARGS=--help the options of a target"

# The options of verbs that build for one base.
BASE = "pin native wheel jobs launcher cuda_archs cuda_home cxx"
# Those of verbs that use PyTorch's sources.
_TREE = "pin native jobs source cuda_home cxx"

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
        *("check-source", "compile the operators in PyTorch's source tree", "graft.fork.verbs:check"),
        *(_TREE, OLDEST, _source),
    ),
    Verb(
        *("new-op", "write the skeleton of a new operator", "graft.new.new_op:new_op"),
        *("pin native wheel cxx schema kind variants", FOUND),
    ),
    Verb(
        *("wheels", "build wheels for several pins and Pythons", "graft.wheels:build_wheels"),
        "native out wheel jobs launcher cuda_archs cuda_home cxx python pins pythons delivery name version",
    ),
    Verb("pin", "write the pin of a release", "graft.pin.pin:make_pin", "torch index jobs launcher cxx"),
    Verb("apply", "turn a PyTorch checkout into the fork", "graft.fork.verbs:apply", _TREE, RELEASE),
    Verb("export", "write that fork as patches", "graft.fork.verbs:export", f"{_TREE} out", RELEASE),
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
        raise UsageError(message, todo=_HELP)


def read(verbs: Sequence[Verb], words: Sequence[str]) -> tuple[Verb, Request, argparse.Namespace]:
    """Read the command line, and the variables that make exports.

    Raises:
        UsageError: an option is unknown, or its value cannot be read.
    """
    parser = _Parser(prog="graft", description="Build native operators into PyTorch.")
    parsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in verbs:
        one = parsers.add_parser(verb.name, help=verb.help, description=verb.help)
        for option in map(OPTIONS.__getitem__, verb.takes.split()):
            how: dict[str, Any] = {"nargs": "?", "const": "1"} if option.is_switch else {}
            one.add_argument(option.flag, help=option.help.replace("%", "%%"), metavar="...", **how)
        one.add_argument("-v", "--verbose", action="store_true", help="show tracebacks")
        if verb.own:
            verb.own(one)
    given = parser.parse_args(words)
    chosen = next(verb for verb in verbs if verb.name == given.verb)
    texts, spelled = {}, {}
    os.environ.pop("ARGS", None)
    for name, option in OPTIONS.items():
        flag = getattr(given, name, None)
        texts[name] = option.given(os.environ) if flag is None else flag
        spelled[name] = option.variable if flag is None else option.flag
        # What this process starts gets its options on its command line, unless it is no program of ours.
        if option.variable not in SHARED:
            os.environ.pop(option.variable, None)
        elif flag is not None:
            os.environ[option.variable] = flag
    try:
        return chosen, request_of(texts, spelled), given
    except ValueError as error:
        raise UsageError(str(error), todo=_HELP) from error
