"""Errors of g++, nvcc and links, each with the user's source line that causes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..inputs.entries import Entry
from ..inputs.native import FUNCTIONS, NativeFolders

if TYPE_CHECKING:
    from ..check.cplusplus import Definition, Source

_PLACED = re.compile(r"(\S[^:\n]*):(\d+)(?::(\d+))?: (?:fatal )?error\b[^:]*: (.*)")
# The assembler, the driver and the linker print no column, and often no line.
_UNPLACED = re.compile(r"(\S[^:\n]*)(?::(\d+))?: (?:fatal )?[Ee]rror: (.*)")
_REMARK = re.compile(r"\S.*: (?:note|warning|remark)\b.*?: ")
_FUNCTION = re.compile(r"\S+: In (?:\w+ )*(?:function|instantiation of|constructor)(?: '(.*?)'(?: \[.*)?)?:$")
_ELSEWHERE = re.compile(r"\S+: (?:At|In) .*:$")
_CHAIN = re.compile(r"\s*(?:In file included )?from (\S+?):(\d+)(?::\d+)?[,:]$")
_REQUIRED = re.compile(r"(\S+?):(\d+)(?::(\d+))?:   (?:recursively )?required (?:from|by)")
_CALLED = re.compile(r"(\S+?):(\d+):(\d+): note: called from here")
_EXPANDED = re.compile(r"(\S+?):(\d+):(\d+): note: in expansion of macro")
# g++ does not print where a macro that pastes names together is used.
_DEFINED = re.compile(r"\S+: note: in definition of macro '(\w+)'")
# nvcc prints the instantiation of a template after the error.
_INSTANTIATED = re.compile(r"\s+.* at line (\d+) of (\S+)$")

# Begins a line about the errors that follow.
COMPILED_FOR = "compiled for "


@dataclass
class Diagnostic:
    """An error.

    Args:
        file: the file that the compiler names; for the driver and the assembler, the program or file that they name.
        line: 0 if the message has none.
        column: 0 if the message has none.
        message: the error message.
        excerpt: the source line and the marks below it.
        function: the function that contains it; empty outside of functions.
        user: the file and line in the native folder that cause it; None if unknown.
        note: the compiler's first note, with its place; may be empty.
        compiled_for: the CPU capability, with its flags; empty for other sources.
    """

    file: str
    line: int
    column: int
    message: str
    excerpt: list[str]
    function: str
    user: tuple[str, int, int] | None
    note: str = ""
    compiled_for: str = ""

    @property
    def kind(self) -> str:
        """The message without names but those of macros, which cause others: it is the same for similar errors."""
        return re.sub(r"'(?!AT_)[^']*'|\"(?!AT_)[^\"]*\"", "''", re.sub(r"; did you mean .*", "", self.message))


def diagnostics(output: Iterable[str], *folders: Path) -> list[Diagnostic]:
    """Return the errors in the lines of a compiler, once each, with the user's lines in ``folders``."""
    once: dict[tuple[str, int, int, str], Diagnostic] = {}
    for each in _read(output, tuple(f"{folder}/" for folder in folders)):
        once.setdefault((each.file, each.line, each.column, each.kind), each)
    return list(once.values())


def _read(output: Iterable[str], own: tuple[str, ...]) -> Iterator[Diagnostic]:
    function, required, chain, compiled_for = "", None, None, ""
    current: Diagnostic | None = None
    is_excerpt = False
    for text in (line.rstrip("\n") for line in output):
        if text.startswith(COMPILED_FOR):
            compiled_for = text.removeprefix(COMPILED_FOR)
        elif match := _PLACED.match(text) or _UNPLACED.match(text):
            if current:
                yield current
            place = (match[1], int(match[2] or 0), int(match[3] or 0) if match.re is _PLACED else 0)
            user = place if place[0].startswith(own) else required or chain
            current = Diagnostic(*place, match[match.re.groups], [], function, user, compiled_for=compiled_for)
            required, is_excerpt = None, True
        elif (match := _EXPANDED.match(text)) and current and match[1].startswith(own):
            # The macro is defined in a header; the last of several expansions is the user's code.
            current.user = current.user if current.file.startswith(own) else (match[1], int(match[2]), int(match[3]))
            is_excerpt = False
        elif (match := _DEFINED.match(text)) and current and chain and not current.file.startswith(own):
            current.user = _use(match[1], Path(chain[0]), current.message) or current.user
            is_excerpt = False
        elif (match := _CALLED.match(text)) and current and match[1].startswith(own):
            # It is an error of a header that calls what the compiler has to inline.
            current.user = current.user if current.file.startswith(own) else (match[1], int(match[2]), int(match[3]))
            is_excerpt = False
        elif _REMARK.match(text):
            if current and not current.note and re.search(r": note: (?!in (?:expansion|definition) of)", text):
                current.note = text
            required, is_excerpt = None, False
        elif match := _REQUIRED.match(text):
            required = (match[1], int(match[2]), int(match[3] or 0)) if match[1].startswith(own) else required
            is_excerpt = False
        elif match := _CHAIN.match(text):
            # An include chain begins with "In file"; the user's file is the last that it names.
            chain = None if text.startswith("In file") else chain
            chain = (match[1], int(match[2]), 0) if match[1].startswith(own) else chain
            is_excerpt = False
        elif match := _FUNCTION.match(text):
            function, is_excerpt = match[1] or "", False
        elif _ELSEWHERE.match(text):
            function, is_excerpt = "", False
        elif (match := _INSTANTIATED.match(text)) and current and not current.user and match[2].startswith(own):
            current.user = (match[2], int(match[1]), 0)
        elif current and is_excerpt and text.startswith(" ") and len(current.excerpt) < 2:
            current.excerpt.append(text)
    if current:
        yield current


