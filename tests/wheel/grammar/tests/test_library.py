"""Kernels that forward to functions of a library: they are in its own namespace, and parallel by OpenMP and by ATen."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("threads", [1, 2])
def test_functions_in_a_namespace_of_their_own_in_parallel(threads: int) -> None:
    x, before = torch.randn(301, 7), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        rows, columns = torch.gr_row_range(x), torch.gr_column_range(x)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(rows, x.amax(1) - x.amin(1), rtol=0, atol=0)
    torch.testing.assert_close(columns, x.amax(0) - x.amin(0), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("operator", "is_on", "records"), [("gr_modes", 1, 0), ("gr_modes_without_grad", 0, 0), ("gr_modes_composed", 1, 1)]
)
def test_grad_mode_in_kernels(operator: str, is_on: int, records: int) -> None:
    """A kernel of a dispatch key is below autograd, in the grad mode of its caller."""
    x = torch.ones(3, requires_grad=True)
    function = getattr(torch, operator)
    result = function(x)
    assert result.tolist() == [is_on, records]
    assert result.requires_grad == (operator != "gr_modes_composed"), "by the formula"
    with torch.no_grad():
        assert function(x).tolist() == [0, 0]
