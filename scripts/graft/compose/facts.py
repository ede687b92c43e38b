"""What compiled code has baked in of each operator: its schema, its formulas, and what runs while a graph is made:
decompositions and meta functions. Kernels are not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from ..inputs.native import CUDA_SUFFIXES, DERIVATIVES, FUNCTIONS, NativeFolders

_META = r"\bTORCH_(?:PRECOMPUTE_)?META_FUNC2?\b"
_COMPOSITE = {"CompositeImplicitAutograd", "CompositeImplicitAutogradNestedTensor"}


def facts_of(natives: NativeFolders) -> dict[str, str]:
    """Return a hash of what is baked in, by the operator's name with its namespace and without overload."""
    entries: dict[str, list[str]] = {}
    for file in (FUNCTIONS, DERIVATIVES):
        for entry in natives.entries(file):
            name = entry.operator.partition(".")[0]
            qualified = name if "::" in name else f"aten::{name}"
            entries.setdefault(qualified, []).append(json.dumps(entry.fields, sort_keys=True, default=str))
    shared = [natives.text(name) for name in [*natives.python, *_baked_sources(natives)]]
    return {
        name: hashlib.sha256("\0".join([*texts, *shared]).encode()).hexdigest()[:16] for name, texts in entries.items()
    }


def _baked_sources(natives: NativeFolders) -> Iterator[Path]:
    """Yield the C++ that runs while a graph is made: meta functions and composite kernels. Which header belongs to them
    is not known, so it is every header.
    """
    composite = {
        name
        for entry in natives.entries(FUNCTIONS)
        for name in entry.kernel_names
        if not entry.kernels or _COMPOSITE & entry.kernels.keys()
    }
    kernels = "|".join(rf"\b{re.escape(name)}\(" for name in sorted(composite))
    pattern = re.compile("|".join(filter(None, [_META, kernels])))
    sources = [name for name in natives.sources if pattern.search(natives.text(name))]
    yield from sources
    if sources:
        yield from (name for name in natives.headers if name.suffix not in CUDA_SUFFIXES)