def _use(macro: str, file: Path, message: str) -> tuple[str, int, int] | None:
    """Return where ``file`` uses ``macro`` with a name that also occurs in ``message``."""
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    uses = re.finditer(rf"\b{macro}\(\s*(\w+)", text)
    found = next((use for use in uses if re.search(rf"_{use[1]}\b", message)), None)
    return (str(file), text.count("\n", 0, found.start()) + 1, 0) if found else None


def of_undefined(callers: Mapping[str, Iterable[str]], natives: NativeFolders) -> str:
    """Explain undefined symbols, demangled, each with the sources that need it: their place, and what to do."""
    functions, sources = natives.entries(FUNCTIONS), _read_sources(natives)
    lines: dict[str, None] = {}
    for symbol, files in callers.items():
        entry = next((each for each in functions if _asks_for(each, symbol)), None)
        if entry:
            place, what = "{}:{}".format(*entry.place("dispatch")), f"the kernel of {entry.operator}"
            said = [
                f"{place}: no file defines {symbol}, {what}; define it in a .cpp file with exactly these parameters"
            ]
        else:
            said = [_missing(file, symbol, sources) for file in files]
        lines.update(dict.fromkeys(said))
    return "\n".join(lines)


def of_repeated(owners: Mapping[str, Iterable[str]], natives: NativeFolders) -> str:
    """Explain symbols that several sources define, like ``of_undefined``."""
    sources = _read_sources(natives)
    return "\n".join(_twice(symbol, [*dict.fromkeys(files)], sources) for symbol, files in owners.items())


def _read_sources(natives: NativeFolders) -> list[Source]:
    from ..check.cplusplus import read_sources  # tree-sitter, which no other error needs

    return read_sources(natives)


def _missing(caller: str, symbol: str, sources: list[Source]) -> str:
    name = _name_of(symbol)
    what = f"calls {symbol}, which is not defined"
    own = next((source for source in sources if str(source.path) == caller), None)
    line = _line_of_call(own, name) if own else 0
    others = _defining(symbol, sources, are_alike=False)
    todo = "define it in a .cpp file of the folder, or do not call it"
    if others:
        todo = f"{_place(others[0])} defines `{others[0]}`: declare and call it with the same namespace and parameters"
    return f"{caller}{f':{line}' if line else ''}: {what}; {todo}"


def _line_of_call(source: Source, name: str) -> int:
    """Return the first line of ``source`` that mentions a function and does not declare it; 0 if there is none."""
    declared = {each.line for each in source.declarations if each.name == name}
    lines = enumerate(source.code.splitlines(), 1)
    return next((n for n, text in lines if n not in declared and re.search(rf"\b{re.escape(name)}\b", text)), 0)


def _twice(symbol: str, files: list[str], sources: list[Source]) -> str:
    places, objects = _defining(symbol, sources, are_alike=True), " and ".join(files)
    if len(places) > 1:
        first, second = places[:2]
        todo = "give one another name, or write `static` before both"
        return f"{_place(second)}: defines {symbol}, which {_place(first)} defines, too; {todo}"
    if places and places[0].file.suffix in (".h", ".hpp", ".cuh"):
        todo = "write `inline` before it"
        return f"{_place(places[0])}: defines {symbol} in a header, included by {objects}; {todo}"
    where = _place(places[0]) if places else objects
    if len(files) == 1:
        return f"{where}: {symbol} is defined once for each CPU capability; move it to a .cpp file outside of cpu/"
    return f"{where}: {symbol} is defined by {objects}; remove one definition"


def _defining(symbol: str, sources: list[Source], *, are_alike: bool) -> list[Definition]:
    """Return the definitions of the function, or of all with its name, that other files can call."""
    scope, name = symbol.partition("(")[0].rpartition("::")[0], _name_of(symbol)
    every = [each for source in sources for each in source.definitions]
    found = [each for each in every if each.name == name and not each.macro and not each.is_local]
    parameters = re.sub(r"<[^<>]*>", "", symbol.partition("(")[2].rpartition(")")[0])
    count = parameters.count(",") + 1 if parameters else 0
    return [each for each in found if not are_alike or (each.namespace == scope and len(each.parameters) == count)]


def _place(definition: Definition) -> str:
    return f"{definition.file}:{definition.line}"


def _name_of(symbol: str) -> str:
    return re.sub(r"<.*", "", symbol.partition("(")[0]).rpartition("::")[2]


def _asks_for(entry: Entry, symbol: str) -> bool:
    scope, _, kernel = symbol.partition("(")[0].rpartition("::")
    if kernel in ("impl", "meta"):  # of a class
        scope, _, kernel = scope.rpartition("::")
        kernel = kernel.removeprefix("structured_")
    names = (name.rpartition("::") for name in entry.kernels.values())
    wanted = {(f"{namespace or 'at'}::native", name) for namespace, _, name in names}
    own = entry.operator.replace(".", "_")
    return (scope, kernel) in {*wanted, ("at::native", own), ("at::meta", own)}
