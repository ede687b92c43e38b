"""Find the functions that the C++ sources of a folder define, by parsing their text.

tree-sitter parses the sources. It needs no headers and skips what it does not understand, so this takes much less time
than a compiler.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser, Query, QueryCursor

from ..core.keys import COMPILED
from .includes import PLACE
from .native import CPLUSPLUS, INCLUDE, NativeFolders

# Macros and keywords before a declaration, which the grammar would parse as its type.
_DECORATION = re.compile(r"\b(TORCH_\w*API|C10_\w*(?:API|EXPORT|INLINE|UNUSED|DEVICE)\w*|__(?:host|device|global)__)\b")

_LANGUAGE = Language(tree_sitter_cpp.language())
_PARSER = Parser(_LANGUAGE)
_COMMENTS_AND_MACROS = Query(_LANGUAGE, "(comment) @comment (preproc_function_def value: (_) @macro)")

# The keywords of the grammar that cannot be names.
_KEYWORDS = {
    _LANGUAGE.node_kind_for_id(kind)
    for kind in range(_LANGUAGE.node_kind_count)
    if _LANGUAGE.node_kind_is_visible(kind) and not _LANGUAGE.node_kind_is_named(kind)
} - {"final", "override", "restrict", "defined", "noreturn", "offsetof"}

# Names of types that are aliases, with the types that they stand for. To the linker both are the same.
_ALIASES = {
    "IntArrayRef": "ArrayRef<int64_t>",
    "SymIntArrayRef": "ArrayRef<SymInt>",
    "TensorList": "ArrayRef<Tensor>",
    "OptionalIntArrayRef": "OptionalArrayRef<int64_t>",
    "OptionalSymIntArrayRef": "OptionalArrayRef<SymInt>",
    "DimnameList": "ArrayRef<Dimname>",
    "ITensorListRef": "IListRef<Tensor>",
    "long": "int64_t",
    "variable_list": "vector<Tensor>",
    "Variable": "Tensor",
    "SparseTensor": "Tensor",
    "SparseCsrTensor": "Tensor",
}


def canonical(cpp_type: str) -> str:
    """Return a type in one spelling: without namespaces and aliases, and with ``const`` in front if it matters."""
    text = re.sub(r"\[\[.*?\]\]|\bC10_\w+|\b(?:at|c10|std|torch|native)\s*::", " ", cpp_type)
    text = re.sub(r"\b(?:class|struct|typename|inline|TORCH_API)\b|::", " ", text)
    words = [_ALIASES.get(word, word) for word in re.findall(r"\w+|\.{3}|\S", text)]
    named = " ".join(word for word in words if word != "const")
    named = re.sub(r"\s*([^\w\s])\s*", r"\1", named)
    is_by_value = not named.endswith(("&", "*"))
    return named if "const" not in words or is_by_value else f"const {named}"


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
        is_local: whether other files cannot call it: it is static, a template, or in an anonymous namespace.
        is_inline: whether several files may define it.
        defaults: the positions of the parameters that have a default.
        is_template: whether it is a template.
    """

    file: Path
    line: int
    namespace: str
    name: str
    macro: str
    returns: str
    parameters: tuple[str, ...]
    is_local: bool
    is_inline: bool = False
    defaults: tuple[int, ...] = ()
    is_template: bool = False

    def __str__(self) -> str:
        parameters = f"({', '.join(self.parameters)})"
        return f"{self.macro}({self.name}){parameters}" if self.macro else f"{self.returns} {self.name}{parameters}"

    @property
    def key(self) -> tuple[str, ...]:
        """The key that distinguishes overloads: the name, and the types of the parameters in one spelling."""
        return (self.name, *map(canonical, self.parameters))

    def has_types(self, returns: str, parameters: Iterable[str]) -> bool:
        """Return whether it has these types. ``auto`` as its return type matches any."""
        is_returned = not self.returns or "auto" in self.returns or canonical(self.returns) == canonical(returns)
        return is_returned and [*map(canonical, self.parameters)] == [*map(canonical, parameters)]


