"""The Python package of the extension heads.cpp: fake implementations, gradients, and an operator in Python."""

from pathlib import Path
from typing import Any

import torch

torch.ops.load_library(str(Path(__file__).with_name("_ops.so")))


@torch.library.register_fake("heads::scale_by")
def _(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return torch.empty_like(x)


def _set_up(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.factor = inputs[1]


torch.library.register_autograd("heads::scale_by", lambda ctx, grad: (grad * ctx.factor, None), setup_context=_set_up)


@torch.library.register_fake("heads::top_heads")
def _(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (*scores.shape[:-1], k)
    return scores.new_empty(shape), scores.new_empty(shape, dtype=torch.long)


@torch.library.register_fake("heads::repeat_of")
def _(x: torch.Tensor, times: int) -> torch.Tensor:
    return x.new_empty(x.shape[0] * times)


@torch.library.register_fake("heads::accumulate")
def _(into: torch.Tensor, x: torch.Tensor) -> None:
    pass


@torch.library.custom_op("heads::nonzero_of", mutates_args=())
def nonzero_of(x: torch.Tensor) -> torch.Tensor:
    return x.nonzero()


@nonzero_of.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty([torch.library.get_ctx().new_dynamic_size(), x.dim()], dtype=torch.long)


@torch.library.custom_op("heads::python_twice", mutates_args=())
def python_twice(x: torch.Tensor, times: int = 2) -> torch.Tensor:
    return x * times


@python_twice.register_fake
def _(x: torch.Tensor, times: int = 2) -> torch.Tensor:
    return torch.empty_like(x)


def _keep_times(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.times = inputs[1]


python_twice.register_autograd(lambda ctx, grad: (grad * ctx.times, None), setup_context=_keep_times)


@torch.library.custom_op("heads::blend", mutates_args=())
def blend(x: torch.Tensor, y: torch.Tensor, more: list[torch.Tensor]) -> torch.Tensor:
    return x * 2 + y * 3 + sum(more)


@blend.register_fake
def _(x: torch.Tensor, y: torch.Tensor, more: list[torch.Tensor]) -> torch.Tensor:
    return torch.empty_like(x)


# More than one call, so that adopt knows no formula.
blend.register_autograd(lambda ctx, grad: (grad * 2, grad * 3, [grad]))

# A call out of a package that is imported.
BEFORE_ITS_END = torch.scale_by(torch.ones(2), 4.0).tolist() if hasattr(torch, "scale_by") else None
