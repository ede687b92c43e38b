"""The C++ of native folders: sources, headers that replace PyTorch's, and registrations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..cpp.includes import PLACE
from ..cpp.registrations import Registration, registrations
from ..cpp.sources import Source, read_text
from .native import CPLUSPLUS, INCLUDE, NativeFolders


def read_sources(natives: NativeFolders) -> list[Source]:
    """Return the C++ sources of ``natives``, without tests. A file that several folders share is read once."""
    once: dict[tuple[Path, str], Path] = {}
    for folder in natives.folders:
        for name in folder.cplusplus:
            if name.suffix in CPLUSPLUS or name in folder.named:
                once.setdefault((name, folder.text(name)), folder.place(name))
    vectorized = {*natives.vectorized}
    paths = sorted(once.items(), key=lambda item: item[1])
    return [replace(read_text(path, text, name), is_vectorized=name in vectorized) for (name, text), path in paths]


def headers_laid_over(natives: NativeFolders) -> list[Source]:
    """Return the headers below ``ATen/native`` that replace PyTorch's."""
    own, overlay = f"{INCLUDE}/{PLACE}", natives.overlay.items()
    names = {Path(key).relative_to(own): each for key, each in overlay if Path(key).is_relative_to(own)}
    return [read_text(user, copy.read_text(encoding="utf-8"), name) for name, (user, copy) in names.items()]


def registered_in(natives: NativeFolders) -> Iterator[Registration]:
    """Yield the registrations in the C++ sources of native folders."""
    for text in map(natives.text, natives.cplusplus):
        if "TORCH_LIBRARY_IMPL" in text:
            yield from registrations(text)
