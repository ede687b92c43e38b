"""These tests need the base wheel's torchgen on the import path (PYTHONPATH), and g++ for test_check_compiler.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from graft.check.base import BaseOperators
from graft.codegen.operators import Operators
from torchgen import gen_functionalization_type, native_function_generation


@pytest.fixture(scope="session")
def base() -> Path:
    """The base wheel's tree, as unpacked by `make patch-and-build`."""
    return Path(os.environ["GRAFT_BASE_FOLDER"]) / "tree"


@pytest.fixture(scope="session")
def everything(base: Path) -> Operators:
    """The base's operators, all treated as new."""
    return Operators(base)


@pytest.fixture(scope="session")
def known(base: Path) -> BaseOperators:
    """The base's operators as check knows them."""
    return BaseOperators(base)


@pytest.fixture(autouse=True)
def lists_of_torchgen() -> Iterator[None]:
    """Operators of a test may extend torchgen's lists, by their names, which other tests have, too."""
    lists = [
        native_function_generation.FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT,
        native_function_generation.MUTABLE_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT,
        gen_functionalization_type.MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION,
    ]
    before = [list(names) for names in lists]
    yield
    for names, kept in zip(lists, before, strict=True):
        names[:] = kept
