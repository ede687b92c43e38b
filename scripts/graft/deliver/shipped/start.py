"""Run at the start of Python by ``torch_graft.pth``: put the grafted torch first on the path if its base is unchanged.

Messages are printed only when torch is imported. Python without torch pays for two or three calls of ``stat``.
"""

import os
import sys

TREE = os.path.dirname(os.path.abspath(__file__))

# The environment's packages.
PACKAGES = os.path.dirname(os.path.dirname(TREE))

# Written by `make develop`: the folder of the installed torch if that is another, sizes and times of some of torch's
# files, pip's record of them, commands, and the variable that names a process's tree to its children.
SITE = ""
STATE = {}
RECORD = ""
DEVELOP = ""
UNDEVELOP = ""
VARIABLE = ""

SITE = SITE or PACKAGES


def tree_named(name, trees):
    """Return the path of the tree in the folder ``trees`` that has this name, which is no path; empty if none has."""
    tree = os.path.join(trees, name)
    return tree if name.isalnum() and os.path.isfile(os.path.join(tree, "_torch_graft_start.py")) else ""


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


def _read(path, size=-1):
    """Return the start of a file; nothing if it does not exist."""
    try:
        with open(path, "rb") as file:
            return file.read(size)
    except OSError:
        return b""


def _is_same_by_content():
    """Return whether it is the torch that the tree was made for, although its files have other times: those of a copy,
    or whole seconds, which is all that container images keep.
    """
    records = [os.path.join(TREE, "RECORD"), os.path.join(SITE, RECORD)]
    hashes = [{line for line in _read(each).splitlines() if line.startswith(b"torch/")} for each in records]
    # The start of a library holds its build-id.
    name = "torch/lib/libtorch_cpu.so"
    starts = [_read(os.path.join(folder, name), 4096) for folder in (TREE, SITE)]
    return bool(RECORD and hashes[0]) and hashes[0] == hashes[1] and starts[0] == starts[1]


def _other_libraries():
    """Return the folder of another torch whose libraries the loader takes first, if there is one."""
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if folder and os.path.isfile(os.path.join(folder, "libtorch_python.so")):
            return folder
    return ""


def _quoted(path):
    import shlex

    return shlex.quote(path)


# What is done when torch is imported.
_acts = []


class _AtImport:
    """Finds no module, but calls these functions when ``torch`` is imported."""

    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            sys.meta_path.remove(self)
            for act in _acts:
                act()
        return


def _say_at_import(text):
    _acts.append(lambda: sys.stderr.write(text + "\n"))


def _place():
    """Put the tree before the installed torch, but after the folders in PYTHONPATH."""
    sys.path.remove(TREE)
    places = [sys.path.index(folder) for folder in (SITE, PACKAGES) if folder in sys.path]
    sys.path.insert(min(places, default=0), TREE)
    _hold()
    # A process that does not use torch, such as a server that starts others, leaves the choice to them.
    _acts.append(_name_to_children)


def _name_to_children():
    """Set the variable. If it names another tree, which Python was told to ignore, say so."""
    if TREE not in sys.path:
        return  # `multiprocessing` gave this process the path, and so the tree, of its parent
    named = tree_named(os.environ.get(VARIABLE, ""), os.path.dirname(TREE))
    if sys.flags.ignore_environment and named not in ("", TREE):
        flag = "-I" if sys.flags.isolated else "-E"
        text = "torch: python " + flag + " ignores " + VARIABLE + ": this process has the operators of the last build, "
        sys.stderr.write(text + "the process that started it those of an older one\n")
    os.environ[VARIABLE] = os.path.basename(TREE)


def _hold():
    """Lock the tree until this process and those forked from it have ended, so that no build changes it."""
    try:
        import fcntl

        fcntl.flock(os.open(TREE, os.O_RDONLY), fcntl.LOCK_SH)
    except (ImportError, OSError):
        pass  # this Python, or this file system, has no locks


def _start():
    sys.meta_path.insert(0, _AtImport())
    found = _state()
    if found == STATE or _is_same_by_content():
        _place()
        if folder := _other_libraries():
            text = "torch: LD_LIBRARY_PATH names " + folder + ", whose libraries are loaded instead of those with your "
            _say_at_import(text + "operators; take that folder out of it")
        return
    is_gone = not any(found.values())
    # Hard links remain when their originals are deleted; symbolic links break.
    is_whole = os.path.exists(os.path.join(TREE, "torch/lib/libtorch_cpu.so"))
    if is_gone:
        text = "torch: it was uninstalled from " + SITE + "; to also remove what `make develop` added: "
        text += UNDEVELOP + _quoted(sys.executable)
    else:
        text = "torch: another torch was installed in " + SITE + ", without your operators; to add them: "
        text += DEVELOP + _quoted(sys.executable)
    if is_gone and is_whole:
        _place()
    else:
        sys.path.remove(TREE)
    _say_at_import(text)


_start()
