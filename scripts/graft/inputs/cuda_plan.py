"""Decide how a build handles CUDA, from its base, its native folder and what this machine can compile."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..base.base import Base
from ..codegen import KERNELS, MISSING, NO_CUDA
from ..core.console import StepLine, say
from ..core.errors import GraftError, UsageError
from .cuda_toolkit import NONE, NoToolkitError, Nvcc, find_nvcc, request, wanted_architectures
from .native import NativeFolder, kernels_for_cuda
from .snapshot import Snapshot


@dataclass(frozen=True)
class Cuda:
    """How a build handles CUDA.

    Args:
        how: what the generator is asked to generate.
        nvcc: the compiler; None if nothing is compiled for CUDA.
    """

    how: str = NO_CUDA
    nvcc: Nvcc | None = None

    @property
    def description(self) -> str:
        """An identifier of the result; empty if CUDA plays no part in it."""
        return "" if self.how == NO_CUDA else f"{self.how} {self.nvcc.description if self.nvcc else ''}"

    @property
    def request(self) -> str:
        """The variables that give the same result again; empty if CUDA plays no part in it."""
        if self.how == NO_CUDA:
            return ""
        # If the toolkit is missing, each build searches for it again.
        return request() if self.nvcc or wanted_architectures() == (NONE,) else MISSING


def plan_cuda(snapshot: Snapshot, base: Base, native: NativeFolder, *, is_required: bool = False) -> Cuda:
    """Find a compiler for the folder's CUDA kernels. If there is none, print that and continue without, unless it is
    required.

    Raises:
        GraftError: the toolkit cannot be used, or there is none and it ``is_required``.
    """
    found = kernels_for_cuda(native)
    if is_required and not found:
        raise UsageError(f"{native.path}: it has no CUDA kernels", todo="add a kernel to its folder cuda/")
    if is_required and wanted_architectures() == (NONE,):
        raise UsageError(f"CUDA_ARCHS={NONE} leaves out all CUDA kernels", todo="unset CUDA_ARCHS")
    if not found or not base.cuda:
        if found:
            say(f"      left out, since torch {base.version} has no CUDA: {', '.join(found)}")
        return Cuda()
    if wanted_architectures() == (NONE,):
        say(f"      left out because of CUDA_ARCHS={NONE}: {', '.join(found)}")
        return Cuda(MISSING)
    line = StepLine(f"      toolkit of CUDA {base.cuda}:")
    line.update("...")
    start = time.perf_counter()
    try:
        nvcc = find_nvcc(snapshot.pin, base, snapshot.toolchain, line)
    except GraftError as error:
        line.end("none")
        if is_required or not isinstance(error, NoToolkitError):
            raise
        say(f"      CUDA kernels are not built: {error.what}; {error.todo}")
        return Cuda(MISSING)
    targets = " ".join(f"sm_{name}" for name in nvcc.architectures)
    line.end(f"{line.note}, for {targets}, {time.perf_counter() - start:.1f} s")
    return Cuda(KERNELS, nvcc)
