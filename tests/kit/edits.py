"""The copy that ``make bench-build`` measures, the edits of its native folder, and builds to compare with.

Each edit has a number and changes the text differently for each number, so that no build finds an earlier result.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graft.core.errors import UsageError
from graft.core.layout import REPOSITORY, Layout
from graft.core.process import run
from graft.inputs.entries import read_entries
from graft.inputs.native import DERIVATIVES, FUNCTIONS, SAMPLES, NativeFolder

from .environments import environment_in
from .run import is_shipped

_MARK = "made-by-make-bench-build"

KERNEL_EDITED, DOCS_EDITED = "kernel edited", "documentation edited"
ADDED, REMOVED = "operator added", "operator removed"

# The kernel that a first kernel is copied from if a folder has none.
_USUAL = Path("cpu/TwicePlusKernel.cpp")

# An operator with common features: a kernel, a function and a method, a derivative formula, samples.
_FUNCTION = """
- func: {name}(Tensor self, Scalar factor) -> Tensor
  variants: function, method
  dispatch:
    CompositeExplicitAutograd: {name}
"""
_FORMULA = """
- name: {name}(Tensor self, Scalar factor) -> Tensor
  self: grad * factor
  result: self_t * factor
"""
_SAMPLE = """

def {name}(make):
    yield make(3, 4), 2
"""
_KERNEL = """#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/{name}_native.h>

namespace at::native {{

Tensor {name}(const Tensor& self, const Scalar& factor) {{
  return self.mul(factor);
}}

}} // namespace at::native
"""
_APPENDED = {FUNCTIONS: _FUNCTION, DERIVATIVES: _FORMULA, SAMPLES: _SAMPLE}

# load_inline of one function, as in its documentation, and with the minimum that declares a tensor and an operator.
_INLINE_FUNCTION = "at::Tensor scale(const at::Tensor& self, double factor) { return self.mul(factor); }\n"
INLINE: dict[str, tuple[str, dict[str, Any], str]] = {
    "load_inline, default": (_INLINE_FUNCTION, {"functions": ["scale"]}, "torch/extension.h and pybind11"),
    "load_inline, TORCH_LIBRARY": (
        f"#include <ATen/ATen.h>\n#include <torch/library.h>\n{_INLINE_FUNCTION}"
        'TORCH_LIBRARY(bench_inline, m) { m.def("scale(Tensor self, float factor) -> Tensor", &scale); }\n',
        {"no_implicit_headers": True, "is_python_module": False},
        "no_implicit_headers, ATen/ATen.h and torch/library.h",
    ),
}
_INLINE_PROGRAM = """
import json, sys, time, torch
from torch.utils.cpp_extension import load_inline
source, arguments = json.loads(sys.argv[1])
start = time.perf_counter()
module = load_inline("bench_inline", source, **arguments)
seconds = time.perf_counter() - start
scale = module.scale if "functions" in arguments else torch.ops.bench_inline.scale
assert scale(torch.ones(2), 3.0).tolist() == [3.0, 3.0]
print(seconds)
"""

# Code that compiler and linker keep. A source in cpu/ is compiled several times, so the symbol is local.
_CODE = "namespace {{ [[gnu::constructor]] void edited_by_bench_build() {{ volatile int kept = {number}; }} }}"
_PARAGRAPH = "The text was edited for measurement {number}."


@dataclass(frozen=True)
class Edit:
    """A change of a native folder.

    Args:
        name: the name of the row.
        aim: the aim for a build after it on two cores, in seconds.
        about: the edited file, or another remark.
        apply: changes the folder; takes the folder and a number.
        left_out: why it does not apply to this folder; empty if it does.
    """

    name: str
    aim: float
    about: str
    apply: Callable[[Path, int], None]
    left_out: str = ""


@contextmanager
def copied(layout: Layout, folder: Path, keep: bool) -> Iterator[Path]:
    """Copy this repository's files to ``folder``, and yield the native folder there. It is deleted at the end.

    Raises:
        UsageError: the folder exists, and was not created by a measurement.
    """
    if folder.exists() and not (folder / _MARK).is_file():
        todo = "delete it, or name another folder with --copy"
        raise UsageError(f"{folder}: it exists, and was not created by `make bench-build`", todo=todo)
    _remove(folder)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
    try:
        listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=REPOSITORY).stdout
        for name in listed.split("\0"):
            if (REPOSITORY / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, folder / name)
        native = folder / ("native" if is_shipped(layout) else "measured")
        if not is_shipped(layout):
            shutil.copytree(layout.native, native, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        yield native
    finally:
        if not keep:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Delete a copy, its mark last, so that it is still recognized as a copy after an interruption."""
    for path in folder.iterdir() if folder.is_dir() else []:
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _MARK:
            path.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def edits_of(native: NativeFolder, first: int = 0) -> list[Edit]:
    """Return the edits in order, each with the file chosen from ``native``.

    Args:
        native: the native folder.
        first: added to the number of each edit, so that earlier measurements leave nothing to reuse.
    """
    kernels = sorted(native.vectorized or native.sources)
    usual = _USUAL if _USUAL in kernels else next(iter(kernels), None)
    # Return the source that probably compiles longest.
    largest = max(kernels, key=lambda name: (native.path / name).stat().st_size, default=None)
    formulas = DERIVATIVES if find_formula(native.path / DERIVATIVES) else None
    edits = [
        _edit(KERNEL_EDITED, 6, usual, edit_kernel, "no C++ source"),
        _edit("slowest kernel edited", 6, largest if largest != usual else None, edit_kernel, "no larger one"),
        _edit(DOCS_EDITED, 3, next(iter(native.docs), None), edit_docs, "no docs/*.rst"),
        _edit("derivative formula edited", 12, formulas, edit_formula, "no formula for one tensor in derivatives.yaml"),
        Edit(ADDED, 12, "kernel, function and method, formula, samples", add_operator),
        Edit(REMOVED, 12, "the added operator", remove_operator),
    ]
    return [replace(edit, apply=_numbered(edit.apply, first)) for edit in edits]


