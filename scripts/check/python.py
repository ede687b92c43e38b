"""What can be wrong with the Python files and the docstrings of a native folder."""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

from ..inputs.native import DOCS, DOCS_SUFFIX, PYTHON, PYTHON_SUFFIXES, SAMPLES
from .finding import Findings, nearest

# What the graft writes itself, and what to write instead.
_TAKEN = {
    "_torch_docs.py": "write the docstring into docs/<operator>.rst",
    "_tensor_docs.py": "write the docstring into docs/<operator>.rst",
    "_added_operators.py": "give it another name",
    "version.py": "leave it out: the version tells what a wheel was made of",
}


def check_python(native: Path, tree: Path, findings: Findings) -> None:
    """Check the files below ``python/``; ``tree`` is the base's."""
    folder = native / PYTHON
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_file() or _is_of_a_tool(name):
            continue
        if path.suffix not in PYTHON_SUFFIXES:
            findings.add((path, 1, 0), f"no {' or '.join(PYTHON_SUFFIXES)} file", "keep only Python files in python/")
        elif name.as_posix() in _TAKEN:
            findings.add((path, 1, 0), f"the build writes torch/{name} itself", _TAKEN[name.as_posix()])
        else:
            _check_package(path, folder, tree / "torch", findings)
            _check_text(path, tree / "torch" / name, findings)


def _is_of_a_tool(name: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in name.parts)


def _check_package(path: Path, folder: Path, torch: Path, findings: Findings) -> None:
    """Every folder is a package of torch's, or a new one with an ``__init__.py`` of its own."""
    for package in reversed(path.relative_to(folder).parents[:-1]):
        if (torch / package).is_dir() or (folder / package / "__init__.py").is_file():
            continue
        siblings = [each.name for each in (torch / package.parent).iterdir() if (each / "__init__.py").is_file()]
        close = difflib.get_close_matches(package.name, siblings, n=1)
        todo = f"did you mean `{close[0]}`?" if close else f"a new package needs {folder / package / '__init__.py'}"
        findings.add((path, 1, 0), f"torch has no package {package}", todo)
        return


def _check_text(path: Path, upstream: Path, findings: Findings) -> None:
    """It is Python, alone and behind what upstream has there."""
    if _parse(path, findings) is None:
        return
    stub = path.with_suffix(".pyi")
    if path.suffix == ".py" and upstream.with_suffix(".pyi").is_file() and not stub.is_file():
        what = f"type checkers read torch's {upstream.stem}.pyi instead of this"
        findings.add((path, 1, 0), what, f"name what is new in {stub}, too", is_warning=True)
    if not upstream.is_file():
        return
    text = upstream.read_text()
    try:
        compile(f"{text}\n{path.read_text()}", str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        line = (error.lineno or 1) - text.count("\n") - 1
        what = f"cannot stand behind torch's {upstream.name}: {error.msg}"
        findings.add((path, max(line, 1), error.offset or 0), what, "write it as the end of that file")


def _parse(path: Path, findings: Findings) -> ast.Module | None:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        line, column = getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 0
        findings.add((path, line, column), f"not Python: {getattr(error, 'msg', error)}", "mend the syntax")
        return None


def check_samples(native: Path, names: set[str], findings: Findings) -> None:
    """Check that each public function of ``samples.py`` is named as an operator of the folder."""
    path = native / SAMPLES
    module = _parse(path, findings) if path.is_file() else None
    for node in module.body if module else []:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name not in names:
            what = f"no operator of the folder is named {node.name}"
            findings.add((path, node.lineno, node.col_offset + 5), what, nearest(node.name, names))


def check_docs(native: Path, names: set[str], findings: Findings) -> None:
    """Check that each file below ``docs/`` is named as an operator of the folder."""
    for path in sorted((native / DOCS).rglob("*")):
        name = path.relative_to(native)
        if not path.is_file() or _is_of_a_tool(name):
            continue
        if path.suffix != DOCS_SUFFIX or path.parent != native / DOCS:
            todo = f"name it {DOCS}/<operator>{DOCS_SUFFIX}"
            findings.add((path, 1, 0), "no docstring of an operator", todo)
        elif path.stem not in names:
            findings.add((path, 1, 0), f"no operator of the folder is named {path.stem}", nearest(path.stem, names))
