"""What a branch of PyTorch changes in a Python file, as text that follows the release's: the last definition counts."""

from __future__ import annotations

import ast
from collections.abc import Collection

from ..inputs.python_names import names_needed_at_import

_SET_DOCSTRINGS = ("add_docstr", "add_docstr_all", "_add_docstr")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def text_behind(before: str, after: str) -> str:
    """Return the text that makes the file ``before`` define what ``after`` does: imports, functions, new classes and
    other new statements, elements of lists.

    Raises:
        ValueError: the line of ``before`` that text behind the file cannot change, or of ``after``.
        SyntaxError: one of them is not Python of this version.
    """
    if after.startswith(before):
        return after.removeprefix(before)
    old, new = (ast.parse(text) for text in (before, after))
    known, kept = ({ast.dump(each) for each in tree.body} for tree in (old, new))
    orders = [[text for text in map(ast.dump, tree.body) if text in known & kept] for tree in (old, new)]
    if orders[0] != orders[1]:
        raise ValueError("the order of statements")
    added = [each for each in new.body if ast.dump(each) not in known]
    gone = {name: each for each in old.body if ast.dump(each) not in kept for name in [_name(each)]}
    texts = [_text(each, gone.pop(_name(each), None), after) for each in added]
    if gone := {name: each for name, each in gone.items() if not isinstance(each, ast.Import | ast.ImportFrom)}:
        raise ValueError(f"line {min(each.lineno for each in gone.values())} of the release's")
    before_names = dict(pair for each in old.body for pair in _bound(each))
    changed = {name for each in added for name, what in _bound(each) if before_names.get(name) != what}
    rest = ast.Module([each for each in new.body if ast.dump(each) in known], [])
    if taken := names_needed_at_import(rest) & changed:
        raise ValueError(f"`{min(taken)}`, which other code of the file takes when it is imported")
    return "\n\n".join(["", *texts, ""]).rstrip("\n") + "\n" if texts else ""


def _name(statement: ast.stmt) -> str:
    """Return what identifies a statement in both files: the name that it defines, or its content."""
    if isinstance(statement, Function | ast.ClassDef):
        return statement.name
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return ast.unparse(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target)
    return ast.dump(statement)


def _bound(statement: ast.stmt) -> list[tuple[str, str]]:
    """Return the names that a statement defines, each with what."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        module = getattr(statement, "module", None)
        return [(each.asname or each.name.partition(".")[0], f"{module}.{each.name}") for each in statement.names]
    return [(_name(statement), ast.dump(statement))]


def _text(statement: ast.stmt, old: ast.stmt | None, source: str) -> str:
    """Return the text that takes a file from ``old``, if there is one, to ``statement`` of ``source``."""
    is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    is_new = old is None and not isinstance(statement, ast.If | ast.Try | ast.With | ast.For | ast.While)
    if isinstance(old, ast.Assign | ast.AnnAssign):
        if more := _elements(old, statement):
            listed = "".join(f"    {ast.get_source_segment(source, each)},\n" for each in more)
            return f"{_name(statement)} += [\n{listed}]"
    elif not is_future and (is_new or (isinstance(old, Function) and not old.decorator_list)):
        decorators = getattr(statement, "decorator_list", [])
        start = min(each.lineno for each in [statement, *decorators])
        return "\n".join(source.splitlines()[start - 1 : statement.end_lineno])
    raise ValueError(f"line {statement.lineno} of the branch's")


def _elements(old: ast.stmt, new: ast.stmt) -> list[ast.expr]:
    """Return the elements that a list gains; none if it is something else, or loses some."""
    before, after = (getattr(each, "value", None) for each in (old, new))
    if not isinstance(before, ast.List) or not isinstance(after, ast.List):
        return []
    known, kept = ({ast.dump(each) for each in each.elts} for each in (before, after))
    return [each for each in after.elts if ast.dump(each) not in known] if known <= kept else []


def without_docstrings(text: str, operators: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return a Python text without what sets docstrings of ``operators``, which a graft does, and these by name. Those
    that are computed are empty.
    """
    lines, found = text.splitlines(keepends=True), {}
    for each in reversed(ast.parse(text).body):
        call = getattr(each, "value", None)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in _SET_DOCSTRINGS and len(call.args) == 2:
            name = ast.unparse(call.args[0]).strip("'").rpartition(".")[2]
            if name in operators:
                found[name] = str(call.args[1].value) if isinstance(call.args[1], ast.Constant) else ""
                del lines[each.lineno - 1 : each.end_lineno]
    return "".join(lines), found
