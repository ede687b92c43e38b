"""Headers of operators that are gone: torchgen writes what there is, and leaves what there was."""

from __future__ import annotations

import re
from pathlib import Path

_GENERATED = "build/aten/src/ATen"


def remove_orphans(tree: Path) -> int:
    """Delete each operator's header that no header of all operators includes; return how many there were.

    Else they would be in every wheel that follows. ``Functions.h``, ``Operators.h``, ``NativeFunctions.h`` and those of
    the dispatch keys include each header below ``ops/``.
    """
    folder = tree / _GENERATED
    texts = (path.read_text(encoding="utf-8") for path in folder.glob("*.h"))
    included = {name for text in texts for name in re.findall(r"#include <ATen/ops/(\w+\.h)>", text)}
    orphans = [path for path in folder.glob("ops/*.h") if path.name not in included]
    for path in orphans:
        path.unlink()
    return len(orphans)
