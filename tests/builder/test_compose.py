"""Texts inserted into and appended to PyTorch's own Python files, after their patches."""

from __future__ import annotations

from pathlib import Path

from graft.codegen.description import Description
from graft.compose.composition import Composition, installed_headers
from graft.inputs.native import load_natives
from helpers import write


def test_patch_of_a_stub_is_kept(tmp_path: Path) -> None:
    name = "torch/_C/_nn.pyi"
    tree = write(tmp_path / "tree", {name: "def a() -> int: ...\ndef d() -> int: ...\n"})
    patched = {name: b"def a() -> str: ...\ndef d() -> int: ...\n"}
    composition = Composition(tree, patched, tmp_path / "generated")
    hints = {"nn": {"c": ["def c() -> int: ..."]}}
    composition.insert(None, Description(hints=hints))  # type: ignore[arg-type]
    composition.append({name: "class Own: ...\n"})
    text = composition.text(name) or ""
    assert text.startswith("def a() -> str: ...\ndef c() -> int: ...\ndef d() -> int: ...\n")
    assert text.endswith("class Own: ...\n")
    assert (tree / name).read_text() == "def a() -> int: ...\ndef d() -> int: ...\n"


def test_sources_that_others_include_are_no_headers_of_the_wheel(tmp_path: Path) -> None:
    files = ("lib/impl.cpp", "lib/impl.cc", "lib/impl.h", "lib/impl.inl", "lib/impl.cu")
    includes = "".join(f'#include "{name}"\n' for name in files)
    texts = {"native_functions.yaml": "", "A.cpp": includes, "A.h": "", **dict.fromkeys(files, "")}
    native = load_natives([write(tmp_path / "my_ops", texts)])
    assert {*map(str, native.headers)} == {"A.h", *files}
    found = {name.removeprefix("torch/include/ATen/native/") for name in installed_headers(tmp_path, native)}
    assert found == {"A.h", "lib/impl.h", "lib/impl.inl"}
