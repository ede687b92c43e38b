"""Show the errors of compilers and linkers on one screen: the first error of each kind in each file, with a hint and
the user's line that causes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from ..core.errors import BuildError, Finding
from ..core.files import write_atomically
from ..core.layout import SEARCHED
from ..core.system_errors import refuse_full
from ..core.wording import quoted
from ..cpp.braces import open_brace
from ..cpp.includes import PLACE
from ..inputs.entries import Entry, Place
from ..inputs.native import DERIVATIVES, NativeFolders
from ..inputs.snapshot import Snapshot
from .diagnostics import COMPILED_FOR, Diagnostic, compiled_for, diagnostics
from .hints import hint_for, hint_of_capability

# The log with the complete output of failed commands, in the work folder.
_LOG = "compiler.log"
# Lines shown of output without a recognizable error, for example the shell's.
_UNKNOWN = 30
# Warnings shown after a success.
_WARNINGS = 10
# Kinds of errors shown for one file: with source lines, hints and counts they fill a screen.
_KINDS = 6
# The messages of g++ and nvcc for a missing semicolon, after which they skip code that later lines need.
_UNFINISHED = re.compile(r"expected (?:initializer before|(?:.* or |a )?['\"];['\"])")
# The messages of g++ for a missing `}`: at the end of the file, and at the function below it.
_OPEN_AT_END = re.compile(r"^expected '\}' at end of input|^expected a \"\}\"")
_FUNCTION_WITHIN = re.compile(r"^a function-definition is not allowed here")
# The messages of g++ if Linux has killed the compiler proper, and of ninja if it has killed the driver.
_KILLED = re.compile(r"Killed signal terminated program|^FAILED: \[code=137\]")
# Characters shown of one message. Messages about templates can take pages.
_WIDTH = 300


def refuse(output: Sequence[str], work: Path, snapshot: Snapshot, includes: Sequence[Path]) -> NoReturn:
    """Raise an error with a digest of ninja's ``output``, and write the complete messages to a log in ``work``. Hints
    name only headers that the folders ``includes`` have.
    """
    natives, sources = snapshot.natives, snapshot.searched
    compiled, linked = relevant(output, sources)
    # If no command printed anything, ninja's own messages say why it failed, or which command was killed.
    lines = [line.rstrip("\n") for line in ([*compiled, *linked] or output)]
    whole = "\n".join(lines)
    refuse_full(whole, work)
    _refuse_killed(output)
    write_atomically(work / _LOG, f"{named(whole, natives, sources)}\n")
    errors = diagnostics(compiled, sources)
    shown = [*digest(errors, natives, includes), *map(str.rstrip, linked)] or lines[:_UNKNOWN]
    shown = [named(line, natives, sources) for line in shown]
    roots = "|".join(re.escape(str(folder.written_from or folder.path)) for folder in natives.folders)
    own = re.compile(rf"((?:{roots})/[^:]+):\d+")
    files = dict.fromkeys(match[1] for line in shown if (match := own.match(line)))
    todo = f"fix {', '.join(files) or 'the errors above'} and build again; compiled files are kept"
    if len("\n".join(shown).splitlines()) < len(lines):
        todo += f"\n  the complete output, {len(lines):,} lines: {work / _LOG}"
    findings = [_finding(each, natives, includes, sources) for each in errors]
    raise BuildError("\n".join(shown), todo=todo, findings=findings)


def warned(output: Sequence[str], snapshot: Snapshot) -> list[str]:
    """Return the compilers' warnings about the users' own sources, each once, and the number of those left out."""
    natives, sources = snapshot.natives, snapshot.searched
    compiled, _ = relevant(output, sources)
    found: dict[str, None] = {}
    for text in compiled:
        match = re.match(rf"{re.escape(str(sources))}/{PLACE}/([^:\s]+):\d+:(?:\d+:)? warning: ", text)
        if match and natives.owner(Path(match[1])).is_own:
            found[named(text.rstrip(), natives, sources)] = None
    rest = len(found) - _WARNINGS
    return [*[*found][:_WARNINGS], *([f"and {rest} more warning{'s' * (rest > 1)}"] if rest > 0 else [])]


def _refuse_killed(output: Sequence[str]) -> None:
    """Raise an error if a compiler was killed."""
    if said := next((line for line in output if _KILLED.search(line)), ""):
        raise BuildError(
            f"a compiler was killed: {said.strip()[:_WIDTH]}",
            cause="the machine, or its container, probably had too little memory for so many compilers",
            todo="build again with fewer at once: JOBS=1, or MAX_JOBS=1 for graft.load; compiled files are kept",
        )


def _finding(error: Diagnostic, natives: NativeFolders, includes: Sequence[Path], sources: Path) -> Finding:
    file, line, column = error.user or (error.file, error.line, error.column)
    what, todo = error.message, _hint(error, natives, includes)
    return Finding(Path(named(file, natives, sources)), line, column, quoted(named(what, natives, sources)), todo)


def is_status(text: str) -> bool:
    """Return whether a line of ninja's reports the end of a command: ``[1/9] ...``, the format in ``ninja.py``."""
    return re.match(r"\[\d+/\d+\] ", text) is not None


