"""torch.vmap, compared with a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def check_vmap(function: Callable[..., Any], *inputs: Tensor, in_dims: tuple[int | None, ...]) -> None:
    """Check that torch.vmap returns the results of a loop: one tensor, or several."""
    size = next(x.shape[d] for x, d in zip(inputs, in_dims, strict=True) if d is not None)
    each = [
        function(*(x if d is None else x.select(d, i) for x, d in zip(inputs, in_dims, strict=True)))
        for i in range(size)
    ]
    is_one = isinstance(each[0], Tensor)
    expected = torch.stack(each) if is_one else [torch.stack(results) for results in zip(*each, strict=True)]
    found = torch.vmap(function, in_dims=in_dims)(*inputs)
    torch.testing.assert_close(found if is_one else list(found), expected)
