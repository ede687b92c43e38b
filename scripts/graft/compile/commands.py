"""Write compile_commands.json, from which clangd reads how a source is compiled: the user's sources, with the flags,
folders of headers and macros of the next build.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from ..core.files import files_below, write_if_changed
from ..core.layout import SEARCHED, SOURCES, Layout
from ..inputs.native import NativeFolders
from ..inputs.toolchain import Toolchain
from .ninja import searched_by
from .nvcc import Compiler, Nvcc
from .units import Unit

FILE = "compile_commands.json"

CompiledUnit: TypeAlias = tuple[Unit, Compiler]

# A flag with a folder of headers.
_FOLDER = re.compile(r"(-I|-iquote|-isystem|-idirafter)(.+)")
# Flags that clang refuses, or that only direct the optimizer of g++. Of -f, those stay that change what a source means.
_OF_GXX = re.compile(
    r"--param=.*|-m(no-)?avx256-.*"
    r"|-f(?!(no-)?(openmp|PIC|fast-math|math-errno|trapping-math|exceptions|rtti|wrapv|(un)?signed-char|visibility)).*"
)
# clang may come without the header of OpenMP. It does not know an attribute in g++'s, which is searched after this.
_OPENMP = "#define __malloc__(...) __malloc__\n#include_next <omp.h>\n#undef __malloc__\n"
# nvcc's flags that clang has, too.
_OF_NVCC = re.compile(r"-[DUI].+|-std=.+|-(isystem|iquote|idirafter).+|-include|[^-].*")


def write_commands(layout: Layout, natives: NativeFolders, units: Iterable[CompiledUnit], toolchain: Toolchain) -> None:
    """Write the file into ``layout.commands``, with an entry for each of the user's sources among ``units``.

    Args:
        layout: the folders of the build.
        natives: the native folders, as the build reads them.
        units: all units, each with its compiler.
        toolchain: the C++ compiler. Of sources that are compiled for several CPU capabilities, that for edits counts.
    """
    edited, after = toolchain.architecture.capability_for_edits(), layout.commands / "after"
    write_if_changed(after / "omp.h", _OPENMP)
    # Headers, too, are the user's files: compilers find copies of them.
    links = {name: natives.found_at(name) for name in files_below(layout.work / SEARCHED)}
    _link(layout.commands / SEARCHED, links)
    # The text of a checkout's file that a build compiles is a part of it. The rest may need more headers.
    roots = [folder.written_from for folder in natives.folders if folder.written_from]
    lacking = [*(root / name for root in roots for name in ("aten/src", "")), after, *toolchain.libraries(["include"])]
    more = [f"-idirafter{folder}" for folder in lacking]
    entries = {}
    for unit, compiler in units:
        is_users = unit.is_own or unit.is_of_extension
        if is_users and unit.capability in ("", edited):
            source = natives.file(unit.source.relative_to(SOURCES)) if unit.is_own else unit.source
            words = [*_arguments(unit, compiler, layout), *more, "-c", str(source)]
            entries[source] = {"directory": str(layout.work), "file": str(source), "arguments": words}
    write_if_changed(layout.commands / FILE, json.dumps([*entries.values()], indent=1))


def _arguments(unit: Unit, compiler: Compiler, layout: Layout) -> Iterator[str]:
    words = [*compiler.flags, *unit.flags, *searched_by(unit)]
    if isinstance(compiler, Nvcc):
        yield from (compiler.host.compiler, "-x", "cuda", f"--cuda-path={compiler.folder}", "-Wno-unknown-cuda-version")
        words = [word for word in (each.removeprefix("-Xcompiler=") for each in words) if _OF_NVCC.fullmatch(word)]
    else:
        yield compiler.compiler
    for word in words:
        if found := _FOLDER.fullmatch(word):
            # The copies of the user's files are those below SEARCHED.
            is_copy = Path(found[2]).is_relative_to(SEARCHED)
            yield found[1] + os.path.normpath((layout.commands if is_copy else layout.work) / found[2])
        elif not _OF_GXX.fullmatch(word):
            yield word
    # nvcc of CUDA 13 searches the folder of Thrust by itself; clang does not.
    if isinstance(compiler, Nvcc) and (thrust := compiler.folder / "include/cccl").is_dir():
        yield f"-isystem{thrust}"


def _link(folder: Path, links: Mapping[Path, Path]) -> None:
    """Let a folder have these links, by name, and nothing else."""
    there = {path.relative_to(folder): path.readlink() for path in folder.rglob("*") if path.is_symlink()}
    for name in {name for name, target in there.items() if links.get(name) != target}:
        (folder / name).unlink()
    for name in {name for name, target in links.items() if there.get(name) != target}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(links[name])
