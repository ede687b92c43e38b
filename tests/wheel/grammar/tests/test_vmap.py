"""vmap: derived rules, rules of the folder, and the loop."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

import pytest
import torch
from support import aten


def test_vmap_decomposes_what_is_composite() -> None:
    x = torch.randn(2, 3, 3)
    torch.testing.assert_close(torch.vmap(torch.gr_turn)(x), x.transpose(1, 2))
    torch.testing.assert_close(torch.vmap(torch._gr_secret)(x), x + 42)


def test_vmap_falls_back_to_a_loop() -> None:
    x = torch.randn(2, 3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(torch.vmap(torch.gr_square)(x), x * x)


@pytest.fixture
def no_loop() -> Iterator[None]:
    """Without a batching rule vmap loops over slices; here it must not."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(True)


@pytest.mark.usefixtures("no_loop")
def test_vmap_has_a_rule_for_what_is_tagged_pointwise() -> None:
    x, y = torch.randn(2, 3, 3), torch.randn(3, 2)
    torch.testing.assert_close(torch.vmap(torch.gr_negate)(x), -x)
    expected = torch.stack([-x[i].mT for i in range(2)])
    assert torch.equal(torch.vmap(torch.gr_negate_)(x.clone().mT), expected)
    torch.testing.assert_close(torch.vmap(torch.gr_axpy, (0, 1))(x, y), y.T[:, None] + x)
    torch.testing.assert_close(
        torch.vmap(torch.func.grad(lambda x: torch.gr_mix(x, x).sum()))(x), torch.full_like(x, 3)
    )


@pytest.mark.usefixtures("no_loop")
def test_vmap_takes_the_folder_s_own_rules() -> None:
    x = torch.randn(3, 2, 4)
    torch.testing.assert_close(torch.vmap(torch.gr_row_sum, 1)(x), x.sum(-1).T)
    torch.testing.assert_close(torch.vmap(lambda x: torch.gr_row_sum(x, 0, True), 1)(x), x.sum(0)[:, None])
    torch.testing.assert_close(torch.vmap(aten.gr_cube, 1, 1)(x), x**3)
    assert re.search(r"FuncTorchBatched: .*GrammarBatching\.cpp", torch._C._dispatch_dump("aten::gr_mix"))


def test_vmap_prefers_the_folder_s_own_kernels() -> None:
    x = torch.zeros(2, 3)
    for own in (
        torch.gr_own_pointwise,
        torch.gr_own_composite,
        torch.gr_own_explicit,
        lambda x: torch.gr_own_composite(x, 0),
    ):
        assert torch.equal(torch.vmap(own)(x), x + 100)
        assert own(x).max() < 2


def test_autocast_prefers_the_folder_s_own_kernel() -> None:
    x = torch.zeros(3, dtype=torch.bfloat16)
    with torch.autocast("cpu"):
        result = torch.gr_own_cast(x)
    assert torch.equal(result, x + 100)
    assert torch.equal(torch.gr_own_cast(x), x + 1)
