"""Leave the initializers of a library to the program that opens it.

The loader calls them while it opens a library, where an exception ends the process. Under another tag it does not find
them: `templates/loads.cpp` calls them, and an exception is an error of the build.
"""

from __future__ import annotations

import struct
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

# As in templates/loads.cpp; the range is for operating systems, and the loader ignores what it does not know.
_TAGS = {"DT_INIT_ARRAY": 0x6FFFE001, "DT_INIT_ARRAYSZ": 0x6FFFE002}


def leave_initializers(library: Path) -> None:
    """Rename the tags of the library's array of initializers."""
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
