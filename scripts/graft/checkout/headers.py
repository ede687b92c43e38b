"""Decide which changed headers of PyTorch can replace the installed ones, and find the sources that include them.

PyTorch's libraries stay as they were compiled. Anything that they share with newly compiled sources must not change:
the layout of classes, virtual functions, functions that the libraries define, the types of dispatch stubs, the values
of enums. The rest of a header is compiled into each source that includes it.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path

from tree_sitter import Node

from ..cpp.functions import canonical, functions, parameter_type
from ..cpp.includes import INCLUDE, reached
from ..cpp.statements import arguments, statements
from ..cpp.syntax import nodes_of, parse, text_of
from ..cpp.tokens import blank, tokens, words

# The macro of ATen/native/DispatchStub.h, with or without a semicolon.
_STUB = re.compile(r"\bDECLARE_DISPATCH\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\);?")

# The folders of a checkout that compilers search for headers; and headers to skip: generated, or with none of ATen's.
_SEARCHED = ("aten/src/", "", "torch/csrc/api/include/", "aten/src/ATen/native/")
_OTHERS = ("ATen/ops/", "c10/")

_CLASSES = ("class_specifier", "struct_specifier", "union_specifier")
_DECLARATIONS = ("declaration", "field_declaration", "function_definition")
_ALIASES = ("alias_declaration", "type_definition")
# The number of times that aliases are resolved, since they may name other aliases.
_DEPTH = 4


def is_same(before: str, after: str) -> bool:
    """Return whether two texts of a file have the same tokens. Namespaces may be spelled differently, and the new text
    may lack includes.
    """
    old, new = (
        [each.code for each in statements(text) if not INCLUDE.match(each.tokens[0])] for text in (before, after)
    )
    had, has = ({*INCLUDE.findall(text)} for text in (before, after))
    return old == new and has <= had


def refused(name: str, before: str, after: str) -> str:
    """Return why the header ``name`` with the text ``after`` cannot replace the installed one with the text ``before``;
    empty if it can.
    """
    old, new = _Shared(Path(name), before), _Shared(Path(name), after)
    functions = [
        key for key, returns in old.functions.items() if new.functions.get(key, new.inline.get(key)) != returns
    ]
    said = [
        *(f"the data members or bases of {each} change" for each in _changed(old.layouts, new.layouts)),
        *(f"the virtual functions of {each} change" for each in _changed(old.virtual, new.virtual)),
        *(f"the values of {each} change" for each in _changed(old.enums, new.enums, may_grow=True)),
        *(f"the type of the dispatch stub {each} changes" for each in _changed(old.stubs, new.stubs)),
        *(
            f"the declaration of {key[0]}, which PyTorch's libraries define, changes"
            for key in functions
            if not old.is_missed(key, new)
        ),
    ]
    return "; ".join(dict.fromkeys(said))


def users(tree: Path, headers: Collection[str], among: Collection[str]) -> set[str]:
    """Return the files of ``among`` that include one of ``headers``, directly or not. All are paths in the checkout;
    ``headers`` may be deleted.
    """

    @cache
    def is_there(place: str) -> bool:
        return place in headers or (tree / place).is_file()

    @cache
    def included(file: str) -> list[str]:
        places = _places(file, _text(tree / file))
        return [place for each in places if (place := next(filter(is_there, each), ""))]

    including = defaultdict[str, list[str]](list)
    for file in reached(among, included):
        for each in included(file):
            including[each].append(file)
    return {*among} & {*reached(headers, including.__getitem__)}


def _places(file: str, text: str) -> Iterator[Iterator[str]]:
    """Yield where compilers look for each file of a checkout that the text of ``file`` includes."""
    for found in INCLUDE.finditer(text):
        name, is_quoted = found[1], found[0].partition(found[1])[0].endswith('"')
        folders = (f"{file.rpartition('/')[0]}/", *_SEARCHED) if is_quoted else _SEARCHED
        if not name.startswith(_OTHERS) and (is_quoted or "/" in name):
            yield (os.path.normpath(folder + name) for folder in folders)


def _text(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _changed(old: Mapping[str, list[str]], new: Mapping[str, list[str]], *, may_grow: bool = False) -> list[str]:
    """Return the keys of both whose lists differ; with ``may_grow``, ignore appended items."""
    both = [(name, items, new[name]) for name, items in old.items() if name in new]
    return [name for name, items, now in both if items != (now[: len(items)] if may_grow else now)]


class _Shared:
    """The parts of a header that PyTorch's libraries share with other code. Templates are not: each compiles its own.

    Attributes:
        layouts: the bases and data members of each class.
        virtual: the virtual functions of each class.
        enums: the values of each enum.
        stubs: the type of each dispatch stub.
        functions: the return type of each function without a body, and the type of each ``extern`` variable, by
            qualified name with parameter types.
        inline: the same for functions with a body.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.layouts: dict[str, list[str]] = {}
        self.virtual: dict[str, list[str]] = {}
        self.enums: dict[str, list[str]] = {}
        self.stubs: dict[str, list[str]] = {}
        self.functions: dict[tuple[str, ...], str] = {}
        self.inline: dict[tuple[str, ...], str] = {}
        self._path = path
        self._texts: dict[tuple[str, ...], str] = {}
        root = parse(_STUB.sub(lambda found: blank(found[0]), text))
        self._code = _spaced(text_of(root))
        every = [*_declared(root, "")]
        self._aliases = dict(_alias(node) for node, _, is_member in every if node.type in _ALIASES and not is_member)
        for node, scope, is_member in every:
            if node.type in _DECLARATIONS:
                self._add(node, scope, is_member=is_member)
            elif node.type not in _ALIASES:
                self._add_type(node, f"{scope}::{text_of(node.child_by_field_name('name'))}".removeprefix("::"))
        for found in _STUB.finditer(text):
            cpp_type, _, stub = found[1].rpartition(",")
            aliases = (node for node in nodes_of(parse(f"using _ = {cpp_type};")) if node.type in _ALIASES)
            self.stubs[stub.strip()] = [self._canonical(_alias(node)[1]) for node in aliases]

    def is_missed(self, key: tuple[str, ...], other: _Shared) -> bool:
        """Return whether the other text has the same declaration of a function, but parsing did not find it."""
        is_found = any(name == key[0] for name, *_ in (*other.functions, *other.inline))
        return not is_found and self._texts[key] in other._code

    def _add(self, node: Node, scope: str, *, is_member: bool) -> None:
        """Add a function, or an ``extern`` variable."""
        definition = next((each for each, _ in functions(text_of(node), self._path)), None)
        words = [text_of(child) for child in node.children]
        if definition is None:
            if "extern" in words:
                names = _spaced(" ".join(map(text_of, node.children_by_field_name("declarator"))))
                variable = (f"{scope}::{names}".removeprefix("::"),)
                self.functions[variable] = self._canonical(text_of(node.child_by_field_name("type")))
                self._texts[variable] = _spaced(text_of(node))
            return
        if definition.macro or (definition.is_local and not is_member):
            return
        declarator = _function_in(node)
        after = [text_of(child) for child in declarator.children] if declarator else []
        types = (*map(self._canonical, definition.parameters), *sorted({"const", "&", "&&"}.intersection(after)))
        key = ("::".join(filter(None, (scope, definition.namespace, definition.name))), *types)
        returns = self._canonical(definition.returns)
        if {"virtual", "override", "final"}.intersection([*words, *after]):
            self.virtual.setdefault(scope, []).append(f"{returns} {key}")
        else:
            has_body = node.type == "function_definition" or definition.is_inline
            (self.inline if has_body else self.functions)[key] = returns
            self._texts[key] = _spaced(text_of(node))

    def _add_type(self, node: Node, name: str) -> None:
        """Add a class or an enum."""
        body = node.child_by_field_name("body")
        assert body is not None
        if node.type == "enum_specifier":
            base = text_of(node.child_by_field_name("base"))
            each = [_spaced(text_of(child)) for child in body.named_children if child.type == "enumerator"]
            self.enums.setdefault(name, []).extend([self._canonical(base), *each])
        else:
            bases = [self._canonical(text_of(c)) for c in node.named_children if c.type == "base_class_clause"]
            self.layouts.setdefault(name, []).extend([*bases, *map(self._canonical, _data_members(body))])
            self.virtual.setdefault(name, [])

    def _canonical(self, cpp_type: str) -> str:
        """Return a type in one spelling, with the aliases of the header resolved."""
        for _ in range(_DEPTH):
            cpp_type = re.sub(r"\w+", lambda word: self._aliases.get(word[0], word[0]), cpp_type)
        return canonical(cpp_type)


