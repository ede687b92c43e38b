"""The pipeline: snapshot, base, make, compose, deliver. A delivery is a wheel, a tree for develop, or a thin wheel."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from .base.find import fetch_unpinned
from .base.installed import Environment, base_of, find_environment, look
from .compile.contents import Contents
from .core.console import Steps, say
from .core.errors import GraftError, UsageError
from .core.files import build_lock, file_lock, files_below, lay_out_files, write_atomically
from .core.layout import DEBUG, DEVELOP, HOME, PATCHES, Layout, TorchVersion
from .deliver.built import Built, Result, announce, how_to_install, load_built, save_built
from .inputs.native import load_native
from .inputs.pin import known_pins
from .inputs.snapshot import Snapshot, take_snapshot
from .inputs.toolchain import request as cuda_request
from .options import INSTALLED, SOURCE, Request

if TYPE_CHECKING:
    from .base.base import Base
    from .compile.cuda import Nvcc
    from .compile.units import Product, Units
    from .compose.files import Made
    from .stages import Job

# What a build with nothing to do needs is imported above. Importing the rest takes as long.

# What is in the cache folder: folders of pins above all.
_CACHES = (
    *("[0-9]*.[0-9]*.[0-9]*", "bytecode", "cuda-toolkits", "environments", "grammar", "hypothesis"),
    *("objects", "package-*", "patches", "sanitized", "symbols", "thin"),
)

# Seconds between two checks of the files of `make develop WATCH=1`.
_PAUSE = 0.2


class Delivery(ABC):
    """A form in which operators are delivered.

    Args:
        layout: the folders of the build.
        environment: the environment whose torch is the base; None if the base is a wheel.
    """

    def __init__(self, layout: Layout, environment: Environment | None = None) -> None:
        self.layout = layout
        self.environment = environment

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold what only one build at a time may use."""
        with build_lock(self.layout.work):
            yield

    def there(self, snapshot: Snapshot) -> Path | None:
        """Return what an earlier build of the same inputs delivered, or None."""
        return None

    def products(self, units: Units, base: Base, nvcc: Nvcc | None) -> list[Product]:
        """Return the libraries to link."""
        from .compile.units import products

        return products(units, base, nvcc)

    @abstractmethod
    def deliver(self, job: Job, made: Made) -> Path:
        """Compose the files and write them, in two steps. Return the path of what was written."""

    def announce(self, path: Path, seconds: float) -> None:
        """Print what was built."""
        announce(path, seconds)


class Wheel(Delivery):
    """A wheel of torch with the operators."""

    def there(self, snapshot: Snapshot) -> Path | None:
        built = load_built(self.layout)
        if not (
            built
            and built.stamp == snapshot.stamp
            and built.cuda in ("", cuda_request(self.layout.cuda_archs, self.layout.cuda_home))
            and built.is_there()
        ):
            return None
        save_built(self.layout, built)  # which makes it the last build
        say(f"nothing changed: {built.wheel}\n{how_to_install(Path(built.wheel))}")
        return Path(built.wheel)

    def deliver(self, job: Job, made: Made) -> Path:
        from .compose.files import describe_additions
        from .deliver.wheel import pack, platform_tag, with_graft

        before, base = load_built(self.layout), job.base
        files = _composed(job, made, {"delivery": "wheel", "folders": {}})
        with job.steps.step("pack"):
            wheel = pack(
                base.wheel,
                files,
                version=with_graft(job.snapshot.pin.version, made.hash_),
                platform=platform_tag(base, made.libraries.values()),
                out=self.layout.out,
                notice=describe_additions(base.version, made.description),
                owner=self.layout.name,
            )
        save_built(self.layout, Built.of(job.snapshot.stamp, wheel, made.cuda))
        if before and before.wheel != str(wheel):
            Path(before.wheel).unlink(missing_ok=True)
        return wheel


