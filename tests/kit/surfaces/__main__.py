"""``python -m tests.kit.surfaces``: print the table; exit with 1 if an operator differs from PyTorch's own."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from ..samples import SAMPLES
from . import autograd, compilers, dispatch, elsewhere, python
from .remedies import remedy
from .subject import Subject, subjects
from .table import NO, Cell, References, differences, lacking, measure, row

# PyTorch's own operators: with kernels, and composite.
KERNELS, COMPOSITES = ["lerp", "digamma"], ["outer", "nn.functional.conv2d"]
PARTS = (python, dispatch, autograd, compilers, elsewhere)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.surfaces", description=__doc__)
    parser.add_argument("--only", default="", help="only surfaces whose titles contain this")
    parser.add_argument("--operators", default="", help="only these operators, separated by commas")
    parser.add_argument("--json", type=Path, help="also write the results into this file")
    options = parser.parse_args()
    chosen = options.operators.split(",") if options.operators else list(torch._added_operators.PUBLIC)
    ours, without = subjects(chosen)
    compared = {subject.name: references_of(subject) for subject in ours}
    references, _ = subjects(KERNELS + (COMPOSITES if any(subject.is_composite for subject in ours) else []))
    surfaces = [s for part in PARTS for s in part.SURFACES.all if options.only in s.title]
    names = [subject.name for subject in [*ours, *references]]
    width = max((len(surface.title) for surface in surfaces), default=0)
    print(f"{'':{width}}  {'  '.join(names)}")
    cells = {}
    for surface in surfaces:
        for subject in [*ours, *references]:
            cells[surface.title, subject.name] = measure(surface, subject)
        lines = [row(cells, surface.title, names, width), *reasons(cells, surface.title, compared)]
        print("\n".join(lines), flush=True)
    if options.json:
        marks = [(title, name, cell.mark) for (title, name), cell in cells.items() if name in compared]
        options.json.write_text(json.dumps(marks), encoding="utf-8")
    # The folder's reasons, unless not all surfaces were measured.
    accepted = {} if options.only or options.operators else dict(SAMPLES.surfaces)
    accepted |= {place: why for place, cell in cells.items() if cell.mark == NO and (why := of_the_delivery(place[0]))}
    found = [*differences(cells, compared, accepted), *without]
    print(f"{len(surfaces)} surfaces, {len(names)} operators, {len(found)} differences from PyTorch's own")
    print("\n".join(found))
    return 1 if found else 0


def references_of(subject: Subject) -> References:
    """Return the operators to compare with, those of the same kind first."""
    return (COMPOSITES, KERNELS) if subject.is_composite else (KERNELS,)


def reasons(cells: dict[tuple[str, str], Cell], title: str, compared: dict[str, References]) -> Iterator[str]:
    """Yield why an operator lacks a surface, and which of PyTorch's own lack it, too."""
    for (of, name), cell in cells.items():
        if of == title and cell.mark == NO:
            like = lacking(cells, title, compared[name]) if name in compared else []
            yield f"  NO {name}: {cell.why[:300]}{f' (as {like[0]})' if like else ''}"
            if name in compared and not like:
                yield f"     next: {remedy(title)}"


def of_the_delivery(title: str) -> str:
    """Return why a delivery lacks what ``title`` names; empty if it has it."""
    is_thin = os.environ.get("GRAFT_DELIVERY") == "thin-wheel"
    return "a thin wheel has no C++ headers" if is_thin and title.startswith("C++: ") else ""


if __name__ == "__main__":
    sys.exit(main())
