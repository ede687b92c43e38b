"""Explain undefined and repeated symbols of a link: their place in the native folder, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..cpp.functions import Definition
from ..cpp.sources import Source
from ..inputs.entries import Entry
from ..inputs.native import FUNCTIONS, NativeFolders
from ..inputs.sources import read_sources


def explain_undefined(callers: Mapping[str, Iterable[str]], natives: NativeFolders) -> str:
    """Return a line for each undefined symbol: where it is called, and what to do.

    Args:
        callers: the sources that need each symbol, by its demangled name.
        natives: the native folders.
    """
    functions, sources = natives.entries(FUNCTIONS), read_sources(natives)
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


def explain_repeated(owners: Mapping[str, Iterable[str]], natives: NativeFolders) -> str:
    """Return a line for each symbol that several sources define: where, and what to do.

    Args:
        owners: the sources that define each symbol, by its demangled name.
        natives: the native folders.
    """
    sources = read_sources(natives)
    return "\n".join(_twice(symbol, [*dict.fromkeys(files)], sources) for symbol, files in owners.items())


def _missing(caller: str, symbol: str, sources: list[Source]) -> str:
    stub = re.search(r"\bStock<[\w:]*?(\w+)_DECLARE_DISPATCH_type", symbol)
    name = "stock::of" if stub else _name_of(symbol)
    what = f"calls {symbol}, which is not defined"
    own = next((source for source in sources if str(source.path) == caller), None)
    line = _line_of_call(own, name) if own else 0
    others = _defining(symbol, sources, are_alike=False)
    todo = "define it in a .cpp file of the folder, or do not call it"
    if stub:
        what, todo = f"calls stock::of({stub[1]}), but PyTorch has no such stub", f"write `{stub[1]}(...)`"
    elif others:
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
    """Return the definitions of functions named like ``symbol`` that other files can call; if ``are_alike``, only those
    in the same namespace with as many parameters.
    """
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
    if kernel in ("impl", "meta"):  # a method of a structured kernel's class
        scope, _, kernel = scope.rpartition("::")
        kernel = kernel.removeprefix("structured_")
    names = (name.rpartition("::") for name in entry.kernels.values())
    wanted = {(f"{namespace or 'at'}::native", name) for namespace, _, name in names}
    own = entry.operator.replace(".", "_")
    return (scope, kernel) in {*wanted, ("at::native", own), ("at::meta", own)}
