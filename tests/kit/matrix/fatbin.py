"""GPU code in libraries from NVIDIA's compilers: "fat binaries" with an image for each architecture.

NVIDIA does not document the format; cuobjdump reads it. The results were compared with its output.
"""

from __future__ import annotations

import struct
from io import BytesIO

from elftools.elf.elffile import ELFFile

_SECTION = ".nv_fatbin"

# A fat binary's header: magic, version, size of the header, size of what follows.
_REGION = struct.Struct("<IHHQ")
_MAGIC = 0xBA55ED50

# An image's header: kind, version, size of the header, size of what follows; then the architecture and flags.
_IMAGE = struct.Struct("<HHIQ")
_ARCHITECTURE = struct.Struct("<28xI8xQ")
_PTX, _CODE = 1, 2

# Architectures with a letter: their code runs on no later GPU (a), or only on the same family (f).
_SPECIFIC, _FAMILY = 1 << 20, 1 << 21


def architectures(library: bytes) -> list[str]:
    """Return the architectures in a library, sorted: ``sm_90a`` for machine code, ``compute_90`` for PTX.

    Raises:
        ValueError: the section of fat binaries contains something else.
    """
    section = ELFFile(BytesIO(library)).get_section_by_name(_SECTION)
    data = section.data() if section is not None else b""
    found = set()
    start = 0
    while start < len(data):
        if not any(data[start : start + 8]):  # padding between those of two objects
            start += 8
            continue
        magic, _, header, size = _REGION.unpack_from(data, start)
        if magic != _MAGIC:
            raise ValueError(f"no fat binary at {start} in {_SECTION}, but {magic:#x}")
        image, start = start + header, start + header + size
        while image < start:
            kind, _, header, size = _IMAGE.unpack_from(data, image)
            number, flags = _ARCHITECTURE.unpack_from(data, image)
            letter = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
            if kind in (_PTX, _CODE):
                found.add((kind == _PTX, number, letter))
            image += header + size
    return [f"{'compute_' if is_ptx else 'sm_'}{number}{letter}" for is_ptx, number, letter in sorted(found)]
