"""The user's settings for CUDA: the GPU architectures to compile for, and a toolkit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_ARCHITECTURE = re.compile(r"(?:sm_)?(\d{1,2})\.?(\d[af]?)")


class CudaArchs(str):
    """The value of ``CUDA_ARCHS``: GPU architectures, in the form ``80 90a`` however the user wrote them."""

    __slots__ = ()

    def __new__(cls, text: str) -> CudaArchs:
        found = ((word, _ARCHITECTURE.fullmatch(word)) for word in text.replace(",", " ").split())
        return super().__new__(cls, " ".join("".join(match.groups()) if match else word for word, match in found))

    @property
    def names(self) -> tuple[str, ...]:
        """Each architecture."""
        return tuple(self.split())

    @property
    def wrong(self) -> list[str]:
        """The words that are not architectures. ``none`` and ``no-gpu`` are valid as the only word."""
        return [name for name in self.names if not _ARCHITECTURE.fullmatch(name) and self not in (NO_KERNELS, NO_GPU)]


def newest(supported: Iterable[str]) -> str:
    """Return the newest of some architectures."""
    return max(supported, key=_number)


def running_on(gpu: str, supported: Iterable[str]) -> str:
    """Return the architecture whose code a GPU runs: the newest of its generation up to its own; empty if none is
    supported. Code for a variant, ``90a``, runs on that GPU only.
    """
    number = _number(gpu)
    same = [name for name in supported if _number(name) // 10 == number // 10 and _number(name) <= number]
    return max((name for name in same if name.isdigit() or _number(name) == number), key=_number, default="")


def _number(architecture: str) -> int:
    return int(architecture.rstrip("af"))


OF_BASE = CudaArchs("")
# Compiles no CUDA source.
NO_KERNELS = CudaArchs("none")
# Does the same. It is the default of `graft.load`, and of a wheel whose torch the build chooses, if this machine has no
# GPU that torch supports.
NO_GPU = CudaArchs("no-gpu")


@dataclass(frozen=True)
class CudaSettings:
    """The values of ``CUDA_ARCHS`` and ``CUDA_HOME``. That toolkit is used only if its version is the base's.

    Args:
        archs: the architectures.
        home: the toolkit.
        reason: why ``archs`` are chosen, to be printed behind them, if the user has not.
    """

    archs: CudaArchs = OF_BASE
    home: str = ""
    reason: str = field(default="", compare=False)

    @property
    def note(self) -> str:
        """The settings as text, for the record of a build. ``noted`` parses it."""
        return f"{self.archs};{self.home}"

    @classmethod
    def noted(cls, note: str) -> CudaSettings:
        """Parse the text of ``note``."""
        archs, _, home = note.partition(";")
        return cls(CudaArchs(archs), home)


NOT_SET = CudaSettings()
