"""The deliveries (a wheel of torch, a tree for ``make develop``, a thin wheel, a folder that a running process loads)
and the pipeline that brings each up to date: snapshot, base, make, compose, deliver.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .base.installed import Environment, base_of
from .core.console import Steps, say
from .core.errors import UsageError
from .core.files import build_lock, file_lock, folder_of, lay_out_files
from .core.layout import HOME, LOADED, REPOSITORY, Layout, store
from .core.places import BUILDS, NATIVE, note_place
from .deliver.built import Built, fingerprint_of, forget_gone, save_built, unchanged
from .deliver.delivered import Delivered, announce, how_to_install
from .inputs.accepted import tell
from .inputs.snapshot import Snapshot, take_snapshot
from .options import DEVELOP, GRAFT, THIN, Request

if TYPE_CHECKING:
    from .base.base import Base
    from .compile.nvcc import Nvcc
    from .compile.products import Product
    from .compile.units import Units
    from .compose.composition import Made
    from .stages import Job

# The number of folders kept for each load. A process that loaded one may start others that load it, too.
_KEPT = 8

# A build with nothing to do needs only the imports above. Importing the rest would take as long again.


class Delivery(ABC):
    """A form in which operators are delivered.

    Args:
        layout: the folders of the build; ``out`` is where it delivers.
        environment: the environment whose torch is the base; None if the base is a wheel.
    """

    kind = GRAFT
    # Whether it can deliver packages and extensions beside torch.
    has_beside = True
    # Whether it delivers torch itself, with ATen's headers that list all operators.
    is_torch = False
    # Whether it stays on this machine, so that it may be compiled for this processor.
    stays = False

    def __init__(self, layout: Layout, environment: Environment | None = None) -> None:
        self.layout = layout
        self.environment = environment

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folders that only one build at a time may use."""
        with build_lock(self.layout.work):
            yield

    def noted(self, snapshot: Snapshot) -> str:
        """Return the key of the build record; a later build with the same key overwrites it."""
        return self.kind

    def require(self, base: Base) -> None:  # noqa: B027  # most support every base
        """Check, before the build, that it can be delivered for ``base``."""

    def products(self, units: Units, base: Base, nvcc: Nvcc | None) -> list[Product]:
        """Return the libraries to link."""
        from .compile.products import products

        return products(units, base, nvcc)

    @abstractmethod
    def deliver(self, job: Job, made: Made) -> Path:
        """Compose the files and write them. Return the path of the wheel or folder."""

    def fingerprint(self, path: Path) -> str:
        """Return an identifier of the delivered content; empty if it is no longer there."""
        return fingerprint_of(path)

    @abstractmethod
    def announce(self, path: Path, seconds: float) -> None:
        """Print what was built."""

    @abstractmethod
    def announce_unchanged(self, path: Path) -> None:
        """Print that there was nothing to do."""


class Wheel(Delivery):
    """A wheel of torch with the operators."""

    is_torch = True

    def deliver(self, job: Job, made: Made) -> Path:
        from .compose.beside import beside_torch, libraries_of
        from .compose.composition import describe_additions
        from .deliver.wheel import pack, platform_tag, with_graft

        base = job.base
        files = _composed(job, made, {"delivery": "wheel", "folders": {}})
        files = {**files, **beside_torch(made, job.snapshot)}
        info = f"torch-{base.version}.dist-info"
        files = {**files, **{f"{info}/licenses/graft/{name}": text for name, text in job.snapshot.licenses.items()}}
        with job.steps.step("pack"):
            return pack(
                base.wheel,
                files,
                version=with_graft(job.snapshot.pin.version, made.hash_),
                platform=platform_tag(base, libraries_of(made)),
                out=self.layout.out,
                notice=describe_additions(base.tree, base.version, made),
                owner=self.layout.name,
            )

    def announce(self, path: Path, seconds: float) -> None:
        announce(path, seconds)

    def announce_unchanged(self, path: Path) -> None:
        say(f"nothing changed: {path}\n{how_to_install(path)}")


