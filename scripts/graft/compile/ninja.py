"""Compile and link with ninja; and precompile the headers that a source includes first, once it was edited. This halves
the time of its next compilation.

A precompiled header of g++ holds the compiler's state after the preamble, and is valid only for the same flags. The
source is unchanged: its own ``#include`` lines find that everything was read already.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import ninja
from ninja.ninja_syntax import Writer

from ..base.base import Base
from ..core.console import StepLine
from ..core.files import write_atomically, write_if_changed
from ..core.layout import Layout
from ..core.process import UNTRANSLATED, follow, python_path
from ..inputs.includes import quoted_flag
from ..inputs.snapshot import Snapshot, hash_of_builder
from ..inputs.toolchain import Toolchain
from .contents import Contents, header_names
from .cuda import Nvcc
from .messages import first_error, is_status, refuse
from .store import STORED, Store
from .units import CXX, LINKED, NVCC, Product, Unit

_NINJA = Path(ninja.BIN_DIR) / "ninja"

# Headers: the folder's own at its place in PyTorch, those of the new operators, those that wheels lack, the base's.
INCLUDES = (
    *("src", "generated/include", "operators", "fixed"),
    *("../base/tree/torch/include", "../base/tree/torch/include/torch/csrc/api/include"),
)

# The lines that a preamble may consist of; any other line ends it.
_PREAMBLE = re.compile(r'(?:[ \t]*(?://[^\n]*)?\n|#[ \t]*(?:include[ \t]*[<"][^\n]*|define[^\n\\]*|pragma once)\n)*')

# The name of the compiler launcher in the ninja file.
_LAUNCHER = "GRAFT_LAUNCHER"

# Seconds until an error is shown. At the end of the build all are shown, so one that ends it is not shown twice.
_SHOWN_AFTER = 1

# Whether a compiler reports an error in a header. Narrow headers have all that the text of a source names, so errors in
# the source are its own; but a header that it includes may need more.
_LACKS = r"grep -q '^[^ :]*\.h:.* error: '"

# Holds the hash of the builder: another one links anew.
_BUILDER = "builder.txt"


def make(
    layout: Layout,
    snapshot: Snapshot,
    products: Sequence[Product],
    base: Base,
    compilers: Mapping[str, Toolchain | Nvcc],
    *,
    others: Iterable[Unit] = (),
    jobs: int,
    line: StepLine,
    is_refused: Callable[[], bool] = lambda: False,
) -> dict[str, Path]:
    """Bring libraries up to date, and ``others``, which are in no library. Return the libraries, by path in the wheel.

    Another description of a compiler recompiles everything. At most ``jobs`` commands run at once; they are ended once
    ``is_refused`` returns True.

    Raises:
        CompileError: the messages of compilers and linkers, with paths in the native folder.
    """
    work = layout.work
    every = [*(unit for product in products for unit in product.units), *others]
    # Each once. The user's own first, where mistakes are; of them those for CUDA last, which take minutes.
    units = sorted(dict.fromkeys(every), key=lambda unit: (bool(unit.narrow), unit.compiler == NVCC))
    rules = io.StringIO()
    write_units(Writer(rules), units, compilers)  # type: ignore[arg-type]  # it says str, and wants a file
    write_links(Writer(rules), products, base)  # type: ignore[arg-type]
    write_if_changed(work / "build.ninja", rules.getvalue())
    write_if_changed(work / _BUILDER, hash_of_builder())
    for product in products:
        write_if_changed(work / _plan(product), product.plan(base, snapshot.toolchain, snapshot.merged))
    contents, headers = Contents(work), header_names(work, INCLUDES)
    store = Store(layout.store, work, contents.hashes, headers)
    keys = {unit: store.key(unit, compilers[unit.compiler]) for unit in units}
    output: list[str] = []
    with contents.compared(_NINJA, LINKED, {str(unit.target): key for unit, key in keys.items()}, headers):
        missing = {unit: key for unit, key in keys.items() if not (work / unit.target).is_file()}
        stored = store.offer(missing)
        compiled = _run(layout, snapshot, jobs, line, output, is_refused)
        made = {unit: key for unit, key in missing.items() if unit not in stored}
        if made and not snapshot.toolchain.has_debug_info:  # it has paths of the folder
            store.keep(made, contents.inputs(_NINJA))
        if compiled is None:
            refuse(output, work, snapshot, [work / folder for folder in INCLUDES])
    line.note = f"{compiled - len(stored)} of {len(units)} sources"
    if stored:
        line.note += f", {len(stored)} compiled before"
    return {product.name: work / LINKED / product.name for product in products}


def write_units(writer: Writer, units: Sequence[Unit], compilers: Mapping[str, Toolchain | Nvcc]) -> None:
    """Write how units are compiled, in this order as far as parallel jobs allow."""
    writer.variable("includes", " ".join(f"-I{folder}" for folder in INCLUDES))
    quoted = quoted_flag(INCLUDES[0])
    write_rule = partial(writer.rule, description="$in", depfile="$out.d", deps="gcc")
    for name, compiler in compilers.items():
        # The shell inserts the launcher, so that changing it recompiles nothing.
        command = f"$${_LAUNCHER} {shlex.quote(compiler.compiler)}"
        flags = " ".join(compiler.flags)
        search = f"-Xcompiler={quoted}" if name == NVCC else quoted
        compiling = f"$more $includes {search} -MD -MF $out.d -c $in -o $out"
        stored = f"mv $out{STORED} $out 2>/dev/null"
        write_rule(name, command=f"{stored} || {command} {flags} {compiling}")
        if name == CXX:
            narrow = f"{command} $narrow {flags} {compiling} 2>$out.narrow"
            wide = f"if {_LACKS} $out.narrow; then {command} {flags} {compiling}; else cat $out.narrow >&2; false; fi"
            write_rule("narrow", command=f"{stored} || {narrow} || {wide}")
            # Some immediate operands are constants for the optimizer only, so errors are those of the wheel's build.
            tried = f"{command} {flags} {compiling} -O0 2>$out.errors || {command} {flags} {compiling}"
            write_rule("tried", command=f"{stored} || ({tried}) && : >$out")
    for unit in units:
        variables = {"more": " ".join(unit.flags), "narrow": " ".join(f"-I{folder}" for folder in unit.narrow)}
        rule = "tried" if unit.is_tried else "narrow" if unit.narrow else unit.compiler
        needed = list(map(str, unit.needed))
        writer.build([str(unit.target)], rule, [str(unit.source)], implicit=needed, variables=variables)


def write_links(writer: Writer, products: Iterable[Product], base: Base) -> None:
    """Write how libraries are linked, each as soon as its objects are there."""
    writer.rule("link", f"{shlex.quote(sys.executable)} -m graft.compile.link $in", description="link $out")
    for product in products:
        inputs = [*(unit.target for unit in (*product.units, *product.provided)), *product.offered]
        inputs += [*(base.libraries / name for name in product.bound), *(LINKED / name for name in product.loaded)]
        writer.build([str(LINKED / product.name)], "link", [str(_plan(product))], [_BUILDER, *map(str, inputs)])


def _plan(product: Product) -> Path:
    return Path("plans", f"{Path(product.name).name}.json")


def _run(
    layout: Layout,
    snapshot: Snapshot,
    jobs: int,
    line: StepLine,
    output: list[str],
    is_refused: Callable[[], bool],
) -> int | None:
    """Run ninja and show its progress, and the first error of each source while others are compiled. Return the number
    of compiled sources, or None if a command failed.
    """
    command = [str(_NINJA), "-C", str(layout.work), "-j", str(jobs), "-k", "0"]
    compiled = 0
    of_one: list[str] = []  # what a command printed, up to its first error
    is_told = False
    found: list[tuple[float, str]] = []  # errors to show, and when they were found

    def read(text: str) -> None:
        nonlocal compiled, is_told
        output.append(text)
        if is_status(text):
            line.update(text.strip())
            compiled += "] link " not in text
            of_one.clear()
            is_told = False
        elif not is_told:
            of_one.append(text)
            if "rror: " in text and (error := first_error(of_one, snapshot.merged)):
                found.append((time.monotonic(), snapshot.translate(error)))
                is_told = True

    def show() -> bool:
        if found and time.monotonic() > found[0][0] + _SHOWN_AFTER:
            line.say(found.pop(0)[1])
        return is_refused()

    env = {
        **UNTRANSLATED,
        _LAUNCHER: layout.launcher,
        "NINJA_STATUS": "[%f/%t] ",
    }
    code = follow(command, read, env={**env, "PYTHONPATH": python_path()}, watch=show)
    return compiled if code == 0 else None


def with_preambles(
    units: Iterable[Unit], work: Path, headers: Iterable[Path], compiler: str
) -> tuple[list[Unit], list[Unit]]:
    """Return the units, those of the folder's own sources with preambles if useful, and units that compile the
    preambles. A change of ``headers``, which may be edited, or of the compiler's description makes them invalid.
    """
    common = hashlib.sha256(compiler.encode())
    for path in headers:
        common.update(path.read_bytes())
    pairs = [_with_preamble(unit, work, common.hexdigest()) for unit in units]
    return [unit for unit, _ in pairs], [maker for _, maker in pairs if maker]


def _with_preamble(unit: Unit, work: Path, common: str) -> tuple[Unit, Unit | None]:
    """Return a unit that uses its preamble if it exists, and a unit that compiles it for the next time if the source
    changed.
    """
    is_own = unit.source.parts[0] == "src"
    text = (work / unit.source).read_text(encoding="utf-8", errors="replace") if is_own else ""
    preamble = preamble_of(text)
    if "#include" not in preamble:
        return unit, None
    header = Path("preambles", *unit.target.with_suffix(".h").parts[1:])
    made, note = header.with_name(f"{header.name}.gch"), work / header.with_suffix(".json")
    stamp = hashlib.sha256("\0".join([preamble, common, *unit.flags]).encode()).hexdigest()
    source = hashlib.sha256(text.encode()).hexdigest()
    old = json.loads(note.read_text(encoding="utf-8")) if note.is_file() else {}
    is_same, is_edited = old.get("stamp") == stamp, old.get("source", source) != source
    if not is_same:
        (work / made).unlink(missing_ok=True)
    # The command of an unchanged source must not change, or it would be recompiled.
    is_used = is_same and (old["is_used"] or (is_edited and (work / made).is_file()))
    write_atomically(note, json.dumps({"stamp": stamp, "source": source, "is_used": is_used}))
    if not is_edited and not is_used:
        return unit, None
    # Compiled under the source's name: messages name the source, and it may include files next to it.
    write_if_changed(work / header, f'#line 1 "{unit.source}"\n{preamble}')
    maker = Unit(header, made, (*unit.flags, "-iquote", str(unit.source.parent), "-x", "c++-header"))
    if is_used:
        unit = replace(unit, flags=(*unit.flags, "-include", str(header)), needed=(made,))
    return unit, maker


def preamble_of(text: str) -> str:
    """Return the leading lines with only includes and macros."""
    found = _PREAMBLE.match(text)
    return found[0] if found else ""
