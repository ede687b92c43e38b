"""Builds for the tests of ``graft.compile``: with a faked compiler, or with g++ and a small base."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from graft.base.base import Base
from graft.codegen import FRAGMENTS
from graft.compile import incremental, link
from graft.compile.incremental import bring_up_to_date
from graft.compile.link import Linker
from graft.compile.manifest import Outside
from graft.compile.nvcc import Nvcc
from graft.compile.products import LinkPlan, Product
from graft.compile.units import CXX, Unit, UnitFinder, Units
from graft.core.console import StepLine
from graft.core.extra_flags import NO_EXTRA, ExtraFlags
from graft.core.layout import REPOSITORY, Layout, TorchVersion
from graft.inputs.native import NativeFolder, NativeFolders, load_natives, together
from graft.inputs.pin import load_pin
from graft.inputs.snapshot import Snapshot, contents_of
from graft.inputs.toolchain import Toolchain
from helpers import Patch, beside, compiled, program, write

CASES = beside(__file__)

GXX = Toolchain("g++", "a compiler", "c++20")


def snapshot_of(work: Path, natives: NativeFolders, toolchain: Toolchain = GXX) -> Snapshot:
    """Return a snapshot of native folders in a work folder."""
    pin, files = load_pin(REPOSITORY / "patches/2.13.0"), contents_of(each.paths for each in natives.folders)
    return Snapshot(work, natives, files, (), pin, toolchain, ())


@pytest.fixture
def units(tmp_path: Path, monkeypatch: Patch) -> Callable[..., Units]:
    """Return a function that finds the units of a folder with sources, by their texts, and of generated files."""
    monkeypatch.setattr(Layout, "work", tmp_path / "work")
    layout = Layout(TorchVersion("1.0"), (tmp_path / "native",), tmp_path)

    def units(
        sources: Mapping[str, str] | NativeFolders,
        generated: Iterable[str] = (),
        toolchain: Toolchain = GXX,
        *,
        has_nvcc: bool = False,
        extra: ExtraFlags = NO_EXTRA,
    ) -> Units:
        if isinstance(sources, NativeFolders):  # elsewhere
            natives, texts = sources, {str(name): sources.text(name) for name in sources.files}
            write(layout.sources, texts)
        else:
            natives = load_natives([write(layout.sources, sources)])
        write(layout.generated, {FRAGMENTS: "{}", **dict.fromkeys((f"units/{name}" for name in generated), "")})
        nvcc = Nvcc(tmp_path / "cuda", toolchain, ("90",)) if has_nvcc else None
        return UnitFinder(replace(layout, extra=extra), natives, Base(tmp_path, tmp_path), toolchain, nvcc).units()

    return units


# What narrow folders have.
NARROW_HEADERS = tuple(
    f"ATen/{name}.h" for name in ("Functions", "NativeFunctions", "Operators", "RedispatchFunctions")
)

# Records its arguments; rejects a source that contains `wide` with narrow headers, which a header that it includes
# lacks something of, and one that contains `wrong`.
COMPILER = CASES["compiler"]


A, B, LIBRARY = "src/ATen/native/A.cpp", "src/ATen/native/B.cpp", "generated/library.cpp"
ALL = {A, B, LIBRARY}


@dataclass
class Compiler:
    """A compiler, whose version may change."""

    compiler: str
    description: str = "version 1"
    flags: tuple[str, ...] = ("-O2",)


@dataclass
class Build:
    """A build, whose compiler is faked unless a test sets another. One of its three sources is first compiled with
    narrow headers.

    Args:
        toolchain: that of the snapshot. Its folders of headers are searched.
        is_refused: whether the check refuses the folder.
        counted: how many sources the last build compiled, as it prints that.
        compiled_before: what it printed about objects of other builds.
        outside: what it read elsewhere.
    """

    layout: Layout
    base: Base
    compiler: Any
    units: list[Unit]
    toolchain: Toolchain = GXX
    is_refused: bool = False
    counted: str = ""
    compiled_before: str = ""
    outside: Outside | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The inputs: no file of the native folder, since tests write what is compiled."""
        natives = together([NativeFolder(path=self.layout.native, paths={})])
        return snapshot_of(self.layout.work, natives, self.toolchain)

    def make(self, *products: Product) -> dict[str, Path]:
        """Compile and link with ninja. Return the libraries."""
        line = StepLine("compile")
        linked, self.outside = bring_up_to_date(
            *(self.layout, self.snapshot, products, self.base, {CXX: self.compiler}),
            others=self.units,
            jobs=2,
            line=line,
            is_refused=lambda: self.is_refused,
        )
        self.counted, _, self.compiled_before = line.note.partition(", ")
        return linked

    def run(self) -> set[str]:
        """Run the faked compiler. Return the compiled sources."""
        (self.layout.work / "calls").unlink(missing_ok=True)
        self.make()
        found = {re.search(r"-c (\S+)", call)[1] for call in self.calls()}  # type: ignore[index]
        assert self.counted == f"{len(found)} of {len(self.units)} sources"
        return found

    def calls(self) -> list[str]:
        """Return the last arguments of the compiler."""
        calls = self.layout.work / "calls"
        return calls.read_text().splitlines() if calls.is_file() else []

    def write(self, name: str, text: str) -> None:
        write(self.layout.work, {name: text})


