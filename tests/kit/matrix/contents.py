"""What a wheel contains in addition to its base."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from graft.base.base import VERSION_FILE, of_version_file
from graft.compile.link import OPERATORS_FOR_CUDA

from .fatbin import architectures


@dataclass(frozen=True)
class Contents:
    """The content of a wheel.

    Args:
        size: in bytes.
        added: compressed bytes of the members that the base lacks, or that differ from it, without metadata.
        cuda: the CUDA version of the base; empty for CPU.
        architectures: the GPU architectures in the operators' CUDA library; empty if there is none.
    """

    size: int
    added: int
    cuda: str
    architectures: tuple[str, ...]


def contents(wheel: Path, base: Path) -> Contents:
    """Compare a wheel with its base."""
    with ZipFile(base) as archive:
        old = {(info.filename, info.CRC, info.file_size) for info in archive.infolist()}
    with ZipFile(wheel) as archive:
        members = [info for info in archive.infolist() if ".dist-info/" not in info.filename]
        others = [info for info in members if (info.filename, info.CRC, info.file_size) not in old]
        cuda = of_version_file(archive.read(VERSION_FILE).decode(), "cuda")
        library = archive.read(OPERATORS_FOR_CUDA) if OPERATORS_FOR_CUDA in archive.namelist() else b""
    return Contents(
        size=wheel.stat().st_size,
        added=sum(info.compress_size for info in others),
        cuda=cuda,
        architectures=tuple(architectures(library)) if library else (),
    )
