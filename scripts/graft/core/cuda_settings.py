"""The user's settings for CUDA: the GPU architectures to compile for, and a toolkit."""

from __future__ import annotations

import re
from dataclasses import dataclass

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


OF_BASE = CudaArchs("")
# Compiles no CUDA source.
NO_KERNELS = CudaArchs("none")
# Does the same. It is the default if this machine has no GPU that torch supports.
NO_GPU = CudaArchs("no-gpu")


@dataclass(frozen=True)
class CudaSettings:
    """The values of ``CUDA_ARCHS`` and ``CUDA_HOME``. That toolkit is used only if its version is the base's."""

    archs: CudaArchs = OF_BASE
    home: str = ""

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
