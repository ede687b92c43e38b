"""Sort the differences between two versions of PyTorch, and take each kind into a native folder."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..core.errors import UsageError
from ..fork.apply import HELPERS_HEADER, HELPERS_SOURCE, YAML_FILES
from ..inputs.entries import split_entries
from ..inputs.native import DERIVATIVES, FUNCTIONS, PYTHON
from .answer import Answer, Question
from .changed_entries import text_of_entries
from .compiled import changed_codes, take_headers, take_lacking_headers, take_sources
from .entry_lines import text_at_lines
from .formulas import take_helpers
from .operators import Operators, read_operators
from .python import PYTHON_SUFFIXES, installed_name, not_python, taken
from .sources import NATIVE, is_header, is_source, why_left

# Files that no wheel contains: no message mentions them.
_SILENT = re.compile(
    r"(?:test|docs|benchmarks|scripts|android|ios|\.\w[^/]*)/|[^/]*\.(?:md|txt|toml|cfg|ini)$|\.[^/]*$"
)
_LEFT = {
    f"{NATIVE}/tags.yaml": "a release keeps its tags",
    "torchgen/": "the wheel's own generator runs",
    "tools/": "the wheel's own generator and templates run",
    "aten/src/ATen/templates/": "the wheel's own templates are used",
    "third_party/": "PyTorch's libraries contain it",
    "cmake/": "nothing of PyTorch is built",
}
_IN_BINARIES = "PyTorch's own binaries, or its build, contain it"


def derive(question: Question) -> Answer:
    """Return what the new version changes, as a native folder.

    Raises:
        UsageError: lists merge conflicts, and files that are not valid Python; or asks which sources to compile with a
            header that changed.
    """
    _refuse_unfinished(question)
    left = _left_out(question)
    headers, names = take_headers(question, left)
    users, codes = changed_codes(question, left, names)
    changed = read_operators(question, {name for code in codes.values() for name in code.functions})
    sources, operators = take_sources(users, codes, changed)
    answer = headers | sources | take_helpers(question, operators.formulas)
    answer |= take_lacking_headers(question, answer) | _take_python(question, operators)
    answer |= Answer(question, left=left | operators.left, refused=operators.refused)
    answer.operators |= changed.entries.keys() | changed.formulas.keys()
    write = text_of_entries if question.site is None else text_at_lines
    for file, found in ((FUNCTIONS, operators.entries), (DERIVATIVES, operators.formulas)):
        answer.put(str(file), YAML_FILES[file], write(question.after(YAML_FILES[file]), found))
    return answer


def _refuse_unfinished(question: Question) -> None:
    """Check that files to read have no markers of merge conflicts, and that Python files can be parsed."""
    found = []
    for name in question.there(filter(_is_read, question.versions.changed)):
        text = question.after(name)
        if mark := re.search(r"^<{7} .*$(?=[\s\S]*^>{7} )", text, re.M):
            line = text.count("\n", 0, mark.start()) + 1
            found.append(f"{question.tree / name}:{line}: a merge conflict's marker")
        elif _is_python(name) and not name.endswith(".in") and (fault := not_python(text)):
            found.append(f"{question.tree / name}:{fault}")
    if found:
        raise UsageError("\n".join(found), todo="correct this; nothing was built, and torch stays as it is")


def _is_read(name: str) -> bool:
    return is_source(name) or is_header(name) or _is_python(name) or name in _OTHERS


_OTHERS = {*YAML_FILES.values(), HELPERS_SOURCE, HELPERS_HEADER}


def _is_python(name: str) -> bool:
    return name.startswith("torch/") and name.endswith(PYTHON_SUFFIXES)


def _left_out(question: Question) -> dict[str, str]:
    """Return why changes cannot be part of the folder, by path."""
    left: dict[str, str] = {}
    for name, status in question.versions.changed.items():
        if status == "S":
            left[name] = "PyTorch's libraries contain what this submodule has"
        elif is_source(name) or is_header(name):
            if why := why_left(name, question.tree, has_cuda=question.has_cuda):
                left[name] = why
            elif status == "D":
                left[name] = "deleted; the torch that is built on keeps it"
        elif not _is_read(name) and not _SILENT.match(name):
            left[name] = next((why for place, why in _LEFT.items() if name.startswith(place)), _IN_BINARIES)
    return left


def _take_python(question: Question, operators: Operators) -> Answer:
    # A new overload of PyTorch's operator keeps PyTorch's docstring.
    theirs = _bases(split_entries(question.before(YAML_FILES[FUNCTIONS])))
    added = _bases(name for name, fields in operators.entries.items() if fields is None) - theirs
    answer = Answer(question, added=added)
    names = [*filter(_is_python, question.versions.changed)]
    for name, before in question.versions.before(names).items():
        after = question.versions.after(name)
        installed = question.installed(installed_name(name)) if question.site else before
        try:
            found = taken(name, before, after, installed, added, operators.refused, only_behind=not question.is_whole)
        except ValueError as error:
            answer.left[name] = str(error)
            continue
        if found.whole is not None:
            answer.overlay[installed_name(name)] = found.whole, name
        place = f"{PYTHON}/{installed_name(name).removeprefix('torch/')}"
        if found.behind.isspace():  # an empty file makes a package
            answer.put_whole(place, name)
        answer.put(place, name, found.behind)
        for place, text in found.docs.items():
            answer.put(place, name, text)
        answer.left |= {f"{name}: {each}": "left out" for each in found.left}
    return answer


def _bases(operators: Iterable[str]) -> set[str]:
    """Return the names of operators without their overloads."""
    return {name.partition(".")[0] for name in operators}
