"""Run at the start of Python by ``torch_graft.pth``: put the grafted torch first on the path if its base is unchanged.

Messages are printed only when torch is imported. Python without torch pays for two or three calls of ``stat``.
"""

import os
import sys

TREE = os.path.dirname(os.path.abspath(__file__))

# Written by `make develop`: the folders of the installed torch and of the environment's packages, and sizes and times
# of some of torch's files.
SITE = ""
PACKAGES = ""
STATE = {}
MAKE = ""


def _state():
    """Return the same for the torch that is installed now; None for a missing file."""
    found = {}
    for name in STATE:
        try:
            status = os.stat(os.path.join(SITE, name))
            found[name] = [status.st_size, status.st_mtime_ns]
        except OSError:
            found[name] = None
    return found


class _SayAtImport:
    """Finds no module, but prints a line when ``torch`` is imported."""

    def __init__(self, text):
        self.text = text

    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            sys.meta_path.remove(self)
            sys.stderr.write(self.text + "\n")
        return


def _place():
    """Put the tree before the installed torch, but after the folders in PYTHONPATH."""
    sys.path.remove(TREE)
    places = [sys.path.index(folder) for folder in (SITE, PACKAGES) if folder in sys.path]
    sys.path.insert(min(places, default=0), TREE)


def _start():
    found = _state()
    if found == STATE:
        _place()
        return
    is_gone = not any(found.values())
    # Hard links remain when their originals are deleted; symbolic links break.
    is_whole = os.path.exists(os.path.join(TREE, "torch/lib/libtorch_cpu.so"))
    if is_gone:
        text = "torch: it was uninstalled from " + SITE + "; to also remove what `make develop` added: "
        text += MAKE.replace("VERB", "undevelop")
    else:
        text = "torch: another torch was installed in " + SITE + ", without your operators; to add them: "
        text += MAKE.replace("VERB", "develop")
    if is_gone and is_whole:
        _place()
    else:
        sys.path.remove(TREE)
    sys.meta_path.insert(0, _SayAtImport(text))


_start()
