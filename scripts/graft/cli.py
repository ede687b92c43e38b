"""The command line: verbs, the options that each takes, what an error looks like; and what is checked before anything
is done.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from .base.fetch import check_wheel, in_name_of
from .base.find import default_release, fetch_unpinned, find_pin, oldest_release
from .core.bugs import expected, traced
from .core.console import HELP, as_typed, say
from .core.environments import command_on
from .core.errors import GraftError, RefusedError, ToolchainError, UsageError, run_all
from .core.files import delete, write_atomically
from .core.layout import BYTECODE, IS_CHECKOUT, PATCHES, REPOSITORY, TorchVersion, expanded
from .core.make import changes_folder, command_of_make
from .core.pythons import find_python, probed
from .deliver.built import last_build
from .inputs.native import load_natives, require_native
from .inputs.pin import pin_of
from .inputs.toolchain import architectures_in, wanted_architectures
from .options import (
    DEVELOP,
    FOUND,
    GRAFT,
    INSTALLED,
    LAST,
    NONE,
    OLDEST,
    OPTIONS,
    RELEASE,
    SHARED,
    SOURCE,
    THERE,
    THIN,
    WHEEL,
    Request,
    Verb,
    request_of,
)


def _report(parser: argparse.ArgumentParser) -> None:
    help_ = "write the result and the seconds of each step into this file, as JSON"
    parser.add_argument("--report", type=expanded, metavar="FILE", help=help_)


def _listing(parser: argparse.ArgumentParser) -> None:
    help_ = "list the files that builds read"
    parser.add_argument("--list", action="store_true", dest="are_files_listed", help=help_)


def _source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--syntax", action="store_true", help="only parse the folder's sources, without a build")
    parser.add_argument("--if-possible", action="store_true", help="skip if packages or sources are missing")


# The options that are paths.
_PATHS = ("native", "out", "wheel", "source", "project")

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
        *(f"{BASE} out python name version pins", FOUND, _report),
    ),
    Verb(
        *("check", "find errors in the native folder without building", "graft.build:check"),
        *(f"{BASE} python", THERE, _listing),
    ),
    Verb("check-cuda", "compile the CUDA sources of the native folder", "graft.build:check_cuda", BASE, RELEASE),
    Verb(
        *("check-source", "compile the operators in PyTorch's source tree", "graft.fork.build:check"),
        *(_TREE, OLDEST, _source),
    ),
    Verb(
        *("new", "write the skeleton of a new operator", "graft.new.new_op:new_op"),
        *("pin native wheel cxx python schema kind variants project", THERE),
    ),
    Verb(
        *("wheels", "build wheels for several pins and Pythons", "graft.wheels:build_wheels"),
        "native out wheel jobs launcher cuda_archs cuda_home cxx python pins pythons delivery name version",
    ),
    Verb("pin", "write the pin of a release", "graft.pin:make_pin", "torch index jobs launcher cxx"),
    Verb("apply", "turn a PyTorch checkout into the fork", "graft.fork.apply:apply_fetched", _TREE, RELEASE),
    Verb(
        *("import", "write what a branch of PyTorch changes as a native folder", "graft.fork.branch:import_branch"),
        *("pin native source branch diff", RELEASE),
    ),
    Verb("export", "write that fork as patches", "graft.fork.export:export_fetched", f"{_TREE} out", RELEASE),
    Verb("clean", "delete environments, and what was built", "graft.build:clean", "", NONE),
    Verb("clean-bases", "delete the downloaded torches, which all builds share", "graft.base.shared:clean_bases"),
)


def command() -> int:
    """Run the command ``graft``: one of ``VERBS``, or the tests."""
    sys.path.insert(0, str(REPOSITORY))  # which has tests/
    kit: Sequence[Verb] = import_module("tests.kit.__main__").VERBS
    return main([*VERBS, *(verb for verb in kit if verb.name == "test")])


def main(verbs: Sequence[Verb] = VERBS, arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    own = words[: words.index("--")] if "--" in words else words
    is_verbose = "-v" in own or "--verbose" in own
    try:
        verb, request, given = read(verbs, words)
        if other := _another_python(verb, request):
            command = list(map(str, [*command_on(other, "graft"), *words]))
            os.execv(command[0], command)
        _keep_from_others(given)
        _run(verb, request, given)
    except Exception as error:
        if is_verbose:
            print(traced(error), file=sys.stderr)
        shown = expected(error)
        say(f"error: {shown}")
        if isinstance(shown, RefusedError):
            # On a full disk Python writes truncated bytecode without an error, and later imports would fail.
            with suppress(OSError):
                delete(BYTECODE)
        return shown.exit_code
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        return 130
    return 0


def _another_python(verb: Verb, request: Request) -> Path | None:
    """Return the Python to build for, if the builder runs on one with another ABI. make starts it on the right one."""
    takes = verb.takes.split()
    if IS_CHECKOUT or "python" not in takes or "pythons" in takes or request.python == sys.executable:
        return None
    ours, found = probed(Path(sys.executable)), find_python(request.python)
    return found.path if ours and found and found.tag != ours.tag else None


def _run(verb: Verb, request: Request, given: argparse.Namespace) -> None:
    request = complete(verb, request, given)
    module, _, function = verb.run.partition(":")
    run: Callable[..., Any] = getattr(import_module(module), function)
    result = run(request, given) if verb.own and verb.own is not _report else run(request)
    if report := getattr(given, "report", None):
        write_atomically(report, json.dumps(result.report))


class _Parser(argparse.ArgumentParser):
    """Reports errors in the builder's format."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, todo=HELP)


