"""Environments with the official torch, shared by all tests, since each takes long to create."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from graft.core.environments import shared_environment
from graft.core.files import Layer, held
from users import Environment, make


@pytest.fixture(scope="session")
def base_wheel() -> Path:
    """The official wheel."""
    (wheel,) = Path(os.environ["GRAFT_BASE_FOLDER"]).glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def environment(base_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the official torch; each test leaves it unchanged. It is a copy of one that all
    clones share.
    """
    name = base_wheel.resolve().parent.name  # in the store, it is the wheel's hash
    shared = shared_environment("official", name)
    layer = Layer(name, lambda folder: Environment.new(folder, str(base_wheel)))
    with held(shared, [layer]):
        return Environment(shared).copied_to(tmp_path_factory.mktemp("environment") / "copy")


@pytest.fixture(scope="module")
def stock_copy(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A copy of the environment for the tests of a file, without operators."""
    copy = environment.copied_to(tmp_path_factory.mktemp("copy") / "environment")
    make("undevelop", copy)  # what tests before these added
    return copy


@pytest.fixture
def stock(environment: Environment) -> Environment:
    """The same environment, without operators."""
    make("undevelop", environment)
    return environment
