"""PyTorch's families of tests, driven by few operators: of many kinds of operators a folder may have none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FAMILIES = Path(__file__).parent / "families"


@pytest.mark.parametrize("operators", ["isfinite", "nn.functional.one_hot", "masked_select"])
def test_collected(operators: str) -> None:
    """One without a derivative, one for integers alone, one without an in-place form."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", FAMILIES]
    done = subprocess.run(
        command, env={**os.environ, "GRAFT_OPERATORS": operators}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert f"test_variant_consistency_eager_{operators.replace('.', '_')}_cpu" in done.stdout
