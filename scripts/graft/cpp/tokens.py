"""Split C++ into tokens, blank its comments, and find the ``#if`` around its parts. No header is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

_COMMENT = r"//(?:\\\n|[^\n])*|/\*.*?\*/"
_NUMBER = r"\.?\d(?:[eEpP][+-]|'?[\w.])*"
_QUOTED = (
    r'(?:u8|[uUL])?R"(?:\(.*?\)"|-\(.*?\)-"|[A-Za-z_]{1,16}\(.*?\)[A-Za-z_]{1,16}")'
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
)
_TOKEN = re.compile(
    r"^[^\S\n]*\#(?:\\\n|/\*.*?\*/|[^\n])*"  # a directive
    rf"|[^\S\n]+|\n|\\\n|{_COMMENT}|{_QUOTED}|[A-Za-z_]\w*|{_NUMBER}|::|->|<=>|[<>=!]=|.",
    re.S | re.M,
)
# Comments, and where none begins.
_COMMENT_OR_NOT = re.compile(rf"(?P<comment>{_COMMENT})|{_QUOTED}|(?<!\w){_NUMBER}", re.S)
_BRANCH = re.compile(r"[^\S\n]*#[^\S\n]*(if|el|endif)")
# Spaces between tokens that are not written.
_NO_SPACE = re.compile(r" (?=[^\w{])|(?<=[(<\[:!~.]) ")


def tokens(text: str) -> tuple[list[str], list[int]]:
    """Return the tokens of a text without spaces and comments, and where each ends. A directive is one token."""
    parts = _TOKEN.findall(text)
    ends = accumulate(map(len, parts))
    kept = [(part, end) for part, end in zip(parts, ends, strict=True) if not _is_space(part)]
    return [part for part, _ in kept], [end for _, end in kept]


def words(every: Iterable[str]) -> tuple[str, ...]:
    """Return tokens, with the directives among them split into tokens, too."""
    split = (["#", *tokens(_spliced(each).lstrip()[1:])[0]] if is_directive(each) else [each] for each in every)
    return tuple(word for words in split for word in words)


def joined(every: Iterable[str]) -> str:
    """Return tokens as one line in the usual spelling: ``const std::vector<Tensor>&``."""
    return _NO_SPACE.sub("", " ".join(every))


def is_directive(token: str) -> bool:
    """Return whether a token is a directive of the preprocessor."""
    return token.lstrip().startswith("#")


def _is_space(part: str) -> bool:
    return part.isspace() or part == "\\\n" or part.startswith(("//", "/*"))


def _spliced(text: str) -> str:
    return text.replace("\\\n", " ")


def blank(text: str) -> str:
    """Return a text with all but its line breaks replaced by blanks."""
    return re.sub(r"[^\n]", " ", text)


def without_comments(text: str) -> str:
    """Return C++ with blanks in place of comments, so that everything else stays where it is."""
    return _COMMENT_OR_NOT.sub(lambda found: blank(found[0]) if found["comment"] else found[0], text)


def branch(text: str) -> str:
    """Return the kind of a conditional directive, ``if``, ``el`` or ``endif``; empty for other text."""
    found = _BRANCH.match(text)
    return found[1] if found else ""


def conditions(parts: Sequence[str]) -> list[tuple[tuple[int, ...], ...]]:
    """Return the conditions around each part, and at the end: for each open ``#if``, its directives so far.

    Args:
        parts: tokens or lines.

    Returns:
        For each part, the indices of directives, from the outermost ``#if``. A directive is below those before it.
    """
    found: list[tuple[tuple[int, ...], ...]] = []
    around: tuple[tuple[int, ...], ...] = ()
    for i, part in enumerate(parts):
        found.append(around)
        if "#" in part and (kind := branch(part)):
            outer, inner = around[:-1], around[-1:]
            grown = (*inner[0], i) if inner else ()
            around = (*around, (i,)) if kind == "if" else (*outer, grown) if kind == "el" and inner else outer
    return [*found, around]
