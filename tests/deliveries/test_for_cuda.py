"""Develop and a thin wheel for a torch with CUDA. No GPU runs the kernel, but the dispatch table has it."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.core.layout import REPOSITORY
from users import Environment, make, thin_wheel

MY_OPS = REPOSITORY / "tests/bases/my_ops"

FOUND = "torch.scaled_shift(torch.ones(1), 2).item()"
KERNEL = "'generated/units/scaled_shift/cuda/RegisterCUDA.cpp' in torch._C._dispatch_dump('aten::scaled_shift')"


@pytest.mark.slow
def test_develop_and_thin_wheel(tmp_path: Path) -> None:
    stock = Environment.new(tmp_path / "environment", "torch===2.14.1")
    before = stock.content()
    make("develop", stock, "--native", MY_OPS, CUDA_ARCHS="90")
    assert stock.print(f"{FOUND}, {KERNEL}") == "2.0 True"
    make("undevelop", stock)
    wheel = thin_wheel(stock, MY_OPS, tmp_path / "out", CUDA_ARCHS="90")
    assert wheel.name.startswith("my_ops-0.1+torch2.14.1-")
    stock.pip("install", wheel)
    assert stock.print(f"{FOUND}, {KERNEL}") == "2.0 True"
    stock.pip("uninstall", "-y", "my_ops")
    assert stock.content() == before