class Tree(Delivery):
    """A tree beside the torch of an environment. Python finds the tree first."""

    kind = DEVELOP
    is_torch = True
    stays = True
    environment: Environment

    def __init__(self, layout: Layout, environment: Environment) -> None:
        super().__init__(replace(layout, out=environment.packages), environment)

    @contextmanager
    def lock(self) -> Iterator[None]:
        busy = f"another process is adding operators to the torch of {self.environment.python}"
        with super().lock(), file_lock(self.layout.pin_build / "lock", busy):
            yield

    def deliver(self, job: Job, made: Made) -> Path:
        from .compose.beside import links_beside_torch
        from .deliver.develop import use_tree, write_tree
        from .deliver.trial import require_import

        composed = _composed(job, made, {"delivery": "develop", "folders": job.snapshot.hashes()})
        files = {**composed, **links_beside_torch(made, job.snapshot)}
        with job.steps.step("add to the installed torch"):
            tree = write_tree(self.environment, job.base, self.layout.natives, files)
            require_import(self.environment, tree, made.natives)
            use_tree(self.environment, tree)
        return tree

    def fingerprint(self, path: Path) -> str:
        from .deliver.develop import current_tree

        return self.environment.content if current_tree(self.environment.packages) == path else ""

    def announce(self, path: Path, seconds: float) -> None:
        from .deliver.develop import VARIABLE

        say(f"{self.environment.site}/torch now has the operators of {self.layout.title}, from {path}")
        say(f"  {seconds:.1f} s in all; `{self.environment.python} -m torch._graft` lists them")
        if VARIABLE in os.environ:  # a program that imported torch, such as a notebook, started this one
            say("  this session still uses the old build; restart it")

    def announce_unchanged(self, path: Path) -> None:
        say(f"nothing changed: {self.environment.site}/torch has the operators of {self.layout.title}")


class Thin(Delivery):
    """The files of a package that contains only the operators, for the base's torch.

    Args:
        layout: the folders of the build.
        environment: the environment whose torch is the base; None if the base is a wheel.
        package: the name of the package.
    """

    kind = THIN

    def __init__(self, layout: Layout, environment: Environment | None, package: str) -> None:
        super().__init__(replace(layout, out=layout.work / f"thin-{package}"), environment)
        self.package = package

    def products(self, units: Units, base: Base, nvcc: Nvcc | None) -> list[Product]:
        from .compile.products import thin_products
        from .compose.several import folder_of

        return thin_products(self.package, folder_of(self.layout.pin), units, base, nvcc)

    def deliver(self, job: Job, made: Made) -> Path:
        from .compose.beside import beside_thin, libraries_of
        from .compose.package import compose_thin
        from .deliver.wheel import platform_tag

        with job.steps.step("compose"):
            platform = platform_tag(job.base, libraries_of(made))
            files = compose_thin(job.base, made, self.package, job.snapshot.pin.version, platform)
            files |= beside_thin(made, job.snapshot, job.base, self.package)
            files |= {f"{self.package}/licenses/{name}": text for name, text in job.snapshot.licenses.items()}
            lay_out_files(self.layout.out, files)
        return self.layout.out

    def announce(self, path: Path, seconds: float) -> None:
        say(f"the operators of {self.layout.title} for torch {self.layout.pin}: {seconds:.1f} s")

    def announce_unchanged(self, path: Path) -> None:
        """Print nothing: the wheel that contains the package is announced later."""


class Trial(Thin):
    """A temporary package that `graft adopt` builds to find out what extensions register."""

    stays = True

    def announce(self, path: Path, seconds: float) -> None:
        """Print nothing: its folder is temporary."""