def _declared(node: Node, scope: str, *, is_member: bool = False) -> Iterator[tuple[Node, str, bool]]:
    """Yield the declarations, types and aliases within a node, outside of templates and functions: each with its
    namespace or class, and whether that is a class.
    """
    for child in node.named_children:
        name, body = child.child_by_field_name("name"), child.child_by_field_name("body")
        inner = "::".join(filter(None, (scope, text_of(name))))
        if child.type == "namespace_definition":
            yield from _declared(body, inner) if name and body else ()
        elif child.type in (*_CLASSES, "enum_specifier"):
            if body and not (name and name.type == "template_type"):
                yield child, scope, is_member
                yield from _declared(body, inner, is_member=True)
        elif child.type not in ("template_declaration", "compound_statement"):
            if child.type in (*_DECLARATIONS, *_ALIASES):
                yield child, scope, is_member
            yield from _declared(child, scope, is_member=is_member)


def _data_members(body: Node) -> Iterator[str]:
    """Yield the data members in the body of a class, without their initial values, and the conditions around them."""
    for child in body.named_children:
        declarators = child.children_by_field_name("declarator")
        words = [text_of(each) for each in child.children]
        if child.type.startswith("preproc_"):
            if inner := [*_data_members(child)]:
                yield from (text_of(child).partition("\n")[0], *inner)
        elif child.type == "field_declaration" and not _function_in(child) and "static" not in words:
            kind = child.child_by_field_name("type")
            is_union = kind is not None and kind.type in _CLASSES and not kind.child_by_field_name("name")
            if declarators or is_union:
                left_out = ("=", ";", "comment", "initializer_list")
                named = [(child.field_name_for_child(number), each) for number, each in enumerate(child.children)]
                parts = (each for name, each in named if name != "default_value" and each.type not in left_out)
                yield _spaced(" ".join(map(text_of, parts)))


