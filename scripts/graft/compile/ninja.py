"""Run the compilers with ninja, and report errors in terms of the user's files."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol

import ninja
from ninja.ninja_syntax import Writer

from ..core.console import StepLine
from ..core.errors import CompileError, refuse_full
from ..core.files import write_atomically, write_if_changed
from ..core.layout import Layout
from ..core.process import UNTRANSLATED, follow
from .digest import digest
from .hints import header_in
from .units import CXX, NARROW_HEADERS, Unit

# The place of an error in messages of g++ and nvcc.
_ERROR = re.compile(r"([^\s:(]+(?::\d+:\d+|\(\d+\))): (?:fatal )?error\b")

# Headers: the folder's own, those of the new operators, those that wheels lack, the base's.
_INCLUDES = (
    *("src", "generated/include", "operators", "fixed"),
    *("../base/tree/torch/include", "../base/tree/torch/include/torch/csrc/api/include"),
)

# Environment variables that affect compilers. They are unset, so that a build does not depend on them.
_DROPPED = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")


# The log with the complete output of failed compilers, in the folder of the build.
_LOG = "compiler.log"
# Lines shown of output without a recognizable error, for example the shell's.
_UNKNOWN = 30

# The name of the compiler launcher in the ninja file.
_LAUNCHER = "GRAFT_LAUNCHER"


class Compiler(Protocol):
    """A compiler: g++ or nvcc, with a common interface for the ninja file."""

    @property
    def compiler(self) -> str:
        """The command."""

    @property
    def flags(self) -> list[str]:
        """Flags for every source."""

    @property
    def description(self) -> str:
        """Its version; a change recompiles everything."""


def launcher() -> str:
    """Return the command put before each compiler: ``LAUNCHER``, or ccache if installed; empty for ``none``."""
    wanted = os.environ.get("LAUNCHER", "").strip()
    if wanted == "none":
        return ""
    return wanted or shutil.which("ccache") or ""


@dataclass(frozen=True)
class Names:
    """Translates file names in messages to those of the native folder.

    Args:
        native: the native folder's copy for compilers, as in the snapshot.
        translate: replaces paths in the snapshot by those of the user's folders.
    """

    native: Path
    translate: Callable[[str], str]


def compile_units(
    layout: Layout,
    units: Sequence[Unit],
    compilers: Mapping[str, Compiler],
    jobs: int,
    line: StepLine,
    names: Names,
    is_futile: Callable[[], bool] = lambda: False,
) -> None:
    """Bring the object files of ``units`` up to date, in order as far as parallel jobs allow.

    Args:
        layout: the folders of the build.
        units: what to compile.
        compilers: the compilers that units refer to.
        jobs: the maximum number of compilers to run at once.
        line: shows the progress.
        names: translates file names in messages.
        is_futile: called repeatedly; returns whether to stop because of an error elsewhere.

    Raises:
        CompileError: the compiler's messages, with paths in the native folder.
    """
    write_if_changed(layout.work / "build.ninja", ninja_file(units, compilers))
    for name, compiler in compilers.items():
        write_if_changed(layout.work / f"{name}.txt", compiler.description)
    line.note = f"{_run_ninja(layout, jobs, line, names, is_futile)} of {len(units)} sources"


def ninja_file(units: Sequence[Unit], compilers: Mapping[str, Compiler]) -> str:
    """Return the text of the ninja file."""
    text = io.StringIO()
    writer = Writer(text)  # type: ignore[arg-type]  # its annotation says str, its code wants a file
    writer.variable("includes", " ".join(f"-I{folder}" for folder in _INCLUDES))
    compiling = "$more $includes -MD -MF $out.d -c $in -o $out"
    write_rule = partial(writer.rule, description="$in", depfile="$out.d", deps="gcc")
    for name, compiler in compilers.items():
        # The shell inserts the launcher, so that changing it recompiles nothing.
        command = f"$${_LAUNCHER} {shlex.quote(compiler.compiler)}"
        flags = " ".join(compiler.flags)
        write_rule(name, command=f"{command} {flags} {compiling}")
        if name == CXX:
            narrow = f"{command} $narrow {flags} {compiling} 2>$out.narrow || {command} {flags} {compiling}"
            write_rule("narrow", command=narrow)
    for unit in units:
        variables = {"more": " ".join(unit.flags), "narrow": " ".join(f"-I{folder}" for folder in unit.narrow)}
        rule = "narrow" if unit.narrow else unit.compiler
        # A source that was compiled without the narrow headers may be compiled with other headers.
        headers = [str(folder / name) for folder in unit.narrow for name in NARROW_HEADERS]
        implicit = [f"{unit.compiler}.txt", *headers, *map(str, unit.needed)]
        writer.build([str(unit.target)], rule, [str(unit.source)], implicit=implicit, variables=variables)
    return text.getvalue()


def _run_ninja(layout: Layout, jobs: int, line: StepLine, names: Names, is_futile: Callable[[], bool]) -> int:
    """Run ninja and show its progress. Return the number of compiled sources."""
    command = [str(Path(ninja.BIN_DIR) / "ninja"), "-C", str(layout.work), "-j", str(jobs), "-k", "0"]
    output: list[str] = []
    compiled = 0

    def read(text: str) -> None:
        nonlocal compiled
        if text.startswith("[") and "] " in text:
            line.update(text.strip())
            compiled += 1
        else:
            output.append(text)

    env = {**UNTRANSLATED, **dict.fromkeys(_DROPPED, ""), _LAUNCHER: launcher(), "NINJA_STATUS": "[%f/%t] "}
    if follow(command, read, env=env, watch=is_futile) != 0:
        refuse(relevant(without_repetition(output), names.native), layout, names)
    return compiled


def refuse(said: Sequence[str], layout: Layout, names: Names) -> NoReturn:
    """End the build with the compilers' messages: a digest as the error, everything in a log.

    Raises:
        CompileError: always.
    """
    headers = header_in([layout.work / folder for folder in _INCLUDES])
    whole = names.translate("".join(said).strip()) or "ninja failed without a message"
    refuse_full(whole, layout.work)
    log = layout.work / _LOG
    write_atomically(log, f"{whole}\n")
    lines = whole.splitlines()
    blamed = names.translate(digest(said, names.native, headers)) or "\n".join(lines[:_UNKNOWN])
    faults = ", ".join(faulty(blamed, layout.natives)) or "the errors above"
    todo = f"fix {faults} and build again; compiled files are kept"
    if len(blamed.splitlines()) < len(lines):
        todo += f"\n  the compiler's complete output, {len(lines):,} lines: {log}"
    raise CompileError(blamed, todo=todo)


def without_repetition(output: Iterable[str]) -> list[str]:
    """Return ninja's output without targets that repeat the errors of another target of the same source.

    A source in ``cpu/`` is compiled for each CPU capability, usually with the same errors. Errors in its preamble,
    which ``preambles.py`` compiles, are errors of the source.
    """
    targets: list[list[str]] = [[]]
    for text in output:
        if text.startswith("FAILED: "):
            targets.append([])
        targets[-1].append(text)
    kept, seen = targets[0], set[tuple[str, str]]()
    for target in sorted(targets[1:], key=lambda target: ".gch" in target[0]):
        source = next((match[1] for text in target if (match := re.search(r" -c (\S+) -o ", text))), "")
        if source.startswith("preambles/") and seen:
            continue
        errors = {(source, match[1]) for text in target if (match := _ERROR.match(text))}
        names_no_place = any(re.match(r"\S.*\b[Ee]rror: ", text) and not _ERROR.match(text) for text in target)
        if not errors or names_no_place or errors - seen:
            kept += target
        seen |= errors
    return kept


def faulty(blamed: str, natives: Sequence[Path]) -> list[str]:
    """Return the native folder's own files with errors."""
    folders = "|".join(re.escape(str(folder)) for folder in natives)
    at_fault = rf"^((?:{folders})/[^:\n]+):\d+:(?:\d+:)? (?:fatal )?error\b"
    return list(dict.fromkeys(re.findall(at_fault, blamed, re.M)))


def relevant(output: Iterable[str], native: Path) -> list[str]:
    """Return the compiler's messages without ninja's own, with file names of ``native``."""
    noise = ("ninja: ", "FAILED: ")
    lines = [text for text in output if not text.startswith(noise) and " -MD -MF " not in text]
    # nvcc writes the line number in parentheses.
    placed = [re.sub(r"^([^\s:(]+)\((\d+)\): ", r"\1:\2: ", text) for text in lines]
    return [text.replace("src/ATen/native/", f"{native}/") for text in placed]