class Tree(Delivery):
    """A tree beside the torch of an environment, which Python finds first."""

    environment: Environment

    @contextmanager
    def lock(self) -> Iterator[None]:
        busy = f"another process is adding operators to the torch of {self.environment.python}"
        with super().lock(), file_lock(self.layout.pin_build / "lock", busy):
            yield

    def _stamp(self, snapshot: Snapshot) -> str:
        return f"{snapshot.stamp} {cuda_request(self.layout.cuda_archs, self.layout.cuda_home)}"

    def there(self, snapshot: Snapshot) -> Path | None:
        from .deliver.develop import developed

        note = developed(self.environment)
        if (note.get("stamp"), note.get("base")) != (self._stamp(snapshot), self.environment.content):
            return None
        say(f"nothing changed: {self.environment.site}/torch has the operators of {self.layout.title}")
        return self.environment.site

    def deliver(self, job: Job, made: Made) -> Path:
        from .deliver.develop import use_tree, write_tree
        from .deliver.trial import require_import

        files = _composed(job, made, {"delivery": "develop", "folders": job.snapshot.hashes()})
        with job.steps.step("add to the installed torch"):
            tree = write_tree(self.environment, job.base, self.layout.natives, files, self._stamp(job.snapshot))
            require_import(self.environment, tree, made.native)
            use_tree(self.environment, tree)
        return tree

    def announce(self, path: Path, seconds: float) -> None:
        from .deliver.develop import VARIABLE

        say(f"{self.environment.site}/torch now has the operators of {self.layout.title}, from {path}")
        say(f"  {seconds:.1f} s in all; `{self.environment.python} -m torch._graft` lists them")
        if VARIABLE in os.environ:
            say(f"  {VARIABLE} is set, by a program that imported torch: what it starts keeps the build of then")


class Thin(Delivery):
    """The files of a package with the operators alone, for the base's torch.

    Args:
        layout: the folders of the build.
        environment: the environment whose torch is the base; None if the base is a wheel.
        package: the name of the package.
    """

    def __init__(self, layout: Layout, environment: Environment | None, package: str) -> None:
        super().__init__(layout, environment)
        self.package = package
        self._folder = layout.work / f"thin-{package}"

    def _stamp(self, snapshot: Snapshot) -> str:
        return f"{snapshot.stamp} {cuda_request(self.layout.cuda_archs, self.layout.cuda_home)}"

    def there(self, snapshot: Snapshot) -> Path | None:
        note = self._folder.with_suffix(".stamp")
        is_same = note.is_file() and note.read_text(encoding="utf-8") == self._stamp(snapshot)
        return self._folder if is_same else None

    def products(self, units: Units, base: Base, nvcc: Nvcc | None) -> list[Product]:
        from .compile.units import thin_products
        from .compose.several import folder_of

        return thin_products(self.package, folder_of(self.layout.pin), units, base, nvcc)

    def deliver(self, job: Job, made: Made) -> Path:
        from .compose.thin import compose_thin
        from .deliver.wheel import platform_tag

        with job.steps.step("compose"):
            platform = platform_tag(job.base, made.libraries.values())
            files = compose_thin(job.base, made, self.package, job.snapshot.pin.version, platform)
            note = self._folder.with_suffix(".stamp")
            note.unlink(missing_ok=True)
            lay_out_files(self._folder, files)
            write_atomically(note, self._stamp(job.snapshot))
        return self._folder

    def announce(self, path: Path, seconds: float) -> None:
        say(f"the operators of {self.layout.title} for torch {self.layout.pin}: {seconds:.1f} s")


def run(delivery: Delivery, request: Request) -> Result:
    """Bring a delivery up to date.

    Raises:
        GraftError: the build failed; what was delivered before is unchanged.
    """
    snapshot = take_snapshot(delivery.layout)
    with delivery.lock(), snapshot.translated():
        is_same = Contents(delivery.layout.work).are_as_read()
        if is_same and (there := delivery.there(snapshot)):
            return Result(there)
        from .stages import make

        job = _job(delivery.layout, snapshot, request, delivery.environment)
        path = delivery.deliver(job, make(job, delivery.products))
    delivery.announce(path, sum(job.steps.seconds.values()))
    return Result(path, job.steps.seconds)


