"""Check the Python files of native folders. torchgen is not needed."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Sequence
from pathlib import Path

from ..inputs.native import PYTHON, NativeFolder
from .finding import Findings

# Files that the graft writes itself, and what to write instead.
_TAKEN = {
    "_torch_docs.py": "write the docstring into docs/<operator>.rst",
    "_tensor_docs.py": "write the docstring into docs/<operator>.rst",
    "_added_operators.py": "give it another name",
    "version.py": "leave it out; the build sets the version",
}


def check_python(folders: Sequence[NativeFolder], tree: Path, findings: Findings) -> None:
    """Check the files below ``python/``; ``tree`` is the base's."""
    torch = tree / "torch"
    texts: dict[Path, str] = {}  # of torch and of the previous folders
    files = [(folder.path / name, name.relative_to(PYTHON)) for folder in folders for name in folder.python]
    names = {name for _, name in files}
    for path, name in files:
        if name.as_posix() in _TAKEN:
            findings.add((path, 1, 0), f"the build writes torch/{name} itself", _TAKEN[name.as_posix()])
        elif parse_python(path, findings) is not None:
            _check_package(path, name, names, torch, findings)
            _check_stub(path, name, names, torch, findings)
            _check_text(path, torch / name, texts, findings)


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


def parse_python(path: Path, findings: Findings) -> ast.Module | None:
    """Return the syntax tree of a Python file, or None if it does not exist. Invalid Python is reported."""
    if not path.is_file() or path in findings.unreadable:
        return None
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        line, column = getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 0
        findings.add((path, line, column), f"not Python: {getattr(error, 'msg', error)}", "fix the syntax")
        return None
