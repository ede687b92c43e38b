"""Generated C++ as a set of definitions, which can be compared regardless of the file they are in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .declarations import Declarations

_TAGS = re.compile(r"const std::vector<at::Tag> (tags_\d+) = (\{.*\});")
_ENTRY = re.compile(r'\{"\w+", [^{}]*\}')
_PARTS = re.compile(r"static PyTypeObject \w+; addClass<\w+>\([^;]*\);|addReturnType\(return_types_module, [^;]*\);")


def definitions(text: str) -> set[str]:
    """The definitions and registrations of a generated source, without comments, includes, layout and namespaces.

    Content that is divided among shards (tables of methods, the registration of autograd nodes) is split up.
    """
    found = set(_statements(text))
    tags = {match[1]: match[2] for statement in found if (match := _TAGS.search(statement))}
    apart: set[str] = set()
    for statement in (text for text in found if not _TAGS.search(text)):
        entries = (_ENTRY if "PyMethodDef " in statement else _PARTS).findall(statement)
        # The numbers of tags depend on the other tags.
        numbered = re.sub(r"\btags_\d+(?=\);$)", lambda match: tags.get(match[0], match[0]), statement)
        apart.update(entries or [numbered])
    return apart


def _statements(text: str) -> Iterator[str]:
    """Yield statements outside of functions, each in one line; those of a TORCH_LIBRARY block begin with its head."""
    source = Declarations(text, members=False)
    for each in source:
        node = each.node
        if node.type.startswith("preproc") or node.type == "#endif":
            continue
        body = node.child_by_field_name("body")
        if body is None or not each.text.startswith("TORCH_LIBRARY"):
            yield each.text
            continue
        # A graft registers schemas in a fragment of the library that the base defines.
        head = source.text(node, node.start_byte, body.start_byte).replace("_FRAGMENT", "")
        for statement in body.named_children:
            if statement.type != "comment" and statement.text != b";":
                yield f"{head} {source.text(statement, statement.start_byte, statement.end_byte)}"