@dataclass
class Source:
    """One source file.

    Args:
        path: the user's file.
        name: its path in the folder.
        text: its text.
        code: its text with blanks in place of comments; line breaks remain.
        pastes_names: whether a macro pastes names together, so that definitions can be missed.
        definitions: function definitions.
        declarations: function declarations.
        is_vectorized: whether it is compiled once for each CPU capability.
    """

    path: Path
    name: Path
    text: str
    code: str
    pastes_names: bool
    definitions: list[Definition] = field(default_factory=list)
    declarations: list[Definition] = field(default_factory=list)
    is_vectorized: bool = False

    @property
    def is_compiled(self) -> bool:
        """Whether it is compiled itself: it is not a header."""
        return self.name.suffix in COMPILED

    @property
    def opens_namespaces(self) -> bool:
        """Whether a macro may open a namespace, so that the namespace of a definition may be wrong."""
        return re.search(r"^[ \t]*#[ \t]*define\b.*\bnamespace\b", self.code, re.M) is not None

    @cached_property
    def words(self) -> set[str]:
        """Every identifier outside of comments."""
        return set(re.findall(r"[A-Za-z_]\w*", self.code))

    def is_conditional(self, line: int) -> bool:
        """Return whether an ``#if`` surrounds a line."""
        before = "".join(self.code.splitlines(keepends=True)[: line - 1])
        conditions = re.findall(r"^[ \t]*#[ \t]*(if|endif)", before, re.M)
        return conditions.count("if") > conditions.count("endif")

    def is_explained(self, line: int, word: str) -> bool:
        """Return whether the comment above ``line`` names ``word``."""
        above = takewhile(lambda text: text.lstrip().startswith("//"), reversed(self.text.splitlines()[: line - 1]))
        return any(word in text for text in above)

    @property
    def stub_macros(self) -> Iterator[tuple[int, str, str]]:
        """The line, the macro and the stub of each use of the macros of ATen/native/DispatchStub.h."""
        uses = re.finditer(r"\b((?:\w+_)?DISPATCH)\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)", self.code)
        for use in uses:
            # The declaring macro has the type first, which may contain commas.
            stub = use[2].split(",")[-1 if use[1] == "DECLARE_DISPATCH" else 0].strip()
            yield self.code.count("\n", 0, use.start(1)) + 1, use[1], stub

    @property
    def stock_calls(self) -> Iterator[tuple[int, str]]:
        """The line and the name of each use of namespace ``at::native::stock``."""
        if re.search(r"\bnamespace\s+(?:\w+\s*::\s*)*stock\b", self.code):
            return  # the source has its own namespace ``stock``
        for use in re.finditer(r"(?<![\w:])(?:(?:::)?(?:at::)?native::)?stock::(\w+)", self.code):
            yield self.code.count("\n", 0, use.start()) + 1, use[1]

    @property
    def defines(self) -> dict[str, int]:
        """The lines of functions that it defines for other files, and of stubs that it has kernels for, by name."""
        functions = {re.sub(r"\s*,\s*", "_", each.name): each.line for each in self.definitions if not each.is_local}
        return functions | {stub: line for line, macro, stub in self.stub_macros if "REGISTER" in macro}


def read_sources(natives: NativeFolders) -> list[Source]:
    """Return the C++ sources of ``natives``, without tests. A file that several folders share is read once."""
    once: dict[tuple[Path, str], Path] = {}
    for folder in natives.folders:
        for name in folder.cplusplus:
            if name.suffix in CPLUSPLUS or name in folder.named:
                once.setdefault((name, folder.text(name)), folder.place(name))
    vectorized = {*natives.vectorized}
    paths = sorted(once.items(), key=lambda item: item[1])
    return [replace(read_text(path, text, name), is_vectorized=name in vectorized) for (name, text), path in paths]


def headers_laid_over(natives: NativeFolders) -> list[Source]:
    """Return the headers below ``ATen/native`` that replace PyTorch's."""
    own, overlay = f"{INCLUDE}/{PLACE}", natives.overlay.items()
    names = {Path(key).relative_to(own): each for key, each in overlay if Path(key).is_relative_to(own)}
    return [read_text(user, copy.read_text(encoding="utf-8"), name) for name, (user, copy) in names.items()]


