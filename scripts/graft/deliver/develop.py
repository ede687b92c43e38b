"""Add operators to an installed torch without changing it: a separate tree that Python finds first.

The tree consists of links to the files of the installed torch, plus the composed files. Each build writes a new tree,
and one ``.pth`` file names the current tree. A killed build leaves the previous tree in use. Each process locks its
tree, and no build changes or deletes a locked tree. An environment variable names the tree to child processes, unless
Python ignores such variables.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..base.base import Base
from ..base.installed import PACKAGES, TREES, Environment
from ..core.console import say
from ..core.errors import BuildError
from ..core.files import delete, read_json, release, write_atomically
from ..core.folders import origin_of, shown
from ..core.layout import IS_CHECKOUT, REPOSITORY
from ..core.places import DEVELOPED, forget_place, note_place
from ..core.system_errors import remedy

_PTH = "torch_graft.pth"
_START = "_torch_graft_start"
_START_FILE = Path(__file__).with_name("shipped") / "start.py"
# The environment variable with the name of a process's tree, for its children. It is set when torch is imported.
VARIABLE = "TORCH_GRAFT_TREE"

# The file in a tree that records its inputs.
_NOTE = "graft.json"
# The end of the name of a tree that is being written. A killed build may leave it.
_PARTIAL = ".partial"

# Files whose size and time are compared with the base's at each start of Python; if they differ, pip's record decides.
_WATCHED = ("torch/version.py", "torch/lib/libtorch_cpu.so", "torch/lib/libtorch_python.so")


def current_tree(packages: Path) -> Path | None:
    """Return the tree that the Python of these site-packages uses, or None."""
    with suppress(OSError, ValueError):
        text = (packages / _PTH).read_text(encoding="utf-8")
        if found := re.search(r"^import os, sys; current = '(\w+)';", text):
            tree = packages / TREES / found[1]
            return tree if tree.is_dir() else None
    return None


def note_of(tree: Path | None) -> dict[str, Any]:
    """Return the note of a tree: base, native folders and hash of each file; empty if the tree is incomplete."""
    return read_json(tree / _NOTE) if tree else {}


def write_tree(
    environment: Environment, base: Base, natives: Sequence[Path], files: Mapping[str, bytes | Path]
) -> Path:
    """Write the tree with ``files``. Return its path.

    Args:
        environment: the environment whose torch is extended.
        base: that torch.
        natives: the native folders, for messages.
        files: the composed files, by path below site-packages; a path stands for a link to it.
    """
    folders = [str(native) for native in natives]
    hashes = {name: _hash(text) for name, text in files.items()}
    note = {"base": environment.content, "natives": folders, "files": hashes}
    name = hashlib.sha256(json.dumps(note).encode()).hexdigest()[:12]
    trees = environment.packages / TREES
    tree = trees / name
    try:
        if not (tree / _NOTE).is_file():
            partial = trees / f"{name}{_PARTIAL}"
            delete(partial)
            if spare := _spare(environment):
                spare.rename(partial)
            else:
                _fill(partial, environment, base)
            _change(partial, environment, files)
            record = next(iter(environment.site.glob("torch-*.dist-info/RECORD")), None)
            if record:
                write_atomically(partial / "RECORD", record.read_bytes())
            write_atomically(partial / f"{_START}.py", _start_text(environment, folders, record))
            write_atomically(partial / _NOTE, json.dumps(note))
            partial.rename(tree)
    except OSError as error:
        raise BuildError(f"{tree}: {error.strerror or error}", todo=remedy(error, tree)) from error
    return tree


def use_tree(environment: Environment, tree: Path) -> None:
    """Make Python find ``tree`` first. Delete all others but those in use and the previous one, for the next build."""
    old, pth = current_tree(environment.packages), environment.packages / _PTH
    before, note = note_of(old).get("natives", []), note_of(tree)
    if not note:
        raise BuildError(f"{tree}: another command deleted it meanwhile", todo="run this one again")
    now = note["natives"]
    note_place(DEVELOPED, environment.packages)
    try:
        write_atomically(pth, _pth_text(tree.name))
    except OSError as error:
        raise BuildError(f"{pth}: {error.strerror or error}", todo=remedy(error, pth)) from error
    there = {shown(Path(folder)) for folder in now}
    if left_out := [folder for folder in before if shown(Path(folder)) not in there]:
        every = dict.fromkeys([*before, *now])
        roots = {shown(Path(folder)) for folder in every} - every.keys()
        # A build takes only one folder that others are written from.
        todo = f"; {_options(every, '{}='.format)} adds all of them" if len(roots) < 2 else ""
        say(f"the operators of {' '.join(map(shown, map(Path, left_out)))} are no longer there{todo}")
    for other in tree.parent.iterdir():
        if other not in (tree, old) and not _is_used(other):
            with suppress(OSError):  # another command deletes it, too
                delete(other)


def remove_trees(packages: Path) -> bool:
    """Make the Python of these site-packages use its installed torch again, and delete the trees that are not in use.
    While one is in use, the ``.pth`` file stays, without a current tree, for the children of the processes that use it.
    This process does not count: the environment's own ``graft`` locks the tree when it starts, but imports no torch.
    Return whether there was anything to delete.
    """
    pth, trees = packages / _PTH, packages / TREES
    is_there = pth.exists() or trees.exists()
    try:
        for tree in trees.glob("*"):
            release(tree)
        if any(map(_is_used, trees.glob("*"))):
            write_atomically(pth, _pth_text(""))
        else:
            pth.unlink(missing_ok=True)
        used = [tree for tree in trees.glob("*") if _is_used(tree)]
        for tree in {*trees.glob("*")} - {*used}:
            delete(tree)
        if used:
            say(
                f"{trees}: processes still run with what is there, and so do those that they start; "
                "`make undevelop` deletes it when they have ended"
            )
        elif trees.exists():
            trees.rmdir()
        if not used:
            forget_place(DEVELOPED, packages)
    except OSError as error:
        raise BuildError(f"{error.filename}: {error.strerror}", todo=remedy(error, trees)) from error
    return is_there


def _is_used(tree: Path) -> bool:
    """Return whether a process runs with this tree: ``start.py`` locks it."""
    try:
        descriptor = os.open(tree, os.O_RDONLY)
    except FileNotFoundError:  # another command deleted it
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # this file system has no locks
        return False
    finally:
        os.close(descriptor)
    return False


def _pth_text(name: str) -> str:
    """Return the text of the ``.pth`` file: one line of code. In a virtual environment it runs twice. The second run
    does nothing.

    The line finds the tree beside its file, also in a copy of the environment: ``sitedir`` is a variable of the
    function in Python's ``site`` that runs it. Without a tree, the installed torch is used.
    """
    code = ast.parse(_START_FILE.read_text(encoding="utf-8"))
    (function,) = (each for each in code.body if getattr(each, "name", "") == "tree_named")
    text = f"{ast.unparse(function)}\n"
    text += f"named = '' if sys.flags.ignore_environment else os.environ.get({VARIABLE!r}, '')\n"
    text += "tree = tree_named(named, trees) or tree_named(current, trees)\n"
    text += f"if tree and {_START!r} not in sys.modules:\n"
    text += f"    sys.path.insert(0, tree)\n    try: import {_START}\n    except ImportError: sys.path.remove(tree)\n"
    trees = f"os.path.join(sys._getframe(1).f_locals['sitedir'], {TREES!r})"
    variables = "{'os': os, 'sys': sys, 'current': current, 'trees': trees}"
    return f"import os, sys; current = {name!r}; trees = {trees}; exec({text!r}, {variables})\n"


def _start_text(environment: Environment, natives: Sequence[str], record: Path | None) -> str:
    text = _START_FILE.read_text(encoding="utf-8")
    state = {name: value for name, value in environment.state().items() if name in _WATCHED}
    make = f"make -C {shlex.quote(str(REPOSITORY))}"
    undevelop, develop = f"{make} undevelop PYTHON=", f"{make} develop {_options(natives, '{}='.format)} PYTHON="
    if not IS_CHECKOUT:
        words = _options(natives, lambda name: f"--{name.lower()} ")
        undevelop, develop = "graft undevelop --python ", f"graft develop {words} --python "
    is_elsewhere = environment.site != environment.packages
    for name, value in (
        ("SITE", str(environment.site) if is_elsewhere else ""),
        ("STATE", state),
        ("RECORD", record.relative_to(environment.site).as_posix() if record else ""),
        ("DEVELOP", develop),
        ("UNDEVELOP", undevelop),
        ("VARIABLE", VARIABLE),
    ):
        head, _, tail = text.partition(f"\n{name} = ")
        text = f"{head}\n{name} = {value!r}\n{tail.partition(chr(10))[2]}"
    return text


def _options(natives: Iterable[str], spell: Callable[[str], str]) -> str:
    """Return native folders as options that can be pasted into a shell: ``NATIVE``, and the option of each origin.

    Args:
        natives: the folders.
        spell: returns what stands before an option's value.
    """
    every = {native: origin_of(Path(native)) for native in natives}
    options = {origin.option: [origin.root] for origin in every.values() if origin}
    options["NATIVE"] = [native for native, origin in every.items() if not origin]
    return " ".join(f"{spell(name)}{shlex.quote(shlex.join(each))}" for name, each in options.items() if each)


def _hash(content: bytes | Path) -> str:
    return f"-> {content}" if isinstance(content, Path) else hashlib.sha256(content).hexdigest()


def _spare(environment: Environment) -> Path | None:
    """Return an old tree of the same base that no process uses. It differs from the new one in a few files."""
    current = current_tree(environment.packages)
    for tree in sorted((environment.packages / TREES).glob("*")):
        is_free = tree != current and tree.suffix != _PARTIAL and not _is_used(tree)
        if is_free and note_of(tree).get("base") == environment.content:
            return tree
    return None


def _fill(target: Path, environment: Environment, base: Base) -> None:
    """Link every file of the installed torch, and the folders next to it where its libraries search for others."""
    for package in PACKAGES:
        _link_tree(environment.site / package, target / package)
    for name in _siblings(base) if base.cuda else ():
        if (environment.site / name).is_dir():
            _link_symbolically(environment.site / name, target / name)


def _change(tree: Path, environment: Environment, files: Mapping[str, bytes | Path]) -> None:
    """Write the tree's own files. Delete own files of an earlier build, or link to torch's in their places."""
    before = note_of(tree).get("files", {})
    for name in {*before, *files}:
        path = tree / name
        if name in files and before.get(name) == _hash(files[name]):
            continue
        for stale in (path, *path.parent.glob(f"__pycache__/{path.stem}.*.pyc")):
            stale.unlink(missing_ok=True)  # if it is a link, its target stays
        is_of_torch = Path(name).parts[0] in PACKAGES
        if name in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            content = files[name]
            path.symlink_to(content) if isinstance(content, Path) else path.write_bytes(content)
        elif is_of_torch and (environment.site / name).is_file():
            _link(environment.site / name, path)
        else:
            _prune(path.parent, tree, environment.site if is_of_torch else None)


def _prune(folder: Path, tree: Path, site: Path | None) -> None:
    """Delete empty folders that torch does not have, from ``folder`` upwards: Python would treat them as packages."""
    while folder != tree and folder.is_dir() and not (site and (site / folder.relative_to(tree)).is_dir()):
        if any(path.name != "__pycache__" for path in folder.iterdir()):
            return
        delete(folder)
        folder = folder.parent


def _link_tree(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    with os.scandir(source) as entries:
        for entry in entries:
            link = _link_tree if entry.is_dir() else _link
            link(Path(entry.path), target / entry.name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, no support for hard links, or another user's file
        _link_symbolically(source, target)


def _link_symbolically(source: Path, target: Path) -> None:
    """Make a symbolic link. In a copy of the environment it leads to the copy's file, if that is in site-packages."""
    packages = next(parent.parent for parent in target.parents if parent.name == TREES)
    real = Path(os.path.realpath(source))
    is_beside = real.is_relative_to(os.path.realpath(packages))
    target.symlink_to(os.path.relpath(real, os.path.realpath(target.parent)) if is_beside else real)


def _siblings(base: Base) -> set[str]:
    """Return the folders next to ``torch`` where its libraries search for others, such as ``nvidia``."""
    libraries = [path.name for path in base.libraries.glob("libtorch*.so")]
    paths = [base.library(f"lib/{name}").rpath for name in libraries]
    return {found for text in paths for found in re.findall(r"\$ORIGIN/\.\./\.\./([\w.]+)", text)}
