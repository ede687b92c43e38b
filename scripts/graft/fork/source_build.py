"""``make patch-and-build BUILD=source``: PyTorch's own build of the whole tree, including the native folder; and
``make check ARGS=--source``, the part of it that depends on the native folder, without linking.
"""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

from ..base.base import VERSION_FILE
from ..compose.composition import with_version
from ..core.console import Steps, say
from ..core.errors import MissingError, UsageError
from ..deliver.built import Built, fingerprint_of, save_built, unchanged
from ..deliver.delivered import Delivered, announce
from ..deliver.wheel import pack
from ..inputs.snapshot import Snapshot
from ..options import SOURCE, Request
from .apply import make_fork
from .cache import Cache, read_inputs
from .debian import refuse_missing_packages
from .fetch import fetch_to_build
from .pytorch_build import GENERATORS, PyTorchBuild, affordable
from .syntax import check_syntax
from .tree import count, open_tree


def build_source(request: Request) -> Delivered:
    """Bring the wheel of a whole build up to date."""
    layout = request.layout
    with read_inputs(layout) as (snapshot, cache):
        if built := unchanged(layout, snapshot, SOURCE):
            say(f"nothing changed: {built.path}")
            return Delivered(built.path)
        steps = Steps()
        build = prepare(snapshot, cache, request, steps)
        # Compile these first, to report the user's own mistakes in the first minutes.
        with steps.step("compile the operators") as line:
            objects = build.objects() if build.is_configured else []
            build.ninja(line, objects)
            line.note = count(len(objects), "object")
        with steps.step("compile the rest") as line:
            theirs = build.wheel(cache.folder / "wheel", line)
        with steps.step("pack"):
            wheel = pack_wheel(theirs, f"{snapshot.pin.version.release}+source.{snapshot.stamp[:10]}", layout.out)
        save_built(layout, Built(snapshot.stamp, wheel, fingerprint_of(wheel)), SOURCE)
    announce(wheel, sum(steps.seconds.values()))
    return Delivered(wheel, steps.seconds)


def check(request: Request, *, is_syntax: bool, is_optional: bool) -> None:
    """Compile what the operators add to the tree, or only parse the folder's sources.

    Args:
        request: the request.
        is_syntax: whether to parse only.
        is_optional: whether to skip it, with a message, if packages or sources are missing.
    """
    try:
        (check_syntax if is_syntax else check_source)(request)
    except MissingError as error:
        if not is_optional:
            raise
        what = f"whether {request.layout.title} compiles in the source tree of {request.pin}"
        say(f"NOT CHECKED: {what}, since\n{error}")


def check_source(request: Request) -> None:
    """Generate with the tree's own build, and compile the added operators with its own commands."""
    with read_inputs(request.layout) as (snapshot, cache):
        steps = Steps()
        build = prepare(snapshot, cache, request, steps)
        if not build.is_configured:
            raise UsageError(
                f"{build.tree.path}: its build compiles no single files",
                todo="use `make check ARGS='--source --syntax'`, or build it all: `make patch-and-build BUILD=source`",
            )
        with steps.step("generate") as line:
            build.ninja(line, GENERATORS)
        with steps.step("compile") as line:
            objects = build.objects(with_generated=True)
            build.ninja(line, objects)
            line.note = f"{count(len(objects), 'object')} with the operators"
    seconds = sum(steps.seconds.values())
    say(f"{request.layout.title}: compiles in PyTorch {snapshot.pin.version.release}; {seconds:.0f} s in all")


def prepare(snapshot: Snapshot, cache: Cache, request: Request, steps: Steps) -> PyTorchBuild:
    """Get the tree, turn it into the fork, and configure its build, in three steps. A user's checkout is only read."""
    pin = snapshot.pin
    refuse_missing_packages(pin.settings.packages)
    jobs = affordable(request.jobs)
    with steps.step("fetch the sources") as line:
        path = fetch_to_build(pin, cache, request.source, line)
    with steps.step("apply patches and operators") as line:
        fork = make_fork(path, snapshot, line)
    tree = open_tree(path, pin)
    changed = tree.differing(fork.base, fork.tip)
    launcher = request.layout.launcher
    build = PyTorchBuild(tree, pin, cache, snapshot.toolchain, snapshot.natives, changed, jobs, launcher)
    with steps.step("configure"):
        build.configure()
    return build


def pack_wheel(wheel: Path, version: str, out: Path) -> Path:
    """Write PyTorch's ``wheel`` into ``out`` with the fork's version."""
    with ZipFile(wheel) as archive:
        text = with_version(archive.read(VERSION_FILE).decode(), version)
    platform = wheel.stem.rpartition("-")[2]
    target = pack(wheel, {VERSION_FILE: text.encode()}, version=version, platform=platform, out=out)
    wheel.unlink()
    return target
