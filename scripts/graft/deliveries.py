"""The deliveries: a wheel of torch, a tree for ``make develop``, a thin wheel; and the pipeline that brings each up to
date: snapshot, base, make, compose, deliver.
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
from .compile.manifest import Outside
from .core.console import Steps, say
from .core.files import build_lock, file_lock, lay_out_files, write_atomically
from .core.layout import Layout
from .deliver.built import Built, Result, announce, how_to_install, load_built, save_built
from .inputs.snapshot import Snapshot, take_snapshot
from .inputs.toolchain import request as cuda_request
from .options import Request

if TYPE_CHECKING:
    from .base.base import Base
    from .compile.cuda import Nvcc
    from .compile.units import Product, Units
    from .compose.files import Made
    from .stages import Job

# What a build with nothing to do needs is imported above. Importing the rest takes as long.


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

    def there(self, stamp: str) -> Path | None:
        """Return what an earlier build with the same stamp delivered, or None."""
        return None

    def products(self, units: Units, base: Base, nvcc: Nvcc | None) -> list[Product]:
        """Return the libraries to link."""
        from .compile.units import products

        return products(units, base, nvcc)

    @property
    def read(self) -> Path:
        """The note of what the last complete build read elsewhere."""
        return self.layout.work / f"read-{type(self).__name__.lower()}.json"

    @abstractmethod
    def deliver(self, job: Job, made: Made) -> Path:
        """Compose the files and write them, in two steps. Return the path of what was written."""

    def announce(self, path: Path, seconds: float) -> None:
        """Print what was built."""
        announce(path, seconds)


class Wheel(Delivery):
    """A wheel of torch with the operators."""

    def there(self, stamp: str) -> Path | None:
        built = load_built(self.layout)
        if not (
            built
            and built.stamp == stamp
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
        save_built(self.layout, Built.of(made.stamp, wheel, made.cuda))
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

    def _with_cuda(self, stamp: str) -> str:
        return f"{stamp} {cuda_request(self.layout.cuda_archs, self.layout.cuda_home)}"

    def there(self, stamp: str) -> Path | None:
        from .deliver.develop import developed

        note = developed(self.environment)
        if (note.get("stamp"), note.get("base")) != (self._with_cuda(stamp), self.environment.content):
            return None
        say(f"nothing changed: {self.environment.site}/torch has the operators of {self.layout.title}")
        return self.environment.site

    def deliver(self, job: Job, made: Made) -> Path:
        from .deliver.develop import use_tree, write_tree
        from .deliver.trial import require_import

        files = _composed(job, made, {"delivery": "develop", "folders": job.snapshot.hashes()})
        with job.steps.step("add to the installed torch"):
            tree = write_tree(self.environment, job.base, self.layout.natives, files, self._with_cuda(made.stamp))
            require_import(self.environment, tree, made.natives)
            use_tree(self.environment, tree)
        return tree

    def announce(self, path: Path, seconds: float) -> None:
        from .deliver.develop import VARIABLE

        say(f"{self.environment.site}/torch now has the operators of {self.layout.title}, from {path}")
        say(f"  {seconds:.1f} s in all; `{self.environment.python} -m torch._graft` lists them")
        if VARIABLE in os.environ:  # a program that imported torch, such as a notebook, started this one
            say("  this session still uses the old build; restart it")


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

    @property
    def read(self) -> Path:
        """The note of what the last complete build of this package read elsewhere."""
        return self._folder.with_suffix(".json")

    def _with_cuda(self, stamp: str) -> str:
        return f"{stamp} {cuda_request(self.layout.cuda_archs, self.layout.cuda_home)}"

    def there(self, stamp: str) -> Path | None:
        note = self._folder.with_suffix(".stamp")
        is_same = note.is_file() and note.read_text(encoding="utf-8") == self._with_cuda(stamp)
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
            write_atomically(note, self._with_cuda(made.stamp))
        return self._folder

    def announce(self, path: Path, seconds: float) -> None:
        say(f"the operators of {self.layout.title} for torch {self.layout.pin}: {seconds:.1f} s")


def run(delivery: Delivery, request: Request) -> Result:
    """Bring a delivery up to date.

    Raises:
        GraftError: the build failed; what was delivered before is unchanged.
    """
    snapshot = take_snapshot(delivery.layout)
    with delivery.lock():
        outside = Outside.load(delivery.read)
        is_same = outside and outside.is_as_read(delivery.layout.work)
        if outside and is_same and (there := delivery.there(outside.with_stamp(snapshot.stamp))):
            return Result(there)
        from .stages import make

        job = job_of(delivery.layout, snapshot, request, delivery.environment)
        made = make(job, delivery.products)
        made.outside.save(delivery.read)
        path = delivery.deliver(job, made)
    delivery.announce(path, sum(job.steps.seconds.values()))
    return Result(path, job.steps.seconds)


def job_of(layout: Layout, snapshot: Snapshot, request: Request, environment: Environment | None = None) -> Job:
    """Return a build of the snapshot, with its base: the wheel, fetched if necessary, or the torch of an environment.

    Raises:
        GraftError: there is no such base.
    """
    from .base.fetch import get_base
    from .stages import Job

    steps = Steps()
    base = base_of(environment, layout.base) if environment else get_base(snapshot.pin, layout, request.wheel, steps)
    snapshot = replace(snapshot, toolchain=base.fitted(snapshot.toolchain))
    snapshot.lay_out()
    return Job(layout, snapshot, base, request.jobs, steps)


def _composed(job: Job, made: Made, note: Mapping[str, Any]) -> Mapping[str, bytes]:
    from .compose.files import compose
    from .deliver.wheel import with_graft

    base, hash_ = job.base, made.hash_
    with job.steps.step("compose"):
        return compose(base.tree, made, with_graft(base.version, hash_), {**note, "base": base.version, "hash": hash_})
