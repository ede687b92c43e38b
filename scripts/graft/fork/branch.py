"""``make import``: a native folder of what a branch of PyTorch changes, so that a release is built with it in a minute.

What has no place in a native folder, since the binaries of the release contain it, is listed.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from ..core.console import say
from ..core.errors import UsageError
from ..core.files import lay_out_files
from ..inputs.cplusplus import read_text
from ..inputs.entries import split_entries
from ..inputs.merge import MARK
from ..inputs.native import AUTOCAST, CUDA_SUFFIXES, DERIVATIVES, DOCS, FOLDERS, FUNCTIONS, HELPERS, PYTHON
from ..inputs.pin import GitSource, load_pin
from ..options import Request
from .apply import HELPERS_HEADER, HELPERS_SOURCE, NATIVE, SUBJECTS, YAML_FILES
from .changed_entries import changed_entries, changed_formulas, changed_functions, text_of_entries
from .changed_python import text_behind
from .helpers import changed_declarations, changed_helpers
from .python_operators import docs_of, without_docstrings
from .stack import Stack
from .tree import BASE_REF, SourceTree, find_tree

_SOURCES = (".cpp", *CUDA_SUFFIXES)

# What a folder takes of PyTorch's functions for formulas, and where it has it.
_HELPERS = {
    HELPERS_SOURCE: (HELPERS, changed_helpers),
    HELPERS_HEADER: (HELPERS.with_suffix(".h"), changed_declarations),
}
_PYTHON_SUFFIXES = (".py", ".pyi", ".pyi.in")

AUTOCAST_SOURCE = "aten/src/ATen/RegisterAutocast.cpp"

# Where an unusual change is, and what to do with it.
_LEFT = {
    "test/": "a wheel has no tests; run it with the torch that is built",
    "docs/": "a wheel has no pages",
    "torchgen/": "PyTorch's generator; a patch of the pin can change it",
}
_IN_BINARIES = "PyTorch's own binaries, or its build, contain it"


@dataclass
class Branch:
    """What a commit of PyTorch changes against another.

    Args:
        tree: the checkout, which is only read.
        old: the commit to compare with.
        new: the commit.
        scratch: an empty folder.
        copied: receives the files of the branch that the native folder takes as they are, with their paths there.
        files: receives the files of the native folder, by relative path.
        left: receives what has no place in it, with the reason.
    """

    tree: SourceTree
    old: str
    new: str
    scratch: Path
    copied: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def read(self) -> None:
        """Sort what is changed into ``files`` and ``left``."""
        top = self.new
        subjects = [f"--grep={subject}" for subject in SUBJECTS]
        ours = self.tree.ask("log", "--format=%H", "--fixed-strings", *subjects, f"{self.old}..{self.new}").split()
        if ours[:1] == [top]:
            # A fork: the pin's patches are below our commits, and the last one is made from the others and docstrings.
            self.old, self.new = (self.tree.ask("rev-parse", f"{commit}~1") for commit in (ours[-1], top))
        before, after = map(split_entries, self._versions(YAML_FILES[FUNCTIONS]))
        added = {name.partition(".")[0] for name in after.keys() - before.keys()}
        affected: set[str] = set()
        for name in self.tree.differing(self.old, self.new):
            if name in YAML_FILES.values():
                continue
            if name in _HELPERS:
                self._helpers(name)
            elif name.startswith(f"{NATIVE}/") and Path(name).suffix in (*_SOURCES, ".h"):
                affected |= self._source(name)
            elif name.startswith("torch/") and name.endswith(_PYTHON_SUFFIXES):
                self._python(name, added)
            else:
                self.left[name] = next((why for place, why in _LEFT.items() if name.startswith(place)), _IN_BINARIES)
        Stack(self.tree, self.new, self.scratch).lay_out(self.copied, self.scratch)
        self.files |= {place: (self.scratch / name).read_bytes() for name, place in self.copied.items()}
        self._entries(affected)
        if top != self.new:
            self._lists(top, added)

    def _text(self, commit: str, name: str) -> str:
        """Return the text of a file in a commit; empty if there is none."""
        done = self.tree.git("show", f"{commit}:{name}", check=False)
        return done.stdout if done.returncode == 0 else ""

    def _source(self, name: str) -> set[str]:
        """Take a file of kernels. Return the functions in it that change, or call others in it that do."""
        before, after = self._versions(name)
        place = Path(name).relative_to(NATIVE)
        if not after:
            self.left[name] = "the branch deletes it"
        elif place.parts[0] not in (*FOLDERS, place.name):
            self.left[name] = "a folder whose sources builds for CPU and CUDA do not compile"
        elif before and name.endswith((".h", ".cuh")):
            self.left[name] = "PyTorch's binaries are compiled with this header; what is new needs a header of its own"
        else:
            self.copied[name] = str(place)
            # Other files cannot call local functions, which may have the name of a kernel.
            return changed_functions(before, after) & read_text(Path(name), after).defines.keys()
        return set()

    def _helpers(self, name: str) -> None:
        """Take the functions for formulas that change, or what is declared anew."""
        place, changed = _HELPERS[name]
        if text := changed(*self._versions(name)):
            self.files[str(place)] = text.encode()

    def _python(self, name: str, added: set[str]) -> None:
        """Take what a Python file gains, and the docstrings of operators that are ``added``."""
        before, after = self._versions(name)
        place = f"{PYTHON}/{name.removeprefix('torch/').removesuffix('.in')}"
        try:
            text, found = without_docstrings(text_behind(before, after).removeprefix(MARK), added)
        except (ValueError, SyntaxError) as error:
            what = "it changes lines" if isinstance(error, SyntaxError) else f"it changes {error}"
            self.left[name] = f"{what}; write what is new behind the file's end, or into a patch of the pin"
            return
        self._docs(name, found)
        if text == after:
            self.copied[name] = place
        elif text.strip():
            self.files[place] = text.encode()

    def _docs(self, name: str, found: dict[str, str]) -> None:
        """Take the docstrings that a file sets."""
        docs, computed = docs_of(found)
        self.files |= {place: text.encode() for place, text in docs.items()}
        for operator in computed:
            self.left[name] = f"the docstring of {operator} is computed; write it into {DOCS}/{operator}.rst"

    def _lists(self, top: str, added: set[str]) -> None:
        """Take docstrings and autocast policies from a fork's last commit."""
        for name in self.tree.differing(self.new, top):
            if name.startswith("torch/") and name.endswith(".py"):
                self._docs(name, without_docstrings(text_behind("", self._text(top, name)), added)[1])
        policies: dict[str, list[str]] = {}
        listed = re.findall(r"^    KERNEL_CPU\((\w+), (?:(\w+), )?(\w+)\)$", self._text(top, AUTOCAST_SOURCE), re.M)
        for name, overload, policy in listed:
            policies.setdefault(policy, []).append(f"{name}.{overload}" if overload else name)
        if policies:
            self.files[str(AUTOCAST)] = yaml.safe_dump(policies, sort_keys=False).encode()

    def _entries(self, affected: set[str]) -> None:
        """Write the entries that are new, or replace PyTorch's."""
        functions, formulas = (self._versions(name) for name in YAML_FILES.values())
        found = {
            FUNCTIONS: changed_entries(*functions, affected),
            DERIVATIVES: changed_formulas(*formulas, split_entries(functions[0]).keys()),
        }
        for file, (entries, left) in found.items():
            self.left |= {
                f"{YAML_FILES[file]}: {operator}": f"a release keeps {what}" for operator, what in left.items()
            }
            if entries:
                self.files[str(file)] = text_of_entries((functions, formulas)[file == DERIVATIVES][1], entries).encode()

    def _versions(self, name: str) -> tuple[str, str]:
        return self._text(self.old, name), self._text(self.new, name)


