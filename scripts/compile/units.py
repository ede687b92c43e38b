"""Compile the generated sources and the native folder with ninja."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import ninja
from ninja.ninja_syntax import Writer

from ..common.console import StepLine
from ..common.errors import CompileError
from ..common.files import write_if_changed
from ..common.layout import Layout
from ..common.process import UNTRANSLATED, follow
from ..inputs.native import NativeFolder
from ..inputs.toolchain import CPU_CAPABILITIES, Toolchain
from . import blame

# Nobody reads the compiler's messages about macros in generated sources; not keeping track of them saves time.
_GENERATED = ("-ftrack-macro-expansion=0",)


@dataclass(frozen=True)
class Unit:
    """One source to compile.

    Args:
        source: relative to the work folder.
        target: the object file, relative to the work folder.
        flags: beyond those that every source has.
    """

    source: Path
    target: Path
    flags: tuple[str, ...] = ()


# The place of an error, as g++ and nvcc write it.
_ERROR = re.compile(r"([^\s:(]+(?::\d+:\d+|\(\d+\))): (?:fatal )?error\b")


class Compiler(Protocol):
    """What compiles: g++ and nvcc take the same arguments for what is written into the ninja file."""

    @property
    def compiler(self) -> str:
        """The command."""

    @property
    def flags(self) -> list[str]:
        """Flags for every source."""


@dataclass(frozen=True)
class Objects:
    """Object files, by the library they go into."""

    library: list[Path]
    extension: list[Path]


def plan(layout: Layout, native: NativeFolder, toolchain: Toolchain) -> tuple[list[Unit], list[Unit]]:
    """The units of libtorch, in the order in which they are linked, and those of ``torch._C``."""
    generated = layout.generated.relative_to(layout.work)
    sources = layout.sources.relative_to(layout.work)
    objects = layout.objects.relative_to(layout.work)

    extension = [
        Unit(
            generated / "python/python_bindings.cpp",
            objects / "python_bindings.o",
            (*_GENERATED, f"-I{toolchain.python_include}", f"-I{generated / 'python'}"),
        )
    ]
    # Registrations run in the order of linking: what is derived gives way to what the folder registers itself.
    library = [Unit(sources / name, objects / "native" / name.with_suffix(".o")) for name in native.sources]
    library += [
        Unit(source.relative_to(layout.work), objects / "generated" / f"{source.stem}.o", _GENERATED)
        for source in [
            *sorted(layout.generated.glob("*.cpp")),
            *sorted(layout.generated.glob("ATen/UfuncCPU_*.cpp")),
        ]
    ]
    vectorized = [(sources / name, objects / "native" / name) for name in native.vectorized]
    vectorized += [
        (source.relative_to(layout.work), objects / "generated" / source.name)
        for source in sorted((layout.generated / "vectorized").glob("*.cpp"))
    ]
    # Behind the others: see CPU_CAPABILITIES.
    library += [
        Unit(source, target.with_suffix(f".{capability}.o"), tuple(toolchain.capability_flags(capability)))
        for capability in CPU_CAPABILITIES
        for source, target in vectorized
    ]
    return library, extension


def compile_all(layout: Layout, native: NativeFolder, toolchain: Toolchain, jobs: int, line: StepLine) -> Objects:
    """Bring every object file up to date.

    Raises:
        CompileError: with the compiler's messages, which name the native folder's own files.
    """
    library, extension = plan(layout, native, toolchain)
    # The slow ones first, so that none is left for the end.
    sources = layout.sources.relative_to(layout.work)
    compile_units(
        layout, [*extension, *sorted(library, key=lambda unit: sources in unit.source.parents)], toolchain, jobs, line
    )
    return Objects(
        [layout.work / unit.target for unit in library],
        [layout.work / unit.target for unit in extension],
    )


def compile_units(layout: Layout, units: Sequence[Unit], compiler: Compiler, jobs: int, line: StepLine) -> None:
    """Bring the object files of ``units`` up to date, in their order as far as ``jobs`` at once allow it.

    Raises:
        CompileError: with the compiler's messages, which name the native folder's own files.
    """
    write_if_changed(layout.work / "build.ninja", _ninja_file(units, compiler))
    line.note = f"{_run_ninja(layout, jobs, line)} of {len(units)} sources"


def _ninja_file(units: Sequence[Unit], compiler: Compiler) -> str:
    includes = ["generated", "src", "generated/include", "overlay/torch/include"]
    includes += ["../base/tree/torch/include", "../base/tree/torch/include/torch/csrc/api/include"]
    text = io.StringIO()
    writer = Writer(text)  # type: ignore[arg-type]  # its annotation says str, its code wants a file
    writer.variable("cxx", compiler.compiler)
    writer.variable("flags", " ".join([*compiler.flags, *(f"-I{folder}" for folder in includes)]))
    writer.rule(
        "cxx",
        command="$cxx $flags $more -MD -MF $out.d -c $in -o $out",
        description="$in",
        depfile="$out.d",
        deps="gcc",
    )
    for unit in units:
        writer.build([str(unit.target)], "cxx", [str(unit.source)], variables={"more": " ".join(unit.flags)})
    return text.getvalue()


def _run_ninja(layout: Layout, jobs: int, line: StepLine) -> int:
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

    if follow(command, read, env={**UNTRANSLATED, "NINJA_STATUS": "[%f/%t] "}) != 0:
        said = "".join(relevant(without_repetition(output), layout)).strip()
        blamed = blame.of_compiler(said, layout.native) or "ninja failed silently"
        mend = ", ".join(faulty(blamed, layout)) or "what is named above"
        todo = f"mend {mend} and build again; what did compile is kept"
        raise CompileError(blamed, cause=first_error(blamed), todo=todo)
    return compiled


def without_repetition(output: Iterable[str]) -> list[str]:
    """ninja's output without the targets whose errors are where those of others of the same source are.

    A source in ``cpu/`` is compiled for each CPU capability, and what is wrong with it is mostly wrong for all.
    """
    targets: list[list[str]] = [[]]
    for text in output:
        if text.startswith("FAILED: "):
            targets.append([])
        targets[-1].append(text)
    kept, seen = targets[0], set[tuple[str, str]]()
    for target in targets[1:]:
        source = next((match[1] for text in target if (match := re.search(r" -c (\S+) -o ", text))), "")
        errors = {(source, match[1]) for text in target if (match := _ERROR.match(text))}
        names_no_place = any(re.match(r"\S.*\b[Ee]rror: ", text) and not _ERROR.match(text) for text in target)
        if not errors or names_no_place or errors - seen:
            kept += target
        seen |= errors
    return kept


def faulty(blamed: str, layout: Layout) -> list[str]:
    """The native folder's own files that the compiler finds errors in, or ``blame`` formulas that are none."""
    at_fault = rf"^({re.escape(str(layout.native))}/[^:\n]+):\d+:(?:\d+:)? (?:(?:fatal )?error\b|a formula of )"
    return list(dict.fromkeys(re.findall(at_fault, blamed, re.M)))


def first_error(blamed: str) -> str:
    """The first error again, where so much follows it that it is out of sight; else nothing."""
    lines = blamed.splitlines()
    found = next((text for text in lines if re.match(r"\S.*: (?:fatal )?error\b", text)), "")
    return found if len(lines) > 40 else ""


def relevant(output: Iterable[str], layout: Layout) -> list[str]:
    """The compiler's messages without ninja's own, naming files as the user knows them."""
    copy = f"{layout.sources.relative_to(layout.work)}/"
    noise = ("ninja: ", "FAILED: ")
    lines = [text for text in output if not text.startswith(noise) and " -MD -MF " not in text]
    # nvcc writes the line's number in parentheses.
    placed = [re.sub(r"^([^\s:(]+)\((\d+)\): ", r"\1:\2: ", text) for text in lines]
    return [text.replace(copy, f"{layout.native}/") for text in placed]
