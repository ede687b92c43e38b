"""Run the compilers with ninja, and tell what they say in terms of the user's files."""

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

from ..common.console import StepLine
from ..common.errors import CompileError, refuse_full
from ..common.files import write_atomically, write_if_changed
from ..common.layout import Layout
from ..common.process import UNTRANSLATED, follow
from .digest import digest
from .hints import header_in
from .units import CXX, NARROW_HEADERS, Unit

# The place of an error, as g++ and nvcc write it.
_ERROR = re.compile(r"([^\s:(]+(?::\d+:\d+|\(\d+\))): (?:fatal )?error\b")

# Headers: the folder's own, those of the new operators, those that wheels lack, the base's.
_INCLUDES = (
    *("src", "generated/include", "operators", "fixed"),
    *("../base/tree/torch/include", "../base/tree/torch/include/torch/csrc/api/include"),
)

# Variables that change what a compiler reads or makes; a build depends on none of them.
_DROPPED = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")


# Where the whole output of compilers that fail goes, in the folder of the build.
_LOG = "compiler.log"
# Lines of output that holds no error that can be told from other text, such as the shell's.
_UNKNOWN = 30

# What the ninja file calls the launcher of compilers.
_LAUNCHER = "GRAFT_LAUNCHER"


class Compiler(Protocol):
    """What compiles: g++ and nvcc take the same arguments for what is written into the ninja file."""

    @property
    def compiler(self) -> str:
        """The command."""

    @property
    def flags(self) -> list[str]:
        """Flags for every source."""

    @property
    def description(self) -> str:
        """What it says of itself: another one compiles everything again."""


def launcher() -> str:
    """What is put before each compiler: ``LAUNCHER``, or ccache where it is installed; nothing if it is ``none``."""
    wanted = os.environ.get("LAUNCHER", "").strip()
    if wanted == "none":
        return ""
    return wanted or shutil.which("ccache") or ""


@dataclass(frozen=True)
class Names:
    """How messages name the native folder's files.

    Args:
        native: the folder that was laid out for compilers, as it is in the snapshot.
        translate: replaces places in the snapshot by those in the user's folders.
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
    """Bring the object files of ``units`` up to date, in their order as far as ``jobs`` at once allow it.

    Args:
        layout: the folders of the build.
        units: what to compile.
        compilers: those that the units name.
        jobs: how many may run at once.
        line: shows the progress.
        names: for messages.
        is_futile: asked now and then: whether to stop, since another failure is known already.

    Raises:
        CompileError: with the compiler's messages, which name the native folder's own files.
    """
    write_if_changed(layout.work / "build.ninja", ninja_file(units, compilers))
    for name, compiler in compilers.items():
        write_if_changed(layout.work / f"{name}.txt", compiler.description)
    line.note = f"{_run_ninja(layout, jobs, line, names, is_futile)} of {len(units)} sources"


def ninja_file(units: Sequence[Unit], compilers: Mapping[str, Compiler]) -> str:
    """The text of the ninja file."""
    text = io.StringIO()
    writer = Writer(text)  # type: ignore[arg-type]  # its annotation says str, its code wants a file
    writer.variable("includes", " ".join(f"-I{folder}" for folder in _INCLUDES))
    compiling = "$more $includes -MD -MF $out.d -c $in -o $out"
    write_rule = partial(writer.rule, description="$in", depfile="$out.d", deps="gcc")
    for name, compiler in compilers.items():
        # The shell puts the launcher in, so that another one compiles nothing again.
        command = f"$${_LAUNCHER} {shlex.quote(compiler.compiler)}"
        flags = " ".join(compiler.flags)
        write_rule(name, command=f"{command} {flags} {compiling}")
        if name == CXX:
            narrow = f"{command} $narrow {flags} {compiling} 2>$out.narrow || {command} {flags} {compiling}"
            write_rule("narrow", command=narrow)
    for unit in units:
        variables = {"more": " ".join(unit.flags), "narrow": " ".join(f"-I{folder}" for folder in unit.narrow)}
        rule = "narrow" if unit.narrow else unit.compiler
        # A source that was compiled without the narrow headers may be compiled with others.
        headers = [str(folder / name) for folder in unit.narrow for name in NARROW_HEADERS]
        implicit = [f"{unit.compiler}.txt", *headers, *map(str, unit.needed)]
        writer.build([str(unit.target)], rule, [str(unit.source)], implicit=implicit, variables=variables)
    return text.getvalue()


def _run_ninja(layout: Layout, jobs: int, line: StepLine, names: Names, is_futile: Callable[[], bool]) -> int:
    """Run ninja, showing its progress; return how many sources it compiled."""
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
    if follow(command, read, env=env, is_futile=is_futile) != 0:
        refuse(relevant(without_repetition(output), names.native), layout, names)
    return compiled


def refuse(said: Sequence[str], layout: Layout, names: Names) -> NoReturn:
    """End the build with what the compilers said: a digest as the error, all of it in a log.

    Raises:
        CompileError: always.
    """
    headers = header_in([layout.work / folder for folder in _INCLUDES])
    whole = names.translate("".join(said).strip()) or "ninja failed silently"
    refuse_full(whole, layout.work)
    log = layout.work / _LOG
    write_atomically(log, f"{whole}\n")
    lines = whole.splitlines()
    blamed = names.translate(digest(said, names.native, headers)) or "\n".join(lines[:_UNKNOWN])
    faults = ", ".join(faulty(blamed, layout.natives)) or "what is named above"
    todo = f"fix {faults} and build again; what did compile is kept"
    if len(blamed.splitlines()) < len(lines):
        todo += f"\n  all that the compiler said, {len(lines):,} lines: {log}"
    raise CompileError(blamed, todo=todo)


def without_repetition(output: Iterable[str]) -> list[str]:
    """ninja's output without the targets whose errors are where those of others of the same source are.

    A source in ``cpu/`` is compiled for each CPU capability, and what is wrong with it is mostly wrong for all. What is
    wrong with its preamble, which ``preambles.py`` compiles, is wrong with it.
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
    """The native folders' own files that errors are in."""
    folders = "|".join(re.escape(str(folder)) for folder in natives)
    at_fault = rf"^((?:{folders})/[^:\n]+):\d+:(?:\d+:)? (?:fatal )?error\b"
    return list(dict.fromkeys(re.findall(at_fault, blamed, re.M)))


def relevant(output: Iterable[str], native: Path) -> list[str]:
    """The compiler's messages without ninja's own, naming the files of ``native``."""
    noise = ("ninja: ", "FAILED: ")
    lines = [text for text in output if not text.startswith(noise) and " -MD -MF " not in text]
    # nvcc writes the line's number in parentheses.
    placed = [re.sub(r"^([^\s:(]+)\((\d+)\): ", r"\1:\2: ", text) for text in lines]
    return [text.replace("src/ATen/native/", f"{native}/") for text in placed]
