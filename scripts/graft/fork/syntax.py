"""``make check-source ARGS=--syntax``: whether the folder's sources are valid C++ in a source tree, without configuring
or building it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.console import StepLine, Steps, say
from ..core.errors import CompileError, ToolchainError
from ..core.layout import REPOSITORY, Layout
from ..core.lock import build_lock
from ..core.process import UNTRANSLATED, run
from ..inputs.native import NativeFolder
from ..inputs.patches import load_series
from ..inputs.snapshot import Snapshot, take_snapshot
from ..inputs.toolchain import Toolchain
from .apply import make_commits
from .cache import cache_of
from .fetch import fetch_to_build
from .parity import run_generators
from .placing import NATIVE
from .stack import Stack
from .tree import count, open_tree, pinned_base

# What sources include, and what generates the rest of it.
_FOLDERS = ("aten/src", "c10", "torch", "torchgen", "tools")
_INCLUDED = ("include", "build/aten/src", "aten/src", ".")

# A header that the tree includes and does not hold; official wheels do.
_SLEEF = "sleef.h"

# Values of CMake's variables in headers, other than 0.
_CONFIGURED = {"AT_PARALLEL_OPENMP": "1"}


@dataclass(frozen=True)
class Unit:
    """A source to parse.

    Args:
        name: its path in the native folder.
        flags: of its CPU capability.
    """

    name: Path
    flags: tuple[str, ...]


def check_syntax(layout: Layout, *, source: str | None, jobs: int) -> None:
    """Parse each source of the native folders, for each CPU capability, with the headers of the pin's source tree.

    Args:
        layout: the pin and the native folders.
        source: a checkout, or a place to clone from; None for the pin's.
        jobs: the maximum number of compilers to run at once.

    Raises:
        CompileError: the first messages about each source, with paths in the native folder.
        GraftError: the tree is not available.
    """
    snapshot = take_snapshot(layout)
    cache = cache_of(snapshot.pin)
    snapshot = replace(snapshot, folder=cache.snapshot)
    with build_lock(cache.folder), snapshot.translated(), tempfile.TemporaryDirectory(prefix="graft-") as scratch:
        steps, folder, native = Steps(), cache.folder / "syntax", snapshot.lay_out()
        with steps.step("fetch the sources") as line:
            path = fetch_to_build(snapshot.pin, cache, source, line)
        with steps.step("apply patches and operators"):
            tree = open_tree(path, snapshot.pin)
            stack = Stack(tree, pinned_base(tree, snapshot.pin), Path(scratch))
            tip = make_commits(stack, load_series(snapshot.patches), native, Path(scratch))
        done, wanted = folder / "done", f"{tip} {snapshot.toolchain.description}"
        if done.is_file() and done.read_text(encoding="utf-8") == wanted:
            say(f"nothing changed: {layout.title} is valid C++ in PyTorch {snapshot.pin.version}")
            return
        with steps.step("generate headers"):
            shutil.rmtree(folder, ignore_errors=True)
            stack.lay_out({name: folder / name for name in _FOLDERS}, {})
            run_generators(folder)
            configure_headers(folder, snapshot.toolchain)
        with steps.step("parse") as line:
            line.note = parse(folder, native, snapshot, jobs, line)
        done.write_text(wanted, encoding="utf-8")
    say(f"{layout.title}: valid C++ in PyTorch {snapshot.pin.version}; {sum(steps.seconds.values()):.0f} s in all")


def configure_headers(folder: Path, toolchain: Toolchain) -> None:
    """Write the headers that CMake makes of templates, with everything optional left out, and find what is not in the
    tree.

    Raises:
        ToolchainError: neither the system nor an official wheel has a header.
    """
    for template in folder.rglob("*.h.in"):
        text = re.sub(r"^#cmakedefine01 (\w+).*$", r"#define \1 0", template.read_text(encoding="utf-8"), flags=re.M)
        text = re.sub(r"^#cmakedefine\b.*\n", "", text, flags=re.M)
        text = re.sub(r"@(\w+)@", lambda match: _CONFIGURED.get(match[1], "0"), text)
        template.with_suffix("").write_text(text, encoding="utf-8")
    (folder / "include").mkdir()
    if run([toolchain.compiler, "-E", "-xc++", "-"], stdin=f"#include <{_SLEEF}>", check=False).returncode:
        headers = sorted((REPOSITORY / "build").glob(f"*/*/base/tree/torch/include/{_SLEEF}"))
        if not headers:
            raise ToolchainError(
                f"{_SLEEF}: no such header, which sources in cpu/ include",
                todo="`apt-get install libsleef-dev`, or run `make patch-and-build` first, whose base has it",
            )
        shutil.copyfile(headers[0], folder / "include" / _SLEEF)


def parse(folder: Path, native: NativeFolder, snapshot: Snapshot, jobs: int, line: StepLine) -> str:
    """Parse all units. Return how many there are.

    Raises:
        CompileError: the first messages about each source.
    """
    toolchain, every = snapshot.toolchain, list(units(native, snapshot.toolchain))
    includes = [f"-I{folder / name}" for name in _INCLUDED]

    def messages(unit: Unit) -> str:
        path = str(folder / NATIVE / unit.name)
        flags = [*toolchain.flags, *unit.flags, *includes, "-w", "-fsyntax-only", "-fmax-errors=3"]
        done = run([toolchain.compiler, *flags, path], env=UNTRANSLATED, check=False)
        return "" if done.returncode == 0 else done.stdout.strip()

    failed: dict[Path, str] = {}
    with ThreadPoolExecutor(jobs) as pool:
        for number, (unit, text) in enumerate(zip(every, pool.map(messages, every), strict=True), 1):
            line.update(f"[{number}/{len(every)}] {unit.name}")
            if text:
                failed.setdefault(unit.name, text)
    if failed:
        ours = re.compile(rf"{re.escape(str(folder / NATIVE))}/([\w./-]+)")
        texts = [ours.sub(lambda match: str(_own(native, match)), text) for text in failed.values()]
        raise CompileError(
            "\n".join(texts),
            cause=f"PyTorch {snapshot.pin.version} lacks it, or has it in another form",
            todo="use what all releases have, or ask for the release with TORCH_VERSION_MAJOR and TORCH_VERSION_MINOR "
            "(torch/version.h)",
        )
    return count(len(every), "unit")


def units(native: NativeFolder, toolchain: Toolchain) -> Iterator[Unit]:
    """Yield what the tree's build compiles of a native folder: sources below ``cpu/`` once for each CPU capability."""
    yield from (Unit(name, ()) for name in native.sources)
    for name in native.vectorized:
        yield from (Unit(name, tuple(toolchain.capability_flags(each))) for each in toolchain.capabilities)


def _own(native: NativeFolder, match: re.Match[str]) -> Path | str:
    own = native.path / match[1]
    return own if own.is_file() else match[0]
