"""The PyTorch that is used if ``PIN`` is not given: the first that can be had for this Python."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from zipfile import ZipFile

from packaging.version import Version

from ..core.architecture import machine_of
from ..core.console import StepLine, say
from ..core.cuda_settings import NO_GPU, OF_BASE, CudaArchs
from ..core.errors import CommandError, FetchError
from ..core.files import build_lock
from ..core.layout import PATCHES, Layout, TorchVersion
from ..core.pip import INDEX, MissingError
from ..core.process import run
from ..inputs.pin import CPU, Pin, load_pin, pin_of, pinned_file, tags_for
from ..inputs.toolchain import find_toolchain
from .base import architectures_of, name_of_python
from .fetch import fetch, kept_wheel

# A file next to a wheel that was found, with what was printed about it. The same is chosen again until it is deleted.
FOUND = "found"


def releases(patches: Path, machine: str = platform.machine()) -> list[TorchVersion]:
    """Return the pinned releases with a wheel for this Python on a ``machine``, the default first: those with a pinned
    wheel for CPUs, for this Python if possible, and of these the newest.

    Raises:
        FetchError: there is none.
    """
    supported = set(map(str, tags_for(machine)))
    pins = [load_pin(path.parent) for path in sorted(patches.glob("*/pin.yaml"))]
    usable = [pin for pin in pins if any(not tags.keys().isdisjoint(supported) for tags in pin.wheels.values())]
    if not usable:
        raise FetchError(
            f"no pinned PyTorch has a wheel for this Python ({name_of_python(tags_for(machine)[0])})",
            cause=f"there are pins of {', '.join(pin.version.release for pin in pins if pin.wheels)}",
            todo="set PYTHON to another Python, or add a pin with `make pin TORCH=version`",
        )

    def rank(pin: Pin) -> tuple[bool, bool, Version]:
        for_cpus = [tags for version, tags in pin.wheels.items() if version.local == CPU]
        is_for_this_python = any(not tags.keys().isdisjoint(supported) for tags in for_cpus)
        return is_for_this_python, bool(for_cpus), Version(pin.version.release)

    return [TorchVersion(pin.version.release) for pin in sorted(usable, key=rank, reverse=True)]


def default_release(patches: Path) -> TorchVersion:
    """Return the release that is used if none is given."""
    return releases(patches)[0]


def oldest_release(patches: Path) -> TorchVersion:
    """Return the oldest pinned release, which lacks most."""
    return TorchVersion(min((path.parent.name for path in patches.glob("*/pin.yaml")), key=Version))


def find_pin(
    cuda_archs: CudaArchs = OF_BASE, patches: Path = PATCHES, cxx: str = "g++"
) -> tuple[TorchVersion, CudaArchs]:
    """Return the version of a wheel that can be had for this Python, and ``cuda_archs``; print once why it was chosen.

    It is downloaded: first a wheel for CPUs, from pip's indexes or PyTorch's own, otherwise the one of the Python
    Package Index, for CUDA. Unless ``cuda_archs`` is given, CUDA kernels are then built for the GPU that is here, or
    not at all.

    Raises:
        FetchError: pip can download none of them, or the disk is full.
        ToolchainError: the compiler cannot be used.
    """
    candidates = _candidates(patches, cxx)
    chosen = _found(candidates) or _first(candidates)
    why = "the wheel for CPUs"
    if chosen.pin.local != CPU:
        why = "the wheel for CUDA, since pip found none for CPUs (`make test` downloads NVIDIA's packages, too)"
        cuda_archs, because = _choose_architectures(chosen, cuda_archs)
        why += f"; {because}"
    _say_once(f"torch {chosen.pin}: {why}", chosen.base / FOUND)
    return chosen.pin, cuda_archs


def expected_pin(cxx: str = "g++", patches: Path = PATCHES) -> TorchVersion:
    """Return the version that ``find_pin`` returns if pip has all wheels, without asking it; empty if there is none."""
    try:
        candidates = _candidates(patches, cxx)
    except FetchError:
        return TorchVersion("")
    return (_found(candidates) or candidates[0][0]).pin


def _candidates(patches: Path, cxx: str) -> list[list[Layout]]:
    """Return the wheels to look for, the best first: those of each release, for CPUs and for CUDA."""
    versions = [(TorchVersion(f"{release}+{CPU}"), release) for release in releases(patches, machine_of(cxx))]
    return [
        [Layout(version, (), Path(), pin_folder=patches / version.release, cxx=cxx) for version in pair]
        for pair in versions
    ]


def _found(candidates: list[list[Layout]]) -> Layout | None:
    """Return the one that was found before."""
    return next((each for pair in candidates for each in pair if (each.base / FOUND).is_file() and _kept(each)), None)


def _say_once(text: str, note: Path) -> None:
    """Print ``text``, unless it is what was printed last for this base."""
    if note.read_text(encoding="utf-8") != text:
        say(text)
        note.write_text(text, encoding="utf-8")


def fetch_unpinned(layout: Layout, given: Path | None) -> None:
    """Get the wheel of a pin now, from pip or ``given``, if it has no sha256 for this Python.

    Raises:
        FetchError: see ``fetch``.
    """
    pin = pin_of(layout)
    # Another is fetched, or refused, when the build needs it.
    if not pinned_file(pin)[1] and (given or pin.index):
        find_toolchain(pin, layout.cxx)
        _fetch(layout, given)


def _kept(layout: Layout) -> Path | None:
    pin = pin_of(layout)
    return kept_wheel(pin, layout.base, pinned_file(pin)[1])


def _first(candidates: list[list[Layout]]) -> Layout:
    """Download the first that can be had. Later releases count only if a constraint of pip's forbids earlier ones."""
    first = candidates[0][0]
    find_toolchain(pin_of(first), first.cxx)  # whatever is wrong with it shows before a download
    failures: list[MissingError] = []
    for of_release in candidates:
        for each in of_release:
            try:
                _fetch(each)
            except MissingError as error:
                failures.append(error)
            else:
                (each.base / FOUND).touch()
                return each
        if not all(error.is_capped for error in failures):
            break
    else:
        raise failures[0]
    raise FetchError(
        "pip can download no PyTorch for this Python",
        cause="\n        ".join(f"{error.what}{f' ({error.cause})' if error.cause else ''}" for error in failures),
        todo=f"check the network, and the index in {INDEX}; or set WHEEL to a wheel file of torch; or, if an "
        "environment has torch, use `make develop` or `make thin-wheel PIN=installed` with its Python as PYTHON",
    )


