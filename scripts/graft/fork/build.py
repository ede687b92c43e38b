"""``make patch-and-build BUILD=source``: PyTorch's own build of the whole tree, including the native folder."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from ..base.base import VERSION_FILE
from ..build import Result, report
from ..compose.files import with_version
from ..core.console import StepLine, Steps, say
from ..core.errors import PackError
from ..core.layout import Layout
from ..core.lock import build_lock
from ..core.process import run
from ..deliver.built import SOURCE, Built, load_built, save_built
from ..deliver.wheel import pack
from ..inputs.patches import load_series
from ..inputs.pin import Pin, load_pin
from ..inputs.snapshot import Snapshot, hash_of_builder, take_snapshot
from .apply import make_fork
from .cache import Cache, cache_of
from .configure import Configured, configure
from .debian import refuse_missing_packages
from .fetch import checkout_of, fetch_to_build, fetch_tree
from .incremental import forget, generate_incrementally, left_as_they_were
from .ninja import GENERATORS, ninja, objects_of, what_is_left
from .orphans import remove_orphans
from .settings import affordable, make_environment, variables
from .tree import Tree, count, open_tree

# CMake's install folder, which setup.py copies from.
_INSTALLED = ("torch/bin", "torch/include", "torch/lib", "torch/share")

# Appended to the stamp of a wheel with objects that an incremental build did not rebuild.
_LEFT_ALONE = "-incremental"


@dataclass(frozen=True)
class Input:
    """The inputs of a source build, checked as far as possible without the tree."""

    snapshot: Snapshot
    cache: Cache

    @property
    def pin(self) -> Pin:
        """The parsed pin file."""
        return self.snapshot.pin

    @property
    def stamp(self) -> str:
        """A hash of everything that affects the wheel."""
        return hashlib.sha256(f"{self.snapshot.stamp} {hash_of_builder()}".encode()).hexdigest()


def load_input(layout: Layout) -> Input:
    """Read the pin and the native folders, and find the compiler and the system's packages.

    Raises:
        GraftError: an input is invalid or missing.
    """
    snapshot = take_snapshot(layout)
    refuse_missing_packages(snapshot.pin.settings.packages)
    cache = cache_of(snapshot.pin)
    return Input(replace(snapshot, folder=cache.snapshot), cache)


def build_source(layout: Layout, *, source: str | None, jobs: int, incremental: bool) -> Result:
    """Bring the wheel of a whole build up to date.

    Args:
        layout: the pin, the native folders and where the wheel goes.
        source: a checkout, or a place to clone from; None for the pin's.
        jobs: the maximum number of compilers to run at once, if memory allows.
        incremental: skip objects compiled with headers that only gained declarations; else compile everything, also
            what earlier builds skipped.

    Raises:
        GraftError: the build failed; compiled objects are kept.
    """
    given = load_input(layout)
    with build_lock(given.cache.folder), given.snapshot.translated():
        stamp = given.stamp
        built = load_built(layout, SOURCE)
        stamps = [stamp, stamp + _LEFT_ALONE] if incremental else [stamp]
        if built and built.stamp in stamps and built.is_there():
            save_built(layout, built, SOURCE)  # which makes it the last build
            say(f"nothing changed: {built.wheel}")
            return Result(Path(built.wheel), {})
        jobs = affordable(jobs)
        steps = Steps()
        configured = prepare(given, source, jobs, steps)
        with steps.step("generate") as line:
            line.note = generate(configured, jobs, line, incremental=incremental)
        # The user's own mistakes are reported in the first minutes.
        with steps.step("compile the operators") as line:
            objects = objects_of(configured)
            line.note = count(ninja(configured, jobs, line, objects) if objects else 0, "command")
        with steps.step("compile the rest") as line:
            if left := what_is_left(configured, jobs):
                say(f"      {left}")
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
    """Return the source tree for ``apply`` and ``export``: a checkout, or the pin's tree in the cache.

    Raises:
        GraftError: it does not exist and cannot be downloaded.
    """
    if checkout := checkout_of(source):
        return checkout
    pin = load_pin(layout.patches, layout.pin)
    cache = cache_of(pin)
    with build_lock(cache.folder), Steps().step("fetch the sources") as line:
        return fetch_tree(pin, cache, source, line)


def tree_of_build(layout: Layout, source: str | None) -> Path:
    """Return the tree of BUILD=source, as the last build left it."""
    cache, checkout = cache_of(load_pin(layout.patches, layout.pin)), checkout_of(source)
    return cache.copy_of(checkout) if checkout else cache.tree


def prepare(given: Input, source: str | None, jobs: int, steps: Steps) -> Configured:
    """Get the tree, turn it into the fork, and configure its build. A user's checkout is only read.

    Raises:
        GraftError: one of the steps failed.
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
    """Run the tree's generators. Return what an incremental build assumes about the headers."""
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
    """Delete what setup.py and CMake installed in the tree for an earlier wheel. They replace files, but never delete
    any.

    Otherwise headers and modules of removed operators would be in every later wheel.
    """
    for folder in (tree.path / "build").glob("lib.*"):
        shutil.rmtree(folder)
    # Only untracked files: some of these folders also contain sources.
    tree.git("clean", "--quiet", "--force", "-d", "-x", "--", *_INSTALLED)


def pack_wheel(configured: Configured, folder: Path, version: str, out: Path) -> Path:
    """Run setup.py in ``folder``, and write its wheel into ``out`` with the fork's version.

    Raises:
        PackError: setup.py wrote no wheel.
    """
    shutil.rmtree(folder, ignore_errors=True)
    command: list[str | Path] = ["python", "setup.py", "bdist_wheel", "--dist-dir", folder]
    run(command, cwd=configured.tree, env=configured.variables)
    wheels = list(folder.glob("torch-*.whl"))
    if len(wheels) != 1:
        raise PackError(f"{folder}: expected one wheel from setup.py, but got {len(wheels)}")
    platform = wheels[0].stem.rpartition("-")[2]
    text = with_version((configured.tree / VERSION_FILE).read_text(encoding="utf-8"), version)
    target = pack(wheels[0], {VERSION_FILE: text.encode()}, version=version, platform=platform, out=out)
    shutil.rmtree(folder)
    return target
