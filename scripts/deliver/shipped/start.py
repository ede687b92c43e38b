"""Run when Python starts, by ``torch_graft.pth``: keep the grafted torch first on the path if the base is still there.

What is said is said when torch is imported. Python that never imports it pays for two or three calls of ``stat``.
"""

import os
import sys

TREE = os.path.dirname(os.path.abspath(__file__))

# `make develop` writes these: the folder that torch is installed in, that of the environment's packages, and size and
# time of some files of torch.
SITE = ""
PACKAGES = ""
STATE = {}
MAKE = ""


def _state():
    """The same of the torch that is there now; None for a file that is not."""
    found = {}
    for name in STATE:
        try:
            status = os.stat(os.path.join(SITE, name))
            found[name] = [status.st_size, status.st_mtime_ns]
        except OSError:
            found[name] = None
    return found


class _SayAtImport:
    """Finds no module, but prints a line when ``torch`` is looked for."""

    def __init__(self, text):
        self.text = text

    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            sys.meta_path.remove(self)
            sys.stderr.write(self.text + "\n")
        return


def _place():
    """Put the tree before the installed torch, but behind what PYTHONPATH names."""
    sys.path.remove(TREE)
    places = [sys.path.index(folder) for folder in (SITE, PACKAGES) if folder in sys.path]
    sys.path.insert(min(places, default=0), TREE)


def _start():
    found = _state()
    if found == STATE:
        _place()
        return
    is_gone = not any(found.values())
    # Hard links outlive what they were made of; symbolic ones do not.
    is_whole = os.path.exists(os.path.join(TREE, "torch/lib/libtorch_cpu.so"))
    if is_gone:
        text = "torch: it was uninstalled from " + SITE + "; to remove what `make develop` added, too: "
        text += MAKE.replace("VERB", "undevelop")
    else:
        text = "torch: another one was installed in " + SITE + ", which your operators are not in; to add them: "
        text += MAKE.replace("VERB", "develop")
    if is_gone and is_whole:
        _place()
    else:
        sys.path.remove(TREE)
    sys.meta_path.insert(0, _SayAtImport(text))


_start()
