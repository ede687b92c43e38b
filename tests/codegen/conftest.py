"""These tests need the base wheel's torchgen on the import path (PYTHONPATH), and g++ for test_check_compiler.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from graft.check.base import BaseOperators
from graft.codegen.operators import Operators


@pytest.fixture(scope="session")
def base() -> Path:
    """The base wheel's tree, as unpacked by `make patch-and-build`."""
    return Path(os.environ["GRAFT_BASE"]) / "tree"


@pytest.fixture(scope="session")
def known(base: Path) -> BaseOperators:
    """What `make check` knows of the base."""
    return BaseOperators(base)


@pytest.fixture(scope="session")
def everything(base: Path) -> Operators:
    """The base's operators, all treated as new."""
    return Operators(base)
