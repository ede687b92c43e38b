"""``make patch-and-build BUILD=source``: PyTorch's own build of the whole tree, with the native folder in it."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from ..base.base import VERSION_FILE
from ..common.console import StepLine, Steps, say
from ..common.errors import PackError
from ..common.layout import Layout
from ..common.lock import build_lock
from ..common.process import run
from ..compose.wheel_files import with_version
from ..deliver.built import SOURCE, Built, load_built, save_built
from ..deliver.wheel import pack
from ..graft import Result, report
from ..inputs.patches import load_series
from ..inputs.pin import Pin, load_pin
from ..inputs.snapshot import Snapshot, hash_of_builder, take_snapshot
from .apply import make_fork
from .cache import Cache, cache_of
from .configure import Configured, configure
from .debian import refuse_missing_packages
from .fetch import checkout_of, fetch_to_build, fetch_tree
from .incremental import forget, generate_incrementally, left_as_they_were
from .ninja import GENERATORS, ninja
from .orphans import remove_orphans
from .settings import affordable, make_environment, variables
from .tree import Tree, count, open_tree

# Where CMake installs what it built, for setup.py to take from there.
_INSTALLED = ("torch/bin", "torch/include", "torch/lib", "torch/share")

# Behind the stamp of a wheel with objects that incremental builds left alone.
_LEFT_ALONE = "-incremental"


@dataclass(frozen=True)
class Input:
    """What a source build is made of, checked as far as it can be without the tree."""

    snapshot: Snapshot
    cache: Cache

    @property
    def pin(self) -> Pin:
        """The pin file, read."""
        return self.snapshot.pin

    @property
    def stamp(self) -> str:
        """A hash of all that the wheel depends on."""
        return hashlib.sha256(f"{self.snapshot.stamp} {hash_of_builder(['source'])}".encode()).hexdigest()


def load_input(layout: Layout) -> Input:
    """Read the pin and the native folders, and look for the compiler and the system's packages.

    Raises:
        GraftError: naming what is wrong or missing.
    """
    snapshot = take_snapshot(layout)
    refuse_missing_packages(snapshot.pin.settings.packages)
    cache = cache_of(snapshot.pin)
    return Input(replace(snapshot, folder=cache.snapshot), cache)


def build_source(layout: Layout, *, source: str | None, jobs: int, incremental: bool) -> Result:
    """Bring the wheel of a whole build up to date.

    Args:
        layout: the pin, the native folders and where the wheel goes.
        source: a checkout, or where to fetch from; None for what the pin says.
        jobs: how many compilers may run at once, if the memory is enough.
        incremental: leave alone what was compiled with headers that only gain declarations; else compile also what
            earlier builds left alone.

    Raises:
        GraftError: what was compiled so far is kept.
    """
    given = load_input(layout)
    with build_lock(given.cache.folder), given.snapshot.translated():
        stamp = given.stamp
        built = load_built(layout, SOURCE)
        stamps = [stamp, stamp + _LEFT_ALONE] if incremental else [stamp]
        if built and built.stamp in stamps and built.is_there():
            say(f"nothing changed: {built.wheel}")
            return Result(Path(built.wheel), {})
        jobs = affordable(jobs)
        steps = Steps(total=6)
        configured = prepare(given, source, jobs, steps)
        with steps.step("generate") as line:
            line.note = generate(configured, jobs, line, incremental=incremental)
        with steps.step("compile") as line:
            line.note = count(ninja(configured, jobs, line), "command")
        with steps.step("pack"):
            version = f"{given.pin.version}+source.{stamp[:10]}"
            remove_installed(open_tree(configured.tree, given.pin))
            wheel = pack_wheel(configured, given.cache.folder / "wheel", version, layout.out)
        made = stamp + _LEFT_ALONE if left_as_they_were(configured.tree) else stamp
        save_built(layout, Built.of(made, wheel), SOURCE)
    if built and built.wheel != str(wheel):
        Path(built.wheel).unlink(missing_ok=True)
    report(wheel, steps)
    return Result(wheel, steps.seconds)


def fetched(layout: Layout, source: str | None) -> Path:
    """The source tree for ``apply`` and ``export``: a checkout, or the pin's tree in the cache.

    Raises:
        GraftError: it is not there and cannot be fetched.
    """
    if checkout := checkout_of(source):
        return checkout
    pin = load_pin(layout.patches, layout.pin)
    cache = cache_of(pin)
    with build_lock(cache.folder), Steps(total=1).step("fetch the sources") as line:
        return fetch_tree(pin, cache, source, line)


def tree_of_build(layout: Layout, source: str | None) -> Path:
    """The tree that BUILD=source builds in, as the last build left it."""
    cache, checkout = cache_of(load_pin(layout.patches, layout.pin)), checkout_of(source)
    return cache.copy_of(checkout) if checkout else cache.tree


def prepare(given: Input, source: str | None, jobs: int, steps: Steps) -> Configured:
    """Fetch the tree, make it the fork, and configure its build. A user's checkout is only read.

    Raises:
        GraftError: as the steps do.
    """
    with steps.step("fetch the sources") as line:
        tree = fetch_to_build(given.pin, given.cache, source, line)
    with steps.step("apply patches and operators") as line:
        native, series = given.snapshot.lay_out(), load_series(given.snapshot.patches)
        fork = make_fork(tree, given.pin, series, native)
        line.note = f"{count(len(series), 'patch', 'patches')}, {count(fork.written, 'file')} written"
    with steps.step("configure") as line:
        make_environment(given.pin, given.cache)
        found = variables(given.pin, given.cache, tree, given.snapshot.toolchain, jobs)
        names = open_tree(tree, given.pin).differing(fork.base, fork.tip)
        if not configure(tree, given.pin, given.cache.environment, found, names):
            line.note = "done already"
    return Configured(tree, found, names, native.path)


def generate(configured: Configured, jobs: int, line: StepLine, *, incremental: bool) -> str:
    """Run the tree's generators; return what an incremental build assumes about the headers."""
    tree = configured.tree

    def run_generators() -> None:
        ninja(configured, jobs, line, GENERATORS)
        remove_orphans(tree)

    if incremental:
        return str(generate_incrementally(tree, run_generators))
    again = forget(tree)
    run_generators()
    return f"what includes {count(again, 'header')} is compiled again" if again else ""


