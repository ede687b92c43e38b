"""What a branch of PyTorch changes in a Python file, as text that follows the release's: the last definition counts."""

from __future__ import annotations

import ast
from collections.abc import Collection
from itertools import chain

from ..inputs.python_names import names_needed_at_import
from .python_operators import Function, OfOperators, by_name, lists_of, missing, name_of, subject


class Difference:
    """The statements in which two versions of a Python file differ.

    Args:
        before: one version.
        after: the other.
        refused: the names of operators, as in native_functions.yaml. What belongs to them stays as ``before`` has it.

    Raises:
        SyntaxError: one of them is not Python of this version.
    """

    def __init__(self, before: str, after: str, refused: Collection[str] = ()) -> None:
        self._refused = OfOperators(refused)
        old_lines, self._lines = before.split("\n"), after.split("\n")
        self._old, self._new = (ast.parse(text).body for text in (before, after))
        spelt = {each: _spelt(each, old_lines) for each in self._old}
        spelt |= {each: _spelt(each, self._lines) for each in self._new}
        # Statements that are spelt alike need no comparison, which takes longer.
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
        """Whether they are the same, but for comments and formatting."""
        return [self._content[each] for each in self._old] == [self._content[each] for each in self._new]

    @property
    def left(self) -> list[str]:
        """What belongs to the operators that are refused: names, or lines."""
        olds = by_name(self._old)
        found = {each.lineno: _label(each) for each in self._added if name_of(each) in self._left}
        changed = self._added if self._refused.is_any else []
        lists = [both for each in changed if (both := lists_of(olds.get(name_of(each)), each))]
        elements = [each for both in lists for each in missing(*both) if self._refused.named(subject(each))]
        found |= {each.lineno: _shown(each) for each in elements}
        gone = [_label(each) for each in self._gone if name_of(each) in self._left]
        return list(dict.fromkeys([*(found[line] for line in sorted(found)), *gone]))

    def lines(self) -> str:
        """Return the text that, behind ``before``, makes it define what ``after`` does: imports, functions, new classes
        and other new statements, elements of lists. Each is at the line that it has in ``after``.

        Raises:
            ValueError: the line of ``before`` that text behind the file cannot change, or of ``after``.
        """
        lines = [""] * len(self._lines)
        for number, text in chain.from_iterable(self.texts()):
            for at, line in enumerate(text.split("\n"), number - 1):
                lines[at] = line if lines[at] in ("", line) else f"{lines[at]} {line.lstrip()}"
        return "\n".join(lines).rstrip("\n") + "\n" if any(lines) else ""

    def texts(self) -> list[list[tuple[int, str]]]:
        """Return the texts behind ``before`` for each statement that ``after`` adds or changes, with their lines there.

        Raises:
            ValueError: as ``lines``.
        """
        both = self._known & self._kept
        orders = [[text for each in body if (text := self._content[each]) in both] for body in (self._old, self._new)]
        if orders[0] != orders[1]:
            raise ValueError("the order of statements")
        gone = {name: each for each in self._gone if (name := name_of(each)) not in self._left}
        added = [each for each in self._added if name_of(each) not in self._left]
        found = [(each, self._texts(each, gone.pop(name_of(each), None))) for each in added]
        if gone := {name: each for name, each in gone.items() if not isinstance(each, ast.Import | ast.ImportFrom)}:
            raise ValueError(f"line {min(each.lineno for each in gone.values())} of the release's")
        before_names = dict(pair for each in self._old for pair in _bound(each))
        bound = [pair for each, texts in found if texts for pair in _bound(each)]
        changed = {name for name, what in bound if before_names.get(name) != what}
        stays = [each for each in self._gone if name_of(each) in self._left]
        rest = ast.Module([*(each for each in self._new if self._content[each] in self._known), *stays], [])
        if changed and (taken := names_needed_at_import(rest) & changed):
            raise ValueError(f"`{min(taken)}`, which other code of the file takes when it is imported")
        return [texts for _, texts in found if texts]

    def _texts(self, statement: ast.stmt, old: ast.stmt | None) -> list[tuple[int, str]]:
        """Return the texts that take a file from ``old``, if there is one, to ``statement``, with their lines."""
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        is_new = old is None and not isinstance(statement, ast.If | ast.Try | ast.With | ast.For | ast.While)
        if isinstance(old, ast.Assign | ast.AnnAssign):
            if lists := lists_of(old, statement):
                return self._gained(statement, *lists)
        elif not is_future and (is_new or (isinstance(old, Function) and not old.decorator_list)):
            return [(_first_line(statement), _spelt(statement, self._lines))]
        raise ValueError(f"line {statement.lineno} of the branch's")

    def _gained(self, statement: ast.stmt, old: ast.List, new: ast.List) -> list[tuple[int, str]]:
        """Return the texts that add the elements that a list gains."""
        gained, lost = missing(old, new), missing(new, old)
        more, less = ([each for each in some if not self._refused.named(subject(each))] for some in (gained, lost))
        if less or not gained:
            names = "".join(f": {_shown(each)}" for each in more[:1])
            raise ValueError(f"line {statement.lineno} of the branch's{names}")
        if not more:
            return []
        listed = [(each.lineno, f"    {_segment(each, self._lines)},") for each in more]
        return [(more[0].lineno, f"{name_of(statement)} += ["), *listed, (more[-1].end_lineno or 0, "]")]


def _first_line(statement: ast.stmt) -> int:
    nodes: list[ast.stmt | ast.expr] = [statement, *getattr(statement, "decorator_list", [])]
    return min(each.lineno for each in nodes)


def _spelt(statement: ast.stmt, lines: list[str]) -> str:
    """Return the lines of a statement."""
    return "\n".join(lines[_first_line(statement) - 1 : statement.end_lineno])


def _segment(node: ast.expr, lines: list[str]) -> str:
    """Return the text of an expression, as ``ast.get_source_segment``, which divides the whole text each time."""
    found = [line.encode() for line in lines[node.lineno - 1 : node.end_lineno]]
    found[-1] = found[-1][: node.end_col_offset]
    found[0] = found[0][node.col_offset :]
    return b"\n".join(found).decode()


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


def _shown(element: ast.expr) -> str:
    return f"{ast.unparse(subject(element))} in line {element.lineno}"
