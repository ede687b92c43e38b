"""Split text with brackets and quotes: schemas, C++ types, Python signatures. Uses only the standard library."""

from __future__ import annotations

from collections.abc import Iterator

_OPENING = {"(": ")", "[": "]", "{": "}", "<": ">"}


def split(text: str, separator: str = ",") -> list[str]:
    """Split ``text`` at the separators outside of brackets and quotes."""
    parts, start = [], 0
    for position, depth in _depths(text):
        if not depth and text.startswith(separator, position):
            parts.append(text[start:position].strip())
            start = position + len(separator)
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


def closing(text: str, opening: int) -> int | None:
    """Return the position of the bracket that closes the one at ``opening``; None if there is none."""
    for position, depth in _depths(text[opening:]):
        if position and not depth:
            return opening + position
    return None


def _depths(text: str) -> Iterator[tuple[int, int]]:
    """Yield each position outside of quotes, with its bracket depth. A pair's own brackets count as outside of it."""
    closing: list[str] = []
    quote, escaped = "", False
    for position, letter in enumerate(text):
        if quote:
            quote, escaped = ("" if letter == quote and not escaped else quote), letter == "\\" and not escaped
            continue
        if letter in "'\"":
            quote, escaped = letter, False
            continue
        if closing and letter == closing[-1]:
            closing.pop()
        yield position, len(closing)
        if letter in _OPENING:
            closing.append(_OPENING[letter])