def remove_installed(tree: Tree) -> None:
    """Delete what setup.py and CMake installed below the tree for an earlier wheel: they replace, but never delete.

    Else the header or the module of an operator that is gone would be in every wheel that follows.
    """
    for folder in (tree.path / "build").glob("lib.*"):
        shutil.rmtree(folder)
    # Only what git does not track: some of these folders hold sources, too.
    tree.git("clean", "--quiet", "--force", "-d", "-x", "--", *_INSTALLED)


def pack_wheel(configured: Configured, folder: Path, version: str, out: Path) -> Path:
    """Let setup.py make a wheel in ``folder``, and write it into ``out`` under the fork's version.

    Raises:
        PackError: setup.py made none.
    """
    shutil.rmtree(folder, ignore_errors=True)
    command: list[str | Path] = ["python", "setup.py", "bdist_wheel", "--dist-dir", folder]
    run(command, cwd=configured.tree, env=configured.variables)
    wheels = list(folder.glob("torch-*.whl"))
    if len(wheels) != 1:
        raise PackError(f"{folder}: one wheel was expected from setup.py, but there are {len(wheels)}")
    platform = wheels[0].stem.rpartition("-")[2]
    text = with_version((configured.tree / VERSION_FILE).read_text(encoding="utf-8"), version)
    target = pack(wheels[0], {VERSION_FILE: text.encode()}, version=version, platform=platform, out=out)
    shutil.rmtree(folder)
    return target
