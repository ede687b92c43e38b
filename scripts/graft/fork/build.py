"""``make patch-and-build BUILD=source``: PyTorch's own build of the whole tree, including the native folder; and
``make check-source``, the part of it that depends on the native folder, without linking.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from zipfile import ZipFile

from ..base.base import VERSION_FILE
from ..compose.files import with_version
from ..core.console import Steps, say
from ..core.errors import FetchError, SourceError, ToolchainError
from ..deliver.built import Built, Result, announce, load_built, save_built
from ..deliver.wheel import pack
from ..inputs.snapshot import Snapshot
from ..options import SOURCE, Request
from .apply import make_fork
from .debian import refuse_missing_packages
from .fetch import Cache, fetch_to_build, read_inputs
from .syntax import check_syntax
from .tree import count, open_tree
from .upstream import GENERATORS, Upstream, affordable


def build_source(request: Request) -> Result:
    """Bring the wheel of a whole build up to date.

    Raises:
        GraftError: the build failed; compiled objects are kept.
    """
    layout = request.layout
    with read_inputs(layout) as (snapshot, cache):
        stamp, built = snapshot.stamp, load_built(layout, SOURCE)
        if built and built.stamp == stamp and built.is_there():
            save_built(layout, built, SOURCE)  # which makes it the last build
            say(f"nothing changed: {built.wheel}")
            return Result(Path(built.wheel))
        steps = Steps()
        upstream = prepare(snapshot, cache, request, steps)
        # The user's own mistakes are reported in the first minutes.
        with steps.step("compile the operators") as line:
            objects = upstream.objects() if upstream.is_configured else []
            upstream.ninja(line, objects)
            line.note = count(len(objects), "object")
        with steps.step("compile the rest") as line:
            theirs = upstream.wheel(cache.folder / "wheel", line)
        with steps.step("pack"):
            wheel = pack_wheel(theirs, f"{snapshot.pin.version.release}+source.{stamp[:10]}", layout.out)
        save_built(layout, Built.of(stamp, wheel), SOURCE)
    if built and built.wheel != str(wheel):
        Path(built.wheel).unlink(missing_ok=True)
    announce(wheel, sum(steps.seconds.values()))
    return Result(wheel, steps.seconds)


def check(request: Request, own: argparse.Namespace) -> None:
    """Compile what the operators add to the tree, or only parse the folder's sources.

    Raises:
        GraftError: it is not valid; or this machine lacks packages or the sources, and ``own`` does not allow that.
    """
    try:
        (check_syntax if own.syntax else check_source)(request)
    except (ToolchainError, FetchError) as error:
        if not own.if_possible:
            raise
        what = f"whether {request.layout.title} compiles in the source tree of {request.pin}"
        say(f"NOT CHECKED: {what}, since\n{error}")


def check_source(request: Request) -> None:
    """Generate with the tree's own build, and compile the added operators with its own commands.

    Raises:
        GraftError: one of the steps failed. Compiled objects are kept, also for a whole build.
    """
    with read_inputs(request.layout) as (snapshot, cache):
        steps = Steps()
        upstream = prepare(snapshot, cache, request, steps)
        if not upstream.is_configured:
            raise SourceError(
                f"{upstream.tree.path}: its build compiles no single files",
                todo="set ARGS=--syntax, or build all of it with `make patch-and-build BUILD=source`",
            )
        with steps.step("generate") as line:
            upstream.ninja(line, GENERATORS)
        with steps.step("compile") as line:
            objects = upstream.objects(with_generated=True)
            upstream.ninja(line, objects)
            line.note = f"{count(len(objects), 'object')} with the operators"
    seconds = sum(steps.seconds.values())
    say(f"{request.layout.title}: compiles in PyTorch {snapshot.pin.version.release}; {seconds:.0f} s in all")


def prepare(snapshot: Snapshot, cache: Cache, request: Request, steps: Steps) -> Upstream:
    """Get the tree, turn it into the fork, and configure its build, in three steps. A user's checkout is only read."""
    pin = snapshot.pin
    refuse_missing_packages(pin.settings.packages)
    jobs = affordable(request.jobs)
    with steps.step("fetch the sources") as line:
        path = fetch_to_build(pin, cache, request.source, line)
    with steps.step("apply patches and operators") as line:
        fork = make_fork(path, snapshot, line)
    tree = open_tree(path, pin)
    upstream = Upstream(
        tree, pin, cache, snapshot.toolchain, snapshot.natives, tree.differing(fork.base, fork.tip), jobs
    )
    with steps.step("configure"):
        upstream.configure()
    return upstream


def pack_wheel(wheel: Path, version: str, out: Path) -> Path:
    """Write PyTorch's ``wheel`` into ``out`` with the fork's version."""
    with ZipFile(wheel) as archive:
        text = with_version(archive.read(VERSION_FILE).decode(), version)
    platform = wheel.stem.rpartition("-")[2]
    target = pack(wheel, {VERSION_FILE: text.encode()}, version=version, platform=platform, out=out)
    wheel.unlink()
    return target
