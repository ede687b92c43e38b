"""What a branch of PyTorch changes in a Python file, as text that follows the release's: the last definition counts."""

from __future__ import annotations

import ast
from collections.abc import Collection
from itertools import chain

from ..inputs.python_names import names_needed_at_import
from .python_operators import Function, OfOperators, by_name, lists_of, missing, name_of, subject


def text_behind(before: str, after: str) -> str:
    """Return the text that makes the file ``before`` define what ``after`` does: imports, functions, new classes and
    other new statements, elements of lists.

    Raises:
        ValueError: the line of ``before`` that text behind the file cannot change, or of ``after``.
        SyntaxError: one of them is not Python of this version.
    """
    old, new = ast.parse(before), ast.parse(after)
    if after.startswith(before) and [*map(ast.dump, new.body)][: len(old.body)] == [*map(ast.dump, old.body)]:
        return after.removeprefix(before)
    texts = ["\n".join(text for _, text in each) for each in _changes(old, new, after, OfOperators(()))]
    return "\n\n".join(["", *texts, ""]).rstrip("\n") + "\n" if texts else ""


def lines_behind(before: str, after: str, refused: Collection[str] = ()) -> str:
    """Return the same text with each statement at the line that it has in ``after``, without what belongs to the
    operators ``refused``: they stay as ``before`` has them.
    """
    lines = [""] * (after.count("\n") + 1)
    changes = _changes(ast.parse(before), ast.parse(after), after, OfOperators(refused))
    for number, text in chain.from_iterable(changes):
        for at, line in enumerate(text.split("\n"), number - 1):
            lines[at] = line if lines[at] in ("", line) else f"{lines[at]} {line.lstrip()}"
    return "\n".join(lines).rstrip("\n") + "\n" if any(lines) else ""


def left_out(before: str, after: str, refused: Collection[str]) -> list[str]:
    """Return what ``after`` changes of the operators ``refused``: names of functions, or lines."""
    old, new = ast.parse(before), ast.parse(after)
    operators = OfOperators(refused)
    names = operators.changed(old, new)
    found = {each.lineno: _label(each) for each in new.body if name_of(each) in names}
    olds = by_name(old)
    for each in new.body:
        if lists := lists_of(olds.get(name_of(each)), each):
            found |= {element.lineno: f"line {element.lineno}" for element in operators.elements(*lists)}
    gone = {_label(each) for each in old.body if name_of(each) in names - by_name(new).keys()}
    return list(dict.fromkeys([*(found[line] for line in sorted(found)), *sorted(gone)]))


def _changes(old: ast.Module, new: ast.Module, source: str, refused: OfOperators) -> list[list[tuple[int, str]]]:
    """Return the texts behind ``old`` for each statement that ``new`` adds or changes, each with its line there."""
    left = refused.changed(old, new)
    known, kept = ({*map(ast.dump, tree.body)} for tree in (old, new))
    orders = [[text for text in map(ast.dump, tree.body) if text in known & kept] for tree in (old, new)]
    if orders[0] != orders[1]:
        raise ValueError("the order of statements")
    added = [each for each in new.body if ast.dump(each) not in known and name_of(each) not in left]
    gone = {
        name: each for each in old.body if ast.dump(each) not in kept for name in [name_of(each)] if name not in left
    }
    found = [(each, _texts(each, gone.pop(name_of(each), None), source, refused)) for each in added]
    if gone := {name: each for name, each in gone.items() if not isinstance(each, ast.Import | ast.ImportFrom)}:
        raise ValueError(f"line {min(each.lineno for each in gone.values())} of the release's")
    before_names = dict(pair for each in old.body for pair in _bound(each))
    bound = [pair for each, texts in found if texts for pair in _bound(each)]
    changed = {name for name, what in bound if before_names.get(name) != what}
    stays = [each for each in old.body if ast.dump(each) not in kept and name_of(each) in left]
    rest = ast.Module([*(each for each in new.body if ast.dump(each) in known), *stays], [])
    if taken := names_needed_at_import(rest) & changed:
        raise ValueError(f"`{min(taken)}`, which other code of the file takes when it is imported")
    return [texts for _, texts in found if texts]


def _bound(statement: ast.stmt) -> list[tuple[str, str]]:
    """Return the names that a statement defines, each with what."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        module = getattr(statement, "module", None)
        return [(each.asname or each.name.partition(".")[0], f"{module}.{each.name}") for each in statement.names]
    return [(name_of(statement), ast.dump(statement))]


def _label(statement: ast.stmt) -> str:
    """Return how a message names a statement."""
    has_name = isinstance(statement, Function | ast.ClassDef | ast.Assign | ast.AnnAssign)
    return f"`{name_of(statement)}`" if has_name else f"line {statement.lineno}"


def _texts(statement: ast.stmt, old: ast.stmt | None, source: str, refused: OfOperators) -> list[tuple[int, str]]:
    """Return the texts that take a file from ``old``, if there is one, to ``statement`` of ``source``, with lines."""
    is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
    is_new = old is None and not isinstance(statement, ast.If | ast.Try | ast.With | ast.For | ast.While)
    if isinstance(old, ast.Assign | ast.AnnAssign):
        if lists := lists_of(old, statement):
            return _gained(statement, *lists, source, refused)
    elif not is_future and (is_new or (isinstance(old, Function) and not old.decorator_list)):
        decorators = getattr(statement, "decorator_list", [])
        start = min(each.lineno for each in [statement, *decorators])
        return [(start, "\n".join(source.split("\n")[start - 1 : statement.end_lineno]))]
    raise ValueError(f"line {statement.lineno} of the branch's")


def _gained(
    statement: ast.stmt, old: ast.List, new: ast.List, source: str, refused: OfOperators
) -> list[tuple[int, str]]:
    """Return the texts that add the elements that a list gains; an error if it loses some."""
    new_ones = missing(old, new)
    more = [each for each in new_ones if not refused.named(subject(each))]
    if any(not refused.named(subject(each)) for each in missing(new, old)) or not new_ones:
        names = [f"{ast.unparse(subject(each))} in line {each.lineno}" for each in more]
        raise ValueError(f"line {statement.lineno} of the branch's{': ' if names else ''}{', '.join(names)}")
    if not more:
        return []
    listed = [(each.lineno, f"    {ast.get_source_segment(source, each)},") for each in more]
    return [(more[0].lineno, f"{name_of(statement)} += ["), *listed, (more[-1].end_lineno or 0, "]")]
