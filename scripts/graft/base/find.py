"""Find the PyTorch to use if ``PIN`` is not given: the first that can be downloaded for this Python."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import ZipFile

from packaging.version import Version

from ..core.architecture import machine_of
from ..core.console import StepLine, say
from ..core.cuda_settings import NO_GPU, OF_BASE, CudaArchs, CudaSettings, newest, running_on
from ..core.errors import CommandError, MissingError
from ..core.files import build_lock
from ..core.layout import PATCHES, Layout, TorchVersion
from ..core.pip import INDEX, UnavailableError
from ..core.process import run
from ..inputs.pin import CPU, Pin, load_pin, pin_of, pinned_file, tags_for
from ..inputs.toolchain import find_toolchain
from .base import Base, architectures_of, name_of_python
from .fetch import fetch, kept_wheel

# The file next to a chosen wheel with the message about it. While the file exists, the wheel is chosen again.
FOUND = "found"


@dataclass(frozen=True)
class _Candidate:
    """A wheel that may be used.

    Args:
        pin: the pin of this wheel.
        folder: the folder that has it once it is downloaded.
    """

    pin: Pin
    folder: Path

    def kept(self) -> Path | None:
        """Return the wheel if it was downloaded."""
        return kept_wheel(self.pin, self.folder, pinned_file(self.pin)[1])


def usable_pins(patches: Path, machine: str = platform.machine()) -> list[Pin]:
    """Return the pins with a wheel for this Python on a ``machine``, the default first: pins whose wheel for CPUs is
    for this Python, then pins with another wheel for CPUs, then others, and the newest first in each group.

    Raises:
        MissingError: there is none.
    """
    supported = set(map(str, tags_for(machine)))
    pins = [load_pin(path.parent, machine=machine) for path in sorted(patches.glob("*/pin.yaml"))]
    usable = [pin for pin in pins if any(not tags.keys().isdisjoint(supported) for tags in pin.wheels.values())]
    if not usable:
        raise MissingError(
            f"no pinned PyTorch has a wheel for this Python ({name_of_python(tags_for(machine)[0])})",
            cause=f"there are pins of {', '.join(pin.version.release for pin in pins if pin.wheels)}",
            todo="set PYTHON to another Python, or add a pin with `make pin TORCH=version`",
        )

    def rank(pin: Pin) -> tuple[bool, bool, Version]:
        for_cpus = [tags for version, tags in pin.wheels.items() if version.local == CPU]
        is_for_this_python = any(not tags.keys().isdisjoint(supported) for tags in for_cpus)
        return is_for_this_python, bool(for_cpus), Version(pin.version.release)

    return sorted(usable, key=rank, reverse=True)


def default_release(patches: Path) -> TorchVersion:
    """Return the release that is used if none is given."""
    return TorchVersion(usable_pins(patches)[0].version.release)


def oldest_release(patches: Path) -> TorchVersion:
    """Return the oldest pinned release, which lacks the most features."""
    return TorchVersion(min((path.parent.name for path in patches.glob("*/pin.yaml")), key=Version))


def find_pin(
    cuda_archs: CudaArchs = OF_BASE, patches: Path = PATCHES, cxx: str = "g++"
) -> tuple[TorchVersion, CudaArchs]:
    """Download a wheel for this Python. Return its version and the GPU architectures. Print once why it was chosen.

    A wheel for CPUs comes first, from pip's indexes or PyTorch's own; then the one for CUDA from pip's indexes. For
    that one, unless ``cuda_archs`` is given, CUDA kernels are built for this machine's GPU, or not at all.
    """
    candidates = _candidates(patches, cxx)
    chosen = _found(candidates) or _first(candidates, cxx)
    why = "the wheel for CPUs"
    if chosen.pin.version.local != CPU:
        why = "the wheel for CUDA, since pip found none for CPUs (`make test` downloads NVIDIA's packages, too)"
        cuda_archs, because = _choose_architectures(chosen.kept(), cuda_archs)
        why += f"; {because}"
    _say_once(f"torch {chosen.pin.version}: {why}", chosen.folder / FOUND)
    return chosen.pin.version, cuda_archs


def expected_pin(cxx: str = "g++", patches: Path = PATCHES) -> TorchVersion:
    """Return the version that ``find_pin`` would choose if pip had all wheels, without asking pip; empty if none."""
    try:
        candidates = _candidates(patches, cxx)
    except MissingError:
        return TorchVersion("")
    return (_found(candidates) or candidates[0][0]).pin.version


def _candidates(patches: Path, cxx: str) -> list[list[_Candidate]]:
    """Return the wheels to look for, the best first: those of each release, for CPUs and for CUDA."""

    def of_release(pin: Pin) -> list[_Candidate]:
        versions = (TorchVersion(f"{pin.version.release}+{CPU}"), TorchVersion(pin.version.release))
        pins = [replace(pin, version=version) for version in versions]
        return [_Candidate(each, Layout(each.version, (), Path(), cxx=cxx).base) for each in pins if each.is_known]

    return [of_release(pin) for pin in usable_pins(patches, machine_of(cxx))]


def _found(candidates: list[list[_Candidate]]) -> _Candidate | None:
    """Return the candidate that was chosen before, if its wheel is still there; else None."""
    return next((each for pair in candidates for each in pair if (each.folder / FOUND).is_file() and each.kept()), None)


def _say_once(text: str, note: Path) -> None:
    """Print ``text``, unless it was the last text printed for this base, which ``note`` contains."""
    if note.read_text(encoding="utf-8") != text:
        say(text)
        note.write_text(text, encoding="utf-8")


def fetch_unpinned(layout: Layout, given: Path | None) -> None:
    """Get the wheel of a pin now, from pip or ``given``, if the pin has no sha256 for this Python."""
    pin = pin_of(layout)
    # A pinned wheel is fetched, or refused, when the build needs it.
    if not pinned_file(pin)[1] and (given or pin.index):
        find_toolchain(pin, layout.cxx)
        _fetch(_Candidate(pin, layout.base), given)


def _first(candidates: list[list[_Candidate]], cxx: str) -> _Candidate:
    """Download the first available wheel. Try later releases only if a constraint of pip's forbids the earlier ones."""
    find_toolchain(candidates[0][0].pin, cxx)  # report its errors before a download
    failures: list[UnavailableError] = []
    for of_release in candidates:
        for each in of_release:
            try:
                _fetch(each)
            except UnavailableError as error:
                failures.append(error)
            else:
                (each.folder / FOUND).touch()
                return each
        if not all(error.is_capped for error in failures):
            break
    else:
        raise failures[0]
    raise MissingError(
        "pip can download no PyTorch for this Python",
        cause="\n        ".join(f"{error.what}{f' ({error.cause})' if error.cause else ''}" for error in failures),
        todo=f"check the network, and the index in {INDEX}; or set WHEEL to a wheel file of torch; or, if an "
        "environment has torch, use `make develop` or `make thin-wheel PIN=installed` with its Python as PYTHON",
    )


