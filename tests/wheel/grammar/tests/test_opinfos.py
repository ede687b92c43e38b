"""Which operators get an OpInfo for tests, and what it states about derivatives."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.opinfo.core import OpInfo

from tests.kit.opinfos import added_op_infos

INFOS: dict[str, OpInfo] = {info.name: info for info in added_op_infos()}


@pytest.mark.parametrize(
    ("name", "why"),
    [("gr_count", "returns an int"), ("gr_mean_value", "returns a float"), ("gr_grow_", "writes to its argument")],
)
def test_operators_that_an_op_info_cannot_describe(name: str, why: str) -> None:
    assert name in torch._added_operators.PUBLIC
    assert name not in INFOS, why


@pytest.mark.parametrize(
    ("name", "backward", "forward"),
    [("gr_square", True, True), ("gr_no_gradient", False, False), ("gr_strided", False, False)],
)
def test_derivatives(name: str, backward: bool, forward: bool) -> None:
    assert (INFOS[name].supports_autograd, INFOS[name].supports_forward_ad) == (backward, forward)
