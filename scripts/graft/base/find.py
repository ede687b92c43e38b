"""The PyTorch that is used if ``PIN`` is not given: the first that can be had for this Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from zipfile import ZipFile

from packaging.tags import sys_tags
from packaging.version import Version

from ..core.console import StepLine, say
from ..core.errors import CommandError, FetchError
from ..core.layout import REPOSITORY, Layout
from ..core.lock import build_lock
from ..core.pip import CappedError, MissingError, UnreachableError
from ..core.process import run
from ..inputs.cuda_toolkit import NONE
from ..inputs.pin import CPU, Pin, load_pin
from ..inputs.toolchain import find_toolchain
from .base import architectures_of
from .fetch import fetch, kept_wheel, pinned_file

# A file next to a wheel that was found. The same is chosen again until it is deleted.
FOUND = "found"


@dataclass(frozen=True)
class Candidate:
    """A wheel of torch that might be had.

    Args:
        pin: the pin of that wheel.
        folder: the folder that keeps it.
    """

    pin: Pin
    folder: Path

    @property
    def version(self) -> str:
        """Its version, a value of ``PIN``."""
        return self.pin.wheel_version

    @property
    def is_for_cpus(self) -> bool:
        """Whether it is the smaller one, which needs nothing of NVIDIA's."""
        return Version(self.version).local == CPU

    @property
    def why(self) -> str:
        """Why it is chosen, in the order of the candidates."""
        if self.is_for_cpus:
            return "the wheel for CPUs"
        return "the wheel for CUDA, since pip found none for CPUs (`make test` downloads NVIDIA's packages, too)"


def releases(patches: Path) -> list[str]:
    """Return the pinned releases with a wheel for this Python, the default first: those with a pinned wheel for CPUs,
    for this Python if possible, and of these the newest.

    Raises:
        FetchError: there is none.
    """
    supported = set(map(str, sys_tags()))
    pins = [load_pin(path.parent) for path in sorted(patches.glob("*/pin.yaml"))]
    usable = [pin for pin in pins if any(not tags.keys().isdisjoint(supported) for tags in pin.wheels.values())]
    if not usable:
        raise FetchError(
            f"no pinned PyTorch has a wheel for this Python ({next(sys_tags())})",
            cause=f"there are pins of {', '.join(pin.version for pin in pins if pin.wheels)}",
            todo="set PYTHON to another Python, or add a pin with `make pin TORCH=version`",
        )

    def rank(pin: Pin) -> tuple[bool, bool, Version]:
        for_cpus = [tags for version, tags in pin.wheels.items() if Version(version).local == CPU]
        is_for_this_python = any(not tags.keys().isdisjoint(supported) for tags in for_cpus)
        return is_for_this_python, bool(for_cpus), Version(pin.version)

    return [pin.version for pin in sorted(usable, key=rank, reverse=True)]


def default_release(patches: Path) -> str:
    """Return the release that is used if none is given."""
    return releases(patches)[0]


def oldest_release(patches: Path) -> str:
    """Return the oldest pinned release, which lacks most."""
    return min((path.parent.name for path in patches.glob("*/pin.yaml")), key=Version)


def find_pin(patches: Path = REPOSITORY / "patches") -> str:
    """Return the version of a wheel that can be had for this Python, and print why it was chosen.

    It is downloaded: first a wheel for CPUs, from pip's indexes or PyTorch's own, otherwise the one of the Python
    Package Index, for CUDA. Unless ``CUDA_ARCHS`` is set, CUDA kernels are then built for the GPU that is here, or not
    at all.

    Raises:
        FetchError: pip can download none of them, or the disk is full.
        ToolchainError: the compiler cannot be used.
    """
    candidates = [[_candidate(patches, version) for version in (f"{r}+{CPU}", r)] for r in releases(patches)]
    chosen = _found_before(candidates) or _first(candidates)
    say(f"torch {chosen.version}: {chosen.why}{'' if chosen.is_for_cpus else f'; {_choose_architectures(chosen)}'}")
    return chosen.version


