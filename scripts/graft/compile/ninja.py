"""Write the ninja file that compiles and links a build. Run ninja, and show its progress and errors."""

from __future__ import annotations

import io
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import ninja
from ninja.ninja_syntax import Writer, escape

from ..core.console import StepLine
from ..core.files import held_locks
from ..core.layout import Layout
from ..core.process import UNTRANSLATED, follow, python_path
from ..cpp.includes import quoted_flag
from ..inputs.snapshot import Snapshot
from .messages import first_error, is_status
from .nvcc import Compiler
from .products import LINKED, Product
from .units import INCLUDES, NVCC, Unit

# The ninja file for extensions that stay separate libraries.
EXTENSIONS = "extensions.ninja"

_NINJA = Path(ninja.BIN_DIR) / "ninja"

# The environment variable with the command that is put before each compiler, for example ccache.
LAUNCHER = "GRAFT_LAUNCHER"

# Seconds until an error is shown. The end of the build shows all errors, so one just before it is not shown twice.
_SHOWN_AFTER = 1

# Succeeds if a compiler reported an error in a header, or in bindings. Narrow headers declare all that the text of
# another source names, so errors in that are its own. But a header that it includes may need more.
_LACKS = r"grep -qE '^[^ :]*(\.h|/bindings\.cpp|/python_functions\.cpp):.* error: '"

# For __DATE__ and __TIME__: 1980, the first date that a member of a wheel can have.
_EPOCH = "315532800"


def text_of(units: Sequence[Unit], products: Iterable[Product], compilers: Mapping[str, Compiler]) -> str:
    """Return the ninja file that compiles units, in this order as far as parallel jobs allow, and links libraries."""
    text = io.StringIO()
    writer = Writer(text)  # type: ignore[arg-type]  # is annotated with TextIOWrapper
    _write_units(writer, units, compilers)
    _write_links(writer, products)
    return text.getvalue()


def command_of(unit: Unit, compiler: Compiler) -> str:
    """Return the command that compiles a unit, for a ninja file: ``$in`` is the source, ``$out`` the object."""
    # The shell inserts the launcher, so that changing it recompiles nothing.
    command = f"SOURCE_DATE_EPOCH={_EPOCH} $${LAUNCHER} {_typed(compiler.compiler)}"
    flags = _typed(*compiler.flags)
    compiling = f"{_typed(*unit.flags, *searched_by(unit))} -MD -MF $out.d -c $in -o $out.part"
    complete = "mv -f $out.part $out"
    wide = f"{command} {flags} {compiling}"
    if unit.is_tried:
        # If compiling without optimization fails, compile as for a wheel: only that makes some immediate operands
        # constants.
        return f"{{ {wide} -O0 2>$out.errors || {wide}; }} && : >$out.part && {complete}"
    if unit.narrow:
        narrow = f"{command} {_typed(*(f'-I{folder}' for folder in unit.narrow))} {flags} {compiling} 2>$out.narrow"
        again = f"if {_LACKS} $out.narrow; then {wide}; else cat $out.narrow >&2; false; fi"
        return f"{{ {narrow} || {again}; }} && {complete}"
    return f"{wide} && {complete}"


def searched_by(unit: Unit) -> list[str]:
    """Return the flags for the folders of headers; none for an extension's unit, whose own flags name them all."""
    quoted = quoted_flag(INCLUDES[0])
    own = [*(f"-I{folder}" for folder in INCLUDES), f"-Xcompiler={quoted}" if unit.compiler == NVCC else quoted]
    return [] if unit.is_of_extension else own


def _write_units(writer: Writer, units: Sequence[Unit], compilers: Mapping[str, Compiler]) -> None:
    """Write a rule for each command, and a build statement for each unit."""
    rules: dict[str, str] = {}
    for unit in units:
        command = command_of(unit, compilers[unit.compiler])
        if command not in rules:
            rules[command] = f"compile{len(rules)}"
            writer.rule(rules[command], command=command, description="$in")
        writer.build([str(unit.target)], rules[command], [str(unit.source)], implicit=list(map(str, unit.needed)))


def _typed(*words: str) -> str:
    """Quote words for the shell, and escape them for a ninja file."""
    return escape(shlex.join(words))


def _write_links(writer: Writer, products: Iterable[Product]) -> None:
    """Write the links of libraries. Each runs as soon as its inputs are complete."""
    writer.rule("link", f"{_typed(sys.executable)} -m graft.compile.link $in", description="link $out")
    for product in products:
        inputs = [unit.target for unit in (*product.units, *product.provided)]
        inputs += [LINKED / name for name in product.loaded]
        writer.build([str(product.path)], "link", [str(product.plan)], list(map(str, inputs)))


def run_quietly(work: Path, file: str) -> None:
    """Run ninja on ``file`` in the folder ``work``, with one compiler at a time. Errors are found by the next build."""
    command = [str(_NINJA), "-C", str(work), "-f", file, "-j", "1"]
    follow(command, lambda _: None, env={**UNTRANSLATED, LAUNCHER: "", "PYTHONPATH": python_path()})


def run(
    layout: Layout,
    snapshot: Snapshot,
    jobs: int,
    line: StepLine,
    is_refused: Callable[[], bool],
    keep: Callable[[], None],
    file: str = "build.ninja",
) -> tuple[bool, list[str]]:
    """Run ninja on ``file``. Show its progress, and the first error of each command while others run. Call ``keep``
    after each command. End ninja once ``is_refused`` returns True. Return whether all succeeded, and the output.
    """
    output: list[str] = []
    command = [str(_NINJA), "-C", str(layout.work), "-f", file, "-j", str(jobs), "-k", "0"]
    of_one: list[str] = []  # what a command printed, up to its first error
    is_told = False
    found: list[tuple[float, str]] = []  # when errors were found, and the errors to show

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
        "PYTHONPATH": python_path(),
    }
    held = () if layout.launcher else held_locks()  # a launcher may leave a server running, which would keep them
    return follow(command, read, env=env, watch=show, held=held) == 0, output
