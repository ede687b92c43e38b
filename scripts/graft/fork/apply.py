"""``make apply``: turn a PyTorch checkout into the fork that a pin's patches and a native folder describe.

The fork is a sequence of commits: the patches, the native files, the YAML entries, torch's Python files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..base.base import run_with_torchgen
from ..codegen import DESCRIPTION
from ..codegen.description import Description
from ..compose.appending import appended_texts, behind, texts_of_folders
from ..core.console import StepLine, Steps, say
from ..core.errors import BuildError, UsageError
from ..core.files import build_lock, files_below, write_if_changed
from ..core.layout import Layout
from ..cpp.sources import Source, read_text, replacing_sources
from ..inputs.merge import PACKAGED, merge_with_base, with_replacing
from ..inputs.native import DERIVATIVES, FUNCTIONS, NativeFolders
from ..inputs.patches import ADDED, Patch
from ..inputs.snapshot import Snapshot
from ..inputs.sources import read_sources
from ..options import Request
from .cache import snapshot_for_tree
from .checkout import go_back, move_to
from .fetch import fetched
from .placed import places, with_declarations, with_functions, write_placed
from .stack import Stack
from .tree import BASE_REF, FUNCTIONS_YAML, SourceTree, count, open_tree, pinned_base

# Where the fork's files are in the tree.
NATIVE = "aten/src/ATen/native"
HELPERS_SOURCE, HELPERS_HEADER = (f"torch/csrc/autograd/FunctionsManual{suffix}" for suffix in (".cpp", ".h"))
YAML_FILES = {FUNCTIONS: FUNCTIONS_YAML, DERIVATIVES: "tools/autograd/derivatives.yaml"}

_KERNELS_MESSAGE = """native: add the files of a native folder

They lie where they lay in the folder, which is laid out as aten/src/ATen/native is. Of sources in cpu/, those that are
compiled once lie outside of it.
"""
_YAML_MESSAGE = """native: describe the added operators

The entries of a native folder, behind upstream's own.
"""
_PYTHON_MESSAGE = """torch: add the Python files of a native folder

New ones are beside torch's, additions behind torch's own text.
"""
_LISTS_MESSAGE = """torch: list the added operators

Their names and docstrings, generated from the merged YAML by this tree's own torchgen.
"""
# The subjects of the commits above the patches.
SUBJECTS = [text.partition("\n")[0] for text in (_KERNELS_MESSAGE, _YAML_MESSAGE, _PYTHON_MESSAGE, _LISTS_MESSAGE)]


@dataclass(frozen=True)
class Fork:
    """The fork in a checkout.

    Args:
        base: the upstream commit.
        tip: the last of our commits.
    """

    base: str
    tip: str


def apply_fetched(request: Request) -> None:
    """Check out the fork in the checkout that is asked for, or in the pin's tree."""
    apply(fetched(request), request.layout)


def apply(source: Path, layout: Layout) -> Fork:
    """Check out the fork in ``source``: a checkout of PyTorch, or a plain folder of its sources, which becomes a
    repository. After an error, the checkout is unchanged.
    """
    with tempfile.TemporaryDirectory(prefix="graft-") as scratch:
        snapshot = replace(snapshot_for_tree(layout), work=Path(scratch))
        with Steps().step("apply patches and operators") as line:
            fork = make_fork(source, snapshot, line)
    say(f"{source} is at {fork.tip}\n  `git -C {source} log {BASE_REF}..` shows the fork")
    return fork


def make_fork(source: Path, snapshot: Snapshot, line: StepLine) -> Fork:
    """Create the fork again on the tree's base, from the patches and the native folder, and check it out. After an
    error, the checkout is unchanged.
    """
    tree = open_tree(source, snapshot.pin)
    with build_lock(tree.git_dir / "graft"):
        base = pinned_base(tree, snapshot.pin)
        go_back(tree)
        tree.refuse_changes()
        series = series_for(tree, snapshot)
        with tempfile.TemporaryDirectory(prefix="graft-") as scratch:
            tip = make_commits(tree, series, snapshot, Path(scratch)).tip
        written = move_to(tree, tip)
        tree.git("update-ref", BASE_REF, base)
    patches = f"{count(len(series), 'patch', 'patches')}, " if series else ""
    line.note = f"{patches}{count(written, 'file')} written"
    return Fork(base, tip)


def series_for(tree: SourceTree, snapshot: Snapshot) -> list[Patch]:
    """Return the pin's patches for this kind of sources: those of Debian, or PyTorch's own."""
    series = list(snapshot.series)
    if tree.holds(pinned_base(tree, snapshot.pin), "debian/changelog"):
        return series
    if left_out := [patch.path.name for patch in series if patch.is_for_debian]:
        say(f"left out, since {tree.path} is not Debian's source package: {', '.join(left_out)}")
    return [patch for patch in series if not patch.is_for_debian]