def read(verbs: Sequence[Verb], words: Sequence[str]) -> tuple[Verb, Request, argparse.Namespace]:
    """Read the command line, and the variables.

    Raises:
        UsageError: an option is unknown, or its value cannot be read.
    """
    # The list of verbs fits on a screen of 24 lines.
    parser = _Parser(prog="graft", usage="graft [--help] [--version] VERB ...", add_help=False)
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help=argparse.SUPPRESS)
    parsers = parser.add_subparsers(prog="graft", dest="verb", required=True, metavar="VERB")
    for verb in verbs:
        help_ = as_typed(verb.help)
        one = parsers.add_parser(verb.name, help=help_, description=help_)
        for option in map(OPTIONS.__getitem__, verb.takes.split()):
            how: dict[str, Any] = {"nargs": "?", "const": "1"} if option.is_switch else {}
            one.add_argument(option.flag, help=as_typed(option.help).replace("%", "%%"), metavar="...", **how)
        one.add_argument("-v", "--verbose", action="store_true", help="show tracebacks")
        if verb.own:
            verb.own(one)
    given = parser.parse_args(words or ["--help"])
    chosen = next(verb for verb in verbs if verb.name == given.verb)
    texts, spelled = {}, {}
    for name, option in OPTIONS.items():
        flag = getattr(given, name, None)
        texts[name] = option.given(os.environ) if flag is None else flag
        spelled[name] = (option.word if IS_CHECKOUT else option.variable) if flag is None else option.flag
    _require_absolute({spelled[name]: texts[name] for name in _PATHS if texts[name] != OPTIONS[name].default})
    return chosen, request_of(texts, spelled), given


def _keep_from_others(given: argparse.Namespace) -> None:
    """Remove the options from the environment: what this process starts gets its own on its command line. But other
    programs read some of them, too.
    """
    os.environ.pop("ARGS", None)
    for name, option in OPTIONS.items():
        flag = getattr(given, name, None)
        if option.variable not in SHARED:
            os.environ.pop(option.variable, None)
        elif flag is not None:
            os.environ[option.variable] = flag