def import_branch(request: Request) -> None:
    """Write what a branch, or a diff, changes as a native folder."""
    (target,) = request.native[:1]
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"NATIVE={target}: there is something already", todo="set NATIVE to a new folder")
    tree = find_tree(Path(request.source).expanduser().resolve()) if request.source else None
    if tree is None or bool(request.branch) == bool(request.diff):
        raise UsageError(
            "what to import is not given",
            todo="set SOURCE to a checkout of PyTorch, with its history, and BRANCH to a branch or DIFF to a diff",
        )
    with tempfile.TemporaryDirectory(prefix="graft-") as scratch:
        old, new = _of_diff(tree, request.diff, Path(scratch)) if request.diff else _of_branch(tree, request)
        branch = Branch(tree, old, new, Path(scratch))
        branch.read()
    lay_out_files(target, branch.files)
    say(f"{target}: {', '.join(sorted(branch.files)) or 'nothing'}, from {old[:12]}..{new[:12]}")
    if branch.left:
        listed = "\n".join(f"  {name}: {why}" for name, why in sorted(branch.left.items()))
        say(f"left out; `make patch-and-build BUILD=source` builds all of the branch:\n{listed}")


def _of_branch(tree: SourceTree, request: Request) -> tuple[str, str]:
    """Return the commit at which the branch left the pinned release, and the branch's last one."""
    pin = load_pin(request.layout.patches, request.pin)
    # Sources that are no repository become one when the fork is applied.
    pinned = pin.source.commit if isinstance(pin.source, GitSource) else BASE_REF
    new = tree.git("rev-parse", "--quiet", "--verify", f"{request.branch}^{{commit}}", check=False).stdout.strip()
    old = tree.git("merge-base", new, pinned, check=False).stdout.strip() if new else ""
    if not new or not re.fullmatch(r"[0-9a-f]{40}", old):
        raise UsageError(
            f"{tree.path}: {f'it has no branch {request.branch}' if not new else f'its history lacks {request.pin}'}",
            todo=f"git -C {tree.path} fetch --tags, or set PIN to the release that the branch began at",
        )
    return old, new


def _of_diff(tree: SourceTree, diff: Path, scratch: Path) -> tuple[str, str]:
    """Return the commit that is checked out, and one with the diff applied to it."""
    stack = Stack(tree, tree.head(), scratch)
    done = tree.git("apply", "--cached", "--whitespace=nowarn", diff, env=stack.index, check=False)
    if done.returncode != 0:
        raise UsageError(
            f"{diff}: it does not apply to {tree.path}",
            cause=done.stdout.strip(),
            todo="check out the commit that it fits",
        )
    stack.commit(f"{diff.name}\n")
    return tree.head(), stack.tip