def _job(layout: Layout, snapshot: Snapshot, request: Request, environment: Environment | None = None) -> Job:
    from .base.fetch import get_base
    from .stages import Job

    steps = Steps()
    base = base_of(environment, layout.base) if environment else get_base(snapshot.pin, layout, request.wheel, steps)
    snapshot = replace(snapshot, toolchain=base.fitted(snapshot.toolchain))
    return Job(layout, snapshot, snapshot.lay_out(), base, request.jobs, steps)


def _composed(job: Job, made: Made, note: Mapping[str, Any]) -> Mapping[str, bytes]:
    from .compose.files import compose
    from .deliver.wheel import with_graft

    base, hash_ = job.base, made.hash_
    with job.steps.step("compose"):
        return compose(base.tree, made, with_graft(base.version, hash_), {**note, "base": base.version, "hash": hash_})


def build(request: Request) -> Result:
    """Build the wheel of torch with the operators."""
    if request.build == SOURCE:
        from .fork.build import build_source

        return build_source(request)
    return run(Wheel(request.layout), request)


def develop(request: Request) -> Result:
    """Add the operators to the torch that is installed in an environment; with ``watch`` after every save."""
    seen: dict[Path, int] = {}
    while request.watch:
        seen = _wait_for_save(request.native, seen)
        try:
            _develop(request)
            say("ready; waiting for the next save (Ctrl-C to end)")
        except GraftError as error:
            say(f"error: {error}\nwaiting for the next save; torch is unchanged (Ctrl-C to end)")
    return _develop(request)


def _develop(request: Request) -> Result:
    environment = find_environment(request.python)
    if not os.access(environment.packages, os.W_OK):
        raise UsageError(
            f"{environment.packages}: this folder cannot be written to, and develop writes into it",
            todo="set PYTHON to the Python of an environment of your own (`python3 -m venv`), or use `make thin-wheel`",
        )
    layout = replace(installed(request.layout, environment), kind=DEBUG if request.debug else DEVELOP)
    return run(Tree(layout, environment), request)


def undevelop(request: Request) -> None:
    """Restore the environment's original torch.

    Raises:
        GraftError: a file cannot be deleted.
    """
    from .deliver.develop import remove_trees

    packages, site = look(request.python)
    torch = f"{site}/torch is the installed one again" if site else f"{packages} no longer has torch"
    say(torch if remove_trees(packages) else f"nothing to do: make develop has not added anything to {packages}")


def thin_wheel(request: Request) -> Result:
    """Build the operators as a wheel of their own: for the torch of a pin or an environment, or for ``pins``."""
    from .compose.several import platform_of
    from .deliver.thin import package_name, requirement, thin_version, write_wheel

    start = time.perf_counter()
    versions = [TorchVersion(each) for each in request.pins.split()] or [request.pin]
    package = package_name(request.name, request.native[0])
    thin_version(request.version, versions)
    files, built = thin_files(request, package, versions)
    project = {
        "name": package,
        "version": thin_version(request.version, built),
        "description": f"Operators for PyTorch {', '.join(built)}",
    }
    wheel = write_wheel(
        None,
        {"project": project},
        files,
        package=package,
        requires=[requirement(built)],
        platform=platform_of(package, files),
        out=request.layout.out,
    )
    announce(wheel, seconds := time.perf_counter() - start)
    return Result(wheel, {"build": seconds})