def named(text: str, natives: NativeFolders, sources: Path) -> str:
    """Replace the paths of copies in ``sources``, which compilers read, by the paths of the user's files."""
    own = re.compile(rf"{re.escape(str(sources))}/([\w./+-]+)")
    return own.sub(lambda match: str(natives.found_at(Path(match[1]))), text)


def relevant(output: Iterable[str], sources: Path) -> tuple[list[str], list[str]]:
    """Split output into messages of compilers and of linkers, without ninja's. Paths in ``sources`` become absolute."""
    compiled: list[str] = []
    linked: list[str] = []
    into = compiled
    for text in output:
        if is_status(text) or text.startswith("FAILED: "):
            into = compiled
        elif " -m graft.compile.link " in text:
            into = linked
        elif " -MD -MF " in text:
            said = compiled_for(text)
            if said or any(line.startswith(COMPILED_FOR) for line in into):
                into.append(said or COMPILED_FOR)
        elif not text.startswith("ninja: "):
            # nvcc writes the line number in parentheses.
            placed = re.sub(r"^([^\s:(]+)\((\d+)\): ", r"\1:\2: ", text)
            into.append(re.sub(rf"(?<![\w/]){SEARCHED}/", f"{sources}/", placed))
    return compiled, linked


def digest(errors: Iterable[Diagnostic], natives: NativeFolders, includes: Sequence[Path]) -> list[str]:
    """Return lines for the first error of each kind in each file. Hints name only headers that ``includes`` have."""
    files: dict[str, dict[str, list[Diagnostic]]] = {}
    for each in errors:
        _blame_formula(each, natives)
        _blame_brace(each, natives)
        kinds = files.setdefault(each.user[0] if each.user else each.file, {})
        kinds.setdefault(each.kind, []).append(each)
    shown = []
    for file, kinds in files.items():
        alike = list(kinds.values())
        cause = next((n for n, each in enumerate(alike[:_KINDS], 1) if _UNFINISHED.match(each[0].message)), 0)
        whole, rest = alike[: cause or _KINDS], [error for each in alike[cause or _KINDS :] for error in each]
        shown += [line for each in whole for line in _of_kind(each, natives, includes)]
        if rest and cause:
            shown.append(f"  {len(rest)} more error{'s' * (len(rest) > 1)} {_in_lines(rest)} may follow from it")
        elif rest:
            shown.append(f"{file}: {len(rest)} more errors of other kinds")
    return shown


def first_error(output: Sequence[str], natives: NativeFolders, sources: Path) -> str:
    """Return the first error in the output of one command so far, in one line; empty if there is none."""
    compiled, _ = relevant(output, sources)
    for error in diagnostics(compiled, sources):
        _blame_formula(error, natives)
        _blame_brace(error, natives)
        return named(_head(error), natives, sources)
    return ""


def formula_of(function: str, natives: NativeFolders) -> Entry | None:
    """Return the entry of derivatives.yaml whose formulas the generated ``function`` contains, or None."""
    name = re.search(
        r"::(\w+?)Backward\d*(?:_apply_functional|::apply\w*)?\("
        r"|VariableType::(?:\{anonymous\}::)?(\w+)\(|tangents::(\w+)__[^_]\w*\(",
        function,
    )
    if not name:
        return None
    said = (name[1] or name[2] or name[3]).replace("_", "").lower()
    for entry in natives.entries(DERIVATIVES):
        operator = entry.operator.replace(".", "").replace("_", "").lower()
        if said in (operator, f"{operator}out"):
            return entry
    return None


def _blame_formula(error: Diagnostic, natives: NativeFolders) -> None:
    """For an error in generated code, name the formula that it was generated from."""
    if error.user is None and (entry := formula_of(error.function, natives)):
        file, line, column = _place_in_formula(entry, error)
        error.user = (str(file), line, column)
        error.message = f"a formula of {entry.operator} is not valid C++: {error.message}"


