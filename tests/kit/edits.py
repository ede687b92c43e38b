"""The edits of a native folder that ``make bench-build`` times.

Each gets a number and changes the text differently for each number, so that no build finds an earlier result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml
from graft.inputs.native import DERIVATIVES, NativeFolder

# The first edit changes this kernel, if a folder has it.
_USUAL = Path("cpu/TwicePlusKernel.cpp")

# An operator with common features: a kernel, a function and a method, a derivative formula, samples.
_OPERATOR: dict[str, str] = yaml.safe_load(Path(__file__).with_name("operator.yaml").read_text(encoding="utf-8"))

# Code that compiler and linker keep. A source in cpu/ is compiled several times, so the symbol is local.
_CODE = "namespace {{ [[gnu::constructor]] void edited_by_bench_build() {{ volatile int kept = {number}; }} }}"

# A formula in one line for the first argument of an operator, a tensor; it may be edited already.
_FORMULA = re.compile(
    r"^(- name: [\w.]+\(Tensor(?:\(\w!?\))? (\w+)\b.*\n  \2: )"
    r"(?!non_differentiable|not_implemented|[\"'|>])(?:\((.*)\)\.mul\(\d+\)|(.*))$",
    re.M,
)

_PARAGRAPH = "The text was edited for measurement {number}."


@dataclass(frozen=True)
class Edit:
    """A change of a native folder.

    Args:
        name: what is done.
        aim: the aim for a build after it on two cores, in seconds.
        aim_of_develop: the same for `make develop`; None if that is not timed.
        file: the edited file, or the folder; None if the folder has no such file.
        change: changes ``file``; takes its path and a number.
    """

    name: str
    aim: float
    aim_of_develop: float | None
    file: Path | None
    change: Callable[[Path, int], None]


def edits_of(native: NativeFolder) -> list[Edit]:
    """Return the edits in order, each with the file chosen from ``native``."""
    kernels = sorted(native.vectorized or native.sources)
    usual = _USUAL if _USUAL in kernels else next(iter(kernels), None)
    # The source that probably compiles longest.
    largest = max(kernels, key=lambda name: (native.path / name).stat().st_size, default=None)
    formulas = native.path / DERIVATIVES
    has_formula = formulas.is_file() and _FORMULA.search(formulas.read_text(encoding="utf-8"))
    return [
        Edit("kernel edited", 6, 4, usual, edit_kernel),
        Edit("slowest kernel edited", 6, None, largest if largest != usual else None, edit_kernel),
        Edit("documentation edited", 3, 1, next(iter(native.docs), None), edit_docs),
        Edit("derivative formula edited", 12, 8, Path(DERIVATIVES) if has_formula else None, edit_formula),
        Edit("operator added", 12, 12, Path(), add_operator),
        Edit("operator removed", 12, None, Path(), remove_operator),
    ]


def edit_kernel(source: Path, number: int) -> None:
    """Append a function to the code of ``source``, or change it if it was appended before."""
    kept = re.sub(r"\n.* void edited_by_bench_build\(\).*\n", "", source.read_text(encoding="utf-8"))
    source.write_text(f"{kept}\n{_CODE.format(number=number)}\n", encoding="utf-8")


def edit_docs(docs: Path, number: int) -> None:
    """Add a paragraph after the first one of ``docs``, or change it if it was added before."""
    text = re.sub(_PARAGRAPH.format(number=r"\d+") + r"\n\n", "", docs.read_text(encoding="utf-8"))
    first, _, rest = text.partition("\n\n")
    docs.write_text(f"{first.rstrip()}\n\n{_PARAGRAPH.format(number=number)}\n\n{rest}", encoding="utf-8")


def edit_formula(derivatives: Path, number: int) -> None:
    """Multiply a gradient in ``derivatives`` by a number."""
    text = derivatives.read_text(encoding="utf-8")
    text = _FORMULA.sub(lambda found: f"{found[1]}({found[3] or found[4]}).mul({number})", text, count=1)
    derivatives.write_text(text, encoding="utf-8")


def add_operator(native: Path, number: int) -> None:
    """Add the operator ``number``."""
    name = f"bench_scale_{number}"
    for file, text in _OPERATOR.items():
        with (native / file.replace("NAME", name)).open("a", encoding="utf-8") as opened:
            opened.write(text.replace("NAME", name))


def remove_operator(native: Path, number: int) -> None:
    """Remove an added operator, and files that contain nothing else."""
    name = max(native.glob("bench_scale_*.cpp")).stem
    for file, text in _OPERATOR.items():
        path = native / file.replace("NAME", name)
        left = path.read_text(encoding="utf-8").replace(text.replace("NAME", name), "")
        path.write_text(left, encoding="utf-8")
        if not left:
            path.unlink()