def fetch_unpinned(layout: Layout, given: Path | None) -> None:
    """Get the wheel of a pin now if it has no sha256 for this Python.

    Args:
        layout: the pin.
        given: a wheel file to use instead of pip.

    Raises:
        FetchError: see ``fetch``.
    """
    pin = load_pin(layout.patches, layout.pin)
    if not pin.chosen or pinned_file(pin)[1] or not (given or pin.index):
        return  # it is fetched, or refused, when the build needs it
    find_toolchain(pin)
    line = StepLine(f"looking for torch {pin.wheel_version}:")
    line.update("...")
    with build_lock(layout.base):
        wheel = fetch(pin, layout.base, given, line)
    line.end(f"{wheel.stat().st_size >> 20} MB")


def _candidate(patches: Path, version: str) -> Candidate:
    layout = Layout(version, (), Path(), pins=patches)
    return Candidate(load_pin(layout.patches, version), layout.base)


def _found_before(candidates: Sequence[Sequence[Candidate]]) -> Candidate | None:
    for each in chain.from_iterable(candidates):
        if (each.folder / FOUND).is_file() and kept_wheel(each.pin, each.folder, pinned_file(each.pin)[1]):
            return each
    return None


def _first(candidates: Sequence[Sequence[Candidate]]) -> Candidate:
    """Download the first candidate that can be had.

    Args:
        candidates: for each release. Later releases count only if a constraint of pip's forbids the earlier ones.
    """
    find_toolchain(candidates[0][0].pin)  # whatever is wrong with it shows before anything is downloaded
    capped: CappedError | None = None
    failures: list[FetchError] = []
    for of_release in candidates:
        is_allowed = False
        for each in of_release:
            if capped and not capped.allows(each.version):
                continue
            try:
                return _downloaded(each)
            except CappedError as error:
                capped = error
            except (MissingError, UnreachableError) as error:
                failures.append(error)
                is_allowed = True
        if is_allowed:
            break
    if capped and not failures:
        raise capped
    raise FetchError(
        "pip can download no PyTorch for this Python",
        cause="\n        ".join(f"{error.what}{f' ({error.cause})' if error.cause else ''}" for error in failures),
        todo="check the network; or set WHEEL to a wheel file of torch; or, if an environment has torch installed, use "
        "`make develop` or `make thin-wheel PIN=installed` with its Python as PYTHON",
    )


def _downloaded(candidate: Candidate) -> Candidate:
    line = StepLine(f"looking for torch {candidate.version}:")
    line.update("...")
    end = "failed"
    try:
        with build_lock(candidate.folder):
            wheel = fetch(candidate.pin, candidate.folder, None, line)
        (candidate.folder / FOUND).touch()
        end = f"{wheel.stat().st_size >> 20} MB"
    except CappedError as error:
        end = f"pip may install torch{error.cap} only"
        raise
    except MissingError:
        end = "not found"
        raise
    except UnreachableError:
        end = "no index can be reached"
        raise
    finally:
        line.end(end)
    return candidate


def _choose_architectures(chosen: Candidate) -> str:
    """Set ``CUDA_ARCHS`` to the architectures of the GPUs that are here, unless it is set. Return what was chosen."""
    if given := os.environ.get("CUDA_ARCHS", "").strip():
        return f"CUDA_ARCHS={given}"
    gpus = gpu_architectures()
    # nvcc may know no others than those of the wheel, older ones least of all.
    supported = _architectures(chosen) if gpus else ()
    usable = [name for name in gpus if supported and int(name) >= min(map(_number, supported))]
    os.environ["CUDA_ARCHS"] = " ".join(usable) or NONE
    if usable:
        return f"CUDA kernels for the GPU here, sm_{', sm_'.join(usable)}"
    if gpus:
        return f"no CUDA kernels, since this torch does not support the GPU here, sm_{', sm_'.join(gpus)}"
    return 'no CUDA kernels, since no GPU was found here (CUDA_ARCHS="80 90" builds them)'


def _architectures(chosen: Candidate) -> tuple[str, ...]:
    wheel = kept_wheel(chosen.pin, chosen.folder, pinned_file(chosen.pin)[1])
    assert wheel is not None
    with ZipFile(wheel) as archive:
        return architectures_of(archive.read("torch/lib/libtorch_python.so"))


def _number(architecture: str) -> int:
    return int(architecture.rstrip("af"))


def gpu_architectures() -> list[str]:
    """Return the architectures of this machine's GPUs, for example ``90``."""
    try:
        done = run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], check=False)
    except CommandError:
        return []
    words = [line.strip().replace(".", "") for line in done.stdout.splitlines()] if done.returncode == 0 else []
    return sorted({word for word in words if word.isdigit()})