def _blame_brace(error: Diagnostic, natives: NativeFolders) -> None:
    """For a brace that is open at the end of a file, or before a function, name the one that is probably not closed."""
    at_end = _OPEN_AT_END.search(error.message)
    if not error.user or not (at_end or _FUNCTION_WITHIN.search(error.message)):
        return
    file = natives.copy_of(Path(error.user[0]))
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    if not (found := open_brace(text)):
        return
    line, column = found
    error.note, what = "", f"the `{{` in line {line} has no `}}`"
    if at_end:
        shown = text.split("\n")[line - 1]
        error.excerpt = [f"{line:>5} | {shown}", f"      | {' ' * (column - 1)}^"]
        error.line, error.column, error.user = line, column, (error.user[0], line, column)
        what = "this `{` has no `}`"
    error.message = f"{what}: {error.message}"


def _place_in_formula(entry: Entry, error: Diagnostic) -> Place:
    """Return the place of the word that the compiler marks, in the formula that shares most words with generated code;
    that of the formula if it is no such word, or of the entry if no formula shares one.
    """
    generated, marks = (*error.excerpt, "", "")[:2]
    words = set(re.findall(r"[A-Za-z_]\w*", generated))
    shared = {key: len(words.intersection(re.findall(r"\w+", str(text)))) for key, text in entry.fields.items()}
    shared |= {"name": 0}
    key = max(shared, key=lambda each: shared[each])
    if not shared[key]:
        return entry.file, entry.line, 0
    before = [word[0] for word in re.finditer(r"[A-Za-z_]\w*", generated) if word.start() <= marks.find("^")]
    is_there = before and re.search(rf"\b{before[-1]}\b", str(entry.fields[key]))
    return entry.word(entry.value(key), before[-1]) if is_there else entry.value(key)


def _of_kind(errors: list[Diagnostic], natives: NativeFolders, includes: Sequence[Path]) -> list[str]:
    """Return lines that show the first of several similar ``errors``, and list the source lines of the others."""
    first = errors[0]
    file, line, _ = first.user or (first.file, first.line, first.column)
    lines = [_head(first)]
    source = first.excerpt
    if (file, line) != (first.file, first.line):
        if read := _source_line(natives.copy_of(Path(file)), line):
            lines.append(f"  {line:>5} | {read}")
        lines.append(f"  which leads to {_short(first.file)}:{first.line}:")
        source = source[:1]
    lines += source
    if hint := _hint(first, natives, includes):
        lines.append(f"  hint: {hint}")
        more = dict.fromkeys(_hint(each, natives, includes) for each in errors[1:])
        lines += [f"  and: {other}" for other in more if other not in (hint, "")][:_KINDS]
    elif first.note:
        lines.append(f"  {_short(first.note)[:_WIDTH]}")
    if others := _in_lines(errors[1:], but=line):
        lines.append(f"  the same kind of error {others}")
    return lines


def _hint(error: Diagnostic, natives: NativeFolders, includes: Sequence[Path]) -> str:
    """Return the hint for an error; empty if there is none."""
    file, line, _ = error.user or (error.file, error.line, error.column)
    text = " ".join([*error.excerpt[:1], _source_line(natives.copy_of(Path(file)), line)])
    return hint_of_capability(error) or hint_for(error.message, text, includes)


def _in_lines(errors: Iterable[Diagnostic], but: int = 0) -> str:
    """Return ``in lines 3, 5``: the user's lines that cause ``errors``, without the line ``but``; may be empty."""
    numbers = sorted({(each.user or (each.file, each.line))[1] for each in errors} - {but, 0})
    return f"in line{'s' * (len(numbers) > 1)} {_few(numbers)}" if numbers else ""


def _short(text: str) -> str:
    """Shorten the path of a PyTorch header at the start of ``text`` to its form in an ``#include``."""
    return re.sub(r"^\S*/include/(?=(?:ATen|c10|torch)/)", "", text)


def _head(error: Diagnostic) -> str:
    file, *numbers = error.user or (error.file, error.line, error.column)
    place = ":".join([file, *(str(number) for number in numbers if number)])
    message = error.message if len(error.message) <= _WIDTH else f"{error.message[:_WIDTH]} ..."
    return f"{place}: error: {message}"


def _source_line(path: Path, number: int) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return lines[number - 1] if 0 < number <= len(lines) else ""


def _few(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:8])) + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")