def _fetch(layout: Layout, given: Path | None = None) -> None:
    line = StepLine(f"looking for torch {layout.pin}:")
    line.update("...")
    end = "failed"
    try:
        with build_lock(layout.base):
            wheel = fetch(pin_of(layout), layout.base, given, line)
        end = line.note or f"{wheel.stat().st_size >> 20} MB"
    except MissingError as error:
        end = error.brief
        raise
    finally:
        line.end(end)


def _choose_architectures(chosen: Layout, given: CudaArchs) -> tuple[CudaArchs, str]:
    """Return the architectures of the GPUs that are here, unless others are given, and why these."""
    if given:
        return given, f"CUDA_ARCHS={given}"
    gpus, wheel = gpu_architectures(), _kept(chosen)
    if not gpus or not wheel:
        return NO_GPU, 'no CUDA kernels, since no GPU was found here (CUDA_ARCHS="80 90" builds them)'
    with ZipFile(wheel) as archive:
        supported = architectures_of(archive.read("torch/lib/libtorch_python.so"))
    # nvcc may know no others than those of the wheel, older ones least of all.
    oldest = min((int(name.rstrip("af")) for name in supported), default=sys.maxsize)
    if usable := [name for name in gpus if int(name) >= oldest]:
        return CudaArchs(" ".join(usable)), f"CUDA kernels for the GPU here, sm_{', sm_'.join(usable)}"
    return NO_GPU, f"no CUDA kernels, since this torch does not support the GPU here, sm_{', sm_'.join(gpus)}"


def gpu_architectures() -> list[str]:
    """Return the architectures of this machine's GPUs, for example ``90``."""
    try:
        done = run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], check=False)
    except CommandError:
        return []
    words = [line.strip().replace(".", "") for line in done.stdout.splitlines()] if done.returncode == 0 else []
    return sorted({word for word in words if word.isdigit()})
