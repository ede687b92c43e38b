"""``python -m scripts.surfaces``: print the table; exit with 1 if an operator is not as PyTorch's own are."""

from __future__ import annotations

import argparse
import importlib
import sys

import torch

from . import autograd, compilers, dispatch, elsewhere, python
from .subject import subjects
from .table import NO, differences, measure, rendered

REFERENCES = ["lerp", "digamma"]
PARTS = (python, dispatch, autograd, compilers, elsewhere)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.surfaces", description=__doc__)
    parser.add_argument("--only", default="", help="surfaces whose titles hold this")
    options = parser.parse_args()
    ours = list(torch._added_operators.PUBLIC)
    measured, without = subjects([*ours, *REFERENCES])
    surfaces = [s for part in PARTS for s in part.SURFACES.all if options.only in s.title]
    cells = {}
    for surface in surfaces:
        for subject in measured:
            cells[surface.title, subject.name] = measure(surface, subject)
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    names = [subject.name for subject in measured]
    print(rendered(cells, [surface.title for surface in surfaces], names))
    for (title, name), cell in cells.items():
        if cell.mark == NO:
            print(f"NO  {name}: {title}: {cell.why[:300]}")
    accepted = accepted_differences()
    found = differences(
        cells, [name for name in names if name in ours], REFERENCES, accepted if not options.only else {}
    )
    found += [
        f"{name}: there are no samples; write `def {name.rpartition('.')[2]}(make)` into samples.py" for name in without
    ]
    print(f"{len(surfaces)} surfaces, {len(names)} operators, {len(found)} differences from {' and '.join(REFERENCES)}")
    print("\n".join(found))
    return 1 if found else 0


def accepted_differences() -> dict[tuple[str, str], str]:
    """Differences that the folder's ``samples.py`` gives reasons for: ``SURFACES = {(title, name): reason}``."""
    try:
        samples = importlib.import_module("torch.testing._internal.added_samples")
    except ImportError:
        return {}
    found: dict[tuple[str, str], str] = getattr(samples, "SURFACES", {})
    return found


if __name__ == "__main__":
    sys.exit(main())
