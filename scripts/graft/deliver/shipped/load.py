"""Add the operators of this package to the torch that is being imported, as in a grafted torch.

The package has a folder for each build of torch that it was made for. PyTorch calls ``autoload`` at the end of
``import torch`` (entry points of the group ``torch.backends``). An error here never stops torch: it prints one line,
and torch works without these operators; importing the package then raises ImportError.
"""

import importlib
import importlib.util
import json
import os
import sys

_PACKAGE = __name__.rpartition(".")[0]
_FOLDER = os.path.dirname(os.path.abspath(__file__))
# What is the same for all builds.
_SHARED = os.path.join(_FOLDER, "shared")

# Why the operators were not added; empty if they were; None if nobody asked for them yet.
_reason = None


class _Refused(ValueError):
    """The reason why the operators are not added."""


def autoload():
    """Add the operators, once. On an error, print one line."""
    global _reason
    if _reason is not None:
        return
    _reason = ""
    names = []
    try:
        builds = _builds()
        names = list(builds[0]["names"])
        if os.path.isfile(os.path.join(_FOLDER, "edited.py")):  # an editable install
            from .edited import build_again

            build_again(_FOLDER, _PACKAGE)
            builds = _builds()
        _load(_chosen(builds))
    except Exception as error:
        _reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        sys.stderr.write(f"{_PACKAGE}: its operators were not added to torch: {_reason}\n")
        _explain(names)
        sys.modules.pop(_PACKAGE, None)  # so that importing it runs it again, which raises the error


def require():
    """Add the operators.

    Raises:
        ImportError: they cannot be added to this torch.
    """
    autoload()
    if _reason:
        raise ImportError(f"{_PACKAGE}: its operators were not added to torch: {_reason}")


def include():
    """Return the folders of the operators' C++ headers: ``ATen/ops/my_op.h`` declares ``at::my_op``.

    Raises:
        ImportError: as ``require``.
    """
    require()
    folders = [os.path.join(folder, "include") for folder in (_folder(), _SHARED)]
    return [folder for folder in folders if os.path.isdir(folder)]


def library():
    """Return the library that C++ which calls the operators is linked with.

    Raises:
        ImportError: as ``require``.
    """
    require()
    return os.path.join(_folder(), f"lib{_PACKAGE}.so")


def _folder():
    import torch

    return torch._thin_wheels[_PACKAGE]["folder"]


def _explain(names):
    """Make ``torch.name`` say why it is missing."""
    import torch

    upstream = getattr(torch, "__getattr__", None)

    def __getattr__(name):
        if name in names:
            raise AttributeError(f"module 'torch' has no attribute '{name}'. {_PACKAGE} has it, but {_reason}")
        if upstream is None:
            raise AttributeError(f"module 'torch' has no attribute '{name}'")
        return upstream(name)

    torch.__getattr__ = __getattr__


def _builds():
    with open(os.path.join(_FOLDER, "builds.json"), encoding="utf-8") as file:
        return json.load(file)


def _chosen(builds):
    """Return the note of the build for this torch. Functions are bound by address, so libraries must be identical."""
    import torch

    lib = os.path.join(os.path.dirname(torch.__file__), "lib")
    for build in builds:
        is_same = torch.version.git_version == build["commit"]
        if is_same and all(_library(os.path.join(lib, name)) == told for name, told in build["libraries"].items()):
            return _note(build)
    versions, version = [build["requires"] for build in builds], torch.__version__
    this, todo = version, f"install one of these (`pip install torch=={versions[-1]}`)"
    if version in versions:
        this, todo = f"another build of torch {version}", f"`pip install torch=={version} --force-reinstall`"
    raise _Refused(
        f"they were built for torch {', '.join(versions)} from pip, but this is {this}; {todo}, or install a "
        f"{_PACKAGE} for this torch"
    )


def _library(path):
    """Return the size of a library, and a hash of its start, which holds its build-id; None if there is none."""
    import hashlib

    try:
        with open(path, "rb") as file:
            return [os.fstat(file.fileno()).st_size, hashlib.sha256(file.read(4096)).hexdigest()]
    except FileNotFoundError:
        return None


def _note(build):
    folder = os.path.join(_FOLDER, build["folder"])
    with open(os.path.join(folder, "note.json"), encoding="utf-8") as file:
        return {**json.load(file), "folder": folder}


def _file(note, name):
    """Return the path of a file of a build."""
    own = os.path.join(note["folder"], name)
    return own if os.path.isfile(own) else os.path.join(_SHARED, name)


def _load(note):
    import torch

    from . import _publish

    _require_no_other(note, torch)
    added = _publish.module("torch._added_operators", _file(note, "_added_operators.py"))
    old = _publish.bound(note)
    _publish.module(f"{_PACKAGE}._C", _file(note, note["extension"]))
    torch._thin_wheels = {**getattr(torch, "_thin_wheels", {}), note["name"]: note}
    _publish.merge(added)
    new = _publish.publish(note, added, old)
    _publish.tell_torchscript({key: value for key, value in new.items() if old.get(key) is not value})
    _publish.refresh_packets(note["operators"])
    behind = _publish.Behind(note, lambda name: _file(note, name))
    sys.meta_path.insert(0, behind)
    behind.run_loaded()


def _require_no_other(note, torch):
    """Check that neither the torch, which may be grafted, nor another thin wheel has an operator of this one:
    registering it again would end Python.
    """
    if not importlib.util.find_spec("torch._added_operators"):
        return
    # Not imported: `python -m torch._graft` would warn that it is loaded already.
    from ._publish import module

    graft = module(f"{_PACKAGE}._graft", importlib.util.find_spec("torch._graft").origin)
    for other in graft.notes():
        if twice := sorted(_names(other) & _names(note)):
            thin = other.get("name")
            where, either = (thin, f"{thin} or ") if thin else (f"torch {torch.__version__}", "")
            raise _Refused(f"{twice[0]} is already in {where}; uninstall {either}{note['name']}")


def _names(note):
    """Return the operators that a note adds, and those that it replaces."""
    return {*note["operators"], *note.get("replaced", ())}
