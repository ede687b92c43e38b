"""The small tree, and a generator for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_tree import FILES, NATIVE, PATCHES, git, write

from scripts.compose.overlay import Overlay
from scripts.inputs.merge import MergedFile
from scripts.inputs.native import NativeFolder
from scripts.source import apply as apply_module


@pytest.fixture(autouse=True)
def generator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree has no torchgen to run: stand in for it with a file that says what it would have been given."""

    def generate_added(native: NativeFolder, merged: list[MergedFile], overlay: Overlay) -> Path:
        assert (overlay.base / "torchgen/gen.py").is_file()
        assert (overlay.base / "torchgen/packaged/ATen/templates/Functions.h").is_file()
        assert (overlay.base / "torchgen/packaged/ATen/native/tags.yaml").is_file()
        text = repr([(overlay.folder / file.name).read_text() for file in merged])
        return write(overlay.folder, {"torch/_added_operators.py": text, "behind/torch/text.py": "derived = 1\n"})

    monkeypatch.setattr(apply_module, "generate_added", generate_added)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = write(tmp_path / "pytorch", FILES)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=upstream")
    return folder


@pytest.fixture
def patches(tmp_path: Path, tree: Path) -> Path:
    pin = f"""version: 1.2.0
source: {{git: {{repository: none, tag: v1.2.0, commit: {git(tree, "rev-parse", "HEAD")}}}}}
wheel: {{requirement: torch==1.2.0, sha256: {{}}}}
compiler: {{gxx: 11, standard: c++20}}
"""
    texts = {f"{name}.patch": text for name, text in PATCHES.items()}
    return write(tmp_path / "patches", {"pin.yaml": pin, "series": "\n".join(texts), **texts})


@pytest.fixture
def native(tmp_path: Path) -> Path:
    return write(tmp_path / "native", NATIVE)
