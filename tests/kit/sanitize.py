"""``make test-sanitize``, ``make fuzz``: build the operators with sanitizers, and run their tests and random calls.

The base's libraries are the official ones, so only the folder's code is checked: its kernels, for each CPU capability,
and the generated sources.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from graft.core.console import say
from graft.core.errors import MissingError
from graft.deliver.built import unchanged
from graft.deliveries import Wheel, run
from graft.inputs.pin import pin_of
from graft.inputs.snapshot import take_snapshot
from graft.inputs.toolchain import SANITIZER_LIBRARIES, Toolchain, find_toolchain
from graft.options import Request
from graft.verbs import build

from .environments import SANITIZED, TEST, folder_of, named, run_python, wheel_environment, wheel_of
from .parts import Suite, TestsFailed, conclude, run_pytest
from .testing import TESTS, beside_stock, one_at_a_time, own_tests

# Leaks are not checked: an interpreter frees little of its memory when it ends. If an allocation is too large, malloc
# returns null as it does without a sanitizer, and PyTorch raises an error.
_OPTIONS: dict[str, dict[str, object]] = {
    "ASAN_OPTIONS": {"detect_leaks": 0, "allocator_may_return_null": 1, "max_allocation_size_mb": 4096},
    "UBSAN_OPTIONS": {"print_stacktrace": 1, "suppressions": TESTS / "undefined.supp"},
}


def test_sanitized(request: Request, given: argparse.Namespace) -> None:
    """Build the operators with sanitizers and run their tests.

    Tests marked ``unsanitized``, each with a reason, are left out.
    """
    layout = request.layout
    sanitized = layout.sanitized()
    wheel = run(Wheel(sanitized), request).path
    paths = [TESTS / "wheel/any/families", *(path for part in own_tests(layout) for path in part.paths)]
    part = Suite("sanitized", "the sanitized operators", paths)
    chosen = ["-m", "not unsanitized and not slow", *given.extra]
    findings = folder_of("sanitized-findings", layout)
    preloaded = sanitizer_variables(find_toolchain(pin_of(layout), layout.cxx), log=findings / "of")
    with one_at_a_time(sanitized, SANITIZED), beside_stock(sanitized, SANITIZED, wheel) as (python, variables):
        shutil.rmtree(findings, ignore_errors=True)
        findings.mkdir(parents=True)
        outcome = run_pytest(python, part, {**variables, "GRAFT_TESTED_WHEEL": str(wheel), **preloaded}, chosen)
        found = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(findings.iterdir())]
    if found:
        raise TestsFailed(
            f"the sanitizers reported errors; complete output in {findings}:\n\n" + "\n".join(found)[:20_000]
        )
    conclude({part.name: outcome}, given.extra)
    say("the sanitizers reported nothing")


def fuzz(request: Request, given: argparse.Namespace) -> None:
    """Call the operators at random, on the wheel with sanitizers if there is one of the same sources."""
    build(request)
    layout = request.layout
    sanitized = layout.sanitized()
    snapshot = take_snapshot(sanitized)
    command: list[str | Path] = ["-m", "tests.kit.fuzz", *given.extra]
    variables, wheel, place = {"GRAFT_NATIVE": named(layout)}, wheel_of(layout), (layout, TEST)
    if built := unchanged(sanitized, snapshot):
        variables |= sanitizer_variables(snapshot.toolchain)
        command, wheel, place = [*command, "--sanitized"], built.path, (sanitized, SANITIZED)
    else:
        say("without sanitizers, since `make test-sanitize` has not built these sources; crashes are still found")
    with wheel_environment(*place, wheel) as python:
        code = run_python(python, command, variables)
    if code != 0:
        raise TestsFailed("some calls had invalid outcomes", todo="fix the findings above and run it again")


def preloaded(toolchain: Toolchain) -> list[Path]:
    """Return the libraries that a program built without sanitizers must preload: the sanitizers and the C++ library,
    whose functions they intercept.
    """
    names = (*SANITIZER_LIBRARIES, "libstdc++.so.6")
    found = toolchain.libraries(names)
    if len(found) < len(names):
        raise MissingError(
            f"`{toolchain.compiler}` does not provide {', '.join(names)}",
            todo="install its sanitizers (libasan and libubsan; Debian has them with g++)",
        )
    return found


def sanitizer_variables(toolchain: Toolchain, *, log: Path | None = None) -> dict[str, str]:
    """Return the variables for loading the wheel in a Python built without sanitizers.

    Args:
        toolchain: the toolchain of the wheel.
        log: a prefix of files for reports, one for each process, and the program continues. Without it reports go to
            stderr, and the first ends the program.
    """
    reports = {"halt_on_error": 1} if log is None else {"halt_on_error": 0, "log_path": log}
    variables = {"LD_PRELOAD": os.pathsep.join(map(str, preloaded(toolchain)))}
    for name, options in _OPTIONS.items():
        variables[name] = ":".join(f"{key}={value}" for key, value in {**options, **reports}.items())
    return variables
