"""affine: input times the transposed weight plus bias, and its module."""

import copy
import math

import pytest
import torch
from samples import REAL, flops, layouts, values


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
    inputs = [torch.ones(size, requires_grad=True) for size in (shape, (5, 4), (5,))][: 3 if has_bias else 2]
    found = flops(torch.affine, *inputs)
    assert found == flops(torch.nn.functional.linear, *inputs)
    assert found == (2 * 5 * math.prod(shape), 3 * 2 * 5 * math.prod(shape))