class _ShowVersion(argparse.Action):
    """Prints Graft's version, which is read only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
        found = re.search(r'^version = "(.+)"$', text, re.M)
        print(f"graft {found[1] if found else 'of a checkout'}")
        parser.exit()


def _require_absolute(paths: Mapping[str, str]) -> None:
    """Check that a user of ``make -C`` names no path from the folder that make left; Graft's could have it, too.

    Raises:
        UsageError: lists these paths.
    """
    if os.environ.get("MAKELEVEL") != "1" or not changes_folder(command_of_make()):
        return
    relative = [f"{name}={path}" for name, path in paths.items() if path[0] not in "/~'\""]
    if relative:
        what = f"{', '.join(relative)}: `make -C` is run in another folder than yours"
        raise UsageError(what, todo="write absolute paths")


def complete(verb: Verb, request: Request, own: argparse.Namespace) -> Request:
    """Return the request with the pin that the verb uses.

    Args:
        verb: what to do.
        request: what was given.
        own: the verb's own flags.

    Raises:
        GraftError: lists everything that is wrong.
    """
    if not request.pin:
        request = _with_default_pin(verb, request)
    _check(verb, request)
    is_listing = getattr(own, "list", False)
    if verb.pin not in (FOUND, THERE, LAST) or request.build != GRAFT or request.pin == INSTALLED or is_listing:
        return request
    if request.pin:
        # The hash of a wheel that is not pinned for this Python is an input of the build.
        fetch_unpinned(request.layout, request.wheel)
        return request
    pin, cuda_archs = find_pin(request.cuda_archs, cxx=request.cxx)
    return replace(request, pin=pin, cuda_archs=cuda_archs)


def _with_default_pin(verb: Verb, request: Request) -> Request:
    """Add the pin that a verb uses if none is given; it stays empty if it uses none, or asks pip for one."""
    if request.wheel:
        with suppress(GraftError):  # _check reports it
            return replace(request, pin=in_name_of(request.wheel)[0])
        return request
    if verb.pin == THERE and _has_torch(request.python):
        return replace(request, pin=TorchVersion(INSTALLED))
    if verb.pin == FOUND and "pins" in verb.takes.split() and request.pins:
        return replace(request, pin=TorchVersion(request.pins.split()[0]))
    if verb.pin == LAST and (last := last_build(request.native, request.build)):
        pin, built = last
        say(f"torch {pin}: that of the last build")
        return replace(request, pin=pin, cuda_archs=request.cuda_archs or architectures_in(built.cuda))
    if verb.pin in (RELEASE, OLDEST) or (verb.pin != NONE and request.build == SOURCE):
        release = oldest_release if verb.pin == OLDEST else default_release
        return replace(request, pin=release(PATCHES))
    return request


def _has_torch(python: str) -> bool:
    """Return whether a Python has a torch that can be built on."""
    from .base.installed import find_environment

    try:
        find_environment(python)
    except GraftError:
        return False
    return True


def _check(verb: Verb, request: Request) -> None:
    takes = verb.takes.split()
    checks = {
        "native": lambda: None if verb.name == "import" else _check_natives(request, is_new=verb.name == "new"),
        "out": lambda: _require_folder("OUT", request.out, "a folder; it is created if missing"),
        "pin": lambda: _check_pin(request) if verb.pin != NONE and request.pin != INSTALLED else None,
        "source": lambda: _check_source(request.source),
        "build": lambda: _check_words("BUILD", [request.build], (GRAFT, SOURCE)),
        "delivery": lambda: _check_words("DELIVERY", request.delivery.split(), (WHEEL, DEVELOP, THIN)),
        "launcher": lambda: _check_launcher(request.launcher.strip()),
        "cuda_archs": lambda: wanted_architectures(request.cuda_archs),
    }
    run_all(*(check for option, check in checks.items() if option in takes))


def _check_natives(request: Request, *, is_new: bool) -> None:
    """Check the native folders, or that the first can be created, and ``SCHEMA``, if an operator is added to it."""
    if not is_new:
        load_natives(request.native)
        require_native(request.native)
        return
    from .new.new_op import check_usage

    _require_folder("NATIVE", request.native[0], "a folder for the operator")
    check_usage(request.schema, request.kind, request.variants)


def _require_folder(variable: str, folder: Path | None, wanted: str) -> None:
    """Check that files can be written into ``folder``, or that it can be created."""
    if folder is None:
        return
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise UsageError(f"{variable}={folder}: {there} is a file", todo=f"set {variable} to {wanted}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(
            f"{variable}={folder}: {there} is not writable",
            todo=f"set {variable} to {wanted}, or change the permissions of {there}",
        )


def _check_pin(request: Request) -> None:
    """Check the pin and ``WHEEL``. If there is no pin yet, ``WHEEL`` names it, or it is found."""
    if request.pin:
        pin = pin_of(request.layout)
        if request.wheel:
            check_wheel(request.wheel, pin)
    elif request.wheel:
        in_name_of(request.wheel)


def _check_source(source: str) -> None:
    """Check that a local checkout or mirror exists. A remote one is checked when it is cloned."""
    if source and ":" not in source and not expanded(source).is_dir():
        raise UsageError(
            f"SOURCE={source}: no such folder",
            todo="set SOURCE to a checkout of PyTorch or an address to download from, or leave it out",
        )


def _check_words(variable: str, words: list[str], known: tuple[str, ...]) -> None:
    if unknown := [word for word in words if word not in known] or ([""] if not words else []):
        raise UsageError(
            f"{variable}={' '.join(words)}: no such {variable.lower()}: {' or '.join(unknown)}",
            todo=f"set it to {' or '.join(known)}",
        )


def _check_launcher(wanted: str) -> None:
    try:
        words = shlex.split(wanted)
    except ValueError as error:
        raise UsageError(f"LAUNCHER={wanted}: {error}", todo="close the quotes") from error
    if words and not shutil.which(words[0]):
        raise ToolchainError(
            f"LAUNCHER={wanted}: program {words[0]} not found",
            todo="install it, or unset LAUNCHER",
        )