def _function_in(node: Node) -> Node | None:
    """Return the declarator of the function that a node declares; None for others, such as a pointer to a function."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type in ("reference_declarator", "pointer_declarator"):
        declarator = declarator.named_children[-1]
    inner = declarator.child_by_field_name("declarator") if declarator else None
    is_function = declarator and declarator.type == "function_declarator" and inner
    return declarator if is_function and inner and inner.type != "parenthesized_declarator" else None


def _alias(node: Node) -> tuple[str, str]:
    """Return the name of an alias, and its type without the names of parameters."""
    declarator = node.child_by_field_name("declarator") or node
    name = node.child_by_field_name("name") or next(each for each in nodes_of(declarator) if "identifier" in each.type)
    parts, end = list[str](), node.start_byte
    text = node.text or b""
    for each in nodes_of(node):
        if each.start_byte >= end and (each == name or each.type == "parameter_list"):
            parts.append(text[end - node.start_byte : each.start_byte - node.start_byte].decode())
            parts += [] if each == name else [f"({', '.join(_types_in(each))})"]
            end = each.end_byte
    parts.append(text[end - node.start_byte :].decode())
    return text_of(name), re.sub(r"\b(?:typedef|using)\b|[=;]", " ", "".join(parts))


def _types_in(listed: Node) -> list[str]:
    """Return the types in a parameter list."""
    return [*map(parameter_type, arguments(tokens(text_of(listed))[0], of_types=True)[0])]


def _spaced(text: str) -> str:
    """Join the tokens of a text with single spaces."""
    return " ".join(words(tokens(text)[0]))
