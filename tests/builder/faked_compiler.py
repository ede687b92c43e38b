"""A build of three sources with a faked compiler, for tests of what is compiled when."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from graft.base.base import Base
from graft.compile import ninja
from graft.compile.manifest import Outside
from graft.compile.units import CXX, Unit
from graft.core.console import StepLine
from graft.core.layout import DEBUG, REPOSITORY, Layout, TorchVersion
from graft.inputs.native import NativeFolder, NativeFolders, together
from graft.inputs.pin import load_pin
from graft.inputs.snapshot import Snapshot, contents_of
from graft.inputs.toolchain import Toolchain

# What narrow folders have.
NARROW_HEADERS = tuple(
    f"ATen/{name}.h" for name in ("Functions", "NativeFunctions", "Operators", "RedispatchFunctions")
)

# Records its arguments; rejects a source that contains `wide` with narrow headers, which a header that it includes
# lacks something of, and one that contains `wrong`.
COMPILER = r"""#!/bin/sh
for word; do
    case "$before" in -c) source=$word;; -o) object=$word;; -MF) depfile=$word;; esac
    before=$word
done
echo "$*" >> calls
case "$*" in *-Inarrow*) grep -q wide "$source" && { echo "h/T.h:1:1: error: no such name" >&2; exit 1; };; esac
case "$*" in *" -O0"*) grep -q immediate "$source" && { echo "$source:1:1: error: no immediate" >&2; exit 1; };; esac
grep -q slow "$source" && sleep 3
grep -q often "$source" && seq -f "$source:%g:2: error: wrong" 99 >&2 && exit 1
grep -q wrong "$source" && { echo "$source:1:2: error: wrong" >&2; exit 1; }
mkdir -p "$(dirname "$object")"
echo "$object: $source header.h $(sed -n 's,^// \(\.*/.*\),\1,p' "$source")" > "$depfile"
cp "$source" "$object"
"""


def snapshot_of(work: Path, toolchain: Toolchain, natives: NativeFolders) -> Snapshot:
    """Return a snapshot of native folders in a work folder."""
    pin, files = load_pin(REPOSITORY / "patches/2.13.0"), contents_of(each.paths for each in natives.folders)
    return Snapshot(work, natives, files, (), pin, toolchain, ())


@dataclass
class Compiler:
    """A compiler, whose version may change."""

    compiler: str
    description: str = "version 1"
    flags: tuple[str, ...] = ("-O2",)


@dataclass
class Build:
    """A build with three sources, one of which is first compiled with narrow headers."""

    layout: Layout
    compiler: Compiler
    units: list[Unit]
    is_debugged: bool = False
    is_refused: bool = False
    searching: str = "g++"
    compiled_before: str = ""
    outside: Outside | None = None

    def run(self) -> set[str]:
        """Run the compilers. Return the compiled sources."""
        calls = self.layout.work / "calls"
        calls.unlink(missing_ok=True)
        line = StepLine("compile")
        base, work = Base(Path("torch.whl"), Path("tree")), self.layout.work
        toolchain = Toolchain(self.searching, "", "c++20").of_kind(DEBUG if self.is_debugged else "")
        snapshot = snapshot_of(work, toolchain, together([NativeFolder(path=self.layout.native, paths={})]))
        _, self.outside = ninja.make(
            *(self.layout, snapshot, [], base, {CXX: self.compiler}),
            others=self.units,
            jobs=2,
            line=line,
            is_refused=lambda: self.is_refused,
        )
        found = {re.search(r"-c (\S+)", call)[1] for call in self.calls()}  # type: ignore[index]
        counted, _, self.compiled_before = line.note.partition(", ")
        assert counted == f"{len(found)} of {len(self.units)} sources"
        return found

    def calls(self) -> list[str]:
        """Return the last arguments of the compiler."""
        calls = self.layout.work / "calls"
        return calls.read_text().splitlines() if calls.is_file() else []

    def write(self, name: str, text: str) -> None:
        (self.layout.work / name).parent.mkdir(parents=True, exist_ok=True)
        (self.layout.work / name).write_text(text)


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    monkeypatch.setattr(Layout, "work", tmp_path / "work")
    monkeypatch.setattr(Layout, "store", tmp_path / "store")
    program = tmp_path / "a compiler"
    program.write_text(COMPILER)
    program.chmod(0o755)
    units = [
        Unit(Path("src/ATen/native/A.cpp"), Path("objects/A.o")),
        Unit(Path("src/ATen/native/B.cpp"), Path("objects/B.o"), ("-O3",)),
        Unit(Path("generated/library.cpp"), Path("objects/library.o"), (), (Path("narrow"),)),
    ]
    made = Build(Layout(TorchVersion("1.0"), (Path("/mine"),), tmp_path / "out"), Compiler(str(program)), units)
    for name in (*(f"narrow/{header}" for header in NARROW_HEADERS), "header.h", *(str(unit.source) for unit in units)):
        made.write(name, f"// {name}\n")
    return made


ALL = {"src/ATen/native/A.cpp", "src/ATen/native/B.cpp", "generated/library.cpp"}
