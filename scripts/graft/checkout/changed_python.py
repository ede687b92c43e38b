"""Write a branch's changes of a Python file as text to append to the release's file: the last definition counts."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache, cached_property
from typing import TypeGuard

from ..inputs.python_names import names_defined, names_needed, names_needed_at_import
from .python_operators import Function, OfOperators, by_name, lists_of, missing, name_of, subject
from .registrations import freeing, imports_for

# The texts of a statement, each with its line.
_Texts = list[tuple[int, str]]


class Difference:
    """The statements in which two versions of a Python file differ.

    Args:
        before: one version.
        after: the other.
        refused: names of operators, as in native_functions.yaml, whose code stays as in ``before``.
        file: the path of the file in a checkout.

    Raises:
        SyntaxError: one of them is not Python of this version.
    """

    def __init__(self, before: str, after: str, refused: Collection[str] = (), file: str = "") -> None:
        self._refused, self._file = OfOperators(refused), file
        self._needed = cache(lambda statement: names_needed(ast.unparse(statement)))
        old_lines, self._lines = before.split("\n"), after.split("\n")
        self._old, self._new = (ast.parse(text).body for text in (before, after))
        spelt = {each: _spelt(each, old_lines) for each in self._old}
        spelt |= {each: _spelt(each, self._lines) for each in self._new}
        # Statements with the same text need no comparison of syntax trees, which takes longer.
        alike = {spelt[each] for each in self._old} & {spelt[each] for each in self._new}
        self._content = {each: text if text in alike else ast.dump(each) for each, text in spelt.items()}
        self._known, self._kept = ({self._content[each] for each in body} for body in (self._old, self._new))
        self._added = [each for each in self._new if self._content[each] not in self._known]
        self._gone = [each for each in self._old if self._content[each] not in self._kept]
        olds = by_name(self._old)
        changed = [*self._added, *self._gone] if self._refused.is_any else []
        self._left = {name for each in changed if self._refused.has(each, olds.get(name := name_of(each)))}

    @property
    def is_empty(self) -> bool:
        """Whether the two versions differ only in comments and formatting, or not at all."""
        return [self._content[each] for each in self._old] == [self._content[each] for each in self._new]

    @property
    def left(self) -> list[str]:
        """The changes that belong to refused operators, as names or lines."""
        olds = by_name(self._old)
        found = {each.lineno: _label(each) for each in self._added if name_of(each) in self._left}
        changed = self._added if self._refused.is_any else []
        lists = [both for each in changed if (both := lists_of(olds.get(name_of(each)), each))]
        elements = [each for both in lists for each in missing(*both) if self._refused.named(subject(each))]
        found |= {each.lineno: _shown(each) for each in elements}
        gone = [_label(each) for each in self._gone if name_of(each) in self._left]
        return list(dict.fromkeys([*(found[line] for line in sorted(found)), *gone]))

    def behind(self) -> tuple[str, list[str]]:
        """Return the text that, appended to ``before``, makes it define what ``after`` does; and the changes that such
        a text cannot make.

        The text has imports, functions, new classes, other new statements and elements of lists, each at its line in
        ``after``. Its first line removes registrations of operators, so that other functions can be registered.
        """
        both = self._known & self._kept
        orders = [[text for each in body if (text := self._content[each]) in both] for body in (self._old, self._new)]
        if orders[0] != orders[1]:
            return "", ["the order of statements"]
        changed = [each for each in (*self._gone, *self._added) if name_of(each) not in self._left]
        # Several functions with one name cannot be told apart.
        faults = {each: self._line(each) for each in changed if name_of(each) in self._several}
        gone = {name_of(each): each for each in changed if each in self._old_ones and each not in faults}
        taken, olds = dict[ast.stmt, _Texts](), dict[ast.stmt, ast.stmt]()
        for each in (each for each in changed if each not in self._old_ones and each not in faults):
            if old := gone.pop(name_of(each), None):
                olds[each] = old
            try:
                taken[each] = self._texts(each, old)
            except ValueError as error:
                faults[each] = str(error)
        self._leave(taken, faults, olds)
        first = [line for each in taken if each in olds for line in self._freed(olds[each])]
        there = {line for each in self._old for line in self._freed(each)}
        first += [line for each in taken for line in self._freed(each) if line in there]
        is_whole = not faults  # otherwise, a removed function may have a new name, and be left out
        for each in (each for each in gone.values() if not isinstance(each, ast.Import | ast.ImportFrom)):
            freed = self._freed(each)
            first += freed if is_whole else []
            if not freed or not {*freed} <= {*first}:
                faults[each] = self._line(each)
        first = list(dict.fromkeys(first))
        left = [faults[each] for each in sorted(faults, key=lambda each: each.lineno)]
        return self._at_lines([*imports_for(first), *first], taken), left

    @cached_property
    def _old_ones(self) -> set[ast.stmt]:
        return {*self._old}

    @cached_property
    def _several(self) -> set[str]:
        """The names that one of the versions gives to several functions; overloads for type checkers do not count."""
        bodies = ([each.name for each in body if _is_function(each)] for body in (self._old, self._new))
        return {name for names in bodies for name, count in Counter(names).items() if count > 1}

    @cached_property
    def _defined(self) -> set[str]:
        return {each.name for each in self._old if isinstance(each, Function)}

    def _line(self, statement: ast.stmt) -> str:
        return f"line {statement.lineno} of the {'release' if statement in self._old_ones else 'branch'}'s"

    def _leave(
        self, taken: dict[ast.stmt, _Texts], faults: dict[ast.stmt, str], olds: Mapping[ast.stmt, ast.stmt]
    ) -> None:
        """Move statements from ``taken`` to ``faults``: those that the file needs at import, before the text runs;
        those that need one that is left out; and functions with new arguments that code calls with the old ones.
        """
        before = dict(pair for each in self._old for pair in _bound(each))
        stays = [each for each in self._gone if name_of(each) in self._left]
        rest = ast.Module([*(each for each in self._new if self._content[each] in self._known), *stays], [])
        at_import = names_needed_at_import(rest)
        for each in [each for each, texts in taken.items() if texts]:
            changed = {name for name, what in _bound(each) if before.get(name) != what}
            if needed := changed & at_import:
                faults[each] = f"`{min(needed)}`, which other code of the file takes when it is imported"
        while True:
            lost = {name for each in faults if each not in self._old_ones for name in names_defined(ast.unparse(each))}
            staying = [*stays, *(olds.get(each, each) for each in faults if each in olds or each in self._old_ones)]
            called = {name for each in staying for name in self._needed(each)}
            among = taken.keys() - faults.keys()
            more = {each: why for each in among if (why := self._why_left(each, olds.get(each), lost, called))}
            if not more:
                break
            faults |= more
        for each in faults:
            taken.pop(each, None)

    def _why_left(self, statement: ast.stmt, old: ast.stmt | None, lost: set[str], called: set[str]) -> str:
        """Return why a statement is left out, too; empty if it is not.

        Args:
            statement: the statement.
            old: what it replaces.
            lost: the names that left-out statements define.
            called: the names that remaining old statements need.
        """
        if needed := lost & self._needed(statement):
            return f"{_label(statement)}, which needs `{min(needed)}`"
        if isinstance(statement, Function) and isinstance(old, Function) and statement.name in called:
            is_same = ast.dump(statement.args) == ast.dump(old.args)
            return "" if is_same else f"{_label(statement)}, which is still called with other arguments"
        return ""

    def _at_lines(self, first: Iterable[str], taken: Mapping[ast.stmt, _Texts]) -> str:
        lines = [""] * len(self._lines)
        for number, text in (pair for texts in taken.values() for pair in texts):
            for at, line in enumerate(text.split("\n"), number - 1):
                lines[at] = line if lines[at] in ("", line) else f"{lines[at]} {line.lstrip()}"
        between = "\n" if lines[0].startswith(("@", "def ", "class ", "async ")) else "; "
        lines[0] = between.join(filter(None, ["; ".join(first), lines[0]]))
        return "\n".join(lines).rstrip("\n") + "\n" if any(lines) else ""

    def _texts(self, statement: ast.stmt, old: ast.stmt | None) -> _Texts:
        """Return the code to append, with its lines, so that ``statement`` takes effect. ``old`` is the
        statement that it replaces; None if it is new.
        """
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        is_new = old is None and not isinstance(statement, ast.If | ast.Try | ast.With | ast.For | ast.While)
        if isinstance(old, ast.Assign | ast.AnnAssign):
            if lists := lists_of(old, statement):
                return self._gained(statement, *lists)
        elif not is_future and (is_new or (isinstance(old, Function) and self._freeing(old) is not None)):
            return [(_first_line(statement), _spelt(statement, self._lines))]
        raise ValueError(self._line(statement))

    def _freeing(self, function: Function) -> list[str] | None:
        return freeing(function, self._file, self._defined)

    def _freed(self, statement: ast.stmt) -> list[str]:
        """Return the code that removes the registrations of a statement; none if it has none, or they are not known."""
        return (self._freeing(statement) or []) if isinstance(statement, Function) else []

    def _gained(self, statement: ast.stmt, old: ast.List, new: ast.List) -> _Texts:
        """Return the texts that add the new elements of a list."""
        gained, lost = missing(old, new), missing(new, old)
        more, less = ([each for each in some if not self._refused.named(subject(each))] for some in (gained, lost))
        if less or not gained:
            names = "".join(f": {_shown(each)}" for each in more[:1])
            raise ValueError(f"line {statement.lineno} of the branch's{names}")
        if not more:
            return []
        listed = [(each.lineno, f"    {_segment(each, self._lines)},") for each in more]
        return [(more[0].lineno, f"{name_of(statement)} += ["), *listed, (more[-1].end_lineno or 0, "]")]


def _is_function(statement: ast.stmt) -> TypeGuard[Function]:
    """Return whether a statement is a function, but not an overload for type checkers."""
    decorators = {ast.unparse(each).rpartition(".")[2] for each in getattr(statement, "decorator_list", ())}
    return isinstance(statement, Function) and "overload" not in decorators


def _first_line(statement: ast.stmt) -> int:
    nodes: list[ast.stmt | ast.expr] = [statement, *getattr(statement, "decorator_list", [])]
    return min(each.lineno for each in nodes)


def _spelt(statement: ast.stmt, lines: list[str]) -> str:
    """Return the lines of a statement, with its decorators."""
    return "\n".join(lines[_first_line(statement) - 1 : statement.end_lineno])


def _segment(node: ast.expr, lines: list[str]) -> str:
    """Return the text of an expression. ``ast.get_source_segment`` would split the whole text each time."""
    found = [line.encode() for line in lines[node.lineno - 1 : node.end_lineno]]
    found[-1] = found[-1][: node.end_col_offset]
    found[0] = found[0][node.col_offset :]
    return b"\n".join(found).decode()


def _bound(statement: ast.stmt) -> list[tuple[str, str]]:
    """Return the names that a statement defines, each with its content."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        module = getattr(statement, "module", None)
        return [(each.asname or each.name.partition(".")[0], f"{module}.{each.name}") for each in statement.names]
    return [(name_of(statement), ast.dump(statement))]


def _label(statement: ast.stmt) -> str:
    """Return how a message names a statement."""
    has_name = isinstance(statement, Function | ast.ClassDef | ast.Assign | ast.AnnAssign)
    return f"`{name_of(statement)}`" if has_name else f"line {statement.lineno}"


def _shown(element: ast.expr) -> str:
    return f"{ast.unparse(subject(element))} in line {element.lineno}"
