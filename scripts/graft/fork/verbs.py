"""The verbs that work on PyTorch's source tree."""

from __future__ import annotations

import argparse
from dataclasses import replace

from ..core.layout import REPOSITORY
from ..options import Request
from . import apply as applying
from . import export as exporting
from .build import check_source, if_possible
from .fetch import fetched
from .syntax import check_syntax


def check(request: Request, own: argparse.Namespace) -> None:
    """Compile what the operators add to the tree, or only parse the folder's sources."""
    run = check_syntax if own.syntax else check_source
    title = request.layout.title
    with if_possible(own.if_possible, f"whether {title} compiles in the source tree of {request.pin}"):
        run(request.layout, source=request.source or None, jobs=request.jobs)


def apply(request: Request) -> None:
    """Turn a checkout into the fork."""
    applying.apply(fetched(request.layout, request.source or None), request.layout)


def export(request: Request) -> None:
    """Write the fork as patches."""
    out = request.out or REPOSITORY / f"dist/fork-{request.pin.release}"
    layout = replace(request, out=out).layout
    exporting.export(fetched(layout, request.source or None), layout.out)
