"""Check the files of native folders without torchgen: their names, their encoding, and the Python files."""

from __future__ import annotations

import ast
import difflib
import os
import re
from pathlib import Path

from ..cpp.includes import INCLUDE
from ..inputs.native import (
    DOCS,
    DOCS_SUFFIX,
    FUNCTIONS,
    OVERLAY,
    PYTHON,
    PYTHON_SUFFIXES,
    SAMPLES,
    YAML,
    NativeFolder,
    NativeFolders,
)
from ..inputs.python_names import names_defined, names_needed, names_needed_at_import
from ..inputs.unread import SOURCE_SUFFIXES
from . import Findings, nearest
from .decompositions import check_decompositions

# The code of findings about files that no build reads.
NOT_READ = "file-not-read"

_MARK = "\ufeff".encode()

# Files of torch that the build writes itself, and what to write instead.
_TAKEN = {
    "_torch_docs.py": "write the docstring into docs/<operator>.rst",
    "_tensor_docs.py": "write the docstring into docs/<operator>.rst",
    "_added_operators.py": "give it another name",
    "version.py": "leave it out; the build sets the version",
}


def check_files(natives: NativeFolders, findings: Findings) -> None:
    """Check each file, and that no two folders have different files of the same name."""
    for folder in natives.folders:
        for name in folder.unread:
            _check_unread(folder.path / name, name, findings)
        code = {*folder.cplusplus}
        for name, copy in folder.paths.items():
            path, data, is_code = folder.place(name), copy.read_bytes(), name in code
            if _check_text_of(path, data, findings) and is_code:
                _check_includes(path, name, data.decode(), findings)
            # Other texts are concatenated.
            if (is_code or name.parent == DOCS) and data != natives.paths[name].read_bytes():
                what = f"{natives.file(name)} has the same name but different content"
                findings.add("file-conflict", (path, 1, 0), what, "give one of them another name")
        for key, copy in folder.overlay.items():
            first, first_copy = natives.overlay[key]
            if copy.read_bytes() != first_copy.read_bytes():
                what = f"{first} takes the place of {key}, too, but has different content"
                findings.add("file-conflict", (folder.place(OVERLAY / key), 1, 0), what, "build one of them")


def _check_text_of(path: Path, data: bytes, findings: Findings) -> bool:
    """Return whether a file is text in UTF-8. Another file is reported, and not checked further."""
    try:
        data.decode()
        place, what, todo = data.find(b"\0"), "NUL character", "delete it"
        if data.startswith(_MARK) and path.suffix in (".yaml", *PYTHON_SUFFIXES, DOCS_SUFFIX):
            place, what, todo = 0, "byte order mark", "save the file as UTF-8 without one"
    except UnicodeDecodeError as error:
        place, what, todo = error.start, f"not UTF-8: invalid byte 0x{data[error.start]:02x}", "save the file as UTF-8"
    if place < 0:
        return True
    before = data[:place].decode()
    findings.add("file-encoding", (path, before.count("\n") + 1, len(before) - before.rfind("\n")), what, todo)
    findings.unreadable.add(path)
    return False


def _check_includes(path: Path, name: Path, text: str, findings: Findings) -> None:
    """Warn of headers that are included by a path outside the folder, which another machine may lack."""
    for found in INCLUDE.finditer(text):
        if os.path.normpath(name.parent / found[1]).startswith(("/", "..")):
            place = path, text.count("\n", 0, found.start()) + 1, 0
            what = f"{found[1]} is outside the folder"
            todo = "copy it into the folder, or include it by its name in a folder of the compiler's"
            findings.warn("include-outside", place, what, todo)


