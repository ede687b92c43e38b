"""Whether a header only gained declarations, so that what was compiled with the old text is right with the new one."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*|[{};()]|[^"{};()/#]+|.', re.S | re.M
)
_NAMESPACE = re.compile(r"(inline )?namespace\b|extern \"C\"$")
_CLASS = re.compile(r"(template ?<.*> ?)?(class|struct)\b[^()=]*$")
_ACCESS = re.compile(r"\b((?:public|protected|private) ?:)(?!:)")
# Classes of autograd have a head for Windows and one for others, but one end.
_WINDOWS = re.compile(r"^#ifdef _WIN32\n(?:(?!#).*\n)*#else\n((?:(?!#).*\n)*)#endif\n", re.M)
_LAYOUT = re.compile(r"\bvirtual\b|\boverride\b|= 0;$")


def only_gains(old: str, new: str) -> bool:
    """Whether ``new`` is ``old`` with declarations added that change no layout, number or macro of what was there.

    That is: includes, functions, classes and variables of a namespace, and functions of a class that are not virtual.
    """
    before = list(entries(old))
    classes = {f"{scope} {text[:-2]}".strip() for scope, text in before if text.endswith(" {")}
    at = 0
    for entry in entries(new):
        if at < len(before) and entry == before[at]:
            at += 1
        elif not is_harmless(*entry, classes):
            return False
    return at == len(before)


def is_harmless(scope: str, text: str, classes: set[str]) -> bool:
    """Whether an entry may be added: ``text`` in the class ``scope``, which is new unless it is one of ``classes``."""
    if text.startswith("#"):
        return text.startswith("#include")
    if not scope or scope not in classes:
        return True
    is_function = "(" in text and ("=" not in text.partition("(")[0] or "operator" in text)
    return text.startswith("using ") or (is_function and not _LAYOUT.search(text))


def entries(text: str) -> Iterator[tuple[str, str]]:
    """The entries of a header in their order: preprocessor lines, and what namespaces and classes hold.

    Each comes with the head of the class that it is in, and in one line; comments and namespaces are left out.
    """
    scopes: list[str] = []
    current, braces, parentheses = "", 0, 0
    for token in (match[0] for match in _TOKEN.finditer(_WINDOWS.sub(r"\1", text))):
        if token.startswith(("//", "/*")):
            continue
        scope = next(filter(None, reversed(scopes)), "")
        if token.lstrip().startswith("#"):
            yield scope, " ".join(token.split())
            continue
        if token == "{" and not braces and not parentheses:
            *access, head = (part.strip() for part in _ACCESS.split(" ".join(current.split())))
            if _NAMESPACE.match(head) or _CLASS.match(head):
                is_class = not _NAMESPACE.match(head)
                if is_class:
                    yield from ((scope, part) for part in access if part)
                    yield scope, f"{head} {{"
                scopes.append(f"{scope} {head}".strip() if is_class else "")
                current = ""
                continue
        if token == "}" and not braces and scopes:
            if current.strip():
                yield scope, " ".join(current.split())
            # What follows a class, an object's name perhaps, is an entry of its own.
            scopes.pop()
            current = ""
            continue
        current += token
        braces += (token == "{") - (token == "}")
        parentheses += (token == "(") - (token == ")")
        if not braces and not parentheses and (token == ";" or (token == "}" and "(" in current)):
            for part in _ACCESS.split(" ".join(current.split())):
                if part.strip() not in ("", ";"):
                    yield scope, part.strip()
            current = ""
    if current.strip():
        yield "", " ".join(current.split())
