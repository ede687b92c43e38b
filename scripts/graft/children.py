"""Give processes that a process starts the operators that it has loaded. PyTorch calls ``autoload`` at the end of
``import torch`` (entry points of the group ``torch.backends``).

Uses only the standard library: it runs wherever Graft is installed.
"""

import os
import sys

from .session import VARIABLE


def autoload() -> None:
    """Load what the parent had loaded. On an error, print one line; torch works without these operators."""
    name = os.environ.get(VARIABLE, "")
    if sys.flags.ignore_environment:
        return
    if name:
        try:
            from .session import inherited

            inherited.load(name)
        except Exception as error:
            sys.stderr.write(f"graft: the operators of the process that started this one were not loaded: {error}\n")
    elif "multiprocessing.forkserver" in sys.modules:
        from multiprocessing.process import current_process

        if getattr(current_process(), "_inheriting", False):  # the forkserver may be older than the loads
            _explain()


def _explain() -> None:
    """Make ``torch.name`` of an operator that only the parent has say why."""
    import torch

    from .session.missing import explain

    explain(torch, lambda name: "" if name.startswith("__") else _WHY)


_WHY = (
    "if graft.load added it, then after the process that starts this one (multiprocessing's forkserver) began; call "
    "graft.load here, too"
)
