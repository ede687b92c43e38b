"""Check that PyTorch's modules define the names that the texts of ``appended/`` use.

Those texts extend upstream's functions and lists by name. If a release no longer has one, the build reports it, rather
than a user's ``import torch``.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Mapping
from pathlib import Path

from ..core.errors import PinError
from ..core.files import write_atomically
from ..inputs.patches import ADDED
from ..inputs.snapshot import hash_of_builder
from .appended_texts import our_files

_GIVEN = {*dir(builtins), "__name__", "__file__"}


def require_names(tree: Path, texts: Mapping[str, Path] | None = None, note: Path | None = None) -> None:
    """Check that the base defines each name that a text uses and does not define itself.

    Args:
        tree: the unpacked base.
        texts: by the file that they are appended to; None for those that every wheel gets.
        note: a file next to the base that records a successful check; None to check again.

    Raises:
        PinError: lists every module and name that is missing.
    """
    stamp = hash_of_builder()
    if note and note.is_file() and note.read_text(encoding="utf-8") == stamp:
        return
    if (tree / ADDED).is_file():
        _require_our_texts(tree)
        return
    faults: list[str] = []
    for name, path in (our_files() if texts is None else texts).items():
        upstream = (tree / name).read_text(encoding="utf-8") if (tree / name).is_file() else ""
        missing = _required(path.read_text(encoding="utf-8")) - _defined(symtable.symtable(upstream, name, "exec"))
        faults += [f"{name}: it has no `{each}`, which {path} needs" for each in sorted(missing)]
    if faults:
        raise PinError(
            "\n".join(faults),
            cause="this PyTorch differs from the supported ones",
            todo="use names that this PyTorch has in these texts, or set PIN to another release",
        )
    if note:
        write_atomically(note, stamp)


def _require_our_texts(tree: Path) -> None:
    """Check that a base which was built from the fork has the texts of this builder, which are not appended again."""
    others = [
        name
        for name, path in our_files().items()
        if not (tree / name).is_file()
        or path.read_text(encoding="utf-8") not in (tree / name).read_text(encoding="utf-8")
    ]
    if others:
        raise PinError(
            f"{others[0]}: this torch was built from the fork by another version of Graft",
            todo="build it again with `make patch-and-build BUILD=source`; compiled files are kept",
        )


def _defined(scope: symtable.SymbolTable) -> set[str]:
    """Return the names that a module binds at its top level."""
    return {each.get_name() for each in scope.get_symbols() if each.is_assigned() or each.is_imported()}


def _required(text: str) -> set[str]:
    """Return the names that a text needs from the module that it is appended to."""
    reader = _Reader()
    reader.visit(ast.parse(text))
    return (reader.required | _globals_of(symtable.symtable(text, "text", "exec")) - reader.bound) - _GIVEN


class _Reader(ast.NodeVisitor):
    """Visits the code that runs when a module is imported. Names used before the text binds them are upstream's."""

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.required: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)
        elif node.id not in self.bound:
            self.required.add(node.id)

    def visit_alias(self, node: ast.alias) -> None:
        self.bound.add(node.asname or node.name.partition(".")[0])

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.visit_Name(ast.Name(node.target.id, ast.Load()))
        if isinstance(name := getattr(node, "name", None), str):
            self.bound.add(name)  # of a function, a class or a caught error
        # A function's body runs when all names exist, and like a class it has a scope of its own.
        has_scope = isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda))
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            self._visit_comprehension(node)
            return
        # Assigned and iterated values are evaluated first.
        for field in sorted(node._fields, key=lambda field: field not in ("value", "iter")):
            value = getattr(node, field, None)
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not (has_scope and field == "body"):
                    self.visit(child)

    def _visit_comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        """Its variables are local; Python 3.12 and later inline the scope, so symtable does not show it."""
        outside = set(self.bound)
        for generator in node.generators:
            for child in (generator.iter, generator.target, *generator.ifs):
                self.visit(child)
        for child in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(child)
        self.bound = outside


def _globals_of(scope: symtable.SymbolTable) -> set[str]:
    """Return the global names used in nested functions and classes of a scope."""
    found: set[str] = set()
    for child in scope.get_children():
        found |= {each.get_name() for each in child.get_symbols() if each.is_global() and each.is_referenced()}
        found |= _globals_of(child)
    return found
