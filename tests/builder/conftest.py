"""What tests of the builder share: bases of their own, and builds."""

from __future__ import annotations

from pathlib import Path

import pytest
from builds import build, linked, units  # noqa: F401
from helpers import Patch, use_own_bases


@pytest.fixture(autouse=True)
def own_bases(tmp_path: Path, monkeypatch: Patch) -> None:
    """Each test has base wheels of its own."""
    use_own_bases(tmp_path / ".cache", monkeypatch)