def _check_unread(path: Path, name: Path, findings: Findings) -> None:
    """Report a file that no build reads if its name suggests that one should."""
    suffix = path.suffix.replace(".yml", ".yaml")
    known = [file for file in (*YAML, SAMPLES) if file.suffix == suffix]
    close = difflib.get_close_matches(path.stem, [file.stem for file in known], n=1, cutoff=0.7)
    if name.parts[0] == PYTHON.name:
        what = f"not a {' or '.join(PYTHON_SUFFIXES)} file"
        findings.add(NOT_READ, (path, 1, 0), what, "put only Python files into python/")
    elif close:
        file = f"{close[0]}{suffix}"
        what = f"no build reads this file, but {file}"
        findings.add(NOT_READ, (path, 1, 0), what, f"name it {file}, or otherwise")
    elif path.suffix in SOURCE_SUFFIXES:
        what = f"PyTorch's build does not compile {path.suffix} files"
        todo = f"name it {path.stem}.cpp, or in `sources` of [tool.graft] in pyproject.toml"
        findings.warn(NOT_READ, (path, 1, 0), what, todo)


def check_python(natives: NativeFolders, tree: Path, findings: Findings) -> None:
    """Check the files below ``python/`` against those of torch, which are in the base's ``tree``."""
    torch = tree / "torch"
    before: dict[Path, str] = {}  # the texts of torch and of the previous folders
    names = {name.relative_to(PYTHON) for name in natives.python}
    for key, (user, copy) in natives.overlay.items():
        if Path(key).suffix in PYTHON_SUFFIXES:
            names.add(Path(key).relative_to("torch"))
            text = copy.read_text(encoding="utf-8", errors="replace")
            if parse_python(user, text, findings) is not None:
                before[tree / key] = text
    texts = {path: text for name in natives.python for path, text in natives.texts(name).items()}
    every = "\n".join(texts.values())
    for folder in natives.folders:
        _check_place(folder, torch, findings)
        for path, name in ((folder.place(name), name.relative_to(PYTHON)) for name in folder.python):
            if name.as_posix() in _TAKEN:
                what = f"the build writes torch/{name} itself"
                findings.add("python-file-taken", (path, 1, 0), what, _TAKEN[name.as_posix()])
            elif parse_python(path, texts[path], findings) is not None:
                _check_package(path, name, names, torch, findings)
                _check_module(path, torch / name, every, findings)
                _check_stub(path, name, names, torch, findings)
                _check_text(path, texts[path], torch / name, before, findings)
    check_decompositions(natives, tree, findings)


def _check_place(folder: NativeFolder, torch: Path, findings: Findings) -> None:
    """Report a folder with only Python files, unless one is for a file of torch: any project may have a ``python``."""
    has_others = folder.cplusplus or folder.paths.keys() & {*YAML}
    if (
        folder.python
        and not has_others
        and not any((torch / name.relative_to(PYTHON)).is_file() for name in folder.python)
    ):
        what = f"torch has none of the files in {PYTHON}/, and the folder has nothing else"
        todo = f"put text at the path of the file of torch that it is for, or write {FUNCTIONS}"
        findings.add("python-only-folder", (folder.place(folder.python[0]), 1, 0), what, todo)


def _check_package(path: Path, name: Path, names: set[Path], torch: Path, findings: Findings) -> None:
    """Check that each folder is a package of torch, or a new one with its own ``__init__.py``."""
    for package in reversed(name.parents[:-1]):
        if (torch / package).is_dir() or package / "__init__.py" in names:
            continue
        siblings = [each.name for each in (torch / package.parent).iterdir() if (each / "__init__.py").is_file()]
        close = difflib.get_close_matches(package.name, siblings, n=1)
        todo = f"did you mean `{close[0]}`?" if close else f"a new package needs {PYTHON / package / '__init__.py'}"
        findings.add("unknown-module", (path, 1, 0), f"torch has no package {package}", todo)
        return


def _check_module(path: Path, upstream: Path, texts: str, findings: Findings) -> None:
    """Report a new module whose name is almost that of one in torch, unless a Python file of the folders names it."""
    if upstream.is_file() or not upstream.parent.is_dir() or re.search(rf"\b{re.escape(path.stem)}\b", texts):
        return
    siblings = [each.name for each in upstream.parent.iterdir() if each.suffix == path.suffix]
    if close := difflib.get_close_matches(path.name, siblings, n=1, cutoff=0.9):
        what = f"torch has no {path.name}, and nothing imports it"
        findings.warn("unknown-module", (path, 1, 0), what, f"did you mean `{close[0]}`?")