@pytest.fixture
def build(tmp_path: Path, monkeypatch: Patch) -> Build:
    monkeypatch.setattr(Layout, "work", tmp_path / "work")
    monkeypatch.setattr(incremental, "objects_of_all", lambda: tmp_path / "store")
    units = [
        Unit(Path(A), Path("objects/A.o")),
        Unit(Path(B), Path("objects/B.o"), ("-O3",)),
        Unit(Path(LIBRARY), Path("objects/library.o"), (), (Path("narrow"),)),
    ]
    layout = Layout(TorchVersion("1.0"), (Path("/mine"),), tmp_path / "out")
    made = Build(
        layout,
        Base(Path("torch.whl"), tmp_path / "tree"),
        Compiler(str(program(tmp_path / "a compiler", COMPILER))),
        units,
    )
    for name in (*(f"narrow/{header}" for header in NARROW_HEADERS), "header.h", *(str(unit.source) for unit in units)):
        made.write(name, f"// {name}\n")
    return made


# Each library of the base exports a function and hides another, and a variable.
OF_BASE = CASES["of_base"]
BOUND = ("libtorch_python.so", "libtorch_cpu.so")

# As in the official CUDA wheels, where it also applies to loaded libraries.
RPATH = ("-Wl,-rpath,$ORIGIN/../../nvidia/cu13/lib:$ORIGIN", "-Wl,--disable-new-dtags")
TEMPLATES = Path(link.__file__).with_name("templates")

# Otherwise the linker leaves it out.
SHOWN = '__attribute__((visibility("default")))'


@dataclass
class LinkedBuild(Build):
    """A build of libraries with g++, in the current folder."""

    def source(self, name: str, text: str) -> Unit:
        """Write a file of the native folder, and the copy of it that is compiled."""
        unit = Unit(Path(f"src/ATen/native/{name}.cpp"), Path(f"objects/{name}.o"))
        write(self.layout.native, {f"{name}.cpp": text})
        write(Path(), {str(unit.source): text})
        return unit

    def unit(self, name: str, text: str, *flags: str) -> Unit:
        """Write and compile a source."""
        unit = self.source(name, text)
        unit.target.parent.mkdir(parents=True, exist_ok=True)
        command = ["g++", "-c", "-O1", "-fPIC", "-fvisibility=hidden", *flags, str(unit.source), "-o", str(unit.target)]
        subprocess.run(command, check=True)
        return unit

    @property
    def trampolines(self) -> Unit:
        """The compiled template that binds hidden functions."""
        return self.unit("Trampolines", f'#include "{TEMPLATES}/trampolines.cpp"')

    def product(self, *units: Unit, name: str = "torch/lib/libtorch.so", **fields: Any) -> Product:
        """Return a library that searches others as the base's do."""
        like = self.base.library("lib/libtorch_cpu.so")
        return Product(**{"name": name, "units": units, "bound": BOUND, "like": like, **fields})

    @property
    def snapshot(self) -> Snapshot:
        """The inputs, laid out."""
        taken = snapshot_of(self.layout.work, load_natives([self.layout.native]), self.toolchain)
        taken.lay_out()
        return taken

    def linker(self, product: Product) -> Linker:
        return Linker(LinkPlan(product, self.base.libraries, self.toolchain, self.snapshot.note))

    def make(self, *products: Product) -> dict[str, Path]:
        self.compiler = self.toolchain
        return super().make(*products)

    def printed(self, library: Path, program: str) -> str:
        """Return what a program prints that has loaded a library, as ``library``."""
        loads = "import ctypes, sys; library = ctypes.CDLL(sys.argv[1])\n"
        env = {**os.environ, "LD_LIBRARY_PATH": str(self.base.libraries)}
        command = [sys.executable, "-c", loads + program, library]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def linked(build: Build, tmp_path: Path, monkeypatch: Patch) -> LinkedBuild:
    base = Base(tmp_path / "torch.whl", tmp_path / "tree")
    base.libraries.mkdir(parents=True)
    for name in BOUND:
        make_library(base.libraries, name)
    layout = replace(build.layout, natives=(tmp_path / "mine",))
    shutil.copytree(TEMPLATES, layout.work / "fixed")
    monkeypatch.chdir(layout.work)
    write(layout.native, {"native_functions.yaml": ""})
    return LinkedBuild(layout, base, GXX, [])


def make_library(folder: Path, name: str, more: str = "") -> None:
    """Link a library of the base."""
    flags = ("-shared", "-Wl,--build-id=sha1", f"-Wl,-soname,{name}", *RPATH)
    compiled(OF_BASE.format(name=name.removesuffix(".so")) + more, folder / name, *flags)
