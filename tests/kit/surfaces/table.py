"""The table: a row for each surface, a column for each operator."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from .subject import NotThere, Subject

Probe = Callable[[Subject], None]

# Names of PyTorch's own operators to compare with: those of the same kind first, then the others.
References = Sequence[Sequence[str]]

YES, NO, NOT_THERE = "yes", "NO", "-"

# Warnings caused by torch's own code, whatever the operator.
_OF_TORCH_ITSELF: list[tuple[str, type[Warning]]] = [
    ("`torch.jit", DeprecationWarning),
    (r"`isinstance\(treespec", FutureWarning),
    # Compiled autograd reads all attributes of a saved tensor to make a fake one.
    ("The .grad attribute of a Tensor that is not a leaf", UserWarning),
    # For every operator that returns a complex tensor, for example torch.fft.rfft2.
    ("Torchinductor does not support code generation for complex operators", UserWarning),
]
# Warnings of its compilers about their own use of PyTorch and Python; tests/wheel/conftest.py ignores the same.
_COMPILERS = r"torch\._(inductor|dynamo|functorch|export|subclasses|higher_order_ops)\b|torch\.(fx|export)\b"


@dataclass(frozen=True)
class Surface:
    """A place where an operator can show up.

    Args:
        title: its description.
        probe: raises unless the operator is there; ``NotThere`` if it has no such variant.
    """

    title: str
    probe: Probe


@dataclass(frozen=True)
class Cell:
    """The result: ``YES``, ``NO`` or ``NOT_THERE``, and the reason."""

    mark: str
    why: str = ""


class Surfaces:
    """A list of surfaces; its decorator adds a function."""

    def __init__(self) -> None:
        self.all: list[Surface] = []

    def __call__(self, title: str) -> Callable[[Probe], Probe]:
        """Add a function under ``title``."""

        def join(probe: Probe) -> Probe:
            self.all.append(Surface(title, probe))
            return probe

        return join


def measure(surface: Surface, subject: Subject) -> Cell:
    """Check one surface of one operator. Warnings count as failures: PyTorch's own operators cause none."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for text, category in _OF_TORCH_ITSELF:
                warnings.filterwarnings("ignore", text, category)
            for category in (DeprecationWarning, FutureWarning):
                warnings.filterwarnings("ignore", "", category, _COMPILERS)
            surface.probe(subject)
    except NotThere as reason:
        return Cell(NOT_THERE, str(reason))
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return Cell(NO, f"{type(error).__name__}: {lines[0]}")
    return Cell(YES)


def differences(
    cells: dict[tuple[str, str], Cell],
    ours: Mapping[str, References],
    accepted: dict[tuple[str, str], str],
) -> list[str]:
    """Return where our operators differ from PyTorch's own.

    Args:
        cells: the results, by title and name.
        ours: the names of the added operators, each with the operators of PyTorch's own that it is compared with.
        accepted: reasons for differences, by title and name; obsolete ones are reported, too.
    """
    found = []
    for title in dict.fromkeys(title for title, _ in cells):
        for name, references in ours.items():
            cell, reason = cells[title, name], accepted.get((title, name))
            if cell.mark == NO and not lacking(cells, title, references) and reason is None:
                found.append(f"{name}: {title}: {cell.why}")
            elif cell.mark != NO and reason is not None:
                found.append(f"{name}: {title}: there is no difference any more; remove it from the list")
    return found


def lacking(cells: dict[tuple[str, str], Cell], title: str, references: References) -> list[str]:
    """Return the operators of PyTorch's own that lack the surface, too; none if one of them has it.

    Those of the same kind decide, unless none of them has such a variant.
    """
    for names in references:
        marks = {name: cells[title, name].mark for name in names}
        if set(marks.values()) != {NOT_THERE}:
            return [] if YES in marks.values() else [name for name, mark in marks.items() if mark == NO]
    return []


def row(cells: dict[tuple[str, str], Cell], title: str, names: Sequence[str], width: int) -> str:
    """Format a row: the title in ``width`` columns, and each mark in those of the operator's name."""
    marks = "  ".join(f"{cells[title, name].mark:{len(name)}}" for name in names)
    return f"{title:{width}}  {marks}".rstrip()