def defined_stubs(sources: Iterable[Source]) -> set[str]:
    """Return the dispatch stubs that sources define."""
    return {stub for source in sources for _, macro, stub in source.stub_macros if macro == "DEFINE_DISPATCH"}


def replacing_sources(sources: Sequence[Source], kernels: Collection[str]) -> dict[Path, Source]:
    """Return the sources that replace parts of PyTorch, by path. They may redefine PyTorch's functions.

    Such a source names one of ``kernels``, which replace PyTorch's, or registers a kernel for a stub that no other
    source defines, which is PyTorch's.
    """
    found = {source.path: source for source in sources if not source.words.isdisjoint(kernels)}
    own = defined_stubs(source for source in sources if source.path not in found)
    for source in sources:
        if any("REGISTER" in macro and stub not in own for _, macro, stub in source.stub_macros):
            found[source.path] = source
    return {path: source for path, source in found.items() if source.is_compiled}


def read_text(path: Path, text: str, name: Path | None = None) -> Source:
    """Parse ``text``, the present or future content of the file ``path``."""
    root = parse(text)
    found = QueryCursor(_COMMENTS_AND_MACROS).captures(root)
    is_pasting = any(b"##" in (node.text or b"") for node in found.get("macro", ()))
    source = Source(path, name or path, text, _without(found.get("comment", ()), text.encode()), is_pasting)
    for node, namespace, is_local in _outside_functions(root):
        definition = definition_of(path, node, namespace, is_local)
        if definition:
            (source.definitions if node.type == "function_definition" else source.declarations).append(definition)
    return source


def without_functions(text: str, names: Set[str]) -> str:
    """Return the text of a source with the functions ``names`` at namespace level, and instantiations of these
    templates, replaced by blanks.
    """
    data, root = text.encode(), parse(text)
    left_out = [node for node in nodes_of(root) if node.type == "template_instantiation" and names & _words(node)]
    for node, namespace, is_local in _outside_functions(root):
        definition = definition_of(Path(), node, namespace, is_local)
        if node.type == "function_definition" and definition and definition.name in names:
            left_out.append(template_of(node))
    for node in left_out:
        blank = re.sub(rb"[^\n]", b" ", data[node.start_byte : node.end_byte])
        data = data[: node.start_byte] + blank + data[node.end_byte :]
    return data.decode(errors="replace")


def template_of(node: Node) -> Node:
    """Return the node of the whole declaration, including ``template <...>`` if it has that."""
    return node.parent if node.parent is not None and node.parent.type == "template_declaration" else node


def _words(node: Node) -> set[str]:
    return set(re.findall(r"\w+", text_of(node)))


def is_keyword(name: str) -> bool:
    """Return whether a word is a keyword of C++, so that no variable can have this name."""
    value = [text_of(node) for node in identifiers(parse(f"auto _ = {name};"))]
    return value != ["_", name] or name in _KEYWORDS


def query(patterns: str) -> Query:
    """Return a query for nodes of syntax trees."""
    return Query(_LANGUAGE, patterns)


def parse(text: str) -> Node:
    """Return the syntax tree of ``text``."""
    return _PARSER.parse(_DECORATION.sub(lambda word: " " * len(word[0]), text).encode()).root_node


def nodes_of(node: Node) -> Iterator[Node]:
    """Yield ``node`` and the named nodes within it, in order."""
    left = [node]  # no recursion: expressions may nest more deeply than Python's calls
    while left:
        each = left.pop()
        yield each
        left += reversed(each.named_children)


def identifiers(node: Node) -> Iterator[Node]:
    """Yield the names within ``node``, in order."""
    return (each for each in nodes_of(node) if each.type.endswith("identifier") and not each.named_children)


def text_of(node: Node | None) -> str:
    """Return the text of a node."""
    return (node.text or b"").decode(errors="replace") if node is not None else ""


