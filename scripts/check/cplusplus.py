"""What the C++ sources of a folder define, as far as their text tells.

The sources are parsed by tree-sitter, which needs no headers and forgives what it does not understand, so this is known
before a compiler has read a single header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

SUFFIXES = (".cpp", ".h", ".hpp", ".cu", ".cuh")

# Macros and words before a declaration, which the grammar would take for its type.
_DECORATION = re.compile(r"\b(TORCH_\w*API|C10_\w*(?:API|EXPORT|INLINE|UNUSED|DEVICE)\w*|__(?:host|device|global)__)\b")

_PARSER = Parser(Language(tree_sitter_cpp.language()))


@dataclass(frozen=True)
class Definition:
    """A function with a body.

    Args:
        file: where it is.
        line: counted from 1.
        namespace: such as ``at::native``.
        name: its own; of ``TORCH_IMPL_FUNC(name)`` and the like, what stands in the parentheses.
        macro: ``TORCH_IMPL_FUNC`` and the like; empty for a plain function.
        returns: the type, as written.
        parameters: their types, as written.
        is_local: whether no other file can call it: static, in an anonymous namespace, or a template.
    """

    file: Path
    line: int
    namespace: str
    name: str
    macro: str
    returns: str
    parameters: tuple[str, ...]
    is_local: bool

    def __str__(self) -> str:
        parameters = f"({', '.join(self.parameters)})"
        return f"{self.macro}({self.name}){parameters}" if self.macro else f"{self.returns} {self.name}{parameters}"


@dataclass(frozen=True)
class StubMacro:
    """A use of ``DECLARE_DISPATCH``, ``DEFINE_DISPATCH`` or a ``REGISTER_DISPATCH`` (ATen/native/DispatchStub.h).

    Args:
        file: where it is.
        line: counted from 1.
        macro: its name.
        stub: the dispatch stub that it is about.
    """

    file: Path
    line: int
    macro: str
    stub: str


@dataclass
class Source:
    """One file."""

    path: Path
    text: str
    definitions: list[Definition] = field(default_factory=list)

    @cached_property
    def code(self) -> str:
        """The text without comments, line breaks kept."""
        pattern = r'//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*")'
        return re.sub(pattern, lambda m: m[1] or "\n" * m[0].count("\n"), self.text, flags=re.S)

    @cached_property
    def words(self) -> set[str]:
        """Every identifier of it, comments left out."""
        return set(re.findall(r"[A-Za-z_]\w*", self.code))

    @cached_property
    def stub_macros(self) -> list[StubMacro]:
        """Where it declares, defines or fills dispatch stubs."""
        uses = re.finditer(r"\b((?:\w+_)?DISPATCH)\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)", self.code)
        return [StubMacro(self.path, _line_of(self.code, use), use[1], _stub_of(use[1], use[2])) for use in uses]

    @property
    def pastes_names(self) -> bool:
        """Whether a macro of it makes names of parts, so that the text does not tell what is defined."""
        return re.search(r"^\s*#\s*define\b[^\n]*(?:\\\n[^\n]*)*##", self.text, re.M) is not None


def read_sources(folder: Path) -> list[Source]:
    """The C++ of ``folder``, its tests left out."""
    files = [path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES]
    own = [path for path in files if path.relative_to(folder).parts[0] != "tests"]
    return [read_text(path, path.read_text(errors="replace")) for path in own]


def read_text(path: Path, text: str) -> Source:
    """What ``text``, which is or shall be the file ``path``, defines."""
    source = Source(path, text)
    tree = _PARSER.parse(_DECORATION.sub(lambda word: " " * len(word[0]), text).encode())
    for node, namespace, is_local in _outside_functions(tree.root_node, "", False):
        definition = _definition(path, node, namespace, is_local)
        if definition:
            source.definitions.append(definition)
    return source


def _line_of(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start(1)) + 1


def _stub_of(macro: str, arguments: str) -> str:
    # The one that declares names the type first, which may hold commas.
    parts = [part.strip() for part in arguments.split(",")]
    return parts[-1] if macro == "DECLARE_DISPATCH" else parts[0]


def _outside_functions(node: Node, namespace: str, is_local: bool) -> Iterator[tuple[Node, str, bool]]:
    """The definitions at namespace level, each with its namespace and whether it is hidden there."""
    if node.type == "namespace_definition":
        name = node.child_by_field_name("name")
        is_local = is_local or name is None
        namespace = "::".join(filter(None, (namespace, _text(name))))
    for child in node.named_children:
        if child.type == "function_definition":
            yield child, namespace, is_local
        elif child.type not in ("class_specifier", "struct_specifier", "declaration"):
            yield from _outside_functions(child, namespace, is_local or child.type == "template_declaration")


def _definition(path: Path, node: Node, namespace: str, is_local: bool) -> Definition | None:
    declarator = declared = node.child_by_field_name("declarator")
    mark = ""
    while declarator is not None and declarator.type in ("reference_declarator", "pointer_declarator"):
        mark += "&" if declarator.type == "reference_declarator" else "*"
        declarator = declarator.named_children[-1]
    if declared is None or declarator is None or declarator.type != "function_declarator":
        return None
    inner, listed = declarator.child_by_field_name("declarator"), declarator.child_by_field_name("parameters")
    if inner is None or listed is None:
        return None
    line = node.start_point[0] + 1
    if inner.type == "function_declarator":  # TORCH_IMPL_FUNC(name)(parameters)
        macro = _text(inner.child_by_field_name("declarator"))
        name = _text(inner.child_by_field_name("parameters"))[1:-1].strip()
        return Definition(path, line, namespace, name, macro, "", _parameters(listed), is_local)
    scope, _, name = _text(inner).rpartition("::")
    before = [child for child in node.children if child.start_byte < declared.start_byte]
    is_static = any(child.type == "storage_class_specifier" and _text(child) == "static" for child in before)
    # A macro before the type, such as C10_EXPORT, is taken for the type, and the type for an error behind it.
    qualifier = "const " if any(_text(child) == "const" for child in before) else ""
    types = [
        _text(c)
        for c in before
        if c.type.endswith(("type", "identifier", "specifier", "ERROR")) and c.type != "storage_class_specifier"
    ]
    returns = qualifier + types[-1] if types else ""
    if (trailing := next((c for c in declarator.named_children if c.type == "trailing_return_type"), None)) is not None:
        returns = _text(trailing).removeprefix("->").strip()
    namespace = "::".join(filter(None, (namespace, scope)))
    return Definition(path, line, namespace, name, "", returns + mark, _parameters(listed), is_local or is_static)


def _parameters(listed: Node) -> tuple[str, ...]:
    """The types of a parameter list."""
    found = []
    for child in listed.named_children:
        if child.type in ("parameter_declaration", "optional_parameter_declaration"):
            default = child.child_by_field_name("default_value")
            text = child.text or b""
            if default is not None:
                text = text[: default.start_byte - child.start_byte].rstrip().removesuffix(b"=")
            name = _name_of(child.child_by_field_name("declarator"))
            if name is not None:
                start, end = name.start_byte - child.start_byte, name.end_byte - child.start_byte
                text = text[:start] + text[end:]
            found.append(" ".join(text.decode(errors="replace").split()))
        elif child.type != "comment":
            found.append(_text(child))
    return () if found == ["void"] else tuple(found)


def _name_of(declarator: Node | None) -> Node | None:
    """The identifier within a parameter's declarator."""
    while declarator is not None and declarator.type != "identifier":
        declarator = next((child for child in reversed(declarator.named_children)), None)
    return declarator


def _text(node: Node | None) -> str:
    return (node.text or b"").decode(errors="replace") if node is not None else ""