class Loaded(Delivery):
    """A folder of files that a running process loads.

    Args:
        layout: the folders of the build.
        environment: the environment of the process.
        name: the name of the load.
    """

    kind = LOADED
    has_beside = False
    stays = True

    def __init__(self, layout: Layout, environment: Environment, name: str) -> None:
        super().__init__(replace(layout, out=layout.work / LOADED), environment)
        self.name = name

    def noted(self, snapshot: Snapshot) -> str:
        """Return a key for each stamp: loaded builds are kept beside later ones, and other processes may use them."""
        return f"{self.kind}-{snapshot.stamp[:16]}"

    def require(self, base: Base) -> None:
        from .base.private_names import require_private_names

        require_private_names(base, self.layout.base / "private-names")

    def products(self, units: Units, base: Base, nvcc: Nvcc | None) -> list[Product]:
        from .compile.products import loaded_products

        return loaded_products(units, base, nvcc)

    def deliver(self, job: Job, made: Made) -> Path:
        from .compose.package import compose_loaded

        with job.steps.step("compose"):
            snapshot = job.snapshot
            flags, owner = self.layout.extra.settings, self.layout.owner
            files = compose_loaded(job.base, made, self.name, snapshot, flags, owner)
            forget_gone(self.layout, self.kind)
            return folder_of(self.layout.out, files, _KEPT)

    def announce(self, path: Path, seconds: float) -> None:
        say(f"{self.layout.title}: built in {seconds:.1f} s")

    def announce_unchanged(self, path: Path) -> None:
        """Print nothing: the process prints what it loads."""


def run(delivery: Delivery, request: Request, snapshot: Snapshot | None = None) -> Delivered:
    """Bring a delivery up to date with a ``snapshot``, by default with the inputs as they are now. If the build fails,
    the previous delivery is unchanged.
    """
    layout = delivery.layout
    snapshot = snapshot or take_snapshot(layout)
    if not delivery.has_beside:
        refuse_beside(snapshot)
    noted = delivery.noted(snapshot)
    note_place(BUILDS, HOME)
    for native in layout.natives:
        if not any(native.is_relative_to(folder) for folder in (REPOSITORY, HOME, store())):
            note_place(NATIVE, native)
    with delivery.lock():
        if built := unchanged(layout, snapshot, noted, delivery.fingerprint):
            delivery.announce_unchanged(built.path)
            return Delivered(built.path)
        from .stages import make

        tell(snapshot.read.folders, stays=delivery.stays)
        job = job_of(layout, snapshot, request, delivery.environment)
        delivery.require(job.base)
        made = make(job, delivery.products, has_lists=delivery.is_torch)
        path = delivery.deliver(job, made)
        built = Built(snapshot.stamp, path, delivery.fingerprint(path), made.cuda_note, made.outside)
        save_built(layout, built, noted)
    delivery.announce(path, sum(job.steps.seconds.values()))
    return Delivered(path, job.steps.seconds)


def job_of(layout: Layout, snapshot: Snapshot, request: Request, environment: Environment | None = None) -> Job:
    """Return the job that builds a snapshot on its base: the wheel, fetched if necessary, or an environment's torch."""
    from .base.fetch import get_base
    from .stages import Job

    steps = Steps()
    base = base_of(environment, layout.base) if environment else get_base(snapshot.pin, layout, request.wheel, steps)
    snapshot = replace(snapshot, toolchain=base.fitted(snapshot.toolchain))
    snapshot.lay_out()
    return Job(layout, snapshot, base, request.jobs, steps)


def refuse_beside(snapshot: Snapshot) -> None:
    """Refuse settings for extensions and packages beside torch, which a running process would not find."""
    for settings in (folder.settings for folder in snapshot.read.folders):
        for key in ("extensions", "packages"):
            if key in settings.given:
                what = "graft.load adds operators to the torch that runs, and nothing beside it"
                raise UsageError(settings.fault(key, what), todo="use `make develop`, or install a wheel")


def _composed(job: Job, made: Made, note: Mapping[str, Any]) -> Mapping[str, bytes]:
    from .compose.composition import compose
    from .deliver.wheel import with_graft

    base, hash_ = job.base, made.hash_
    with job.steps.step("compose"):
        return compose(base.tree, made, with_graft(base.version, hash_), {**note, "base": base.version, "hash": hash_})
