"""Find what a C++ file of a checkout changes: statements that differ or use these, and a text with only these."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import cached_property
from itertools import chain, dropwhile, pairwise

from ..cpp.statements import Kind, Statement, start_with_comment, statements
from ..cpp.tokens import branch, conditions

# Statements of these kinds stay in each text: which of them a kept function needs is not determined.
_KEPT = {Kind.TYPE, Kind.MACRO, Kind.INCLUDE, Kind.DIRECTIVE, Kind.OTHER}

# Statements of these kinds can define functions: uses of macros do, too.
_DEFINING = {Kind.FUNCTION, Kind.REGISTRATION}

# The start of a function in a file that is one statement: a type, a name, parameters, and a brace; or a macro with
# the name.
_DEFINITION = re.compile(r"\( (\w+) \) \((?= [^;{}]* {)|(?<=[\w&*>] )(?!if|for|while|switch)(\w+) \((?= [^;{}]* {)")

# Members that code uses without naming them.
_IMPLICIT = {"operator", "begin", "end"}


class Code:
    """A C++ file that changed.

    Args:
        before: its text in the base; empty for a new file.
        after: its text in the working tree.
        names: names that changed elsewhere, for instance in a header.
    """

    def __init__(self, before: str, after: str, names: Collection[str] = ()) -> None:
        self._text = after
        self.statements = statements(after)
        theirs = statements(before)
        old, new = (_with_conditions(every) for every in (theirs, self.statements))
        left = Counter(old)
        self._changed = {i for i, key in enumerate(new) if not _takes(left, key)}
        self.gone = [each for each, key in zip(theirs, old, strict=True) if _takes(left, key)]
        self.is_new = not before
        is_whole = self.is_new or _directives(theirs) != _directives(self.statements)
        is_whole |= any(map(_has_unknown_users, [*self.gone, *(self.statements[i] for i in self._changed)]))
        self._changed |= _reordered_macros(theirs, self.statements)
        self._changed -= {i for i in self._changed if self.statements[i].kind in (Kind.INCLUDE, Kind.DIRECTIVE)}
        if is_whole:
            self._changed = {i for i, each in enumerate(self.statements) if each.kind is not Kind.INCLUDE}
        # A block counts as changed only through the statements in it.
        self._changed -= {each.block for each in self.statements}
        self._outside = frozenset(names)

    @cached_property
    def affected(self) -> set[int]:
        """The indices of the statements that changed, or that use one, directly or not."""
        found, names = set(self._changed), set(self._outside)
        new = {name for i in found for name in self._names_in(self.statements[i])} | names | self._names_gone
        while new:
            names |= new
            more = {
                i
                for i, each in enumerate(self.statements)
                if i not in found and each.kind not in (Kind.INCLUDE, Kind.DIRECTIVE) and not new.isdisjoint(each.words)
            }
            more -= {i for i in more if _defines_stub(self.statements[i])} | {each.block for each in self.statements}
            found |= more
            new = {name for i in more for name in self.statements[i].called} - names
        return found

    @property
    def _names_gone(self) -> set[str]:
        """The names of removed statements that others use: of an overload, a macro, a specialization of a template."""
        heads = {self.statements[i].before_body for i in self._changed if self.statements[i].kind is Kind.TYPE}
        return {name for each in self.gone if each.before_body not in heads for name in each.called}

    def _names_in(self, statement: Statement) -> Collection[str]:
        """Return the names of a changed statement that others use; if only functions of a class differ, theirs."""
        old = next((each for each in self.gone if each.before_body == statement.before_body), None)
        if statement.kind is not Kind.TYPE or old is None:
            return statement.called
        before, after = ({each.code: each for each in version.members} for version in (old, statement))
        differing = [
            each for each in (*before.values(), *after.values()) if (each.code in before) != (each.code in after)
        ]
        names = {name for each in differing for name in each.names}
        is_told = all(each.kind is Kind.FUNCTION and each.names for each in differing) and bool(before and after)
        return names if is_told and names.isdisjoint({*statement.names, *_IMPLICIT}) else statement.called

    @property
    def names(self) -> set[str]:
        """The names of the affected statements that others use."""
        changed = {name for i in self._changed for name in self._names_in(self.statements[i])}
        others = self.affected - self._changed
        return changed | {name for i in others for name in self.statements[i].called}

    @property
    def functions(self) -> set[str]:
        """The affected functions that other files can call."""
        every = [self.statements[i] for i in self.affected]
        defining = (each for each in every if each.kind in _DEFINING)
        found = {name for each in defining if not each.is_local for name in each.names}
        whole = " ".join(word for each in every if each.kind is Kind.WHOLE for word in each.tokens)
        return found | {name for names in _DEFINITION.findall(whole) for name in names if name}

    @property
    def shared(self) -> set[str]:
        """The affected functions that other files call by name: no class members, and none of ``TORCH_IMPL_FUNC``."""
        every = (self.statements[i] for i in self.affected)
        free = (each for each in every if each.kind is Kind.FUNCTION and not each.is_local and not _is_member(each))
        return {name for each in free for name in each.called}

    @property
    def edited(self) -> set[str]:
        """The functions that other files can call, that the base also has, and whose own text changed."""
        theirs = {name for each in self.gone for name in each.names}
        every = [self.statements[i] for i in self._changed]
        return {name for s in every if s.kind is Kind.FUNCTION and not s.is_local for name in s.names & theirs}

    @property
    def hidden(self) -> set[str]:
        """The functions that other files can call in the base, but no longer: they became `static`, or are now in a
        namespace without a name.
        """
        before = {name for each in self.gone if each.kind is Kind.FUNCTION and not each.is_local for name in each.names}
        here = [each for each in self.statements if each.kind is Kind.FUNCTION]
        there = {name for each in here if not each.is_local for name in each.names}
        return before & {name for each in here for name in each.names} - there

    @property
    def used(self) -> set[str]:
        """The names that affected statements use."""
        return {word for i in self.affected for word in self.statements[i].words - self.statements[i].names}

    def under(self, macros: Collection[str]) -> set[str]:
        """Return those of the ``macros`` that affected statements, or the conditions around them, name."""
        around = _conditions(self.statements)
        opened = {i: [self.statements[each[0]].words for each in around[i]] for i in self.affected}
        return {word for i, every in opened.items() for word in self.statements[i].words.union(*every)} & {*macros}

    @property
    def registrations(self) -> list[Statement]:
        """The affected statements that register kernels."""
        return [self.statements[i] for i in sorted(self.affected) if self.statements[i].kind is Kind.REGISTRATION]

    @property
    def removed(self) -> list[str]:
        """The registrations that the new text lacks: their macros, with the first argument."""
        there = {_registered(each) for each in self.statements}
        gone = (each for each in self.gone if each.kind is Kind.REGISTRATION and "{" not in each.tokens)
        return sorted({_registered(each) for each in gone} - there)

    @property
    def libraries(self) -> set[str]:
        """The namespaces of affected ``TORCH_LIBRARY`` blocks, each of which can be defined only once."""
        heads = {each.namespace for i in self.affected for each in [self.statements[i]] if _is_of_library(each)}
        return {head[head.index("TORCH_LIBRARY") + 2] for head in heads}

    def text(self, kernels: Collection[str], refused: Collection[str] = (), *, has_own: bool = True) -> str:
        """Return the text with only the code that ``kernels`` and affected registrations need, at the same lines;
        empty if there is none.

        Args:
            kernels: the names of functions.
            refused: the names of functions that must not be registered.
            has_own: whether to define needed functions again that are not affected, and that other files can call.
        """
        roots = {
            i
            for i, each in enumerate(self.statements)
            if (each.kind in _DEFINING and not each.names.isdisjoint(kernels))
            or (each.kind is Kind.REGISTRATION and i in self.affected and _is_taken(each, refused))
            or (each.kind is Kind.WHOLE and i in self.affected)
        }
        if not roots:
            return ""
        kept = roots | {i for i, each in enumerate(self.statements) if each.kind in _KEPT and each.block < 0}
        kept |= {i for i, each in enumerate(self.statements) if each.names == {"operator"}}
        left = [*kept]
        by_name: dict[str, list[int]] = {}
        for i, each in enumerate(self.statements):
            is_needed = has_own or each.is_local or i in self.affected
            if is_needed and each.kind in _DEFINING:
                for name in each.called:
                    by_name.setdefault(name, []).append(i)
        while left:
            for name in self.statements[left.pop()].words & by_name.keys():
                more = [i for i in by_name[name] if i not in kept]
                kept.update(more)
                left += more
        blocks = {self.statements[i].block for i in roots}
        kept |= {
            i for i, each in enumerate(self.statements) if i in blocks or (each.block in blocks and each.kind in _KEPT)
        }
        return self._without(each for i, each in enumerate(self.statements) if i not in kept)

    def declarations(self, names: Collection[str]) -> str:
        """Return the text of a header with only the statements that changed or declare ``names``, at the same lines;
        empty if there are none.
        """
        chosen = {i for i, each in enumerate(self.statements) if i in self._changed or not each.names.isdisjoint(names)}
        if not any(self.statements[i].kind not in (Kind.INCLUDE, Kind.DIRECTIVE) for i in chosen):
            return ""
        plain = {Kind.INCLUDE, Kind.DIRECTIVE, Kind.MACRO}
        return self._without(
            each for i, each in enumerate(self.statements) if i not in chosen and each.kind not in plain
        )

    def _without(self, left_out: Iterable[Statement]) -> str:
        """Replace statements, and the comments directly above them, by blank lines. Return the text."""
        parts, end = [], 0
        for each in sorted(left_out, key=lambda each: each.start):
            if each.start >= end:
                start = start_with_comment(self._text, each, end)
                parts += [self._text[end:start], re.sub(r"[^\n]", "", self._text[start : each.end])]
                end = each.end
        return "".join([*parts, self._text[end:]])


def _takes(left: Counter[Hashable], key: Hashable) -> bool:
    """Remove one statement equal to ``key`` from ``left``. Return whether there was one."""
    is_there = left[key] > 0
    left[key] -= is_there
    return is_there


def _conditions(every: Iterable[Statement]) -> list[tuple[tuple[int, ...], ...]]:
    """Return the indices of the conditional directives around each statement, as ``conditions`` does."""
    return conditions([each.tokens[0] for each in every])


def _with_conditions(every: Sequence[Statement]) -> list[Hashable]:
    """Return a key for each statement: the conditions around it, and its code. Equal keys mean the same."""

    def key(each: Statement, around: Iterable[Iterable[int]]) -> Hashable:
        is_condition = each.kind is Kind.DIRECTIVE and branch(each.tokens[0])
        return () if is_condition else tuple(tuple(every[i].code for i in branches) for branches in around), each.code

    return [*map(key, every, _conditions(every))]


def _reordered_macros(before: Iterable[Statement], after: Sequence[Statement]) -> set[int]:
    """Return the indices of the definitions of macros whose sequence of definitions differs from before."""
    old, new = defaultdict[str, list[Hashable]](list), defaultdict[str, list[int]](list)
    for each in before:
        for name in each.names if each.kind is Kind.MACRO else ():
            old[name].append(each.code)
    for i, each in enumerate(after):
        for name in each.names if each.kind is Kind.MACRO else ():
            new[name].append(i)
    return {i for name, numbers in new.items() if [after[i].code for i in numbers] != old[name] for i in numbers}


def _is_member(function: Statement) -> bool:
    """Return whether a function is defined with a qualified name, such as ``Tensor Class::function(``."""
    return any(before == "::" and name in function.names for before, name in pairwise(function.before_body))


def _registered(statement: Statement) -> str:
    """Return what identifies a registration: ``REGISTER_DISPATCH(add_stub``."""
    head = "".join(dropwhile(lambda part: not part.startswith("TORCH_LIBRARY"), statement.namespace))
    return f"{head} {''.join(statement.tokens).partition(',')[0]}".lstrip()


def _is_of_library(statement: Statement) -> bool:
    return statement.block >= 0 and "TORCH_LIBRARY" in statement.namespace


def _is_taken(statement: Statement, refused: Collection[str]) -> bool:
    """Return whether a registration can be run again, and names no refused function."""
    return statement.words.isdisjoint(refused) and not _is_of_library(statement)


def _defines_stub(statement: Statement) -> bool:
    return statement.kind is Kind.REGISTRATION and statement.tokens[0] == "DEFINE_DISPATCH"


def _has_unknown_users(statement: Statement) -> bool:
    """Return whether the users of a statement cannot be found by name: it has none, or is an ``operator``."""
    if statement.kind is Kind.FUNCTION:
        return statement.names == {"operator"}
    return statement.kind is Kind.OTHER and not statement.names and statement.tokens[0] != "static_assert"


def _directives(every: Sequence[Statement]) -> list[tuple[str, ...]]:
    """Return the directives of a file, without conditional ones that surround only includes."""
    around = _conditions(every)
    other = (Kind.INCLUDE, Kind.DIRECTIVE)
    used = {i for each, chains in zip(every, around, strict=False) if each.kind not in other for i in chain(*chains)}

    found = []
    for i, each in enumerate(every):
        kind = branch(each.tokens[0])
        is_unmatched = kind in ("el", "endif") and not around[i]
        place = around[i][-1][0] if kind == "endif" and around[i] else i
        if each.kind is Kind.DIRECTIVE and (not kind or is_unmatched or place in used):
            found.append(each.code)
    return found
