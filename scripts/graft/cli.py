"""The command line: the verbs, the options of each, and the output of errors."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn

from .core.bugs import say_error, traced
from .core.environments import command_on
from .core.errors import RefusedError, UsageError
from .core.files import delete, write_atomically
from .core.folders import is_native
from .core.layout import BYTECODE, IS_CHECKOUT, REPOSITORY, expanded
from .core.make import changes_folder, command_of_make
from .core.pythons import find_python, probed
from .core.wording import HELP, as_typed
from .given import OF_MAKE, given_as, in_environment, request_of
from .options import FORMATS, FOUND, NAMES, NONE, OPTIONS, RELEASE, SHARED, SOURCE, THERE, Request, Verb


def _folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="the native folders, as --native has them")


def _delivering(parser: argparse.ArgumentParser) -> None:
    _folders(parser)
    _report(parser)


def _developing(parser: argparse.ArgumentParser) -> None:
    _delivering(parser)
    _editor(parser)


def _editor(parser: argparse.ArgumentParser) -> None:
    help_ = "link compile_commands.json, and schemas of YAML files, into the folder or checkout, for editors"
    parser.add_argument("--editor", action="store_true", help=help_)


def _report(parser: argparse.ArgumentParser) -> None:
    help_ = "write the result and the seconds of each step into this file, as JSON"
    parser.add_argument("--report", type=expanded, metavar="FILE", help=help_)


def _checking(parser: argparse.ArgumentParser) -> None:
    _folders(parser)
    _editor(parser)
    what = parser.add_mutually_exclusive_group()
    help_ = "list the files that builds read"
    what.add_argument("--list", action="store_true", dest="are_files_listed", help=help_)
    what.add_argument("--cuda", action="store_true", help="compile the CUDA sources; no GPU is needed")
    help_ = "with --source: only parse the folder's sources, without a build"
    what.add_argument("--syntax", action="store_true", help=help_)
    help_ = "with --source: skip if packages or sources are missing"
    parser.add_argument("--if-possible", action="store_true", help=help_)
    help_ = "print the findings on standard output, too: github annotates lines, json is for editors; text does not"
    parser.add_argument("--format", choices=FORMATS, help=help_)
    help_ = "print what a code of a finding means, with an example, and exit; without CODE, list all codes"
    parser.add_argument("--explain", action=_Explain, nargs="?", metavar="CODE", help=help_)


def _showing(parser: argparse.ArgumentParser) -> None:
    help_ = (
        "its name, such as relu or torch.fft.rfft2; without it, or for a wheel, list what PYTHON's torch or WHEEL has"
    )
    parser.add_argument("operator", nargs="?", metavar="OPERATOR", help=as_typed(help_))
    help_ = "print the code in this file instead of the list of files"
    parser.add_argument("file", nargs="?", metavar="FILE", help=help_)


def _adopting(parser: argparse.ArgumentParser) -> None:
    help_ = "the Python package or the source tree, and more modules to import"
    parser.add_argument("modules", nargs="*", metavar="PACKAGE", help=help_)
    parser.add_argument("--prefix", action="store_true", help="begin all names with the operators' namespace")
    help_ = "rename the first argument of these operators, or of all, to self, which makes them methods"
    parser.add_argument("--methods", nargs="*", metavar="OP", help=help_)
    several: dict[str, Any] = {"action": "append", "default": [], "metavar": "OP"}
    help_ = "give this operator the extension's kernels, and a formula in derivatives.yaml; may be repeated"
    parser.add_argument("--own", **several, help=help_)
    parser.add_argument("--only", **several, help="adopt these operators alone: a name or a pattern, such as '*_norm'")
    parser.add_argument("--except", **several, dest="except_", help="leave these operators out, likewise")
    parser.add_argument("--dry-run", action="store_true", help="print the table, and write nothing")
    help_ = "call the operators that are there beside the extension's, with the inputs of the folder's samples.py"
    parser.add_argument("--compare", action="store_true", help=help_)
    _report(parser)


def _cleaning(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--cache", action="store_true", help="delete the torches, objects, environments that builds share"
    )
    what.add_argument("--all", action="store_true", help="delete all that Graft ever wrote, and undo every develop")
    parser.add_argument("--yes", action="store_true", help="with --all: do not ask")


# The options that are paths.
_PATHS = ("native", "out", "wheel", "source", "project")

# The options of verbs that build on one base.
BASE = "pin native wheel jobs launcher cuda_archs cuda_home cxx"
# The options of verbs that use PyTorch's sources.
_TREE = "pin native jobs source cuda_home cxx"
# The options of verbs that build the changes in a checkout of PyTorch.
LIVE = "source base files gaps"

VERBS = (
    Verb(
        *("build", "build the torch wheel with the operators", "graft.verbs:build"),
        *(f"{BASE} out build {LIVE}", FOUND, _delivering),
    ),
    Verb(
        *("develop", "add the operators to the torch that PYTHON has", "graft.verbs:develop"),
        *(f"{BASE} python watch debug {LIVE}", NONE, _developing),
    ),
    Verb("undevelop", "restore the torch that PYTHON had", "graft.verbs:undevelop", "python"),
    Verb(
        *("thin-wheel", "build the operators as a wheel of their own", "graft.verbs:thin_wheel"),
        *(f"{BASE} out python name version {LIVE}", FOUND, _delivering),
        has_pins=True,
    ),
    Verb(
        *("check", "find errors in the native folder without building", "graft.verbs:check"),
        *(f"{BASE} python build {LIVE}", THERE, _checking),
    ),
    Verb(
        *(
            "show",
            "list what was added to a torch, or show what is generated for an operator",
            "graft.show:show",
        ),
        *("pin native wheel cxx python", THERE, _showing),
    ),
    Verb(
        *("new", "write the skeleton of a new operator", "graft.new.skeleton:new_op"),
        *("pin native wheel cxx python schema kind variants project", THERE),
    ),
    Verb(
        *("adopt", "write the operators of an extension that exists as a native folder", "graft.adopt.adopt:adopt"),
        *("native python cxx jobs launcher cuda_archs cuda_home", NONE, _adopting),
    ),
    Verb("pin", "write the pin of a release", "graft.pin:make_pin", "torch index jobs launcher cxx"),
    Verb("apply", "turn a PyTorch checkout into the fork", "graft.fork.apply:apply_fetched", _TREE, RELEASE),
    Verb(
        *("import", "write what a branch of PyTorch changes as a native folder", "graft.checkout.branch:import_branch"),
        *("pin native source branch diff", RELEASE),
    ),
    Verb("export", "write that fork as patches", "graft.fork.export:export_fetched", f"{_TREE} out", RELEASE),
    Verb("clean", "delete what was built; --cache: what all builds share", "graft.cleaning:clean", "", NONE, _cleaning),
)

# Other words for verbs, which help does not list.
ALIASES = {"check-cuda": ["check", "--cuda"], "check-source": ["check", "--build", SOURCE]}


def equipment() -> Sequence[Verb]:
    """Return the verbs of the equipment in tests/."""
    sys.path.insert(0, str(REPOSITORY))
    verbs: Sequence[Verb] = import_module("tests.kit.__main__").VERBS
    return verbs


def command() -> int:
    """Run the command ``graft``: one of ``VERBS``, or the tests."""
    return main([*VERBS, *(verb for verb in equipment() if verb.name == "test")])


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
        code = say_error(error)
        if code == RefusedError.exit_code:
            # On a full disk Python writes truncated bytecode without an error, and later imports would fail.
            with suppress(OSError):
                delete(BYTECODE)
        return code
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        return 130
    return 0


def _another_python(verb: Verb, request: Request) -> Path | None:
    """Return the Python to build for if its ABI differs from this one's; else None. make runs the right one already."""
    takes = verb.takes.split()
    if IS_CHECKOUT or "python" not in takes or request.python == sys.executable:
        return None
    ours, found = probed(Path(sys.executable)), find_python(request.python)
    return found.path if ours and found and found.tag != ours.tag else None