def _without(nodes: Iterable[Node], text: bytes) -> str:
    """Return ``text`` with ``nodes`` replaced by blanks."""
    code = bytearray(text)
    for node in nodes:
        code[node.start_byte : node.end_byte] = re.sub(rb"[^\n]", b" ", code[node.start_byte : node.end_byte])
    return code.decode()


def _outside_functions(root: Node) -> Iterator[tuple[Node, str, bool]]:
    """Yield the function definitions and the declarations at namespace level, each with its namespace, and whether it
    is in an anonymous namespace or a template.
    """
    left = [(root, "", False)]  # no recursion: sources may nest more deeply than Python's calls
    while left:
        node, namespace, is_local = left.pop()
        if node.type in ("function_definition", "declaration"):
            yield node, namespace, is_local
            continue
        if node.type == "namespace_definition":
            name = node.child_by_field_name("name")
            is_local = is_local or name is None
            namespace = "::".join(filter(None, (namespace, text_of(name))))
        is_local = is_local or node.type == "template_declaration"
        inner = (child for child in node.named_children if child.type not in ("class_specifier", "struct_specifier"))
        left += reversed([(child, namespace, is_local) for child in inner])


def definition_of(path: Path, node: Node, namespace: str, is_local: bool) -> Definition | None:
    """Return the function that a node declares, or None. ``is_local`` is what ``_outside_functions`` yields."""
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
    line, parameters = node.start_point[0] + 1, parameters_in(listed)
    if inner.type == "function_declarator":  # TORCH_IMPL_FUNC(name)(parameters)
        macro = text_of(inner.child_by_field_name("declarator"))
        name = text_of(inner.child_by_field_name("parameters"))[1:-1].strip()
        return Definition(path, line, namespace, name, macro, "", parameters, is_local)
    scope, _, name = text_of(inner).rpartition("::")
    before = [child for child in node.children if child.start_byte < declared.start_byte]
    is_static = any(child.type == "storage_class_specifier" and text_of(child) == "static" for child in before)
    trailing = next((text_of(c) for c in declarator.named_children if c.type == "trailing_return_type"), "")
    returns = trailing.removeprefix("->").strip() or _type_in(before)
    namespace = "::".join(filter(None, (namespace, scope)))
    is_inline = any(text_of(child) in ("inline", "constexpr") for child in before)
    defaults = tuple(i for i, each in enumerate(_listed(listed)) if each.child_by_field_name("default_value"))
    is_template = node.parent is not None and node.parent.type == "template_declaration"
    is_local, returns = is_local or is_static, returns + mark
    return Definition(
        path, line, namespace, name, "", returns, parameters, is_local, is_inline, defaults, is_template=is_template
    )


def _type_in(before: list[Node]) -> str:
    """Return the type in the nodes before a declarator."""
    # A macro before the type, for example C10_EXPORT, is parsed as the type, and the type as an error after it.
    types = [c for c in before if c.type.endswith(("type", "identifier", "specifier", "ERROR"))]
    types = [c for c in types if c.type != "storage_class_specifier"]
    qualifier = "const " if any(text_of(child) == "const" for child in before) else ""
    return qualifier + text_of(types[-1]) if types else ""


def _listed(listed: Node) -> list[Node]:
    """Return the nodes of the parameters in a parameter list."""
    return [child for child in listed.named_children if child.type != "comment"]


def parameters_in(listed: Node) -> tuple[str, ...]:
    """Return the types in a parameter list, as written."""
    found: list[str] = []
    for child in _listed(listed):
        if child.type in ("parameter_declaration", "optional_parameter_declaration"):
            default, text = child.child_by_field_name("default_value"), child.text or b""
            if default is not None:
                text = text[: default.start_byte - child.start_byte].rstrip().removesuffix(b"=")
            name = child.child_by_field_name("declarator")
            while name is not None and name.type != "identifier":
                name = next(iter(reversed(name.named_children)), None)
            if name is not None:
                text = text[: name.start_byte - child.start_byte] + text[name.end_byte - child.start_byte :]
            found.append(" ".join(text.decode(errors="replace").split()))
        else:
            found.append(text_of(child))
    return () if found == ["void"] else tuple(found)
