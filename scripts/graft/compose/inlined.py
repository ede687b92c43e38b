"""Hash what ``torch.compile`` inlines into compiled code: an operator's schema and formulas, the C++ that runs while a
graph is traced, functions that formulas call, and Python code. Kernels are not inlined.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from ..cpp.includes import included
from ..inputs.entries import Entry
from ..inputs.native import DERIVATIVES, FUNCTIONS, NativeFolders

_COMPOSITE = {"CompositeImplicitAutograd", "CompositeImplicitAutogradNestedTensor"}


def facts_of(natives: NativeFolders) -> dict[str, str]:
    """Map each operator, by name with namespace and without overload, and each file to a hash of what is inlined."""
    entries: dict[str, list[Entry]] = defaultdict(list)
    for file in (FUNCTIONS, DERIVATIVES):
        for entry in natives.entries(file):
            name = entry.operator.partition(".")[0]
            entries[name if "::" in name else f"aten::{name}"].append(entry)
    by_name = {name: _hash([*_fields(of_name), *_sources(natives, of_name)]) for name, of_name in entries.items()}
    helpers = [*natives.helpers, *natives.helper_headers]
    helpers += sorted(included(natives.text_if_there, helpers, natives.searched).difference(helpers))
    files = {str(name): natives.text(name) for name in (*helpers, *natives.python)}
    laid_over = {name: path for name, (_, path) in natives.overlay.items() if name.endswith(".py")}
    files |= {name: path.read_text(encoding="utf-8", errors="replace") for name, path in laid_over.items()}
    return by_name | {name: _hash([text]) for name, text in sorted(files.items())}


def _fields(entries: Iterable[Entry]) -> Iterator[str]:
    return (json.dumps(each.fields, sort_keys=True, default=str) for each in entries)


def _sources(natives: NativeFolders, entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the C++ that runs while a graph is traced: meta functions, composite kernels, and the headers of both."""
    patterns = []
    for entry in entries:
        name = entry.operator.partition(".")[0].rpartition("::")[2]
        patterns.append(rf"\bTORCH_(?:PRECOMPUTE_)?META_FUNC2?\(\s*{re.escape(name)}\b")
        if _is_composite(entry):
            patterns += [rf"\b{re.escape(kernel)}\(" for kernel in entry.kernel_names]
    pattern = re.compile("|".join(patterns))
    found = [source for source in natives.sources if pattern.search(natives.text(source))]
    yield from map(natives.text, [*found, *sorted(included(natives.text_if_there, found, natives.searched))])


def _is_composite(entry: Entry) -> bool:
    if "func" not in entry.fields or "structured_delegate" in entry.fields:
        return False
    return not entry.kernels or bool(_COMPOSITE & entry.kernels.keys())


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
