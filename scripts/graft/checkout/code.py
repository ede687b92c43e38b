"""What a C++ file of a checkout changes: its statements that differ, what names these, and a text with these alone."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import cached_property
from itertools import dropwhile, pairwise

from .statements import Kind, Statement, statements

# Statements of these kinds stay in each text: what a kept function needs of them is not asked.
_KEPT = {Kind.TYPE, Kind.MACRO, Kind.INCLUDE, Kind.DIRECTIVE, Kind.OTHER}

# Statements of these kinds can define functions: uses of macros do, too.
_DEFINING = {Kind.FUNCTION, Kind.REGISTRATION}

# What begins functions in a file that is one statement: a type, a name, parameters, and a brace; or a macro with the
# name.
_DEFINITION = re.compile(r"\( (\w+) \) \((?= [^;{}]* {)|(?<=[\w&*>] )(?!if|for|while|switch)(\w+) \((?= [^;{}]* {)")

# Members that code uses without their names.
_IMPLICIT = {"operator", "begin", "end"}

_COMMENTS = re.compile(r"(?:[ \t]*//[^\n]*\n)+[ \t]*\Z")


class Code:
    """A C++ file that changed.

    Args:
        before: its text in the base; empty for a new file.
        after: its text in the working tree.
        names: what changed elsewhere, for instance in a header.
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
        is_whole = self.is_new or _conditions(theirs) != _conditions(self.statements)
        is_whole |= any(map(_has_unknown_users, [*self.gone, *(self.statements[i] for i in self._changed)]))
        self._changed |= _reordered_macros(theirs, self.statements)
        self._changed -= {i for i in self._changed if self.statements[i].kind in (Kind.INCLUDE, Kind.DIRECTIVE)}
        if is_whole:
            self._changed = {i for i, each in enumerate(self.statements) if each.kind is not Kind.INCLUDE}
        # Blocks change with what is in them.
        self._changed -= {each.block for each in self.statements}
        self._outside = frozenset(names)

    @cached_property
    def affected(self) -> set[int]:
        """The numbers of the statements that changed, or name what did."""
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
        """What others name of statements that are gone: an overload, a macro, a case of a template."""
        heads = {self.statements[i].head for i in self._changed if self.statements[i].kind is Kind.TYPE}
        return {name for each in self.gone if each.head not in heads for name in each.called}

    def _names_in(self, statement: Statement) -> Collection[str]:
        """Return what others name of a changed statement: of a class where only functions differ, these."""
        old = next((each for each in self.gone if each.head == statement.head), None)
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
        """What others name of the affected statements."""
        changed = {name for i in self._changed for name in self._names_in(self.statements[i])}
        others = self.affected - self._changed
        return changed | {name for i in others for name in self.statements[i].called}

    @property
    def functions(self) -> set[str]:
        """The affected functions that others can call."""
        every = [self.statements[i] for i in self.affected]
        defining = (each for each in every if each.kind in _DEFINING)
        found = {name for each in defining if not each.is_local for name in each.names}
        whole = " ".join(word for each in every if each.kind is Kind.WHOLE for word in each.tokens)
        return found | {name for names in _DEFINITION.findall(whole) for name in names if name}

    @property
    def shared(self) -> set[str]:
        """The affected functions that others call by their names: no members of classes, none that macros define."""
        every = (self.statements[i] for i in self.affected)
        free = (each for each in every if each.kind is Kind.FUNCTION and not each.is_local and not _is_member(each))
        return {name for each in free for name in each.called}

    @property
    def edited(self) -> set[str]:
        """The functions that others can call, that the base has, too, and whose own text changed."""
        theirs = {name for each in self.gone for name in each.names}
        every = [self.statements[i] for i in self._changed]
        return {name for s in every if s.kind is Kind.FUNCTION and not s.is_local for name in s.names & theirs}

    @property
    def hidden(self) -> set[str]:
        """The functions that others can call in the base, and that only this file sees now: `static`, or in a namespace
        without a name.
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
        """Return those of the macros that conditions in affected statements, or around them, ask for."""
        found, around = set[str](), list[frozenset[str]]()
        for i, each in enumerate(self.statements):
            if each.kind is Kind.DIRECTIVE:
                word = each.tokens[0].replace("#", " ").split()[0]
                around = [*around, each.words] if word.startswith("if") else around[:-1] if word == "endif" else around
            elif i in self.affected:
                found |= each.words.union(*around).intersection(macros)
        return found

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
        """The namespaces that the text defines operators in and that can be defined only once."""
        heads = {each.namespace for i in self.affected for each in [self.statements[i]] if _is_of_library(each)}
        return {head[head.index("TORCH_LIBRARY") + 2] for head in heads}

    def text(self, kernels: Collection[str], refused: Collection[str] = (), *, has_own: bool = True) -> str:
        """Return the text with what is needed for ``kernels`` and for the affected registrations, at the same lines;
        empty if that is nothing.

        Args:
            kernels: the names of functions.
            refused: names of functions for which nothing is registered.
            has_own: whether functions that others can call, and that are needed but not affected, are defined again.
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
        """Return the text of a header with the statements that changed, or are for ``names``, at the same lines; empty
        if there are none.
        """
        chosen = {i for i, each in enumerate(self.statements) if i in self._changed or not each.names.isdisjoint(names)}
        if not any(self.statements[i].kind not in (Kind.INCLUDE, Kind.DIRECTIVE) for i in chosen):
            return ""
        plain = {Kind.INCLUDE, Kind.DIRECTIVE, Kind.MACRO}
        return self._without(
            each for i, each in enumerate(self.statements) if i not in chosen and each.kind not in plain
        )

    def _without(self, left_out: Iterable[Statement]) -> str:
        """Return the text with blank lines in the place of statements, and of the comments directly above them."""
        parts, end = [], 0
        for each in sorted(left_out, key=lambda each: each.start):
            if each.start >= end:
                above = _COMMENTS.search(self._text, end, each.start)
                start = above.start() if above else each.start
                parts += [self._text[end:start], re.sub(r"[^\n]", "", self._text[start : each.end])]
                end = each.end
        return "".join([*parts, self._text[end:]])


