"""Generated C++ as a set of definitions, to compare it wherever in the sources each of them is."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*|[{};()]|[^"{};()/#]+|.', re.S | re.M
)
_SCOPE = re.compile(r"(inline )?namespace\b|TORCH_LIBRARY")
# What ends with a semicolon behind its closing brace.
_CLASS_OR_VALUE = re.compile(r"(struct|class|static|union|enum|const|using|constexpr)?\b[^()]*$")

_TAGS = re.compile(r"const std::vector<at::Tag> (tags_\d+) = (\{.*\});")
_ENTRY = re.compile(r'\{"\w+", [^{}]*\}')
_PARTS = re.compile(r"static PyTypeObject \w+; addClass<\w+>\([^;]*\);|addReturnType\(return_types_module, [^;]*\);")


def definitions(text: str) -> set[str]:
    """The definitions and registrations of a generated source, without comments, includes, layout and namespaces.

    What shards divide (tables of methods, the registration of autograd nodes) is taken apart.
    """
    found = set(_statements(text))
    tags = {match[1]: match[2] for statement in found if (match := _TAGS.search(statement))}
    apart: set[str] = set()
    for statement in (text for text in found if not _TAGS.search(text)):
        entries = (_ENTRY if "PyMethodDef " in statement else _PARTS).findall(statement)
        # The numbers of tags depend on what else there is.
        numbered = re.sub(r"\btags_\d+(?=\);$)", lambda match: tags.get(match[0], match[0]), statement)
        apart.update(entries or [numbered])
    return apart


def _statements(text: str) -> Iterator[str]:
    """Statements outside functions, each in one line; those of a TORCH_LIBRARY block begin with its head."""
    scopes: list[str] = []
    current, braces, parentheses = "", 0, 0
    for token in (match[0] for match in _TOKEN.finditer(text)):
        if token.startswith(("//", "/*")) or token.lstrip().startswith("#"):
            continue
        if token == "{" and not braces and not parentheses and _SCOPE.match(current.lstrip()):
            # A graft's schemas are a fragment of the library that the base defines.
            head = " ".join(current.split()).replace("_FRAGMENT", "")
            scopes.append(head if head.startswith("TORCH") else "")
            current = ""
            continue
        if token == "}" and not braces:
            scopes.pop()
            current = ""
            continue
        current += token
        braces += (token == "{") - (token == "}")
        parentheses += (token == "(") - (token == ")")
        if braces or parentheses:
            continue
        if token == ";" or (token == "}" and not _CLASS_OR_VALUE.match(current.split("{")[0].strip())):
            statement = " ".join(current.split())
            if statement != ";":
                yield f"{next(filter(None, reversed(scopes)), '')} {statement}".strip()
            current = ""
