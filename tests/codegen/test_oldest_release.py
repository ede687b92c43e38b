"""What the torchgen of the oldest pinned release generates, as for a wheel that was built from its sources.

No official wheel of that release is pinned, and building one takes hours, so these tests read its source tree.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from corpus import noted
from graft.base.base import run_with_torchgen
from graft.base.find import oldest_release
from graft.core.console import Steps
from graft.core.errors import MissingError
from graft.core.files import build_lock, files_below
from graft.core.layout import PACKAGE, PATCHES, REPOSITORY
from graft.fork import syntax
from graft.fork.apply import lay_out_torchgen
from graft.fork.cache import cache_of
from graft.fork.fetch import fetch_tree
from graft.fork.stack import Stack
from graft.fork.tree import open_tree, pinned_base
from graft.inputs.pin import load_pin
from graft.inputs.toolchain import find_toolchain
from snippets import write_shown_folder

# The sources of that release are checked on every change: `make check ARGS="--source --syntax"`.
pytestmark = pytest.mark.slow

# Headers in a wheel, by their folders in the tree.
HEADERS = {"aten/src/ATen": "ATen", "build/aten/src/ATen": "ATen", "c10": "c10", "torch": "torch"}

# Files that only the newest release's torchgen writes, and the reason.
SINCE = {
    "include/ATen/ViewMetaClasses.h": "functionalization has it since 2.10",
    "include/ATen/FunctionalInverses.h": "functionalization includes it by this path since 2.10",
    "units/*/ATen/ViewMetaClasses.cpp": "functionalization has it since 2.10",
}


@pytest.fixture(scope="session")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The oldest release as an unpacked wheel: torchgen and headers."""
    folder = tmp_path_factory.mktemp("oldest")
    pin = load_pin(PATCHES / oldest_release(PATCHES).release)
    cache = cache_of(pin)
    try:
        with build_lock(cache.folder), Steps().step("fetch the sources") as line:
            tree = open_tree(fetch_tree(pin, cache, "", line), pin)
            stack = Stack(tree, pinned_base(tree, pin), folder)
            stack.lay_out(syntax.FOLDERS, folder / "sources")
    except MissingError as error:
        pytest.skip(f"the sources of the oldest release cannot be fetched: {error}")
    lay_out_torchgen(stack, folder / "base")
    syntax.run_generators(folder / "sources")
    syntax.configure_headers(folder / "sources", find_toolchain(pin))
    for place, name in {**HEADERS, "include": ""}.items():
        target = folder / "base/torch/include" / name
        shutil.copytree(folder / "sources" / place, target, ignore=all_but_headers, dirs_exist_ok=True)
    shutil.rmtree(folder / "sources")
    # A submodule, which source packages leave to the system.
    pybind11 = Path(os.environ["GRAFT_BASE_FOLDER"]) / "tree/torch/include/pybind11"
    (folder / "base/torch/include/pybind11").symlink_to(pybind11.resolve())
    return folder / "base"


def all_but_headers(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(folder, name).is_file() and not name.endswith((".h", ".hpp", ".cuh"))]


# Operators of the grammar folder that the oldest release's torchgen refuses, and the reason.
REFUSED = {"_gr_is_even_forward": "no results are of type SymBool before 2.7"}


@pytest.fixture(scope="session", params=["readme", "grammar"])
def native(request: pytest.FixtureRequest, oldest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A native folder, without operators and tags that the oldest release does not know."""
    folder = tmp_path_factory.mktemp("native") / request.param
    if request.param == "readme":
        write_shown_folder(folder)
        return folder
    shutil.copytree(REPOSITORY / "tests/wheel/grammar", folder)
    known = {entry["tag"] for entry in yaml.safe_load((oldest / "torchgen/packaged/ATen/native/tags.yaml").read_text())}
    file = folder / "native_functions.yaml"
    entries = re.split(r"(?m)^(?=- func: )", file.read_text(encoding="utf-8"))
    kept = "".join(entry for entry in entries if not entry.startswith(tuple(f"- func: {name}(" for name in REFUSED)))
    file.write_text("".join(line for line in kept.splitlines(True) if tags_of(line) <= known), encoding="utf-8")
    return folder


def tags_of(line: str) -> set[str]:
    match = re.fullmatch(r"  tags: \[?([\w, ]+)\]?\n", line)
    return set(re.split(r", *", match[1])) if match else set()


@pytest.fixture(scope="session")
def generated(native: Path, oldest: Path, base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The output of both releases."""
    outputs = {"oldest": oldest, "newest": base}
    for name, tree in outputs.items():
        out = outputs[name] = tmp_path_factory.mktemp(name)
        arguments = [tree, noted(native, out.with_suffix(".natives")), "--out", out, "--unchecked"]
        done = run_with_torchgen(tree, "graft.check", *arguments, cwd=native.parent)
        assert done.returncode == 0, done.stdout
    return outputs


def test_same_files_are_generated(generated: dict[str, Path]) -> None:
    names = {
        release: {path.as_posix() for path in files_below(out) if path.parts[0] in ("units", "include", "wheel")}
        for release, out in generated.items()
    }
    later = {
        name for name in names["newest"] - names["oldest"] if re.sub("units/[^/]+/", "units/*/", name) not in SINCE
    }
    assert later == set()
    for name in names["oldest"] - names["newest"]:
        # torchgen before 2.7 writes the helpers of registrations beside them, so that these files are never empty.
        text = (generated["oldest"] / name).read_text(encoding="utf-8")
        assert re.search(r"/ATen/Register\w+\.cpp$", name), name
        assert "m.impl(" not in text and "TORCH_LIBRARY" not in text, name


def test_units_are_valid_with_the_release_s_headers(generated: dict[str, Path], native: Path, oldest: Path) -> None:
    out, toolchain = generated["oldest"], find_toolchain(load_pin(PATCHES / oldest_release(PATCHES).release))
    (out / "src/ATen").mkdir(parents=True)
    (out / "src/ATen/native").symlink_to(native)
    include = oldest / "torch/include"
    places = [out / "src", out / "include", out / "wheel/torch/include", PACKAGE / "compile/templates", include]
    places += [include / "torch/csrc/api/include", Path(toolchain.python_include)]
    sources = sorted(path for name in ("library", "bindings") for path in out.glob(f"units/*/{name}.cpp"))
    assert sources
    for source in sources:
        own = [source.parent / "own", *places]
        command = [toolchain.compiler, *toolchain.flags, "-w", "-fsyntax-only", "-fmax-errors=3"]
        done = subprocess.run(
            [*command, *(f"-I{place}" for place in own), source], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