def _fetch(wanted: _Candidate, given: Path | None = None) -> None:
    line = StepLine(f"looking for torch {wanted.pin.version}:")
    line.update("...")
    end = "failed"
    try:
        with build_lock(wanted.folder):
            wheel = fetch(wanted.pin, wanted.folder, given, line)
        end = line.note or f"{wheel.stat().st_size >> 20} MB"
    except UnavailableError as error:
        end = error.brief
        raise
    finally:
        line.end(end)


def _choose_architectures(wheel: Path | None, given: CudaArchs) -> tuple[CudaArchs, str]:
    """Return the architectures to build CUDA kernels for, ``given`` or this machine's GPUs', and the reason."""
    if given:
        return given, f"CUDA_ARCHS={given}"
    gpus = gpu_architectures()
    if not gpus or not wheel:
        return NO_GPU, 'no CUDA kernels, since no GPU was found here (CUDA_ARCHS="80 90" builds them)'
    with ZipFile(wheel) as archive:
        supported = architectures_of(archive.read("torch/lib/libtorch_python.so"))
    # nvcc may not support an architecture that the wheel lacks, mainly an older one.
    oldest = min((int(name.rstrip("af")) for name in supported), default=sys.maxsize)
    if usable := [name for name in gpus if int(name) >= oldest]:
        return CudaArchs(" ".join(usable)), f"CUDA kernels for the GPU here, sm_{', sm_'.join(usable)}"
    return NO_GPU, f"no CUDA kernels, since this torch does not support the GPU here, sm_{', sm_'.join(gpus)}"


def for_this_machine(wanted: CudaSettings, base: Base) -> CudaSettings:
    """Return the settings of a build whose result stays on this machine: by default for its GPUs or, if there are none,
    for the newest architecture, which finds errors.
    """
    supported = base.architectures
    if wanted.archs or not supported:
        return wanted
    if here := {name for gpu in gpu_architectures() if (name := running_on(gpu, supported))}:
        return replace(wanted, archs=CudaArchs(" ".join(sorted(here, key=supported.index))))
    reason = " alone, since there is no GPU here that this torch supports"
    return replace(wanted, archs=CudaArchs(newest(supported)), reason=reason)


def gpu_architectures() -> list[str]:
    """Return the architectures of this machine's GPUs, for example ``90``."""
    try:
        done = run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], check=False)
    except CommandError:
        return []
    words = [line.strip().replace(".", "") for line in done.stdout.splitlines()] if done.returncode == 0 else []
    return sorted({word for word in words if word.isdigit()})