def _run(verb: Verb, request: Request, given: argparse.Namespace) -> None:
    from .validation import complete  # late: help texts do not need it

    request = complete(verb, request, given)
    module, _, function = verb.run.partition(":")
    run: Callable[..., Any] = getattr(import_module(module), function)
    result = run(request, given) if verb.own and verb.own is not _delivering else run(request)
    if report := getattr(given, "report", None):
        write_atomically(report, json.dumps(result.report))


class _Parser(argparse.ArgumentParser):
    """Reports errors in the builder's format."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, todo=HELP)


def read(verbs: Sequence[Verb], words: Sequence[str]) -> tuple[Verb, Request, argparse.Namespace]:
    """Read the command line and the environment. Return the verb, the request, and all flags as given."""
    # The help for --help and --version is hidden, so that the list of verbs fits on 24 lines.
    parser = _Parser(prog="graft", usage="graft [--help] [--version] VERB ...", add_help=False)
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help=argparse.SUPPRESS)
    parsers = parser.add_subparsers(prog="graft", dest="verb", required=True, metavar="VERB")
    for verb in verbs:
        help_ = as_typed(verb.help)
        one = parsers.add_parser(verb.name, help=help_, description=help_)
        for option in map(OPTIONS.__getitem__, verb.takes.split()):
            alone: dict[str, Any] = {"nargs": "?", "const": "1"}
            how = alone if option.is_switch else {}
            if option is OPTIONS["source"] and "build" in verb.takes.split():
                how = {**alone, "const": True}  # `--source` alone means BUILD=source
            one.add_argument(option.flag, help=as_typed(option.help).replace("%", "%%"), metavar="...", **how)
            for alias in (each for each in option.aliases if each.variable not in SHARED):
                one.add_argument(alias.flag, help=argparse.SUPPRESS, **(alone if alias.value else {}))
        one.add_argument("-v", "--verbose", action="store_true", help="show tracebacks")
        if verb.own:
            verb.own(one)
    given = parser.parse_args([*ALIASES.get(words[0], words[:1]), *words[1:]] if words else ["--help"])
    chosen = next(verb for verb in verbs if verb.name == given.verb)
    flags = {key: text for key, text in vars(given).items() if isinstance(text, str)}
    if folders := getattr(given, "folders", None):
        if "native" in flags or not all(folders):
            what = f"--native {flags['native']}: folders are given, too" if "native" in flags else "FOLDER is empty"
            raise UsageError(what, todo="name each folder once, as in `graft check ~/my_ops`")
        # A prefix, so that each remains a name of its own; quoted, so that it may have blanks.
        flags["native"] = shlex.join(each if each[0] in "/~." else f"./{each}" for each in folders)
    if flags.get("operator", "").endswith(".whl") and "wheel" not in flags:  # no operator has such a name
        flags["wheel"], given.operator = flags["operator"], None
    if getattr(given, "source", None) is True:
        flags["build"] = SOURCE
    environment = in_environment(attrgetter("word" if IS_CHECKOUT else "variable"))
    texts = {**environment, **given_as(flags, attrgetter("flag"))}
    _require_absolute({spelled: text for key, (text, spelled) in texts.items() if key in _PATHS and text})
    request = request_of(texts)
    is_optional = chosen.is_live(request) or (chosen.name == "show" and not all(map(is_native, request.native)))
    # A variable of the environment may name the default, which counts as not given.
    default = OPTIONS["native"].default
    if is_optional and texts.get("native", (default, ""))[0] == default:
        request = replace(request, native=())
    return chosen, request, given


def _keep_from_others(given: argparse.Namespace) -> None:
    """Remove the options from the environment: child processes get theirs on their command lines. Variables that other
    programs read, too (``SHARED``), stay, with the values of this command line.
    """
    for word in OF_MAKE:
        os.environ.pop(word, None)
    for name in NAMES:
        flag = getattr(given, name.key, None)
        if name.variable not in SHARED:
            os.environ.pop(name.variable, None)
        elif flag is not None:
            os.environ[name.variable] = flag


class _Explain(argparse.Action):
    """Prints the explanation of a finding's code."""

    def __call__(self, parser: argparse.ArgumentParser, _: object, code: Any, __: object = None) -> None:
        from .check.codes import explained

        print(as_typed(explained(code or "")))
        parser.exit()


class _ShowVersion(argparse.Action):
    """Prints Graft's version, read from pyproject.toml."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
        found = re.search(r'^version = "(.+)"$', text, re.M)
        print(f"graft {found[1] if found else 'of a checkout'}")
        parser.exit()


def _require_absolute(paths: Mapping[str, str]) -> None:
    """Refuse relative paths under ``make -C``: the user may mean the folder that make left, but Graft's own folder
    could have the same path.
    """
    if os.environ.get("MAKELEVEL") != "1" or not changes_folder(command_of_make()):
        return
    relative = [f"{name}={path}" for name, path in paths.items() if path[0] not in "/~'\""]
    if relative:
        what = f"{', '.join(relative)}: `make -C` is run in another folder than yours"
        raise UsageError(what, todo="write absolute paths")
