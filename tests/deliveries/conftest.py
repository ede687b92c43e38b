"""Environments with the official torch, for all tests together: each takes half a minute to make."""

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
    """An environment with the official torch; each test leaves it as it was."""
    return Environment.new(tmp_path_factory.mktemp("environment"), str(base_wheel))


@pytest.fixture
def stock(environment: Environment) -> Environment:
    """The same, with no operators added."""
    make("undevelop", environment)
    return environment
