"""Find the code of operators in PyTorch's Python files: functions, registrations, elements of lists, docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping

from ..inputs.native import DOCS

_SET_DOCSTRINGS = ("add_docstr", "add_docstr_all", "_add_docstr")

_SIGNATURES = re.compile(r"\A(\w+\([^)]*\).*(\n+|\Z))+")

# Docstrings that Graft writes itself, or that say no more than those.
_GENERATED = ("An operator that was added", "See :func:", "In-place version of ")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class OfOperators:
    """Recognizes the code of operators in PyTorch's Python files: functions, registrations, elements of lists.

    Args:
        operators: their names, as in native_functions.yaml.
    """

    def __init__(self, operators: Collection[str]) -> None:
        self.is_any = bool(operators)
        parts = [each.partition(".") for each in sorted(operators)]
        self._functions = {name for name, _, _ in parts}
        spelt = [(re.sub("^(fft|linalg|special)_", r"\1[._]", name), overload) for name, _, overload in parts]
        each = "|".join(rf"{name}(?:\.{overload or 'default'}\b|(?![\w.]))" for name, overload in spelt) or "(?!)"
        of = r"\b(?:aten\.|(?:torch(?!\.ops)|_C|_VF|_fft|_linalg|_nn|_special)\.(?:\w+\.)*)"
        self._named = re.compile(rf"{of}(?:{each})|'(?:aten(?:::|\.)|nn\.functional\.)?(?:{each})'")

    def named(self, node: ast.AST) -> bool:
        """Return whether code names one of the operators."""
        return bool(self._named.search(ast.unparse(node)))

    def has(self, statement: ast.stmt, old: ast.stmt | None) -> bool:
        """Return whether a changed statement, of which ``old`` is the earlier version if any, belongs to them."""
        is_call = isinstance(getattr(statement, "value", None), ast.Call)
        heads = [statement] if is_call else getattr(statement, "decorator_list", [])
        if name_of(statement) in self._functions or any(map(self.named, heads)):
            return True
        # A function that PyTorch has must not call an operator in a new way. A new function that does breaks nothing.
        return old is not None and not lists_of(old, statement) and bool(self._uses(statement) - self._uses(old))

    def _uses(self, statement: ast.stmt) -> set[str]:
        """Return a statement's calls of the operators, and its dictionaries' entries for them."""
        nodes = [*ast.walk(statement)]
        items = [
            pair for each in nodes if isinstance(each, ast.Dict) for pair in zip(each.keys, each.values, strict=True)
        ]
        calls = {ast.unparse(each) for each in nodes if isinstance(each, ast.Call) and self.named(each.func)}
        return calls | {f"{ast.unparse(key)}: {ast.unparse(value)}" for key, value in items if key and self.named(key)}


def name_of(statement: ast.stmt) -> str:
    """Return what identifies a statement in both versions: the name that it defines, or its content."""
    if isinstance(statement, Function | ast.ClassDef):
        return statement.name
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return ast.unparse(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target)
    return ast.dump(statement)


def by_name(body: Iterable[ast.stmt]) -> dict[str, ast.stmt]:
    """Map ``name_of`` of each statement to the statement; the last of several."""
    return {name_of(each): each for each in body}


def lists_of(old: ast.stmt | None, new: ast.stmt) -> tuple[ast.List, ast.List] | None:
    """Return the lists that two statements assign; None if they assign something else."""
    before, after = (getattr(each, "value", None) for each in (old, new))
    return (before, after) if isinstance(before, ast.List) and isinstance(after, ast.List) else None


def missing(old: ast.List, new: ast.List) -> list[ast.expr]:
    """Return the elements of ``new`` that ``old`` lacks."""
    known = {*map(ast.dump, old.elts)}
    return [each for each in new.elts if ast.dump(each) not in known]


def subject(element: ast.expr) -> ast.expr:
    """Return the subject of an element of a list: for ``OpInfo("add", ...)``, the name."""
    return element.args[0] if isinstance(element, ast.Call) and element.args else element


def without_docstrings(text: str, operators: Collection[str]) -> tuple[str, dict[str, str]]:
    """Replace the statements that set docstrings of ``operators`` by blank lines, since Graft sets them. Return the
    text, and the docstrings by operator; computed ones are empty.
    """
    lines, found = text.split("\n"), {}
    for each in reversed(ast.parse(text).body if operators and "add_docstr" in text else []):
        call = getattr(each, "value", None)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in _SET_DOCSTRINGS and len(call.args) == 2:
            name = ast.unparse(call.args[0]).strip("'").rpartition(".")[2]
            if name in operators:
                found[name] = _written(call.args[1])
                count = (each.end_lineno or each.lineno) - each.lineno + 1
                lines[each.lineno - 1 : each.end_lineno] = [""] * count
    return "\n".join(lines), found


def _written(value: ast.expr) -> str:
    """Return the text of a docstring; empty if it is computed. Lines with the name of an argument, such as ``{input}``,
    stay: Graft fills them in, too.
    """
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "format":
        text = _written(value.func.value)
        rest = re.sub(r"^ {4}\{\w+\}$|\{\{|\}\}", "", text, flags=re.M)
        return "" if "{" in rest else text.replace("{{", "{").replace("}}", "}")
    if isinstance(value, ast.BinOp):
        parts = _written(value.left), _written(value.right)
        return "".join(parts) if isinstance(value.op, ast.Add) and all(parts) else ""
    return str(value.value) if isinstance(value, ast.Constant) else ""


def docs_of(docstrings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the files of a native folder for ``docstrings`` by operator, and the operators whose docstring is
    computed. The files have no signatures, which come from the schemas.
    """
    bodies = {name: _SIGNATURES.sub("", text.strip()) for name, text in docstrings.items()}
    written = {name: body for name, body in bodies.items() if body and not body.startswith(_GENERATED)}
    files = {f"{DOCS}/{name}.rst": f"{body}\n" for name, body in written.items()}
    return files, [name for name, text in docstrings.items() if not text]
