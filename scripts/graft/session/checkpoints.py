"""Stop torch.utils.checkpoint if a formula was edited since the forward. In backward it computes the saved tensors
again: it would save those of the new formula, while backward continues with the old one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

_EDITS = "_graft_edits"


def count_edit() -> None:
    """Count an edit of formulas."""
    import torch

    setattr(torch, _EDITS, _edits() + 1)


def watch() -> None:
    """Make a recomputation raise RuntimeError if formulas have changed since the forward."""
    frame: Any = getattr(sys.modules.get("torch.utils.checkpoint"), "_CheckpointFrame", None)
    if frame is None or hasattr(frame.__init__, _EDITS):
        return
    upstreams = frame.__init__

    @functools.wraps(upstreams)
    def __init__(self: Any, recompute: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        before = _edits()

        def recompute_if_same(*inputs: Any) -> Any:
            if _edits() != before:
                raise RuntimeError(
                    "torch.utils.checkpoint: graft.load has changed formulas since the forward, and backward may need "
                    "other tensors than would be computed again: run the forward again"
                )
            return recompute(*inputs)

        upstreams(self, recompute_if_same, *args, **kwargs)

    setattr(__init__, _EDITS, True)
    frame.__init__ = __init__


def _edits() -> int:
    import torch

    found: int = getattr(torch, _EDITS, 0)
    return found


# The function to call after this module is imported.
BEHIND: dict[str, Callable[[], None]] = {"torch.utils.checkpoint": watch}
