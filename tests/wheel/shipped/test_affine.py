"""affine: input times the transposed weight plus bias, and its module."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from samples import REAL, check_compiled, check_exported, check_vmap, layouts, values


@pytest.mark.parametrize("dtype", REAL)
def test_agrees_with_linear(dtype: torch.dtype) -> None:
    x, weight, bias = values((3, 40), dtype, 1), values((50, 40), dtype, 2), values((50,), dtype, 3)
    for argument in (x, *layouts(x).values()):
        expected = torch.nn.functional.linear(argument, weight, bias)
        torch.testing.assert_close(torch.affine(argument, weight, bias), expected, rtol=0, atol=0)


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (1, 1)])
def test_no_features(sizes: tuple[int, int]) -> None:
    x, weight, bias = torch.ones(2, sizes[0]), torch.ones(sizes[1], sizes[0]), torch.ones(sizes[1])
    assert torch.equal(torch.affine(x, weight, bias), torch.full((2, sizes[1]), 1.0 + sizes[0]))


def test_under_every_transform() -> None:
    x, weight, bias = values((3, 4), torch.float32, 1), values((5, 4), torch.float32, 2), values((5,), torch.float32, 3)
    check_compiled(lambda x: torch.affine(x, weight, bias), x.clone().requires_grad_())
    check_exported(torch.affine, x, weight, bias)
    check_vmap(torch.affine, x.expand(6, 3, 4), weight, bias, in_dims=(0, None, None))
    check_vmap(torch.affine, x, torch.stack([weight, -weight], 2), bias, in_dims=(None, 2, None))
    scripted = torch.jit.script(without_bias)
    torch.testing.assert_close(scripted(x, weight), x @ weight.t())


def without_bias(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.affine(x, weight)


def test_autocast() -> None:
    x, weight = torch.rand(3, 4), torch.rand(5, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = torch.affine(x, weight)
    assert result.dtype == torch.bfloat16
    result.sum().backward()
    assert weight.grad.dtype == torch.float32


def test_module() -> None:
    torch.manual_seed(0)
    module = torch.nn.Affine(40, 3, dtype=torch.float64)
    torch.manual_seed(0)
    linear = torch.nn.Linear(40, 3, dtype=torch.float64)
    assert torch.equal(module.weight, linear.weight)
    assert torch.equal(module.bias, linear.bias)
    assert module.bias.abs().max() <= 1 / math.sqrt(40)
    x = torch.rand(2, 40, dtype=torch.float64)
    torch.testing.assert_close(module(x), linear(x))
    assert repr(module) == "Affine(in_features=40, out_features=3, bias=True)"
    assert repr(torch.nn.Affine(1, 2, bias=False)) == "Affine(in_features=1, out_features=2, bias=False)"
    linear.load_state_dict(module.state_dict())
    assert torch.equal(copy.deepcopy(module)(x), module(x))
    torch.testing.assert_close(torch.jit.script(module)(x), module(x))


@pytest.mark.parametrize("shape", [(4,), (2, 4), (2, 3, 4)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_flops_are_those_of_linear(shape: tuple[int, ...], has_bias: bool) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    counts = []
    for function in (torch.affine, torch.nn.functional.linear):
        x, weight, bias = (torch.ones(size, requires_grad=True) for size in (shape, (5, 4), (5,)))
        with FlopCounterMode(display=False) as counter:
            result = function(x, weight, bias if has_bias else None)
            counts.append(counter.get_total_flops())
            result.sum().backward()
            counts.append(counter.get_total_flops())
    assert counts[:2] == [2 * 5 * math.prod(shape), 3 * 2 * 5 * math.prod(shape)]
    assert counts[2:] == counts[:2]


@pytest.mark.parametrize("features", [3, 5])
def test_wrong_number_of_features_is_refused_by_name(features: int) -> None:
    with pytest.raises(RuntimeError, match=r"affine\(\): .* to be weight's 4 in_features, but got input \[2, \d\]"):
        torch.affine(torch.ones(2, features), torch.ones(5, 4))
