"""Leave the initializers of a library to the program that opens it.

The loader calls initializers while it opens a library, where an exception ends the process. It does not find them under
another tag: `templates/loads.cpp` calls them, and returns an exception as an error.
"""

from __future__ import annotations

import struct
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

# The tags in templates/loads.cpp. They are in the range for operating systems, and the loader ignores unknown tags.
_TAGS = {"DT_INIT_ARRAY": 0x6FFFE001, "DT_INIT_ARRAYSZ": 0x6FFFE002}


def leave_initializers(library: Path) -> None:
    """Change the tags of a library's array of initializers, so that the loader ignores it."""
    with library.open("r+b") as file:
        section = ELFFile(file).get_section_by_name(".dynamic")
        assert isinstance(section, DynamicSection), library
        places = [
            (section["sh_offset"] + number * section["sh_entsize"], _TAGS[tag.entry.d_tag])
            for number, tag in enumerate(section.iter_tags())
            if tag.entry.d_tag in _TAGS
        ]
        for place, tag in places:
            file.seek(place)
            file.write(struct.pack("<q", tag))
