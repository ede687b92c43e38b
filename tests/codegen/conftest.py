"""These tests run with the base wheel's torchgen on the import path (PYTHONPATH) and no compiler."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def base() -> Path:
    """The base wheel's tree, as `make patch-and-build` lays it out."""
    return Path(os.environ["GRAFT_BASE"]) / "tree"


@pytest.fixture
def merged(base: Path, tmp_path: Path) -> Path:
    """An overlay that holds the base's YAML, to which a test appends."""
    for name in ("ATen/native/native_functions.yaml", "autograd/derivatives.yaml"):
        target = tmp_path / "overlay/torchgen/packaged" / name
        target.parent.mkdir(parents=True)
        shutil.copyfile(base / "torchgen/packaged" / name, target)
    return tmp_path / "overlay"
