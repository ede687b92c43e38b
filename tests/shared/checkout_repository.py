"""Make a repository that stands for a checkout of PyTorch: files of the installed torch, and sources of PyTorch 2.6.0.

PyTorch with its history is 4 GB. A wheel has most of a checkout's files, but no sources of kernels. Those of the oldest
pinned tree stand for them: many give the same bits on a newer torch, which ``test_old_kernels.py`` shows.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from graft.base.base import VERSION_FILE, of_version_file
from graft.core.files import write_atomically
from graft.core.layout import PATCHES
from graft.fork.cache import cache_of
from graft.fork.tree import isolated
from graft.inputs.pin import load_pin
from helpers import git

NATIVE = "aten/src/ATen/native"
FUNCTIONS, DERIVATIVES = f"{NATIVE}/native_functions.yaml", "tools/autograd/derivatives.yaml"
MANUAL = "torch/csrc/autograd/FunctionsManual.cpp"

# In every repository.
_YAML = (FUNCTIONS, f"{NATIVE}/tags.yaml", DERIVATIVES, "tools/autograd/deprecated.yaml")

# Where a checkout has what is in a folder of a wheel; the first that fits counts.
_PLACES = {
    "torchgen/packaged/ATen/": "aten/src/ATen/",
    "torchgen/packaged/autograd/": "tools/autograd/",
    "torch/include/ATen/": "aten/src/ATen/",
    "torch/include/c10/": "c10/",
    "torch/include/torch/": "torch/",
    "torch/include/": "",
    "torch/": "torch/",
    "torchgen/": "torchgen/",
}
_SUFFIXES = (".py", ".pyi", ".yaml", ".h", ".hpp", ".cuh")

# PyTorch's build writes these, and files with the word "@generated". A checkout ignores them.
_BUILT = ("aten/src/ATen/Config.h", "c10/macros/cmake_macros.h", "torch/headeronly/version.h", "torch/version.py")
_IGNORED = "".join(f"{line}\n" for line in ("__pycache__/", "/build/", *(f"/{name}" for name in _BUILT)))

# setup.py writes this around the headers that it installs.
_GUARD = re.compile(rb"#if !defined\(TORCH_STABLE_ONLY\) [^\n]*\n(.*)\n#else\n#error [^\n]*\n#endif [^\n]*\n", re.S)

_DATE = "@1700000000 +0000"


def make_checkout(folder: Path, site: Path, files: Collection[str] = (), sources: Collection[str] = ()) -> Path:
    """Make a repository with one commit, on the branch ``main``: the YAML files, and what is asked for. The same files
    give the same commit. The test is skipped if it asks for ``sources``, and the cache has none of PyTorch 2.6.0.

    Args:
        folder: where. It does not exist yet.
        site: the folder of the installed ``torch`` and ``torchgen``.
        files: paths in the checkout of what these have: ``torch/_refs/*.py``. ``*`` also matches ``/``.
        sources: paths in the checkout of what PyTorch 2.6.0 has: ``aten/src/ATen/native/cpu/*Kernel.cpp``.

    Returns:
        ``folder``.
    """
    version = of_version_file((site / VERSION_FILE).read_text(encoding="utf-8"), "__version__").partition("+")[0]
    found = {
        **of_2_6_0(sources),
        **_of_wheel(site, (*_YAML, *files)),
        "version.txt": f"{version}\n".encode(),
        ".gitignore": _IGNORED.encode(),
    }
    for pattern in (*files, *sources):
        assert any(fnmatchcase(name, pattern) for name in found), f"there is no {pattern}"
    for name, content in found.items():
        _write(folder / name, content)
    run_git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, f"PyTorch {version}")
    return folder


def edit(tree: Path, name: str, old: str, new: str) -> None:
    """Replace a text that a file has once."""
    text = (tree / name).read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{name} has this {text.count(old)} times: {old}"
    _write(tree / name, text.replace(old, new).encode())


def commit(tree: Path, message: str) -> str:
    """Commit all that changed in the working tree, by a fixed author at a fixed time. Return the commit."""
    run_git(tree, "add", "--all")
    run_git(tree, "commit", "--quiet", "--allow-empty", f"--message={message}")
    return run_git(tree, "rev-parse", "HEAD")


def run_git(tree: Path, *words: str | Path) -> str:
    """Return git's output in a tree. Settings of the user and the machine are off; remotes may be folders."""
    return git(tree, *words, GIT_AUTHOR_DATE=_DATE, GIT_COMMITTER_DATE=_DATE, **isolated())


def name_commit(site: Path, commit: str) -> None:
    """Let the torch in ``site``, of an environment that is the test's own, say that it was built from ``commit``: no
    repository of a test can have the wheel's. To be called before ``develop``, which then takes it for another torch.
    """
    path = site / VERSION_FILE
    text = path.read_text(encoding="utf-8")
    assert of_version_file(text, "git_version")
    # A new file: the old one may be a hard link to another environment's.
    write_atomically(path, re.sub(r"(?m)^git_version = .*$", f"git_version = '{commit}'", text))


def _of_wheel(site: Path, patterns: Collection[str]) -> dict[str, bytes]:
    """Return files of a wheel as a checkout has them."""
    found = {}
    for path, name in _placed(site):
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            content = path.read_bytes()
            guarded = _GUARD.fullmatch(content)
            if b"@generated" not in content[:400]:
                found[name] = guarded[1] if guarded else content
    return found


def _placed(site: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a wheel, each with its path in a checkout."""
    for package in ("torch", "torchgen"):
        for folder, _, names in os.walk(site / package):
            for path in (Path(folder, name) for name in names if name.endswith(_SUFFIXES)):
                there = path.relative_to(site).as_posix()
                old = next(old for old in _PLACES if there.startswith(old))
                name = _PLACES[old] + there.removeprefix(old)
                if _PLACES[old] and name not in _BUILT and not name.startswith("aten/src/ATen/ops/"):
                    yield path, name


def of_2_6_0(patterns: Collection[str]) -> dict[str, bytes]:
    """Return files of PyTorch 2.6.0, without the fork that may be checked out in the cache, or skip the test."""
    tree = cache_of(load_pin(PATCHES / "2.6.0")).tree
    if not patterns:
        return {}
    if not (tree / ".git").is_dir():
        pytest.skip("there are no sources of PyTorch 2.6.0 in the cache")
    first = run_git(tree, "rev-list", "--max-parents=0", "HEAD")
    every = run_git(tree, "ls-tree", "-r", "--name-only", first).splitlines()
    names = [name for name in every if any(fnmatchcase(name, pattern) for pattern in patterns)]
    show = ["git", "-C", str(tree), "show"]
    return {name: subprocess.check_output([*show, f"{first}:{name}"]) for name in names}


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
