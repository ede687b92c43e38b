"""The small tree, and a generator for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.core.layout import Layout, TorchVersion
from graft.fork import apply as apply_module
from graft.inputs.merge import PACKAGED
from helpers import Patch, git, use_own_bases, write
from small_tree import DESCRIPTION, FILES, NATIVE, PATCHES, repository


@pytest.fixture(autouse=True)
def generator(monkeypatch: Patch) -> None:
    """The tree has no torchgen: write a file with the arguments that it would get."""

    def generate_python(natives: Path, base: Path, out: Path) -> None:
        assert natives.is_file() and (base / "torchgen/gen.py").is_file()
        assert (base / "torchgen/packaged/ATen/templates/Functions.h").is_file()
        assert (base / "torchgen/packaged/ATen/native/tags.yaml").is_file()
        texts = {
            "appended/torchgen/merged.py": repr(
                [(out / "wheel" / folder / file).read_text() for file, folder in PACKAGED.items()]
            ),
            "appended/torchgen/gen.py": "derived = 1\n",
            "appended/torchgen/packaged/autograd/lists.py": "derived = 2\n",
            "operators.json": DESCRIPTION.dump(),
        }
        write(out, texts)

    monkeypatch.setattr(apply_module, "generate_python", generate_python)


@pytest.fixture(autouse=True)
def own_bases(tmp_path: Path, monkeypatch: Patch) -> None:
    """Tests of the fork leave the user's base wheels alone."""
    use_own_bases(tmp_path / ".cache", monkeypatch)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return repository(tmp_path / "pytorch", FILES)


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


@pytest.fixture
def layout(tmp_path: Path, native: Path, patches: Path, monkeypatch: Patch) -> Layout:
    monkeypatch.setattr(Layout, "patches", patches)
    monkeypatch.setattr(Layout, "pin_build", tmp_path / "made")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Layout(TorchVersion("1.2.0"), (native,), tmp_path / "out")