def _check_stub(path: Path, name: Path, names: set[Path], torch: Path, findings: Findings) -> None:
    stub = name.with_suffix(".pyi")
    if name.suffix == ".py" and (torch / stub).is_file() and stub not in names:
        what = f"type checkers read torch's {stub.name} instead of this"
        findings.warn("stub-hides-names", (path, 1, 0), what, f"also declare new names in {path.with_suffix('.pyi')}")


def _check_text(path: Path, text: str, upstream: Path, texts: dict[Path, str], findings: Findings) -> None:
    """Check that the text is valid Python after that of torch and of previous folders, and that names are defined."""
    if upstream not in texts and upstream.is_file():
        texts[upstream] = upstream.read_text(encoding="utf-8")
    before = texts.get(upstream)
    texts[upstream] = text if before is None else f"{before}\n{text}"
    if path.suffix == ".py":
        _check_python_names(path, text, before or "", findings)
    if before is None:
        return
    try:
        compile(texts[upstream], str(path), "exec", dont_inherit=True)
    except (SyntaxError, RecursionError, MemoryError) as error:
        lineno, column, message = _about(error)
        whose = "torch's" if upstream.is_file() else "another folder's"
        what = f"is invalid after {whose} {upstream.name}: {message}"
        line = max(lineno - before.count("\n") - 1, 1)
        findings.add("python-syntax", (path, line, column), what, "write text that can be appended to that file")
        texts[upstream] = before


def _check_python_names(path: Path, text: str, before: str, findings: Findings) -> None:
    """Check that each global name is defined: torch may import the module long after a build."""
    if re.search(r"import \*|\bglobals\(\)|\bvars\(\)", f"{before}\n{text}"):
        return  # it may define any name
    missing = names_needed(text) - names_defined(before)
    uses = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id in missing]
    urgent = missing & names_needed_at_import(text)
    for use in {node.id: node for node in reversed(uses)}.values():
        place, is_late = (path, use.lineno, use.col_offset + 1), use.id not in urgent
        what = f"`{use.id}` is not defined here" + (f" or in torch's {path.name}" if before else "")
        what += "; the function that uses it fails when it is called" if is_late else ""
        todo = nearest(use.id, names_defined(f"{before}\n{text}"), "import or define it")
        findings.add("undefined-python-name", place, what, todo, is_warning=is_late)


def parse_python(path: Path, text: str, findings: Findings) -> ast.Module | None:
    """Return the syntax tree of a Python file; None if it is not readable. Invalid Python is reported."""
    if path in findings.unreadable:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line, column, message = _about(error)
        findings.add("python-syntax", (path, line, column), f"not Python: {message}", "fix the syntax")
        return None


def _about(error: Exception) -> tuple[int, int, str]:
    """Return the line, the column and the message of an error of Python's parser, which raises MemoryError, too, for
    code that is nested too deeply.
    """
    message = (
        "nested too deeply" if isinstance(error, RecursionError | MemoryError) else getattr(error, "msg", str(error))
    )
    return getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 0, message


def check_names(natives: NativeFolders, names: set[str], overloads: set[str], findings: Findings) -> None:
    """Check that each docstring, and each public function of ``samples.py``, is named after an operator.

    References and error inputs are named after operators, too, and inputs for `graft adopt --compare` after
    ``overloads``. A function may be in one folder only.
    """
    functions = {f"{name}{of}" for name in names for of in ("", "_reference", "_errors")} | overloads
    seen: dict[str, Path] = {}
    for folder in natives.folders:
        for file in folder.docs:
            if file.stem not in names:
                what = f"no operator of the folder is named {file.stem}"
                findings.add("unknown-operator", (folder.place(file), 1, 0), what, nearest(file.stem, names))
        path = folder.place(SAMPLES)
        module = parse_python(path, folder.text(SAMPLES), findings) if SAMPLES in folder.paths else None
        for node in module.body if module else []:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            place = (path, node.lineno, node.col_offset + 5)
            if node.name not in functions:
                what = f"no operator of the folder is named {node.name}"
                findings.add("unknown-operator", place, what, nearest(node.name, functions))
            elif seen.setdefault(node.name, path) != path:
                what = f"{seen[node.name]} already has samples for {node.name}"
                findings.add("duplicate-definition", place, what, "delete one; only the last would be used")
