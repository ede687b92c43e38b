"""Whether a graft generates for a source tree what the tree's own build generates."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..common.errors import CommandError, OperatorError, SourceError
from ..common.files import files_below
from ..common.process import run
from ..inputs.native import NativeFolder
from .added import generate_part, lay_out_torchgen, merge_yaml
from .definitions import definitions
from .stack import Stack
from .tree import BASE_REF, Tree

_BINDS = "a graft's torch._C adds to what the base binds, where a build binds everything"

# Where the two differ on purpose: what a definition begins with or a header is called, and why.
ON_PURPOSE = {
    r"bool is_custom_op\(": "the list of all operators is in the base's library, which a graft leaves as it is",
    r"using namespace register\w+;": "a graft's sources are compiled together, the dispatch keys in namespaces",
    r"void initReturnTypes\(": "a graft adds types to the base's module, a build makes one",
    r"void (bind|register_nodes)\(|const graft::Bindings |template <PyObject\*|\[\[maybe_unused\]\]": _BINDS,
    r"ViewMetaClasses\.h$": "a graft's sources share a unit, which includes it more than once",
    r"aten_interned_strings\.h$": "it numbers all names, and the base's libraries were compiled with its numbers",
}

# Generated headers: where a graft has them, some of them for compilers only, and where a tree.
_HEADERS = {
    "include/ATen": "build/aten/src/ATen",
    "wheel/torch/include/ATen": "build/aten/src/ATen",
    "wheel/torch/include/torch/csrc/autograd/generated": "torch/csrc/autograd/generated",
}
_SOURCES = ("build/aten/src/ATen", "build/aten/src/ATen/core", "torch/csrc/autograd/generated")

_YAML = ("native_functions", "tags")

# What the tree's build runs, with the same arguments as far as they matter.
_GENERATE_ATEN = ["--source-path", "aten/src/ATen", "--per-operator-headers", "--generate", "headers", "sources"]
_GENERATE_AUTOGRAD = """
from tools.autograd.gen_autograd import gen_autograd, gen_autograd_python
from torchgen.selective_build.selector import SelectiveBuilder
yaml = [f"aten/src/ATen/native/{name}.yaml" for name in ("native_functions", "tags")]
out = "torch/csrc/autograd/generated"
gen_autograd(*yaml, out, "tools/autograd", SelectiveBuilder.get_nop_selector())
gen_autograd_python(*yaml, out, "tools/autograd")
"""


@dataclass(frozen=True)
class Parity:
    """What a graft and the tree's build generate alike.

    Args:
        alike: how many headers and definitions, beyond those that upstream's own files give.
        changed: the sources that the tree's build generated and that are not as upstream's, by their names in the tree.
    """

    alike: int
    changed: list[str]


def compare_with_graft(tree: Tree, native: NativeFolder) -> Parity:
    """Generate as a graft does, and compare with what the tree's build generated.

    Only what upstream's own files do not give is compared.

    Raises:
        SourceError: naming each header, registration or function that only one of the two has.
    """
    with tempfile.TemporaryDirectory(prefix="graft-") as name:
        scratch = Path(name)
        stack = Stack(tree, tree.ask("rev-parse", BASE_REF), scratch)
        upstream = generate_upstream(stack, scratch / "upstream")
        headers, sources = generate_as_graft(stack, native, scratch / "graft")
        faults, alike = compare_headers(headers_of_tree(tree.path), headers, headers_of_tree(upstream))
        theirs, old = (definitions_of(generated_sources(path)) for path in (tree.path, upstream))
        ours = definitions_of(sources)
        changed = changed_sources(tree.path, upstream)
    theirs, ours = theirs - old, ours - old
    faults += [f"only the tree's build has: {text[:300]}" for text in sorted(theirs - ours) if not on_purpose(text)]
    faults += [f"only a graft has: {text[:300]}" for text in sorted(ours - theirs) if not on_purpose(text)]
    if faults:
        raise SourceError(
            "\n".join(faults),
            cause="a graft does not generate what PyTorch's own build does",
            todo="fix scripts/generate, or add the difference to ON_PURPOSE with its reason",
        )
    return Parity(alike + len(ours & theirs), changed)


def generate_upstream(stack: Stack, folder: Path) -> Path:
    """Let upstream's generators run on upstream's own files, laid out in ``folder``.

    Raises:
        OperatorError: they fail.
    """
    native = "aten/src/ATen/native"
    folders = {name: folder / name for name in ("torchgen", "tools", "aten/src/ATen/templates")}
    (folder / native).mkdir(parents=True)
    stack.lay_out(folders, {f"{native}/{name}.yaml": folder / native / f"{name}.yaml" for name in _YAML})
    run_generators(folder)
    return folder


def run_generators(folder: Path) -> None:
    """Run the generators of the tree in ``folder`` as its build does.

    Raises:
        OperatorError: they fail.
    """
    aten = [sys.executable, "-m", "torchgen.gen", *_GENERATE_ATEN, "--install_dir", _SOURCES[0]]
    for name in (f"{_SOURCES[0]}/core", _SOURCES[2]):
        (folder / name).mkdir(parents=True, exist_ok=True)
    try:
        run(aten, cwd=folder)
        run([sys.executable, "-c", _GENERATE_AUTOGRAD], cwd=folder, env={"PYTHONPATH": str(folder)})
    except CommandError as error:
        raise OperatorError(f"{folder}: the tree's generators fail", cause=error.cause) from error


def generate_as_graft(stack: Stack, native: NativeFolder, folder: Path) -> tuple[dict[str, str], list[Path]]:
    """Run the graft's generator on upstream's torchgen.

    Returns:
        the headers' texts by their names in the tree, and the paths of the sources.

    Raises:
        OperatorError: torchgen's message.
    """
    base, generated = folder / "base", folder / "generated"
    folder.mkdir()
    lay_out_torchgen(stack, base)
    # There is no wheel whose headers these could be compared with: then every header is written.
    (base / "torch/include/ATen").mkdir(parents=True)
    (base / "torch/include/ATen/Functions.h").touch()
    merged, _ = merge_yaml(native, base, generated)
    generate_part("cpp", native, merged, base, generated)
    places = {name: place_in_tree(name) for name in files_below(generated)}
    headers = {place: (generated / name).read_text(encoding="utf-8") for name, place in places.items() if place}
    sources = [generated / name for name in files_below(generated) if name.suffix == ".cpp"]
    # torchgen leaves a template of its own making there.
    return headers, [path for path in sources if path.parent.name != "templates"]


def place_in_tree(name: Path) -> str | None:
    """Where the tree has a header that a graft generates; None for another file."""
    for graft, tree in _HEADERS.items():
        if name.suffix == ".h" and name.is_relative_to(graft):
            return f"{tree}/{name.relative_to(graft).as_posix()}"
    return None


def headers_of_tree(tree: Path) -> dict[str, str]:
    """The headers that the tree's build generated, by their names in the tree."""
    paths = [path for folder in sorted({*_HEADERS.values()}) for path in sorted((tree / folder).rglob("*.h"))]
    return {path.relative_to(tree).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def compare_headers(
    theirs: Mapping[str, str], ours: Mapping[str, str], old: Mapping[str, str]
) -> tuple[list[str], int]:
    """What differs between the tree's headers and a graft's, and how many that are not upstream's are alike.

    Args:
        theirs: the tree's.
        ours: a graft's.
        old: those that upstream's own files give.
    """
    faults = []
    changed = {name for name, text in theirs.items() if old.get(name) != text}
    for name in sorted(changed | ours.keys()):
        if theirs.get(name) != ours.get(name) and not on_purpose(name):
            only = "only a graft has it" if name not in theirs else "only the tree has it"
            faults.append(f"{name}: {'differs from a graft' if name in ours and name in theirs else only}")
    return faults, len([name for name in changed if theirs[name] == ours.get(name)])


def generated_sources(tree: Path) -> list[Path]:
    """What the tree's build generated, without the copies of what it divides into shards.

    A build for CPUs generates sources for CUDA, too, and compiles none of them.
    """
    paths = [path for folder in _SOURCES for path in sorted((tree / folder).glob("*.cpp"))]
    return [path for path in paths if not re.search(r"(Everything|CUDA(_\d+)?)$", path.stem)]


def changed_sources(tree: Path, upstream: Path) -> list[str]:
    """The generated sources of ``tree`` that are not as those of ``upstream``, by their names in the tree."""
    names = [path.relative_to(tree) for path in generated_sources(tree)]
    theirs = {name: (upstream / name).read_text(encoding="utf-8") for name in names if (upstream / name).is_file()}
    return [name.as_posix() for name in names if theirs.get(name) != (tree / name).read_text(encoding="utf-8")]


def definitions_of(sources: Iterable[Path]) -> set[str]:
    """The definitions of all ``sources``."""
    return set().union(*(definitions(path.read_text(encoding="utf-8")) for path in sources))


def on_purpose(text: str) -> bool:
    """Whether this definition, or the header of this name, is one that the two have not got alike, with a reason."""
    return any((re.search if pattern.endswith("$") else re.match)(pattern, text) for pattern in ON_PURPOSE)
