"""Find what the C++ sources of a folder define, from their text.

tree-sitter parses the sources. It needs no headers and skips what it does not understand, so this takes much less time
than a compiler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser, Query, QueryCursor

from ..inputs.native import CUDA_SUFFIXES
from .files import CPLUSPLUS, own_files

# Macros and keywords before a declaration, which the grammar would parse as its type.
_DECORATION = re.compile(r"\b(TORCH_\w*API|C10_\w*(?:API|EXPORT|INLINE|UNUSED|DEVICE)\w*|__(?:host|device|global)__)\b")

_LANGUAGE = Language(tree_sitter_cpp.language())
_PARSER = Parser(_LANGUAGE)
_COMMENTS_AND_MACROS = Query(_LANGUAGE, "(comment) @comment (preproc_function_def value: (_) @macro)")


@dataclass(frozen=True)
class Definition:
    """A function definition or declaration.

    Args:
        file: its file.
        line: counted from 1.
        namespace: for example ``at::native``.
        name: its name; for ``TORCH_IMPL_FUNC(name)`` etc. the text in parentheses.
        macro: ``TORCH_IMPL_FUNC`` etc.; empty for a plain function.
        returns: the return type, as written.
        parameters: the parameter types, as written.
        defaults: the indices of parameters with a default.
        is_local: whether other files cannot call it: it is static, a template, or in an anonymous namespace.
    """

    file: Path
    line: int
    namespace: str
    name: str
    macro: str
    returns: str
    parameters: tuple[str, ...]
    defaults: tuple[int, ...]
    is_local: bool

    def __str__(self) -> str:
        parameters = f"({', '.join(self.parameters)})"
        return f"{self.macro}({self.name}){parameters}" if self.macro else f"{self.returns} {self.name}{parameters}"


@dataclass(frozen=True)
class StubMacro:
    """A use of ``DECLARE_DISPATCH``, ``DEFINE_DISPATCH`` or a ``REGISTER_DISPATCH`` (ATen/native/DispatchStub.h).

    Args:
        file: its file.
        line: counted from 1.
        macro: the name of the macro.
        stub: the dispatch stub.
    """

    file: Path
    line: int
    macro: str
    stub: str


@dataclass
class Source:
    """One source file.

    Args:
        path: the file.
        name: its path in the folder.
        text: its text.
        code: its text without comments, with line breaks.
        pastes_names: whether a macro pastes names together, so that definitions can be missed.
        definitions: function definitions.
        declarations: function declarations.
    """

    path: Path
    name: Path
    text: str
    code: str
    pastes_names: bool
    definitions: list[Definition] = field(default_factory=list)
    declarations: list[Definition] = field(default_factory=list)

    @cached_property
    def words(self) -> set[str]:
        """Every identifier outside of comments."""
        return set(re.findall(r"[A-Za-z_]\w*", self.code))

    @cached_property
    def stub_macros(self) -> list[StubMacro]:
        """The uses of macros of dispatch stubs."""
        uses = re.finditer(r"\b((?:\w+_)?DISPATCH)\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)", self.code)
        return [StubMacro(self.path, _line_of(self.code, use), use[1], _stub_of(use[1], use[2])) for use in uses]

    @property
    def folder(self) -> Path:
        """The native folder."""
        return self.path.parents[len(self.name.parts) - 1]

    @property
    def is_cuda(self) -> bool:
        """Whether a CPU wheel is built without it."""
        return self.name.parts[0] == "cuda" or self.name.suffix in CUDA_SUFFIXES


def read_sources(folders: Iterable[Path]) -> list[Source]:
    """Return the C++ sources of ``folders``, without tests. A file that several folders share is read once."""
    names = [(folder, name) for folder in folders for name in own_files(folder) if name.suffix in CPLUSPLUS]
    texts = {folder / name: (folder / name).read_text(encoding="utf-8", errors="replace") for folder, name in names}
    once = {(name, texts[folder / name]): folder / name for folder, name in reversed(names)}
    return [read_text(path, text, name) for (name, text), path in sorted(once.items(), key=lambda item: item[1])]


def read_text(path: Path, text: str, name: Path | None = None) -> Source:
    """Parse ``text``, the present or future content of the file ``path``."""
    root = parse(text)
    found = QueryCursor(_COMMENTS_AND_MACROS).captures(root)
    is_pasting = any(b"##" in (node.text or b"") for node in found.get("macro", ()))
    source = Source(path, name or path, text, _without(found.get("comment", ()), text.encode()), is_pasting)
    for node, namespace, is_local in _outside_functions(root, "", False):
        definition = _definition(path, node, namespace, is_local)
        if definition:
            (source.definitions if node.type == "function_definition" else source.declarations).append(definition)
    return source


def parse(text: str) -> Node:
    """Return the syntax tree of ``text``."""
    return _PARSER.parse(_DECORATION.sub(lambda word: " " * len(word[0]), text).encode()).root_node


def identifiers(node: Node) -> Iterator[Node]:
    """Yield the names within ``node``, in order."""
    if node.type.endswith("identifier") and not node.named_children:
        yield node
    for child in node.named_children:
        yield from identifiers(child)


def text_of(node: Node | None) -> str:
    """Return the text of a node."""
    return (node.text or b"").decode(errors="replace") if node is not None else ""


def _without(nodes: Iterable[Node], text: bytes) -> str:
    """Return ``text`` with ``nodes`` replaced by blanks."""
    code = bytearray(text)
    for node in nodes:
        code[node.start_byte : node.end_byte] = re.sub(rb"[^\n]", b" ", code[node.start_byte : node.end_byte])
    return code.decode()


def _line_of(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start(1)) + 1


def _stub_of(macro: str, arguments: str) -> str:
    # The declaring macro has the type first, which may contain commas.
    parts = [part.strip() for part in arguments.split(",")]
    return parts[-1] if macro == "DECLARE_DISPATCH" else parts[0]


def _outside_functions(node: Node, namespace: str, is_local: bool) -> Iterator[tuple[Node, str, bool]]:
    """Yield the functions at namespace level, each with its namespace and whether that hides it."""
    if node.type == "namespace_definition":
        name = node.child_by_field_name("name")
        is_local = is_local or name is None
        namespace = "::".join(filter(None, (namespace, text_of(name))))
    for child in node.named_children:
        if child.type in ("function_definition", "declaration"):
            yield child, namespace, is_local
        elif child.type not in ("class_specifier", "struct_specifier"):
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
        macro = text_of(inner.child_by_field_name("declarator"))
        name = text_of(inner.child_by_field_name("parameters"))[1:-1].strip()
        return Definition(path, line, namespace, name, macro, "", *_parameters(listed), is_local)
    scope, _, name = text_of(inner).rpartition("::")
    before = [child for child in node.children if child.start_byte < declared.start_byte]
    is_static = any(child.type == "storage_class_specifier" and text_of(child) == "static" for child in before)
    # A macro before the type, for example C10_EXPORT, is parsed as the type, and the type as an error after it.
    qualifier = "const " if any(text_of(child) == "const" for child in before) else ""
    types = [
        text_of(c)
        for c in before
        if c.type.endswith(("type", "identifier", "specifier", "ERROR")) and c.type != "storage_class_specifier"
    ]
    returns = qualifier + types[-1] if types else ""
    if (trailing := next((c for c in declarator.named_children if c.type == "trailing_return_type"), None)) is not None:
        returns = text_of(trailing).removeprefix("->").strip()
    namespace = "::".join(filter(None, (namespace, scope)))
    return Definition(path, line, namespace, name, "", returns + mark, *_parameters(listed), is_local or is_static)


def _parameters(listed: Node) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the types in a parameter list, and the indices of those with a default."""
    found: list[str] = []
    defaults = []
    for child in listed.named_children:
        if child.type in ("parameter_declaration", "optional_parameter_declaration"):
            default = child.child_by_field_name("default_value")
            text = child.text or b""
            if default is not None:
                defaults.append(len(found))
                text = text[: default.start_byte - child.start_byte].rstrip().removesuffix(b"=")
            name = _name_of(child.child_by_field_name("declarator"))
            if name is not None:
                start, end = name.start_byte - child.start_byte, name.end_byte - child.start_byte
                text = text[:start] + text[end:]
            found.append(" ".join(text.decode(errors="replace").split()))
        elif child.type != "comment":
            found.append(text_of(child))
    return () if found == ["void"] else tuple(found), tuple(defaults)


def _name_of(declarator: Node | None) -> Node | None:
    """Return the identifier in a parameter's declarator."""
    while declarator is not None and declarator.type != "identifier":
        declarator = next((child for child in reversed(declarator.named_children)), None)
    return declarator
