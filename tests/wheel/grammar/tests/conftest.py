"""The operators of this folder, on a wheel built from it. Expected values come from plain operations or NumPy."""

from __future__ import annotations

import pytest
import torch


def pytest_sessionstart() -> None:
    """Refuse a torch without the operators, with which these tests are meaningless."""
    if not hasattr(torch, "gr_mix"):
        pytest.exit(f"{torch.__file__} has no gr_ operators: build it with NATIVE=tests/wheel/grammar", 3)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """The same random numbers for each test, and no code that another test compiled."""
    torch.manual_seed(0)
    torch._dynamo.reset()