def make_commits(tree: SourceTree, series: Sequence[Patch], snapshot: Snapshot, scratch: Path) -> Stack:
    """Create the fork's commits on the tree's base. Nothing is checked out."""
    stack = Stack(tree, pinned_base(tree, snapshot.pin), scratch)
    for patch in series:
        stack.apply(patch)
    natives = snapshot.lay_out()
    where = places(natives)
    files = {f"{NATIVE}/{place.as_posix()}": natives.file(name) for name, place in where.items()}
    entries = {file: natives.entries(file, replacing=True) for file in YAML_FILES}
    kernels = {name.rpartition("::")[2] for entry in entries[FUNCTIONS] for name in entry.kernel_names}
    sources = read_sources(natives)
    _refuse_stock(sources)
    replacing = replacing_sources(sources, kernels)
    held = stack.holds([*files, ADDED])
    in_place = {files[name] for name in held if files.get(name) in replacing}
    if taken := [name for name in held if files.get(name) not in in_place]:
        raise UsageError(
            "\n".join(f"{files.get(name, name)}: PyTorch has this file, {name}" for name in taken),
            todo="choose another name; changes of PyTorch's own files belong in a patch, unless they replace a kernel",
        )
    _refuse_second_definitions(stack, [source for path, source in replacing.items() if path not in in_place])
    written = write_placed(natives, where, scratch / "native")
    stack.add({f"{NATIVE}/{place.as_posix()}": path for place, path in written.items()})
    stack.add(_written_helpers(natives, stack, scratch / "helpers"))
    stack.commit(_KERNELS_MESSAGE)
    base, generated = scratch / "base", scratch / "generated"
    lay_out_torchgen(stack, base)
    for file, text in merge_with_base(natives, base, generated / "wheel").items():
        write_if_changed(generated / "wheel" / PACKAGED[file] / file, with_replacing(text, entries[file]))
    stack.add({target: generated / "wheel" / PACKAGED[file] / file for file, target in YAML_FILES.items()})
    stack.commit(_YAML_MESSAGE)
    generate_python(snapshot.note, base, generated)
    of_folder = written_behind(texts_of_folders(natives), stack, scratch / "folder")
    lists = written_behind(generated_texts(natives, generated), stack, scratch / "lists")
    stack.add(of_folder)
    stack.commit(_PYTHON_MESSAGE)
    stack.add(lists)
    stack.commit(_LISTS_MESSAGE)
    return stack


def _written_helpers(natives: NativeFolders, stack: Stack, folder: Path) -> dict[str, Path]:
    """Write PyTorch's files with functions for formulas, merged with native folders' functions. Return them by name."""
    written = {}
    every = (
        (HELPERS_SOURCE, natives.helpers, with_functions),
        (HELPERS_HEADER, natives.helper_headers, with_declarations),
    )
    for name, own, merged in every:
        if own:
            written[name] = folder / Path(name).name
            write_if_changed(written[name], merged(stack.text(name), map(natives.text, own)))
    return written


def _refuse_stock(sources: Iterable[Source]) -> None:
    """Refuse ``sources`` that call PyTorch's kernels that they replace: a source tree has only one of both."""
    if calls := [
        f"{source.path}:{line}: `stock::{name}` is a kernel beside the folder's, and a source tree has one"
        for source in sources
        for line, name in source.stock_calls
    ]:
        raise UsageError("\n".join(calls), todo="copy PyTorch's kernel under another name, or build a wheel")


def _refuse_second_definitions(stack: Stack, sources: Iterable[Source]) -> None:
    """Refuse ``sources`` that define what the tree defines in another file: the linker would find two definitions."""
    faults = []
    for source in sources:
        for name, line in source.defines.items():
            for path in stack.naming(name, f"{NATIVE}/*.cpp"):
                if name in read_text(Path(path), stack.text(path)).defines:
                    faults.append(f"{source.path}:{line}: PyTorch's {path} defines {name}, too")
    if faults:
        raise UsageError(
            "\n".join(faults), todo="give the folder's file the path of PyTorch's, or its function another name"
        )


def lay_out_torchgen(stack: Stack, base: Path) -> None:
    """Write the tip's torchgen as in a wheel, including what upstream's setup.py copies below torchgen/packaged."""
    of_aten = ("templates", "native/native_functions.yaml", "native/tags.yaml")
    packaged = {"tools/autograd": "autograd", **{f"aten/src/ATen/{name}": f"ATen/{name}" for name in of_aten}}
    stack.lay_out(["torchgen", *packaged], base)
    for name, place in packaged.items():
        target = base / "torchgen/packaged" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        (base / name).rename(target)


def generate_python(natives: Path, base: Path, out: Path) -> None:
    """Run Graft's generator for what a source tree's build does not generate, with the tree's torchgen in ``base``."""
    arguments: list[str | Path] = ["--base", base, "--natives", natives, "--out", out]
    # Run in another folder, so that Python does not import a torchgen from the current one.
    done = run_with_torchgen(base, "graft.codegen", *arguments, cwd=out)
    if done.returncode != 0:
        raise BuildError(done.stdout.strip())


def generated_texts(natives: NativeFolders, generated: Path) -> dict[str, str]:
    """Return what ``generate_python`` wrote, and the texts of native folders' ``python/``, by name in the tree."""
    appended = generated / "appended"
    texts = {name.as_posix(): (appended / name).read_text(encoding="utf-8") for name in files_below(appended)}
    description = Description.load(generated / DESCRIPTION)
    texts |= {**appended_texts(natives, description), ADDED: description.module()}
    return {name.replace("torchgen/packaged/autograd/", "tools/autograd/"): text for name, text in texts.items()}


def written_behind(texts: Mapping[str, str], stack: Stack, folder: Path) -> dict[str, Path]:
    """Write the files of the tip that ``texts`` extend, and new ones, below ``folder``. Return them by name in the
    tree.
    """
    # The build generates some stubs from templates: torch/nn/functional.pyi from functional.pyi.in.
    upstream = stack.holds([*texts, *(f"{name}.in" for name in texts)])
    stack.lay_out(upstream, folder)
    written = {}
    for name, text in texts.items():
        place = next((each for each in (name, f"{name}.in") if each in upstream), name)
        target = written[place] = folder / place
        write_if_changed(target, behind(target.read_text(encoding="utf-8") if place in upstream else None, text))
    return written
