"""Find the entries and kernels of an operator, for messages about a failed test."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

# A key of an entry and its value, without a comment.
_PAIR = re.compile(r"\s+([\w, ']+):\s+(.*?)\s*(?:#.*)?")
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
        for line, text in _entry_lines(native / "derivatives.yaml", operator):
            found = _PAIR.fullmatch(text)
            if found and found[1] not in _NO_FORMULAS:
                formulas.append(f"{native / 'derivatives.yaml'}:{line}: {found[1]}: {found[2]}")
        names = _kernels_of(native / "native_functions.yaml", operator)
        kernels += [place for name in names for place in _definitions(native, name)]
    return [*formulas, *dict.fromkeys(kernels)]


def _entry_lines(file: Path, operator: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of the entries of ``operator``, with all its variants."""
    is_in = False
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines() if file.is_file() else [], 1):
        if head := re.match(r"\s*- (?:func|name):\s*['\"]?(\w+?)_?[.(]", line):
            is_in = head[1] == operator
        if is_in:
            yield number, line


def _kernels_of(file: Path, operator: str) -> list[str]:
    """Yield the kernels that ``dispatch:`` names, or the operator's name if there are none."""
    names, is_dispatch = [], False
    for _, line in _entry_lines(file, operator):
        indent = len(line) - len(line.lstrip())
        if is_dispatch and indent > 2 and (found := _PAIR.fullmatch(line)):
            names.append(found[2].rpartition("::")[2])
        is_dispatch = line.strip() == "dispatch:" or (is_dispatch and indent > 2)
    return list(dict.fromkeys(names)) or [operator]


def _definitions(native: Path, kernel: str) -> Iterator[str]:
    """Yield the places where a kernel is defined, as far as the text of the sources shows."""
    defined = re.compile(rf"^(?:TORCH_IMPL_FUNC\(\s*{kernel}\s*\)|[\w:<>,&*\s]*?\b{kernel})\s*\([^;{{]*\{{", re.M)
    for path in sorted([*native.rglob("*.cpp"), *native.rglob("*.cu")]):
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in defined.finditer(text):
            start = match.start() + len(match[0]) - len(match[0].lstrip())
            line = text.count("\n", 0, start) + 1
            yield f"{path}:{line}: {text.splitlines()[line - 1].rstrip(' {')}"
