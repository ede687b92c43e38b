"""Link the two libraries of the new wheel: ``libtorch.so`` with the operators, ``torch._C`` with their bindings."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..base.elf import ElfFile
from ..base.tree import Base
from ..common.errors import LinkError
from ..common.files import write_if_changed
from ..common.layout import Layout
from ..common.process import UNTRANSLATED, run
from ..inputs.toolchain import Toolchain
from . import blame
from .trampolines import BoundLibrary, bind_hidden, trampoline_source

_FLAGS = ["-shared", "-fopenmp", "-Wl,-z,now", "-Wl,--build-id=sha1", "-Wl,--gc-sections"]

_COMPATIBILITY = Path(__file__).with_name("templates") / "compatibility.cpp"

# Symbols that the linker itself defines.
_OF_THE_LINKER = frozenset({"_GLOBAL_OFFSET_TABLE_", "__dso_handle", "_DYNAMIC"})


@dataclass(frozen=True)
class LibraryPlan:
    """A library to link.

    Args:
        name: its path in the wheel.
        objects: what is in it.
        bound: libraries of the base whose functions it calls, exported or not.
        linked: further libraries that are loaded with it.
        search: where it looks for libraries at run time.
        is_python_extension: whether Python loads it.
    """

    name: str
    objects: Sequence[Path]
    bound: Sequence[str]
    linked: Sequence[str]
    search: str
    is_python_extension: bool


def link(
    layout: Layout, base: Base, toolchain: Toolchain, objects: tuple[list[Path], list[Path]], version: str
) -> list[Path]:
    """Link both libraries into the objects folder; return their paths, each named as in the wheel.

    ``libtorch.so`` is in the official wheel an empty umbrella that everything loads. Here it holds the operators, so
    that every process has them, and every C++ program that links to it can call them.

    Raises:
        LinkError: a symbol is nowhere to be found.
    """
    torch = LibraryPlan("torch/lib/libtorch.so", objects[0], ("libtorch_cpu.so", "libc10.so"), (), "$ORIGIN", False)
    extension = LibraryPlan(
        f"torch/_C{sysconfig.get_config_var('EXT_SUFFIX')}",
        objects[1],
        ("libtorch_python.so", "libtorch_cpu.so", "libc10.so"),
        ("libtorch.so",),
        "$ORIGIN:$ORIGIN/lib",
        True,
    )
    stand_ins = layout.objects / "compatibility.o"
    _compile(toolchain, layout, _COMPATIBILITY, stand_ins)

    def link_one(plan: LibraryPlan) -> Path:
        extra = [_trampolines(plan, layout, base, toolchain, version), stand_ins]
        return _link(plan, extra, base, toolchain, layout)

    # Neither waits for the other: the extension is linked to the base's libtorch.so, which has the new one's name.
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(link_one, (torch, extension)))


def _trampolines(plan: LibraryPlan, layout: Layout, base: Base, toolchain: Toolchain, version: str) -> Path:
    """Compile the source that binds what ``plan`` needs and its base libraries hide."""
    bound = hidden_functions(plan, base, toolchain)
    stem = Path(plan.name).name.split(".")[0]
    source = layout.objects / f"trampolines/{stem}.cpp"
    text = trampoline_source(bound, version=version, is_python_extension=plan.is_python_extension)
    target = layout.objects / f"trampolines/{stem}.o"
    write_if_changed(source, text)
    _compile(toolchain, layout, source, target)
    return target


def _compile(toolchain: Toolchain, layout: Layout, source: Path, target: Path) -> None:
    """Compile one small source that includes no header of PyTorch's."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command: list[str | Path] = [
        toolchain.compiler,
        *toolchain.flags,
        "-c",
        os.path.relpath(source, layout.work),
        "-o",
        target,
    ]
    run(command, cwd=layout.work)


def hidden_functions(plan: LibraryPlan, base: Base, toolchain: Toolchain) -> list[BoundLibrary]:
    """The functions that ``plan``'s objects call and only the full symbol tables of the base's libraries tell of."""
    files = [ElfFile(path) for path in plan.objects]
    needed = {name for file in files for name in file.undefined()} - _OF_THE_LINKER
    needed.difference_update(*(file.defined() for file in files))
    bound = [ElfFile(base.libraries / name) for name in plan.bound]
    visible = [*bound, *(ElfFile(path) for path in toolchain.system_libraries)]
    if plan.is_python_extension:
        visible.append(ElfFile(_python_library()))
    for file in visible:
        needed -= file.exported()
    return bind_hidden(needed, bound)


def _python_library() -> Path:
    """The file that exports Python's C interface: libpython where there is one, or else the interpreter."""
    folder, name = sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME")
    shared = Path(folder or "") / (name or "")
    is_shared = bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
    return shared if is_shared and shared.is_file() else Path(sys.executable).resolve()


def _link(plan: LibraryPlan, extra: Sequence[Path], base: Base, toolchain: Toolchain, layout: Layout) -> Path:
    out = layout.objects / "linked"
    target = out / plan.name
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
    # What a sanitizer finds is told with function and line, so there nothing is stripped.
    flags = [*_FLAGS, *(toolchain.sanitizers or ["-s"])]
    command: list[str | Path] = [toolchain.compiler, *flags, "-o", partial, *extra, *plan.objects]
    command += [f"-Wl,-soname,{target.name}", f"-Wl,-rpath,{plan.search}"]
    if not plan.is_python_extension:
        command.append("-Wl,--no-undefined")
    command += ["-Wl,--no-as-needed", *(base.libraries / name for name in (*plan.bound, *plan.linked))]
    command += ["-Wl,--as-needed", f"-Wl,-rpath-link,{base.libraries}"]
    done = run(command, env=UNTRANSLATED, check=False)
    if done.returncode != 0:
        raise LinkError(
            blame.of_linker(done.stdout, layout.native),
            todo="build again then; what is compiled is kept",
        )
    partial.replace(target)
    return target
