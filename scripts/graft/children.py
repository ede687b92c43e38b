"""Load the operators of a parent process into its children. PyTorch calls ``autoload`` at the end of ``import torch``
(entry points of the group ``torch.backends``).

Uses only the standard library: it runs wherever Graft is installed.
"""

import os
import sys

from .session import VARIABLE


def autoload() -> None:
    """Load the operators that the parent had loaded. On an error, print one line; torch works without them."""
    name = os.environ.get(VARIABLE, "")
    if sys.flags.ignore_environment:
        return
    if name:
        try:
            from .session import loads

            loads.inherit(name)
        except Exception as error:
            sys.stderr.write(f"graft: the operators of the process that started this one were not loaded: {error}\n")
    elif "multiprocessing.forkserver" in sys.modules:
        from multiprocessing.process import current_process

        if getattr(current_process(), "_inheriting", False):  # the forkserver may have started before the loads
            _explain()


def _explain() -> None:
    """Add a reason to the AttributeError of ``torch.name``: the operator may be in the parent process only."""
    import torch

    from .session.missing import explain

    explain(torch, lambda name: "" if name.startswith("__") else _WHY)


_WHY = (
    "if graft.load added it, then after the process that starts this one (multiprocessing's forkserver) began; call "
    "graft.load here, too"
)