def thin_files(
    request: Request, package: str, versions: Sequence[TorchVersion], kind: str = ""
) -> tuple[dict[str, bytes], list[TorchVersion]]:
    """Build a package for ``versions`` of torch, of which ``INSTALLED`` is the one that ``python`` has.

    Return the files, and the versions.
    """
    from .compose.several import read_together

    deliveries = []
    for version in versions:
        layout = replace(replace(request, pin=version).layout, kind=kind)
        environment = find_environment(request.python) if version == INSTALLED else None
        if environment:
            layout = installed(layout, environment)
        else:
            fetch_unpinned(layout, request.wheel)
        deliveries.append(Thin(layout, environment, package))
    folders = []
    for delivery in deliveries:
        try:
            folders.append(run(delivery, request).path)
        except GraftError as error:
            if len(deliveries) > 1:
                error.what = f"for torch {delivery.layout.pin}:\n{error.what}"
            raise
    return read_together(package, folders), [delivery.layout.pin for delivery in deliveries]


def clean(request: Request) -> None:
    """Delete what is in the cache folder. Other files there, if ``GRAFT_HOME`` is a user's folder, stay.

    Raises:
        OSError: a file cannot be deleted.
    """
    there = [path for name in _CACHES for path in HOME.glob(name) if path.is_dir() and not path.is_symlink()]
    size = sum((path / name).lstat().st_size for path in there for name in files_below(path))
    for path in there:
        shutil.rmtree(path)
    say(f"deleted {size / 1e9:.1f} GB in {HOME}" if there else f"nothing to do: {HOME} has no downloads or builds")


def check(request: Request, own: argparse.Namespace) -> None:
    """Find errors in the native folders, the pin and its patches without building anything. With ``own.verbose``, list
    the files that builds read.

    Raises:
        GraftError: lists every error. If the pin is invalid, the rest is not checked.
    """
    layout = request.layout
    snapshot = take_snapshot(layout)
    with build_lock(layout.work), snapshot.translated():
        from .stages import check

        check(_job(layout, snapshot, request))
    if own.verbose:
        for folder in layout.natives:
            say("\n".join(str(folder / name) for name in load_native(folder).files))
    say(f"{layout.title}: no errors found")


def check_cuda(request: Request) -> None:
    """Compile the CUDA sources of a build. Nothing is linked.

    Raises:
        GraftError: the compiler's messages, with paths in the native folder.
    """
    layout = request.layout
    snapshot = take_snapshot(layout)
    with build_lock(layout.work), snapshot.translated():
        from .stages import make_for_cuda

        nvcc = make_for_cuda(_job(layout, snapshot, request))
    targets = ", ".join(f"sm_{name}" for name in nvcc.architectures)
    say(f"{layout.title}: its CUDA sources compile for {targets} with PyTorch {snapshot.pin.version.release}")


def installed(layout: Layout, environment: Environment) -> Layout:
    """Return the folders of a build for an installed torch. Warn if its version was never tested."""
    version = environment.version
    known = known_pins(PATCHES)
    release = version.release
    if release not in (each.release for each in known):
        say(f"torch {version} is untested; tested are {', '.join(known)}")
        release = max((each.release for each in known), key=Version)
    return replace(layout, pin=version, installed=environment.key, pin_folder=PATCHES / release)


def _wait_for_save(folders: Iterable[Path], seen: Mapping[Path, int]) -> dict[Path, int]:
    """Return the time of each file, once one differs from those in ``seen``."""
    while (found := _times(folders)) == seen:
        time.sleep(_PAUSE)
    # An editor, or git, may write several files one after another.
    while (later := _times(folders)) != found:
        found = later
        time.sleep(_PAUSE)
    return found


def _times(folders: Iterable[Path]) -> dict[Path, int]:
    """Return the modification time of each file that a build reads; 0 for a folder that cannot be read."""
    found = {}
    for folder in folders:
        try:
            names = load_native(folder).files
        except (GraftError, OSError):
            names, found[folder] = [], 0
        for path in (folder / name for name in names):
            with suppress(OSError):  # it is being replaced
                found[path] = path.stat().st_mtime_ns
    return found
