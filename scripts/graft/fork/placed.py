"""Place the C++ files of a native folder in PyTorch's tree, and adapt their text. The tree's build compiles each source
in ``cpu/`` for all CPU capabilities, and does not search the folder's root for headers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..core.files import write_if_changed
from ..cpp.includes import with_places
from ..inputs.native import NativeFiles, is_for_capabilities

# PyTorch's header of this name needs Python. Graft's own, in compile/templates, does not.
_EXTENSION = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)[<"]torch/extension\.h[>"]', re.M)


def places(native: NativeFiles) -> dict[Path, Path]:
    """Return the place of each C++ file, below ATen's own folder."""
    found = {name: name for name in native.cplusplus if name not in (*native.helpers, *native.helper_headers)}
    for name in native.sources:
        if is_for_capabilities(name):
            place = Path(f"{name.stem}_cpu.cpp")
            while place in found.values():
                place = place.with_stem(f"{place.stem}_")
            found[name] = place
    return found


def write_placed(native: NativeFiles, where: Mapping[Path, Path], folder: Path) -> dict[Path, Path]:
    """Return each C++ file by its place: the file, or a copy in ``folder`` if its text differs there."""
    found = {}
    for name, place in where.items():
        path = native.paths[name]
        text = path.read_bytes().decode("latin-1")  # what is not an include stays as it is
        changed = _EXTENSION.sub(r"\1<torch/all.h>", with_places(native.text_if_there, name, text, where))
        found[place] = folder / place if changed != text else path
        if changed != text:
            write_if_changed(found[place], changed.encode("latin-1"))
    return found
