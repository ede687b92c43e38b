"""Environments with the official torch, shared by all tests, since each takes long to create."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from users import Environment, make


@pytest.fixture(scope="session")
def base_wheel() -> Path:
    """The official wheel."""
    (wheel,) = Path(os.environ["GRAFT_BASE"]).glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def environment(base_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the official torch; each test leaves it unchanged."""
    return Environment.new(tmp_path_factory.mktemp("environment"), str(base_wheel))


@pytest.fixture
def stock(environment: Environment) -> Environment:
    """The same environment, without operators."""
    make("undevelop", environment)
    return environment
