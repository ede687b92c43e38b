"""These tests need the base wheel's torchgen on the import path (PYTHONPATH), and g++ for test_check_compiler.py."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from graft.codegen.operators import Operators, YamlFiles


@pytest.fixture(scope="session")
def base() -> Path:
    """The base wheel's tree, as unpacked by `make patch-and-build`."""
    return Path(os.environ["GRAFT_BASE"]) / "tree"


@pytest.fixture(scope="session")
def everything(base: Path) -> Operators:
    """The base's operators, all treated as new."""
    return Operators(YamlFiles.below(base / "torchgen/packaged"), base_lines=0)


@pytest.fixture(scope="session")
def base_yaml_in(base: Path) -> Callable[[Path], Path]:
    """Return a function that copies the base's YAML to its path in a wheel's folder."""

    def copy_into(wheel: Path) -> Path:
        for name in ("ATen/native/native_functions.yaml", "autograd/derivatives.yaml"):
            target = wheel / "torchgen/packaged" / name
            target.parent.mkdir(parents=True)
            shutil.copyfile(base / "torchgen/packaged" / name, target)
        return wheel

    return copy_into


@pytest.fixture
def merged(base_yaml_in: Callable[[Path], Path], tmp_path: Path) -> Path:
    """The wheel's folder below the generated files. It contains the base's YAML, which a test extends."""
    return base_yaml_in(tmp_path / "generated/wheel")
