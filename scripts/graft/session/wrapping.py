"""Add ``namespace at::native``, and the includes that new-op writes, to C++ of ``load_inline`` that lacks it.

In a build, each line keeps its number: compilers, debuggers and the check name it, and show its text. So the namespace
begins in the line of the first code, and a compiler flag includes the headers. A saved folder has both as new-op
writes them, in lines of their own.
"""

from __future__ import annotations

import re

from ..core.errors import UsageError
from ..cpp.includes import INCLUDE
from ..cpp.tokens import conditions, is_directive, tokens, without_comments

# Inserted at the start of the first code.
OPENING = "namespace at::native { "

_NAMESPACE = re.compile(r"\bnamespace\s+at\b")


def lacks_namespace(text: str) -> bool:
    """Return whether a source needs the namespace."""
    return not _NAMESPACE.search(without_comments(text))


def in_lines(name: str, text: str) -> str:
    """Return a source whose namespace begins in the line of its first code."""
    if not lacks_namespace(text):
        return ended(text)
    head, code = _divided(name, text)
    return f"{head}{OPENING}{ended(code)}}} // namespace at::native\n"


def as_new_op(name: str, text: str, includes: str) -> str:
    """Return a source with ``includes`` and the namespace in lines of their own."""
    if not lacks_namespace(text):
        return ended(text)
    head, code = _divided(name, text)
    parts = (includes, head, "namespace at::native {", code, "} // namespace at::native")
    return "\n\n".join(part.strip("\n").rstrip() for part in parts if part.strip()) + "\n"


def ended(text: str) -> str:
    """Add a line break at the end of a text, unless it has one."""
    return text if text.endswith("\n") else f"{text}\n"


def _divided(name: str, text: str) -> tuple[str, str]:
    """Split a source into the text before the namespace and the code in it. Raise UsageError if that is impossible."""
    parts = zip(*tokens(text), strict=True)
    end = next((end - len(token) for token, end in parts if not is_directive(token)), len(text))
    head, code = text[:end], text[end:]
    if conditions(without_comments(head).splitlines())[-1]:
        what, todo = "its first code depends on an #if", "write `namespace at::native {` around the kernels"
        raise UsageError(f"{name}:{head.count(chr(10)) + 1}: {what}", todo=todo)
    lines = INCLUDE.finditer(without_comments(code))
    if late := next((each for each in lines if "<" in each[0].partition(each[1])[0]), None):
        line = head.count("\n") + code.count("\n", 0, late.start()) + 1
        todo = "move it to the top, or write `namespace at::native {` below it"
        raise UsageError(f"{name}:{line}: {late[0].strip()} is behind code", todo=todo)
    return head, code
