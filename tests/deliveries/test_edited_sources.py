"""Random edits of PyTorch's sources, compiled: check's word is the build's, and nothing is defined twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from checkout_repository import NATIVE, make_checkout, run_git
from edited_sources import EDITS, PATTERNS, Edit, functions, sources, with_function, with_line
from graft.core.files import read_json, write_atomically
from graft.core.layout import HOME
from graft.core.process import run
from users import Environment, attempt, make

# How many nights compile all.
NIGHTS = 20
NOTE = HOME / "edited-sources.json"


@pytest.fixture(scope="module")
def tree(stock_copy: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with all sources of kernels and batching rules of PyTorch 2.6.0, and the headers of the torch."""
    headers = [pattern.replace(".cpp", ".h") for pattern in PATTERNS]
    folder = tmp_path_factory.mktemp("edited") / "pytorch"
    return make_checkout(folder, stock_copy.packages, headers, [*PATTERNS, *headers])


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return sources(tmp_path_factory.mktemp("nowhere"))


def exported(library: Path) -> set[str]:
    """Return the functions that a library defines for others, without those that several may define."""
    lines = run(["nm", "--dynamic", "--defined-only", library]).stdout.splitlines()
    return {line.split()[2] for line in lines if line.split()[1] == "T"}


def build(environment: Environment, tree: Path, name: str, text: str) -> str:
    """Check and build a checkout with one edit. Return the messages of the build."""
    run_git(tree, "checkout", "--quiet", ".")
    (tree / name).write_text(text, encoding="utf-8")
    options = ("--source", tree, "--base", "HEAD")
    checked = attempt("check", environment, "--pin", "installed", *options)
    built = attempt("develop", environment, *options)
    assert checked.returncode == built.returncode == 0, f"{name}\n{checked.stderr}\n{built.stderr}"
    library = Path(environment.print("torch.__file__")).with_name("lib") / "libtorch.so"
    assert not exported(library) & exported(environment.packages / "torch/lib/libtorch_cpu.so"), name
    return built.stderr


@pytest.mark.parametrize(("name", "edit"), [("cpu/LerpKernel.cpp", with_line), ("Cross.cpp", with_function)])
def test_an_edit(stock_copy: Environment, tree: Path, texts: dict[str, str], name: str, edit: Edit) -> None:
    text, _ = edit(texts[f"{NATIVE}/{name}"], random.Random(0))
    assert "replaced in PyTorch" in build(stock_copy, tree, f"{NATIVE}/{name}", text)
    make("undevelop", stock_copy)


@pytest.mark.slow
def test_a_part_of_all_sources(stock_copy: Environment, tree: Path, texts: dict[str, str]) -> None:
    """Each night compiles the next part."""
    night = int(read_json(NOTE).get("night", 0))
    for name in [name for name in [*texts][night % NIGHTS :: NIGHTS] if functions(texts[name])]:
        for edit in EDITS:
            build(stock_copy, tree, name, edit(texts[name], random.Random(night))[0])
    make("undevelop", stock_copy)
    write_atomically(NOTE, f'{{"night": {night + 1}}}')
