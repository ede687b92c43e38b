"""Place the C++ of native folders in PyTorch's tree: files, adapted to its build, and functions for formulas.

The tree's build compiles each source in ``cpu/`` for all CPU capabilities, and does not search the folder's root for
headers. Functions for formulas go into FunctionsManual.cpp and its header.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ..core.files import write_if_changed
from ..cpp.functions import functions
from ..cpp.includes import INCLUDE, with_places
from ..cpp.statements import Statement, start_with_comment, statements
from ..cpp.tokens import conditions
from ..inputs.helpers import NAMESPACE
from ..inputs.native import NativeFiles, is_for_capabilities

# PyTorch's header of this name needs Python. Graft's own, in compile/templates, does not.
_EXTENSION = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)[<"]torch/extension\.h[>"]', re.M)


def places(native: NativeFiles) -> dict[Path, Path]:
    """Return the place of each C++ file, below ATen's own folder."""
    found = {name: name for name in native.cplusplus if name not in (*native.helpers, *native.helper_headers)}
    for name in native.sources:
        if is_for_capabilities(name):
            place = Path(f"{name.stem}_cpu.cpp")
            while place in found.values():
                place = place.with_stem(f"{place.stem}_")
            found[name] = place
    return found


def write_placed(native: NativeFiles, where: Mapping[Path, Path], folder: Path) -> dict[Path, Path]:
    """Return each C++ file by its place: the file, or a copy in ``folder`` if its text differs there."""
    found = {}
    for name, place in where.items():
        path = native.paths[name]
        text = path.read_bytes().decode("latin-1")  # what is not an include stays as it is
        changed = _EXTENSION.sub(r"\1<torch/all.h>", with_places(native.text_if_there, name, text, where))
        found[place] = folder / place if changed != text else path
        if changed != text:
            write_if_changed(found[place], changed.encode("latin-1"))
    return found


def helpers_in(text: str) -> list[Statement]:
    """Return a source's statements in PyTorch's namespace for functions of formulas. An ``#if`` is one statement."""
    every = [each for each in statements(text) if "::".join(filter(None, each.namespace)) == NAMESPACE]
    found: list[Statement] = []
    for each, around in zip(every, conditions([each.tokens[0] for each in every]), strict=False):
        if around:
            tokens, names = (*found[-1].tokens, *each.tokens), found[-1].names | each.names
            found[-1] = replace(found[-1], tokens=tokens, names=names, end=each.end)
        else:
            found.append(each)
    return found


def with_functions(theirs: str, ours: Iterable[str]) -> str:
    """Replace functions of PyTorch's source by those of folders' sources. Return the text.

    Other statements of a folder come before the first function that it replaces, unless PyTorch's source has them, too.
    """
    for text in ours:
        found = helpers_in(theirs)
        there, codes = {key: each for each in found if (key := _key(theirs, each))}, {each.code for each in found}
        new = [(_key(text, each), each) for each in helpers_in(text) if each.code not in codes]
        more = [each for key, each in new if key not in there]
        parts = [
            (start_with_comment(theirs, there[key]), there[key].end, _with_comment(text, each))
            for key, each in new
            if key in there
        ]
        first = min((start for start, *_ in parts), default=theirs.rindex("\n} // namespace") + 1)
        for start, end, part in sorted([*parts, (first, first, _written(text, more))], reverse=True):
            theirs = theirs[:start] + part + theirs[end:]
        theirs = _including(theirs, text)
    return theirs


def with_declarations(theirs: str, ours: Iterable[str]) -> str:
    """Replace declarations of PyTorch's header by those of the same names in folders' headers. Return the text."""
    for text in ours:
        new = helpers_in(text)
        names = {name for each in new for name in each.names}
        gone = [each for each in helpers_in(theirs) if each.names & names]
        end = theirs.rindex("} // namespace")
        theirs = theirs[:end] + _written(text, new) + theirs[end:]
        for each in reversed(gone):
            theirs = theirs[: start_with_comment(theirs, each)] + theirs[each.end :]
        theirs = _including(theirs, text)
    return theirs


def _key(text: str, statement: Statement) -> tuple[str, ...]:
    """Return what identifies the function that a statement defines; empty for other statements."""
    found = functions(text[statement.start : statement.end], Path())
    return next((definition.key for definition, each in found if each.has_body), ())


def _with_comment(text: str, statement: Statement) -> str:
    return text[start_with_comment(text, statement) : statement.end]


def _written(text: str, chosen: Iterable[Statement]) -> str:
    return "".join(
        f"namespace {{\n\n{_with_comment(text, each)}\n\n}} // namespace\n\n"
        if "" in each.namespace
        else f"{_with_comment(text, each)}\n\n"
        for each in chosen
    )


def _including(text: str, ours: str) -> str:
    """Add the includes of ``ours`` that a text lacks, after its own. Return the text."""
    theirs = [*INCLUDE.finditer(text)]
    has = {each[1] for each in theirs}
    new = [each[0] for each in INCLUDE.finditer(ours) if each[1] not in has and "FunctionsManual" not in each[1]]
    end = theirs[-1].end() + 1 if theirs else 0
    return text[:end] + "".join(f"{each}\n" for each in new) + text[end:]
