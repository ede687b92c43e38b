"""The ninja file of a build, which says how to compile and link; and ninja's progress and errors."""

from __future__ import annotations

import io
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import ninja
from ninja.ninja_syntax import Writer, escape, escape_path

from ..core.console import StepLine
from ..core.layout import Layout
from ..core.process import UNTRANSLATED, follow, python_path
from ..inputs.includes import quoted_flag
from ..inputs.snapshot import Snapshot
from .messages import first_error, is_status
from .nvcc import Compiler
from .products import LINKED, Product
from .units import CXX, INCLUDES, NVCC, Unit

# The file for what stays apart from the operators.
EXTENSIONS = "extensions.ninja"

_NINJA = Path(ninja.BIN_DIR) / "ninja"

# The variable of the environment with what is put before each compiler.
LAUNCHER = "GRAFT_LAUNCHER"

# Seconds until an error is shown. At the end of the build all are shown, so one that ends it is not shown twice.
_SHOWN_AFTER = 1

# Whether a compiler reports an error in a header. Narrow headers have all that the text of a source names, so errors in
# the source are its own; but a header that it includes may need more.
_LACKS = r"grep -q '^[^ :]*\.h:.* error: '"

# For __DATE__ and __TIME__: 1980, the first date that a member of a wheel can have.
_EPOCH = "315532800"


def text_of(units: Sequence[Unit], products: Iterable[Product], compilers: Mapping[str, Compiler]) -> str:
    """Return the ninja file that compiles units, in this order as far as parallel jobs allow, and links libraries."""
    text = io.StringIO()
    writer = Writer(text)  # type: ignore[arg-type]  # says str
    _write_units(writer, units, compilers)
    _write_links(writer, products)
    return text.getvalue()


def text_of_extensions(units: Sequence[Unit], compilers: Mapping[str, Compiler]) -> str:
    """Return the ninja file that compiles units of extensions, whose flags have all folders of headers."""
    text = io.StringIO()
    writer = Writer(text)  # type: ignore[arg-type]  # says str
    for name, compiler in compilers.items():
        command = f"$${LAUNCHER} {_typed(compiler.compiler)} {_typed(*compiler.flags)} $more"
        compiling = "-MD -MF $out.d -c $in -o $out.part && mv -f $out.part $out"
        writer.rule(name, command=f"{command} {compiling}", description="$in")
    for unit in units:
        variables = {"more": _typed(*unit.flags)}
        writer.build(
            [escape_path(str(unit.target))], unit.compiler, [escape_path(str(unit.source))], variables=variables
        )
    return text.getvalue()


def _write_units(writer: Writer, units: Sequence[Unit], compilers: Mapping[str, Compiler]) -> None:
    writer.variable("includes", " ".join(f"-I{folder}" for folder in INCLUDES))
    quoted = quoted_flag(INCLUDES[0])
    write_rule = partial(writer.rule, description="$in")
    for name, compiler in compilers.items():
        # The shell inserts the launcher, so that changing it recompiles nothing.
        command = f"$${LAUNCHER} {_typed(compiler.compiler)}"
        flags = _typed(*compiler.flags)
        search = f"-Xcompiler={quoted}" if name == NVCC else quoted
        compiling = f"$more $includes {search} -MD -MF $out.d -c $in -o $out.part"
        complete = "mv -f $out.part $out"
        write_rule(name, command=f"{command} {flags} {compiling} && {complete}")
        if name == CXX:
            narrow = f"{command} $narrow {flags} {compiling} 2>$out.narrow"
            wide = f"if {_LACKS} $out.narrow; then {command} {flags} {compiling}; else cat $out.narrow >&2; false; fi"
            write_rule("narrow", command=f"{{ {narrow} || {wide}; }} && {complete}")
            # Some immediate operands are constants for the optimizer only, so errors are those of the wheel's build.
            tried = f"{command} {flags} {compiling} -O0 2>$out.errors || {command} {flags} {compiling}"
            write_rule("tried", command=f"{{ {tried}; }} && : >$out.part && {complete}")
    for unit in units:
        variables = {"more": _typed(*unit.flags), "narrow": _typed(*(f"-I{folder}" for folder in unit.narrow))}
        rule = "tried" if unit.is_tried else "narrow" if unit.narrow else unit.compiler
        needed = list(map(str, unit.needed))
        writer.build([str(unit.target)], rule, [str(unit.source)], implicit=needed, variables=variables)


def _typed(*words: str) -> str:
    """Return words for a shell, in a ninja file."""
    return escape(shlex.join(words))


def _write_links(writer: Writer, products: Iterable[Product]) -> None:
    """Write how libraries are linked, each as soon as its objects are there."""
    writer.rule("link", f"{_typed(sys.executable)} -m graft.compile.link $in", description="link $out")
    for product in products:
        inputs = [unit.target for unit in (*product.units, *product.provided)]
        inputs += [LINKED / name for name in product.loaded]
        writer.build([str(product.path)], "link", [str(product.plan)], list(map(str, inputs)))


def run(
    layout: Layout,
    snapshot: Snapshot,
    jobs: int,
    line: StepLine,
    is_refused: Callable[[], bool],
    keep: Callable[[], None],
    file: str = "build.ninja",
) -> tuple[bool, list[str]]:
    """Run ninja for a ``file``, and show its progress, and the first error of each source while others are compiled.
    Call ``keep`` when a command has ended. Return whether all succeeded, and ninja's output.
    """
    output: list[str] = []
    command = [str(_NINJA), "-C", str(layout.work), "-f", file, "-j", str(jobs), "-k", "0"]
    of_one: list[str] = []  # what a command printed, up to its first error
    is_told = False
    found: list[tuple[float, str]] = []  # errors to show, and when they were found

    def read(text: str) -> None:
        nonlocal is_told
        output.append(text)
        if is_status(text):
            keep()  # before it is shown as done
            line.update(text.strip())
            of_one.clear()
            is_told = False
        elif not is_told:
            of_one.append(text)
            if "rror: " in text and (error := first_error(of_one, snapshot.natives, snapshot.searched)):
                found.append((time.monotonic(), error))
                is_told = True

    def show() -> bool:
        if found and time.monotonic() > found[0][0] + _SHOWN_AFTER:
            line.say(found.pop(0)[1])
        return is_refused()

    env = {
        **UNTRANSLATED,
        LAUNCHER: layout.launcher,
        "NINJA_STATUS": "[%f/%t] ",
        "SOURCE_DATE_EPOCH": _EPOCH,
        "PYTHONPATH": python_path(),
    }
    return follow(command, read, env=env, watch=show) == 0, output
