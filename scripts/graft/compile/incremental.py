"""Bring libraries up to date: compile the objects that the store lacks, and link libraries with changed objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..base.base import Base
from ..core.console import WARNING, StepLine
from ..core.files import sha256_of_file, write_if_changed
from ..core.layout import Layout
from ..inputs.snapshot import Snapshot
from . import idle, ninja
from .libraries import Libraries
from .manifest import InputFiles, Outside, is_outside
from .messages import refuse, warned
from .nvcc import Compiler, Nvcc
from .objects import Objects
from .preambles import PREAMBLES, Preambles
from .products import LinkPlan, Product
from .store import Store, objects_of_all
from .units import INCLUDES, NVCC, Unit

# How many times a source is compiled if its headers change during compilation.
_TRIES = 3


def bring_up_to_date(
    layout: Layout,
    snapshot: Snapshot,
    products: Sequence[Product],
    base: Base,
    compilers: Mapping[str, Compiler],
    *,
    others: Iterable[Unit] = (),
    jobs: int,
    line: StepLine,
    is_refused: Callable[[], bool] = lambda: False,
) -> tuple[dict[str, Path], Outside]:
    """Bring libraries up to date, and the units ``others``, which are in no library. Return the libraries, by path in
    the wheel, and the files outside of the build that compilers read.

    A change of a compiler's description recompiles everything. At most ``jobs`` commands run at once. They are ended
    once ``is_refused`` returns True.
    """
    work, toolchain = layout.work, snapshot.toolchain
    every = [*(unit for product in products for unit in product.units), *others]
    # Each unit once. The user's sources come first, since mistakes are there; of these, CUDA sources, which take
    # minutes, come last. Sources for further CPU capabilities are at the end: few mistakes concern only one. Generated
    # sources that take longest come before others, so that no core waits at the end.
    again = set(toolchain.capabilities[1:])
    units = sorted(
        dict.fromkeys(every),
        key=lambda unit: (unit.capability in again, bool(unit.narrow), unit.compiler == NVCC, unit.is_light),
    )
    files = _input_files(layout, snapshot, compilers)
    files.begin()
    # Objects with debug information contain paths of this folder, so other folders cannot use them.
    store = Store(layout.own_objects if toolchain.has_debug_info else objects_of_all(), files)
    objects = Objects(units, work, files, store, compilers, is_for_edits=toolchain.is_for_edits)
    preambles = Preambles(work, files, toolchain.description)
    libraries = Libraries(work, [LinkPlan(each, base.libraries, toolchain, snapshot.note) for each in products])

    relinked: set[str] = set()

    def attempt(missing: Sequence[Unit]) -> None:
        stale = libraries.stale(objects.found)
        relinked.update(each.name for each in stale)
        made = preambles.use(missing) if toolchain.is_for_edits else {unit: unit for unit in missing}
        if preambles.makers and idle.may_wait():
            idle.leave(partial(precompile, layout.work, preambles, preambles.makers, compilers))
            preambles.makers = {}
        text = ninja.text_of([*made.values(), *preambles.makers], stale, compilers)
        write_if_changed(work / "build.ninja", text)
        is_made, output = ninja.run(layout, snapshot, jobs, line, is_refused, partial(objects.keep, made))
        objects.keep(made)
        preambles.note()
        if not is_made:
            refuse(output, work, snapshot, [work / folder for folder in INCLUDES])
        if told := warned(output, snapshot):
            line.say("\n".join(told), WARNING)

    with preambles.held():
        compiled = settle(objects, files, line, attempt)
    libraries.note(objects.found)
    store.prune()
    line.note = f"{len(compiled)} of {len(units)} sources"
    line.note += f" and {len(relinked)} of {len(products)} libraries" if relinked else ""
    if objects.taken:
        line.note += f", {len(objects.taken)} compiled before"
    linked = {product.name: work / product.path for product in products}
    return linked, outside_of(objects, linked.values())


def precompile(work: Path, preambles: Preambles, makers: dict[Unit, str], compilers: Mapping[str, Compiler]) -> None:
    """Compile headers that the build has left, unless another build has begun since."""
    with preambles.held() as is_held:
        if is_held:
            file = work / "precompile.ninja"
            write_if_changed(file, f"builddir = {PREAMBLES}\n{ninja.text_of([*makers], (), compilers)}")
            ninja.run_quietly(work, file.name)
            preambles.makers = makers
            preambles.note()


def settle(objects: Objects, files: InputFiles, line: StepLine, attempt: Callable[[Sequence[Unit]], None]) -> set[Unit]:
    """Call ``attempt`` with the units that must be compiled, and again with those whose headers changed during
    compilation. Return all units that were compiled.
    """
    compiled: set[Unit] = set()
    for _ in range(_TRIES):
        missing = objects.missing()
        attempt(missing)
        compiled.update(missing)
        changed = [*objects.disturbed.values(), *files.changed(files.read())]
        if not changed:
            return compiled
    line.say(f"{changed[0]}: it changes while it is compiled; the next build tries again")
    objects.accept()
    return compiled


def _input_files(layout: Layout, snapshot: Snapshot, compilers: Mapping[str, Compiler]) -> InputFiles:
    toolchain = snapshot.toolchain
    elsewhere = (path for folder in snapshot.read.folders for path in folder.searched_elsewhere)
    others = dict.fromkeys(map(str, (*elsewhere, *layout.extra.include_paths)))
    given = [path for path in others if path not in toolchain.search_path]
    written, of_base = ([each for each in INCLUDES if is_outside(each) is wanted] for wanted in (False, True))
    toolkits = [str(each.folder) for each in compilers.values() if isinstance(each, Nvcc)]
    searched = [*of_base, *given, *toolchain.search_path]
    return InputFiles(layout.work, written, searched, [toolchain.python_include, *toolkits], given)


def outside_of(objects: Objects, libraries: Iterable[Path]) -> Outside:
    """Return the files outside of the build that compilers read. Where a source computes the name of an include,
    they may be incomplete, so add hashes of the libraries.
    """
    manifests = [found.manifest for found in objects.found.values()]
    outside = Outside.of(manifests)
    if all(each.is_whole for each in manifests):
        return outside
    return replace(outside, made=f"made: {' '.join(map(sha256_of_file, libraries))}")
