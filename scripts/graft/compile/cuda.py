"""Decide how a build handles CUDA, given its base, its native folder and this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..base.base import Base
from ..codegen import KERNELS, MISSING, NO_CUDA
from ..core.console import WARNING, StepLine, say
from ..core.cuda_settings import NO_GPU, NO_KERNELS, CudaArchs, CudaSettings
from ..core.errors import GraftError, UsageError
from ..core.pip import UnavailableError
from ..inputs.native import NativeFolders, kernels_for_cuda
from ..inputs.snapshot import Snapshot
from .nvcc import Nvcc, find_nvcc, sources_for_cuda


@dataclass(frozen=True)
class Cuda:
    """How a build handles CUDA.

    Args:
        how: the generator's output for CUDA: ``KERNELS``, ``MISSING`` or ``NO_CUDA``.
        nvcc: the compiler; None if nothing is compiled for CUDA.
        note: the note of the CUDA settings that give the same result again; empty if CUDA does not affect it.
        of_extensions: the compiler for extensions that stay separate libraries; None if none has a CUDA source.
    """

    how: str = NO_CUDA
    nvcc: Nvcc | None = None
    note: str = ""
    of_extensions: Nvcc | None = None

    @property
    def description(self) -> str:
        """Identifies the result; empty if CUDA does not affect it."""
        return "" if self.how == NO_CUDA else f"{self.how} {self.nvcc.description if self.nvcc else ''}"


def find_cuda(
    snapshot: Snapshot, base: Base, natives: NativeFolders, wanted: CudaSettings, *, is_required: bool = False
) -> Cuda:
    """Find a compiler for the folder's CUDA kernels. If there is none, print that and leave out the kernels; if
    ``is_required``, raise the error.
    """
    found = kernels_for_cuda(natives)
    if is_required and not found:
        raise UsageError(f"{natives.title}: it has no CUDA kernels", todo="add a kernel to its folder cuda/")
    if is_required:
        _require_wanted(wanted.archs)
    if not found or not base.cuda:
        if found:
            say(f"      left out, since torch {base.version} has no CUDA: {', '.join(found)}", WARNING)
        return Cuda()
    if wanted.archs in (NO_KERNELS, NO_GPU):
        no_gpu = f"no GPU here that torch {base.version} supports"
        why = no_gpu if wanted.archs == NO_GPU else f"CUDA_ARCHS={NO_KERNELS}"
        say(f"      {why}; {_kernels_of(natives)} are left out", WARNING)
        return Cuda(MISSING, None, wanted.note)
    try:
        nvcc = find_toolkit(snapshot, base, wanted)
    except GraftError as error:
        if is_required or not isinstance(error, UnavailableError):
            raise
        say(f"      CUDA kernels are not built: {error.what}; {error.todo}", WARNING)
        return Cuda(MISSING, None, f"{wanted.note};{MISSING}")  # matches no settings: each build searches
    return Cuda(KERNELS, nvcc, wanted.note)


def find_toolkit(snapshot: Snapshot, base: Base, wanted: CudaSettings) -> Nvcc:
    """Return nvcc, and print where its toolkit comes from."""
    line = StepLine(f"      toolkit of CUDA {base.cuda}:")
    line.update("...")
    start = time.perf_counter()
    try:
        nvcc = find_nvcc(snapshot.pin, base, snapshot.toolchain, wanted, line)
    except GraftError:
        line.end("none")
        raise
    targets = " ".join(f"sm_{name}" for name in nvcc.architectures)
    line.end(f"{line.note}, for {targets}{wanted.reason}, {time.perf_counter() - start:.1f} s")
    return nvcc


def _require_wanted(archs: CudaArchs) -> None:
    if archs == NO_KERNELS:
        raise UsageError(f"CUDA_ARCHS={NO_KERNELS} leaves out all CUDA kernels", todo="unset CUDA_ARCHS")
    if archs == NO_GPU:
        what = "no GPU here that this torch supports, so all CUDA kernels are left out"
        raise UsageError(what, todo='set CUDA_ARCHS, as in CUDA_ARCHS="80 90"')


def _kernels_of(natives: NativeFolders) -> str:
    count = len(sources_for_cuda(natives))
    return f"the CUDA kernels of {count} file{'s' * (count > 1)}" if count else "CUDA kernels"
