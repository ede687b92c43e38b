"""The operators of this folder, on a wheel made of it. Expected values come from plain operations or NumPy."""

from __future__ import annotations

import pytest
import torch


def pytest_sessionstart() -> None:
    """Nothing here means anything without the operators."""
    if not hasattr(torch, "gr_mix"):
        pytest.exit(f"{torch.__file__} has no gr_ operators: build it with NATIVE=tests/wheel/grammar", 3)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
