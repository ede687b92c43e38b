"""The PyTorch that is used if ``PIN`` is not given: the first that can be had for this Python."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.tags import sys_tags
from packaging.version import Version

from ..common.console import StepLine, say
from ..common.errors import CommandError, FetchError
from ..common.files import write_atomically
from ..common.layout import REPOSITORY, Layout
from ..common.lock import build_lock
from ..common.pip import CappedError, MissingError, UnreachableError
from ..common.process import run
from ..inputs.cuda_toolkit import NONE
from ..inputs.pin import CPU, Pin, load_pin
from .fetch import fetch, kept_wheel, pinned_file

# A file next to a wheel that was found: why it was chosen. The same is chosen again until it is deleted.
_NOTE = "found"


@dataclass(frozen=True)
class Candidate:
    """A wheel of torch that might be had.

    Args:
        version: its version, a value of ``PIN``.
        pin: the pin of that wheel.
        folder: the folder that keeps it.
    """

    version: str
    pin: Pin
    folder: Path

    @property
    def is_for_cpus(self) -> bool:
        """Whether it is the smaller one, which needs nothing of NVIDIA's."""
        return Version(self.version).local == CPU


def default_release(patches: Path, cap: str = "") -> str:
    """Return the release that is used if none is given: the newest with a pinned wheel for CPUs, for this Python if
    possible; otherwise the newest with a wheel for this Python.

    Args:
        patches: the folder of all pins.
        cap: the versions that pip may install, for example ``<=2.14.1``; empty for all.

    Raises:
        FetchError: there is none.
    """
    supported = set(map(str, sys_tags()))
    pins = [load_pin(path.parent) for path in sorted(patches.glob("*/pin.yaml"))]
    usable = [
        pin
        for pin in pins
        if pin.version in SpecifierSet(cap)
        and any(not tags.keys().isdisjoint(supported) for tags in pin.wheels.values())
    ]
    if not usable:
        known = ", ".join(pin.version for pin in pins if pin.wheels)
        raise FetchError(
            f"no pinned PyTorch has a wheel for this Python{f', and is {cap} as pip is told' if cap else ''}",
            cause=f"there are pins of {known}",
            todo="set PYTHON to another Python, or add a pin with `make pin TORCH=version`",
        )

    def rank(pin: Pin) -> tuple[bool, bool, Version]:
        for_cpus = [tags for version, tags in pin.wheels.items() if Version(version).local == CPU]
        is_for_this_python = any(not tags.keys().isdisjoint(supported) for tags in for_cpus)
        return is_for_this_python, bool(for_cpus), Version(pin.version)

    return max(usable, key=rank).version


def oldest_release(patches: Path) -> str:
    """Return the oldest pinned release. What compiles there compiles in all."""
    return min((path.parent.name for path in patches.glob("*/pin.yaml")), key=Version)


def find_pin(patches: Path = REPOSITORY / "patches") -> str:
    """Return the version of a wheel that can be had for this Python, and print why it was chosen.

    It is downloaded: first a wheel for CPUs, from pip's indexes or PyTorch's own, otherwise the one of the Python
    Package Index, for CUDA. Unless ``CUDA_ARCHS`` is set, CUDA kernels are then built for the GPU that is here, or not
    at all.

    Raises:
        FetchError: pip can download none of them, or the disk is full.
    """
    cap = ""
    while True:
        try:
            chosen, why = _first(list(_candidates(patches, default_release(patches, cap))))
            break
        except CappedError as error:
            if error.cap == cap:
                raise
            cap = error.cap
    say(f"torch {chosen.version}: {why}{'' if chosen.is_for_cpus else f'; {_choose_architectures()}'}")
    return chosen.version


def _candidates(patches: Path, release: str) -> Iterator[Candidate]:
    for version in (f"{release}+{CPU}", release):
        layout = Layout(version, (), Path(), pins=patches)
        yield Candidate(version, load_pin(layout.patches, version), layout.base)


def _first(candidates: Sequence[Candidate]) -> tuple[Candidate, str]:
    """Return the first candidate that can be had, and why it was chosen.

    Raises:
        CappedError: pip may install none of this release.
        FetchError: pip can download none.
    """
    for each in candidates:
        note = each.folder / _NOTE
        if note.is_file() and kept_wheel(each.pin, each.folder, pinned_file(each.pin)[1]):
            return each, note.read_text(encoding="utf-8")
    failures: list[FetchError] = []
    for each in candidates:
        line = StepLine(f"looking for torch {each.version}:")
        line.update("...")
        try:
            with build_lock(each.folder):
                wheel = fetch(each.pin, each.folder, None, line)
        except CappedError as error:
            line.end(f"pip may install torch{error.cap} only")
            raise
        except (MissingError, UnreachableError) as error:
            line.end("not found" if isinstance(error, MissingError) else "no index can be reached")
            failures.append(error)
        else:
            line.end(f"{wheel.stat().st_size >> 20} MB")
            why = _why(each)
            write_atomically(each.folder / _NOTE, why)
            return each, why
    raise FetchError(
        "pip can download no PyTorch for this Python",
        cause="\n        ".join(f"{error.what}{f' ({error.cause})' if error.cause else ''}" for error in failures),
        todo="check the network; or set WHEEL to a wheel file of torch; or, if an environment has torch installed, use "
        "`make develop` or `make thin-wheel PIN=installed` with its Python as PYTHON",
    )


def _why(found: Candidate) -> str:
    if found.is_for_cpus:
        return "the wheel for CPUs"
    return "the wheel for CUDA, since there is none for CPUs (`make test` downloads 3 GB more)"


def _choose_architectures() -> str:
    """Set ``CUDA_ARCHS`` to the architectures of the GPUs that are here, unless it is set. Return what was chosen."""
    if given := os.environ.get("CUDA_ARCHS", "").strip():
        return f"CUDA_ARCHS={given}"
    found = gpu_architectures()
    os.environ["CUDA_ARCHS"] = " ".join(found) or NONE
    if not found:
        return 'no CUDA kernels, since there is no GPU here (CUDA_ARCHS="80 90" builds them)'
    return f"CUDA kernels for the GPU here, sm_{', sm_'.join(found)}"


def gpu_architectures() -> list[str]:
    """Return the architectures of this machine's GPUs, for example ``90``."""
    try:
        done = run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], check=False)
    except CommandError:
        return []
    words = [line.strip().replace(".", "") for line in done.stdout.splitlines()] if done.returncode == 0 else []
    return sorted({word for word in words if word.isdigit()})
