"""Check that folders register no decomposition that PyTorch has: `import torch` would work, but not torch.compile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..inputs.entries import texts_of_entries
from ..inputs.merge import PACKAGED
from ..inputs.native import FUNCTIONS, PYTHON, NativeFolders
from . import Findings

# For each file of torch with a table of decompositions: all files that fill the table, and how to remove an entry.
_TABLES = {
    "_decomp/decompositions.py": (
        ("_decomp/decompositions.py", "_refs/**/*.py"),
        "to replace it, write yours into python/_decomp/__init__.py, behind `decomposition_table.pop(torch.ops.%s)`",
    ),
    "_inductor/decomposition.py": (
        ("_inductor/decomposition.py",),
        "to replace it, write `decompositions.pop(%s)` before",
    ),
}

# Decorators of functions. Those with `type=` are for other tables.
_REGISTERED = re.compile(r"^@register_decomposition\(((?:[^@()]|\([^()]*\))*)\)[ \t]*(?:#[^\n]*)?\n", re.M)
_OPERATOR = re.compile(r"\baten\.(\w+)(?:\.(\w+))?")


def check_decompositions(natives: NativeFolders, tree: Path, findings: Findings) -> None:
    """Check the Python files of ``natives`` against PyTorch's, which are in the base's ``tree``."""
    for name, (files, todo) in _TABLES.items():
        texts = natives.texts(PYTHON / name)
        ours = [(path, *each) for path, text in texts.items() for each in _registered(text)]
        theirs = _overloads((path for file in files for path in (tree / "torch").glob(file)), tree) if ours else {}
        for path, line, operator, overload in ours:
            there = theirs.get(operator, set())
            is_removed = re.search(rf"\bpop\([^)\n]*aten\.{operator}\b", texts[path])
            if not is_removed and (overload in there if overload else there):
                first = f"aten.{operator}.{overload or min(there)}"
                what = f"PyTorch has a decomposition of {first}, and registers no second"
                findings.add("duplicate-decomposition", (path, line, 0), what, todo % first)


def _overloads(paths: Iterable[Path], tree: Path) -> dict[str, set[str]]:
    """Return the overloads of PyTorch's operators that its own files register decompositions for, by operator."""
    found: dict[str, set[str]] = {}
    known: dict[str, set[str]] = {}
    for operator in texts_of_entries(tree / PACKAGED[FUNCTIONS] / FUNCTIONS):
        root, _, overload = operator.partition(".")
        known.setdefault(root, set()).add(overload or "default")
    for path in paths:
        for _, operator, overload in _registered(path.read_text(encoding="utf-8", errors="replace")):
            found.setdefault(operator, set()).update([overload] if overload else known.get(operator, ()))
    return found


def _registered(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the operator and the overload, if one is named, of each decomposition in a text."""
    for found in _REGISTERED.finditer(text):
        if "type=" not in found[1]:
            line = text.count("\n", 0, found.start()) + 1
            for operator in _OPERATOR.finditer(found[1]):
                yield line, operator[1], operator[2] or ""
