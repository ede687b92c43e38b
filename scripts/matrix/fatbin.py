"""What NVIDIA's compilers put into a library for GPUs: "fat binaries", of an image for each architecture.

NVIDIA documents the format nowhere; cuobjdump reads it. What is read here was compared with what that prints.
"""

from __future__ import annotations

import struct
from io import BytesIO

from elftools.elf.elffile import ELFFile

_SECTION = ".nv_fatbin"

# A fat binary's header: magic, version, size of the header, size of what follows.
_REGION = struct.Struct("<IHHQ")
_MAGIC = 0xBA55ED50

# An image's header: kind, version, size of the header, size of what follows; the architecture and flags lie further in.
_IMAGE = struct.Struct("<HHIQ")
_ARCHITECTURE = struct.Struct("<28xI8xQ")
_PTX, _CODE = 1, 2

# Architectures with a letter, whose code runs on no later GPU (a) or on none of another family (f).
_SPECIFIC, _FAMILY = 1 << 20, 1 << 21


def architectures(library: bytes) -> list[str]:
    """What a library holds code for, in order: ``sm_90a`` for machine code, ``compute_90`` for PTX.

    Raises:
        ValueError: the section of fat binaries holds something else.
    """
    section = ELFFile(BytesIO(library)).get_section_by_name(_SECTION)
    data = section.data() if section is not None else b""
    found = set()
    start = 0
    while start < len(data):
        if not any(data[start : start + 8]):  # between those of two objects
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
