"""Headers of removed operators: torchgen writes current headers, and does not delete old ones."""

from __future__ import annotations

import re
from pathlib import Path

_GENERATED = "build/aten/src/ATen"


def remove_orphans(tree: Path) -> int:
    """Delete each operator's header that no list of headers includes. Return how many were deleted.

    Otherwise they would be in every later wheel. ``Functions.h``, ``Operators.h``, ``NativeFunctions.h`` and those of
    the dispatch keys include each header below ``ops/``.
    """
    folder = tree / _GENERATED
    texts = (path.read_text(encoding="utf-8") for path in folder.glob("*.h"))
    included = {name for text in texts for name in re.findall(r"#include <ATen/ops/(\w+\.h)>", text)}
    orphans = [path for path in folder.glob("ops/*.h") if path.name not in included]
    for path in orphans:
        path.unlink()
    return len(orphans)
