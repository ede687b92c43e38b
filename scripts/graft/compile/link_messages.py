"""What the linker says, at files and entries of the native folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ..check.cplusplus import Definition, Source, read_sources
from ..inputs.entries import Entry, read_entries
from ..inputs.native import FUNCTIONS

# What GNU ld says of a duplicate symbol, and gold, which links while sources are being edited.
_REPEATED = (
    r"^(.*?):(?:\(.*|\d+): multiple definition of `(.+?)'; (?:\S+?\.o:)?(\S+?):(?:\(|\d).*first defined here$",
    r"^.*: error: (\S+): multiple definition of '(.+?)'\n.*: (\S+): previous definition here$",
)


def of_linker(output: str, native: Path) -> str:
    """Explain the linker's ``output``: each undefined or duplicate symbol, its place, and what to do.

    Args:
        output: the output of GNU ld or gold.
        native: the folder with the user's files.
    """
    functions, sources = read_entries(native / FUNCTIONS), read_sources([native])
    lines: dict[str, None] = {}
    for caller, symbol in _undefined(output):
        line = next((_blame_entry(symbol, e) for e in functions if _asks_for(e, symbol)), None)
        lines[line or _missing(caller, symbol, sources)] = None
    for symbol, objects in _repeated(output):
        lines[_twice(symbol, objects, sources)] = None
    return "\n".join(lines) or output


def _undefined(output: str) -> Iterator[tuple[str, str]]:
    """Yield the undefined symbols, each with the source that the linker names."""
    for match in re.finditer(r"^(.*): undefined reference to `(.+?)'$", output, re.M):
        where = match[1].removeprefix("/usr/bin/ld: ")
        yield re.sub(r":\(\.text.*?\)$", "", where), match[2]


def _repeated(output: str) -> Iterator[tuple[str, str]]:
    """Yield the duplicate symbols, each with both sources or objects."""
    for match in (match for pattern in _REPEATED for match in re.finditer(pattern, output, re.M)):
        yield match[2], f"{match[1].removeprefix('/usr/bin/ld: ')} and {match[3]}"


def _missing(caller: str, symbol: str, sources: list[Source]) -> str:
    name = _name_of(symbol)
    what = f"calls {symbol}, which is not defined"
    own = next((source for source in sources if str(source.path) == caller), None)
    line = _line_of_call(own, name) if own else 0
    others = [d for d in _defining(symbol, sources, are_alike=False) if not d.is_local]
    todo = "define it in a .cpp file of the folder, or do not call it"
    if others:
        todo = f"{_place(others[0])} defines `{others[0]}`: declare and call it with the same namespace and parameters"
    return f"{caller}{f':{line}' if line else ''}: {what}; {todo}"


def _line_of_call(source: Source, name: str) -> int:
    """Return the first line of ``source`` that mentions a function and does not declare it; 0 if there is none."""
    declared = {each.line for each in source.declarations if each.name == name}
    lines = enumerate(source.code.splitlines(), 1)
    return next((n for n, text in lines if n not in declared and re.search(rf"\b{re.escape(name)}\b", text)), 0)


def _twice(symbol: str, objects: str, sources: list[Source]) -> str:
    places = [d for d in _defining(symbol, sources, are_alike=True) if not d.is_local]
    if len(places) > 1:
        first, second = places[:2]
        todo = "give one another name, or write `static` before both"
        return f"{_place(second)}: defines {symbol}, which {_place(first)} defines, too; {todo}"
    if places and places[0].file.suffix in (".h", ".hpp", ".cuh"):
        todo = "write `inline` before it"
        return f"{_place(places[0])}: defines {symbol} in a header, included by {objects}; {todo}"
    where = _place(places[0]) if places else objects
    return f"{where}: {symbol} is defined by {objects}; remove one definition"


def _defining(symbol: str, sources: list[Source], *, are_alike: bool) -> list[Definition]:
    """Return the definitions of the function, or of others with its name."""
    scope, name = symbol.partition("(")[0].rpartition("::")[0], _name_of(symbol)
    found = [d for source in sources for d in source.definitions if d.name == name and not d.macro]
    if not are_alike:
        return found
    count = _parameters(symbol)
    return [d for d in found if d.namespace == scope and len(d.parameters) == count]


def _parameters(symbol: str) -> int:
    """Return the number of parameters of a demangled function."""
    inner = re.sub(r"<[^<>]*>", "", symbol.partition("(")[2].rpartition(")")[0])
    return inner.count(",") + 1 if inner else 0


def _place(definition: Definition) -> str:
    return f"{definition.file}:{definition.line}"


def _name_of(symbol: str) -> str:
    return re.sub(r"<.*", "", symbol.partition("(")[0]).rpartition("::")[2]


def _kernel_of(symbol: str) -> str:
    """Return the name of the function ``symbol`` in ``dispatch:``."""
    path = symbol.partition("(")[0].split("::")
    if len(path) > 1 and path[-1] in ("impl", "meta"):  # structured_<kernel>::impl
        return path[-2].removeprefix("structured_")
    return path[-1]


def _asks_for(entry: Entry, symbol: str) -> bool:
    kernel = _kernel_of(symbol)
    is_named = kernel in {name.rpartition("::")[2] for name in entry.kernels.values()}
    return is_named or entry.operator.replace(".", "_") == kernel


def _blame_entry(symbol: str, entry: Entry) -> str:
    file, line, _ = entry.place("dispatch")
    what = f"no file defines {symbol}, the kernel of {entry.operator}"
    return f"{file}:{line}: {what}; define it in a .cpp file with exactly these parameters"
