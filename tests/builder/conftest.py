"""What tests of the builder share: bases of their own, and a build with a faked compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from faked_compiler import build  # noqa: F401
from helpers import use_own_bases


@pytest.fixture(autouse=True)
def own_bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has base wheels of its own."""
    use_own_bases(tmp_path / ".cache", monkeypatch)
