"""Whether a graft generates for a source tree what the tree's own build generates."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import OperatorError, SourceError
from ..files import files_below
from ..layout import REPOSITORY
from ..native import NativeFolder
from ..overlay import Overlay
from ..process import run
from .added import lay_out_torchgen, merge_yaml
from .definitions import definitions, naming
from .names import autograd_node, names_in, operator_names
from .stack import Stack
from .tree import BASE_REF, Tree

# Where the two differ on purpose: a pattern of the definition, and the reason.
ON_PURPOSE = {
    r"bool is_custom_op\(": "the base's library holds the list of all operators that it was built with",
}

# Where generated headers and sources lie: in the wheel, and in the tree.
_HEADERS = {
    "torch/include/ATen": "build/aten/src/ATen",
    "torch/include/torch/csrc/autograd/generated": "torch/csrc/autograd/generated",
}
_SOURCES = ("build/aten/src/ATen", "build/aten/src/ATen/core", "torch/csrc/autograd/generated")


def compare_with_graft(tree: Tree, native: NativeFolder) -> int:
    """Generate as a graft does, and compare with what the tree's build generated; return how much was compared.

    Raises:
        SourceError: naming each header, registration or function that only one of the two has.
    """
    with tempfile.TemporaryDirectory(prefix="graft-") as name:
        scratch = Path(name)
        overlay, generated = generate_as_graft(tree, native, scratch)
        upstream = overlay.base / "torchgen/packaged/ATen/native/native_functions.yaml"
        old = names_in(upstream.read_text())
        new = [name for name in operator_names(tree.path) if name not in old]
        headers = {name: (overlay.folder / name).read_text() for name in files_below(overlay.folder)}
        faults, compared = compare_headers(tree.path, headers, new)
        sources = [generated / name for name in files_below(generated) if name.suffix == ".cpp"]
        ours = set().union(*(definitions(path.read_text()) for path in sources if path.parent.name != "templates"))
    theirs = set().union(*(definitions(path.read_text()) for path in generated_sources(tree.path)))
    names = [*new, *map(autograd_node, new)]
    ours, theirs = (naming(found, names, old) for found in (ours, theirs))
    faults += [f"only the tree's build has: {text[:300]}" for text in sorted(theirs - ours) if not on_purpose(text)]
    faults += [f"only a graft has: {text[:300]}" for text in sorted(ours - theirs) if not on_purpose(text)]
    if faults:
        raise SourceError(
            "\n".join(faults),
            cause="a graft does not generate what PyTorch's own build does",
            todo="mend scripts/codegen, or add the difference to ON_PURPOSE with its reason",
        )
    return compared + len(ours & theirs)


def generate_as_graft(tree: Tree, native: NativeFolder, scratch: Path) -> tuple[Overlay, Path]:
    """Run the graft's generator on upstream's torchgen; return the overlay with the headers, and the sources' folder.

    Raises:
        OperatorError: torchgen's message.
    """
    overlay = lay_out_torchgen(Stack(tree, tree.ask("rev-parse", BASE_REF), scratch), scratch)
    # There is no wheel whose headers these could be compared with: then every header is written.
    (overlay.base / "torch/include/ATen").mkdir(parents=True)
    (overlay.base / "torch/include/ATen/Functions.h").touch()
    merge_yaml(native, overlay)
    generated = scratch / "generated"
    folders: list[str | Path] = ["--base", overlay.base, "--overlay", overlay.folder, "--docs", native.path / "docs"]
    env = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(overlay.base)])}
    command = [sys.executable, "-m", "scripts.codegen", *folders, "--only-cpp", generated]
    done = run(command, cwd=overlay.folder, env=env, check=False)
    if done.returncode != 0:
        raise OperatorError(done.stdout.strip())
    return overlay, generated


def compare_headers(tree: Path, headers: Mapping[Path, str], new: Iterable[str]) -> tuple[list[str], int]:
    """What differs between a graft's headers, by their names in the wheel, and the tree's; and how many are alike.

    Args:
        tree: the source tree.
        headers: a graft's.
        new: operators each of whose headers a graft must have.
    """
    faults, alike = [], 0
    of_tree = {place: name for name in headers if (place := place_in_tree(name))}
    for place, name in of_tree.items():
        path = tree / place
        if path.is_file() and path.read_text() == headers[name]:
            alike += 1
        else:
            faults.append(f"{path}: {'differs from a graft' if path.is_file() else 'only a graft has this header'}")
    ops = "build/aten/src/ATen/ops"
    suffix = r"(_(ops|meta|native|\w+_dispatch))?\.h"
    wanted = re.compile(rf"({'|'.join(map(re.escape, new))}){suffix}")
    missing = [path for path in sorted((tree / ops).glob("*.h")) if wanted.fullmatch(path.name)]
    faults += [f"{path}: a graft has no such header" for path in missing if f"{ops}/{path.name}" not in of_tree]
    return faults, alike


def place_in_tree(name: Path) -> str | None:
    """Where the tree has a header of the wheel; None for another file."""
    for wheel, tree in reversed(_HEADERS.items()):
        if name.suffix == ".h" and name.is_relative_to(wheel):
            return f"{tree}/{name.relative_to(wheel).as_posix()}"
    return None


def generated_sources(tree: Path) -> list[Path]:
    """What the tree's build generated, without the copies of what it divides into shards."""
    paths = [path for folder in _SOURCES for path in sorted((tree / folder).glob("*.cpp"))]
    return [path for path in paths if not path.stem.endswith("Everything")]


def on_purpose(definition: str) -> bool:
    """Whether this definition is one that the two have not got alike, with a reason."""
    return any(re.match(pattern, definition) for pattern in ON_PURPOSE)
