"""Check the Python files and docstrings of a native folder."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from pathlib import Path

from ..inputs.native import DOCS, DOCS_SUFFIX, PYTHON, PYTHON_SUFFIXES, SAMPLES
from .files import own_files
from .finding import Findings, nearest

# Files that the graft writes itself, and what to write instead.
_TAKEN = {
    "_torch_docs.py": "write the docstring into docs/<operator>.rst",
    "_tensor_docs.py": "write the docstring into docs/<operator>.rst",
    "_added_operators.py": "give it another name",
    "version.py": "leave it out; the build sets the version",
}


def check_python(natives: Sequence[Path], tree: Path, findings: Findings) -> None:
    """Check the files below ``python/``; ``tree`` is the base's."""
    torch = tree / "torch"
    texts: dict[Path, str] = {}  # of torch and of the previous folders
    files = _files_below(natives, PYTHON)
    names = {name for _, name in files}
    for path, name in files:
        if path.suffix not in PYTHON_SUFFIXES:
            findings.add(
                (path, 1, 0), f"not a {' or '.join(PYTHON_SUFFIXES)} file", "put only Python files into python/"
            )
        elif name.as_posix() in _TAKEN:
            findings.add((path, 1, 0), f"the build writes torch/{name} itself", _TAKEN[name.as_posix()])
        elif _parse(path, findings) is not None:
            _check_package(path, name, names, torch, findings)
            _check_stub(path, name, names, torch, findings)
            _check_text(path, torch / name, texts, findings)


def _files_below(natives: Sequence[Path], folder: Path) -> list[tuple[Path, Path]]:
    """Return the files below ``folder`` of each native folder, with their relative paths."""
    files = [(native, name) for native in natives for name in own_files(native) if name.parts[0] == folder.name]
    return [(native / name, name.relative_to(folder)) for native, name in files if name != folder]


def _check_package(path: Path, name: Path, names: set[Path], torch: Path, findings: Findings) -> None:
    """Every folder must be a package of torch, or a new one with its own ``__init__.py``."""
    for package in reversed(name.parents[:-1]):
        if (torch / package).is_dir() or package / "__init__.py" in names:
            continue
        siblings = [each.name for each in (torch / package.parent).iterdir() if (each / "__init__.py").is_file()]
        close = difflib.get_close_matches(package.name, siblings, n=1)
        todo = f"did you mean `{close[0]}`?" if close else f"a new package needs {PYTHON / package / '__init__.py'}"
        findings.add((path, 1, 0), f"torch has no package {package}", todo)
        return


def _check_stub(path: Path, name: Path, names: set[Path], torch: Path, findings: Findings) -> None:
    stub = name.with_suffix(".pyi")
    if name.suffix == ".py" and (torch / stub).is_file() and stub not in names:
        what = f"type checkers read torch's {stub.name} instead of this"
        findings.add((path, 1, 0), what, f"also declare new names in {path.with_suffix('.pyi')}", is_warning=True)


def _check_text(path: Path, upstream: Path, texts: dict[Path, str], findings: Findings) -> None:
    """Check that the text is valid Python after that of upstream and of previous folders."""
    text = path.read_text(encoding="utf-8")
    if upstream not in texts and upstream.is_file():
        texts[upstream] = upstream.read_text(encoding="utf-8")
    before = texts.get(upstream)
    texts[upstream] = text if before is None else f"{before}\n{text}"
    if before is None:
        return
    try:
        compile(texts[upstream], str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.lineno or 1) - before.count("\n") - 1
        whose = "torch's" if upstream.is_file() else "another folder's"
        what = f"is invalid after {whose} {upstream.name}: {error.msg}"
        findings.add((path, max(line, 1), error.offset or 0), what, "write text that can be appended to that file")
        texts[upstream] = before


def _parse(path: Path, findings: Findings) -> ast.Module | None:
    if not path.is_file() or path in findings.unreadable:
        return None
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        line, column = getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 0
        findings.add((path, line, column), f"not Python: {getattr(error, 'msg', error)}", "fix the syntax")
        return None


def check_samples(natives: Sequence[Path], names: set[str], findings: Findings) -> None:
    """Check that each public function of ``samples.py`` is named after an operator, and is in one folder only.

    References and error inputs are named after operators, too.
    """
    names = names | {f"{name}{of}" for name in names for of in ("_reference", "_errors")}
    seen: dict[str, Path] = {}
    for path in (native / SAMPLES for native in natives):
        module = _parse(path, findings)
        for node in module.body if module else []:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            place = (path, node.lineno, node.col_offset + 5)
            if node.name not in names:
                findings.add(place, f"no operator of the folder is named {node.name}", nearest(node.name, names))
            elif seen.setdefault(node.name, path) != path:
                what = f"{seen[node.name]} already has samples for {node.name}"
                findings.add(place, what, "delete one; only the last would be used")


def check_docs(natives: Sequence[Path], names: set[str], findings: Findings) -> None:
    """Check that each file below ``docs/`` is named after an operator of the folders."""
    for path, name in _files_below(natives, DOCS):
        if name.suffix != DOCS_SUFFIX or name.parent != Path():
            todo = f"name it {DOCS}/<operator>{DOCS_SUFFIX}"
            findings.add((path, 1, 0), "not the docstring of an operator", todo)
        elif name.stem not in names:
            findings.add((path, 1, 0), f"no operator of the folder is named {name.stem}", nearest(name.stem, names))
