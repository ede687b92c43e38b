"""Find the entries and kernels of an operator, for messages about a failed test."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from graft.inputs.entries import Entry, read_entries

# Keys of derivatives.yaml that are not formulas.
_NO_FORMULAS = frozenset({"name", "dispatch", "output_differentiability"})


def places_of(operator: str, natives: Sequence[Path]) -> list[str]:
    """Return lines with the formulas of ``operator`` and its kernels, each as ``file:line: text``.

    Args:
        operator: its name in native_functions.yaml, without an overload.
        natives: the native folders.
    """
    formulas, kernels = [], []
    for native in natives:
        for entry in _entries(native / "derivatives.yaml", operator):
            for key, formula in entry.fields.items():
                if key not in _NO_FORMULAS:
                    file, line, _ = entry.place(key)
                    formulas.append(f"{file}:{line}: {key}: {formula}")
        entries = _entries(native / "native_functions.yaml", operator)
        names = [kernel.rpartition("::")[2] for entry in entries for kernel in entry.kernels.values()]
        kernels += [place for name in dict.fromkeys(names or [operator]) for place in _definitions(native, name)]
    return [*formulas, *dict.fromkeys(kernels)]


def _entries(file: Path, operator: str) -> list[Entry]:
    """Return the entries of ``operator``, with all its variants."""
    return [e for e in read_entries(file) if e.operator.partition(".")[0].removesuffix("_") == operator]


def _definitions(native: Path, kernel: str) -> Iterator[str]:
    """Yield the places where a kernel is defined, as far as the text of the sources shows."""
    defined = re.compile(rf"^(?:TORCH_IMPL_FUNC\(\s*{kernel}\s*\)|[\w:<>,&*\s]*?\b{kernel})\s*\([^;{{]*\{{", re.M)
    for path in sorted([*native.rglob("*.cpp"), *native.rglob("*.cu")]):
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in defined.finditer(text):
            start = match.start() + len(match[0]) - len(match[0].lstrip())
            line = text.count("\n", 0, start) + 1
            yield f"{path}:{line}: {text.splitlines()[line - 1].rstrip(' {')}"
