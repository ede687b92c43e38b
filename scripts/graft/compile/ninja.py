"""Compile and link with ninja: what the store of objects lacks, and the libraries whose objects have changed."""

from __future__ import annotations

import io
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import ninja
from ninja.ninja_syntax import Writer, escape

from ..base.base import Base
from ..core.console import StepLine
from ..core.files import sha256_of_file, write_if_changed
from ..core.layout import Layout
from ..core.process import UNTRANSLATED, follow, python_path
from ..inputs.includes import quoted_flag
from ..inputs.snapshot import Snapshot
from ..inputs.toolchain import Toolchain
from .cuda import Nvcc
from .libraries import Libraries, plan_of
from .manifest import Files, Outside, is_outside
from .messages import first_error, is_status, refuse
from .objects import Objects
from .preambles import Preambles
from .store import Store
from .units import CXX, INCLUDES, LINKED, NVCC, Product, Unit

_NINJA = Path(ninja.BIN_DIR) / "ninja"

# The name of the compiler launcher in the ninja file.
_LAUNCHER = "GRAFT_LAUNCHER"

# Seconds until an error is shown. At the end of the build all are shown, so one that ends it is not shown twice.
_SHOWN_AFTER = 1

# Whether a compiler reports an error in a header. Narrow headers have all that the text of a source names, so errors in
# the source are its own; but a header that it includes may need more.
_LACKS = r"grep -q '^[^ :]*\.h:.* error: '"

# How often a source is compiled whose headers change meanwhile.
_TRIES = 3

# For __DATE__ and __TIME__: the first date of a wheel's members.
_EPOCH = "315532800"


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
) -> tuple[dict[str, Path], Outside]:
    """Bring libraries up to date, and ``others``, which are in no library. Return the libraries, by path in the wheel,
    and what was read elsewhere.

    Another description of a compiler recompiles everything. At most ``jobs`` commands run at once; they are ended once
    ``is_refused`` returns True.

    Raises:
        CompileError: the messages of compilers and linkers, with paths in the native folder.
    """
    work, toolchain = layout.work, snapshot.toolchain
    every = [*(unit for product in products for unit in product.units), *others]
    # Each once. The user's own first, where mistakes are; of them those for CUDA last, which take minutes.
    units = sorted(dict.fromkeys(every), key=lambda unit: (bool(unit.narrow), unit.compiler == NVCC))
    written, of_base = ([each for each in INCLUDES if is_outside(each) is wanted] for wanted in (False, True))
    toolkits = [str(each.folder) for each in compilers.values() if isinstance(each, Nvcc)]
    files = Files(work, written, [*of_base, *toolchain.search_path], [toolchain.python_include, *toolkits])
    files.begin()
    # Debug information has paths of the folder.
    store = Store(layout.own_store if toolchain.has_debug_info else layout.store, files)
    objects = Objects(units, work, files, store, compilers, is_for_edits=toolchain.is_for_edits)
    preambles = Preambles(work, files, toolchain.description)
    plans = {product.name: product.plan(base, toolchain, snapshot.note) for product in products}
    libraries = Libraries(work, products, plans, base.libraries)
    compiled: set[Unit] = set()
    for _ in range(_TRIES):
        missing = objects.missing()
        stale = libraries.stale(objects.found)
        made = preambles.use(missing) if toolchain.is_for_edits else {unit: unit for unit in missing}
        rules = io.StringIO()
        write_units(Writer(rules), [*made.values(), *preambles.makers], compilers)  # type: ignore[arg-type]  # says str
        write_links(Writer(rules), stale)  # type: ignore[arg-type]
        write_if_changed(work / "build.ninja", rules.getvalue())
        output: list[str] = []
        is_made = _run(layout, snapshot, jobs, line, output, is_refused, partial(objects.keep, made))
        objects.keep(made)
        preambles.note()
        compiled.update(missing)
        if not is_made:
            refuse(output, work, snapshot, [work / folder for folder in INCLUDES])
        changed = [*objects.disturbed.values(), *files.changed(files.read())]
        if not changed:
            break
    else:
        line.say(f"{changed[0]}: it changes while it is compiled; the next build tries again")
        objects.accept()
    libraries.note(objects.found)
    store.prune()
    line.note = f"{len(compiled)} of {len(units)} sources"
    if objects.taken:
        line.note += f", {len(objects.taken)} compiled before"
    linked = {product.name: work / LINKED / product.name for product in products}
    manifests = [found.manifest for found in objects.found.values()]
    outside = Outside.of(manifests)
    if not all(each.is_whole for each in manifests):
        outside = replace(outside, made=f"made: {' '.join(map(sha256_of_file, linked.values()))}")
    return linked, outside


def write_units(writer: Writer, units: Sequence[Unit], compilers: Mapping[str, Toolchain | Nvcc]) -> None:
    """Write how units are compiled, in this order as far as parallel jobs allow."""
    writer.variable("includes", " ".join(f"-I{folder}" for folder in INCLUDES))
    quoted = quoted_flag(INCLUDES[0])
    write_rule = partial(writer.rule, description="$in")
    for name, compiler in compilers.items():
        # The shell inserts the launcher, so that changing it recompiles nothing.
        command = f"$${_LAUNCHER} {_typed(compiler.compiler)}"
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


def write_links(writer: Writer, products: Iterable[Product]) -> None:
    """Write how libraries are linked, each as soon as its objects are there."""
    writer.rule("link", f"{_typed(sys.executable)} -m graft.compile.link $in", description="link $out")
    for product in products:
        inputs = [unit.target for unit in (*product.units, *product.provided)]
        inputs += [LINKED / name for name in product.loaded]
        writer.build([str(LINKED / product.name)], "link", [str(plan_of(product))], list(map(str, inputs)))


def _run(
    layout: Layout,
    snapshot: Snapshot,
    jobs: int,
    line: StepLine,
    output: list[str],
    is_refused: Callable[[], bool],
    keep: Callable[[], None],
) -> bool:
    """Run ninja and show its progress, and the first error of each source while others are compiled. Call ``keep`` when
    a command has ended. Return whether all succeeded.
    """
    command = [str(_NINJA), "-C", str(layout.work), "-j", str(jobs), "-k", "0"]
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
            if "rror: " in text and (error := first_error(of_one, snapshot.natives, snapshot.sources)):
                found.append((time.monotonic(), error))
                is_told = True

    def show() -> bool:
        if found and time.monotonic() > found[0][0] + _SHOWN_AFTER:
            line.say(found.pop(0)[1])
        return is_refused()

    env = {
        **UNTRANSLATED,
        _LAUNCHER: layout.launcher,
        "NINJA_STATUS": "[%f/%t] ",
        "SOURCE_DATE_EPOCH": _EPOCH,
    }
    return follow(command, read, env={**env, "PYTHONPATH": python_path()}, watch=show) == 0