def _takes(left: Counter[Hashable], key: Hashable) -> bool:
    """Return whether there is the same statement left, which is taken."""
    is_there = left[key] > 0
    left[key] -= is_there
    return is_there


def _with_conditions(every: Iterable[Statement]) -> list[Hashable]:
    """Return what two statements have in common that mean the same: the conditions around them, and their code."""
    found: list[Hashable] = []
    around: list[tuple[str, ...]] = []
    for each in every:
        word = re.match(r"\s*#\s*(if|el|endif)", each.tokens[0]) if each.kind is Kind.DIRECTIVE else None
        if word and word[1] == "endif":
            around = around[:-1]
        elif word and word[1] == "el" and around:
            around = [*around[:-1], (*around[-1], *each.code)]
        found.append((() if word else tuple(around), each.code))
        around += [each.code] if word and word[1] == "if" else []
    return found


def _reordered_macros(before: Iterable[Statement], after: Sequence[Statement]) -> set[int]:
    """Return the numbers of macros that are defined several times, if that is in another order than before."""
    old, new = defaultdict[str, list[Hashable]](list), defaultdict[str, list[int]](list)
    for each in before:
        for name in each.names if each.kind is Kind.MACRO else ():
            old[name].append(each.code)
    for i, each in enumerate(after):
        for name in each.names if each.kind is Kind.MACRO else ():
            new[name].append(i)
    return {i for name, numbers in new.items() if [after[i].code for i in numbers] != old[name] for i in numbers}


def _is_member(function: Statement) -> bool:
    """Return whether a function is that of a class, or of a namespace that is named: ``Tensor Class::function(``."""
    return any(before == ":" and name in function.names for before, name in pairwise(function.head))


def _registered(statement: Statement) -> str:
    """Return what tells a registration from others: ``REGISTER_DISPATCH(add_stub``."""
    head = "".join(dropwhile(lambda part: not part.startswith("TORCH_LIBRARY"), statement.namespace))
    return f"{head} {''.join(statement.tokens).partition(',')[0]}".lstrip()


def _is_of_library(statement: Statement) -> bool:
    return statement.block >= 0 and "TORCH_LIBRARY" in statement.namespace


def _is_taken(statement: Statement, refused: Collection[str]) -> bool:
    """Return whether a registration can be run again, and is for nothing that is refused."""
    return statement.words.isdisjoint(refused) and not _is_of_library(statement)


def _defines_stub(statement: Statement) -> bool:
    return statement.kind is Kind.REGISTRATION and statement.tokens[0] == "DEFINE_DISPATCH"


def _has_unknown_users(statement: Statement) -> bool:
    """Return whether nobody can tell what a statement is for: it has no name, or is an operator."""
    if statement.kind is Kind.FUNCTION:
        return statement.names == {"operator"}
    return statement.kind is Kind.OTHER and not statement.names and statement.tokens[0] != "static_assert"


def _conditions(every: Iterable[Statement]) -> list[tuple[str, ...]]:
    """Return the conditions in a file that are about more than includes."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for each in every:
        if each.kind is Kind.DIRECTIVE:
            word = re.match(r"\s*#\s*(\w+)", each.tokens[0])
            what = word[1] if word else ""
            if what in ("else", "elif") and found and found[-1][0] in ("else", "elif"):
                continue
            if what == "endif":
                while found and found[-1][0] in ("else", "elif"):
                    found.pop()
                if found and found[-1][0].startswith("if"):
                    found.pop()
                    continue
            found.append((what, each.code))
        elif each.kind is not Kind.INCLUDE and (not found or found[-1][0]):
            found.append(("", ()))
    return [code for what, code in found if what]