def _numbered(apply: Callable[[Path, int], None], first: int) -> Callable[[Path, int], None]:
    return lambda native, number: apply(native, first + number)


def _edit(name: str, aim: float, file: Path | None, change: Callable[[Path, int], None], lack: str) -> Edit:
    """Return an edit of one file, or one that is left out if the folder has no such file."""
    if file is None:
        return Edit(name, aim, "", lambda *_: None, left_out=f"the folder has {lack}")
    return Edit(name, aim, file.as_posix(), lambda native, number: change(native / file, number))


def edit_kernel(source: Path, number: int) -> None:
    """Append a function to the code of ``source``, or change it if it was appended before."""
    kept = re.sub(r"\n.* void edited_by_bench_build\(\).*\n", "", _read(source))
    _write(source, f"{kept}\n{_CODE.format(number=number)}\n")


def edit_docs(docs: Path, number: int) -> None:
    """Add a paragraph after the first one of ``docs``, or change it if it was added before."""
    text = re.sub(_PARAGRAPH.format(number=r"\d+") + r"\n\n", "", _read(docs))
    first, _, rest = text.partition("\n\n")
    _write(docs, f"{first.rstrip()}\n\n{_PARAGRAPH.format(number=number)}\n\n{rest}")


def find_formula(derivatives: Path) -> re.Match[str] | None:
    """Return the start and the text of the first formula in ``derivatives`` that gives the gradient of one tensor."""
    if not derivatives.is_file():
        return None
    lines = _read(derivatives).splitlines()
    for entry in read_entries(derivatives):
        for line in (lines[entry.place(key)[1] - 1] for key in entry.fields):
            found = re.match(r"(  (\w+): )([^\s\"'].*?)\s*(?:\s#.*)?$", line)
            is_of_tensor = found and re.search(rf"[(\s]Tensor(?:\(\w!?\))?\??\s{found[2]}\b", entry.schema)
            if found and is_of_tensor and not re.match(r"non_differentiable|not_implemented", found[3]):
                return found
    return None


def edit_formula(derivatives: Path, number: int) -> None:
    """Multiply a gradient in ``derivatives`` by a number."""
    found = find_formula(derivatives)
    assert found, f"{derivatives} was looked through before"
    formula = re.sub(r"^\((.*)\)\.mul\(\d+\)$", r"\1", found[3])
    _write(derivatives, _read(derivatives).replace(found[0], f"{found[1]}({formula}).mul({number})", 1))


def add_operator(native: Path, number: int) -> None:
    """Add the operator ``number``."""
    for file, text in _APPENDED.items():
        path = native / file
        _write(path, (_read(path) if path.is_file() else "") + text.format(name=_name(number)))
    _write(native / f"{_name(number)}.cpp", _KERNEL.format(name=_name(number)))


def remove_operator(native: Path, number: int) -> None:
    """Remove the operator ``number``, and files that contain nothing else."""
    for file, text in _APPENDED.items():
        left = _read(native / file).replace(text.format(name=_name(number)), "")
        if left:
            _write(native / file, left)
        else:
            (native / file).unlink()
    (native / f"{_name(number)}.cpp").unlink()


def time_inline(name: str, folder: Path, wheel: Path, environment: Mapping[str, str]) -> float:
    """Return the seconds that ``INLINE[name]`` takes with ``wheel``, without importing torch."""
    extensions = folder / "extensions"
    shutil.rmtree(extensions, ignore_errors=True)
    source, arguments, _ = INLINE[name]
    with environment_with(wheel, folder / "inline-environment", "ninja") as python:
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        done = run(
            [python, "-c", _INLINE_PROGRAM, json.dumps([source, arguments])],
            cwd=folder,
            env={**environment, "PATH": path, "TORCH_EXTENSIONS_DIR": str(extensions)},
        )
    return float(done.stdout.split()[-1])


@contextmanager
def environment_with(wheel: Path, folder: Path, requirement: str) -> Iterator[Path]:
    """Hold a virtual environment with ``wheel`` and another package. Yields its Python."""
    requirements = folder.with_name(f"{folder.name}.txt")
    requirements.write_text(f"{requirement}\n", encoding="utf-8")
    with environment_in(folder, wheel, requirements) as python:
        yield python


def _name(number: int) -> str:
    return f"bench_scale_{number}"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
