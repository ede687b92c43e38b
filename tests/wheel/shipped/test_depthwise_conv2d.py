"""depthwise_conv2d: values and gradients against F.conv2d in double and a loop in NumPy."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
FORMATS = [torch.contiguous_format, torch.channels_last]

backward = torch.ops.aten.depthwise_conv2d_backward


@dataclass(frozen=True)
class Case:
    """One convolution: pairs are height and width."""

    batch: int | None
    channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    multiplier: int = 1

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        return self.stride, self.padding, self.dilation

    def inputs(self, dtype: torch.dtype, memory_format: torch.memory_format, seed: int = 0) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        outputs = self.channels * self.multiplier
        leading = () if self.batch is None else (self.batch,)
        shapes = [(*leading, self.channels, *self.size), (outputs, 1, *self.kernel), (outputs,)]
        x, weight, bias = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
        return [x if self.batch is None else x.to(memory_format=memory_format), weight, bias]


# The layers that networks have, in small, and what surrounds a vector's width, a block of rows, a stride.
CASES = [
    Case(1, 1, (1, 1), (1, 1)),
    Case(2, 3, (9, 8), (3, 3), padding=(1, 1)),
    Case(1, 17, (14, 14), (5, 5), padding=(2, 2)),
    Case(2, 32, (14, 15), (5, 5), (2, 2), (2, 2)),
    Case(1, 33, (7, 7), (7, 7), padding=(3, 3)),
    Case(1, 40, (28, 31), (7, 7), padding=(3, 3)),
    Case(1, 48, (16, 16), (3, 3), (2, 2), (1, 1)),
    Case(3, 5, (13, 47), (3, 3), (2, 1), (0, 2)),
    Case(1, 2, (70, 66), (3, 3), (1, 1), (1, 1)),
    Case(1, 4, (12, 20), (3, 5), (1, 1), (2, 4), (2, 2)),
    Case(1, 4, (20, 21), (3, 3), (2, 3), (3, 2), (3, 2)),
    Case(2, 6, (9, 10), (3, 3), padding=(1, 1), multiplier=3),
    Case(1, 20, (9, 10), (4, 2), (2, 2), (1, 1), (1, 2), multiplier=2),
    Case(None, 8, (10, 11), (3, 3), padding=(1, 1)),
    Case(1, 3, (24, 25), (11, 13), padding=(5, 6)),
    Case(1, 3, (8, 9), (3, 3), padding=(5, 7)),
    Case(1, 3, (9, 9), (2, 2), (5, 4)),
    Case(1, 2, (40, 3), (3, 3), padding=(1, 1)),
    Case(1, 2, (5, 6), (5, 6)),
    Case(2, 2, (300, 40), (3, 3), padding=(1, 1)),
]


def convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, case: Case) -> torch.Tensor:
    return F.conv2d(x, weight, bias, *case.parameters, groups=case.channels)


def in_numpy(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, case: Case) -> np.ndarray:
    """The definition, written out."""
    (sh, sw), (ph, pw), (dh, dw) = case.parameters
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    kh, kw = case.kernel
    rows = (padded.shape[2] - dh * (kh - 1) - 1) // sh + 1
    columns = (padded.shape[3] - dw * (kw - 1) - 1) // sw + 1
    out = np.zeros((x.shape[0], weight.shape[0], rows, columns))
    for c, i, j in itertools.product(range(weight.shape[0]), range(rows), range(columns)):
        window = padded[:, c // case.multiplier, i * sh : i * sh + dh * kh : dh, j * sw : j * sw + dw * kw : dw]
        out[:, c, i, j] = (window[:, :kh, :kw] * weight[c, 0]).sum(axis=(1, 2)) + bias[c]
    return out


def gradients(result: torch.Tensor, inputs: list[torch.Tensor], grad: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(result, inputs, grad))


def assert_rounded(ours: torch.Tensor, exact: torch.Tensor, magnitude: torch.Tensor, terms: int) -> None:
    """One rounding to ours's dtype of a sum whose terms were added in float (in double for double).

    Args:
        exact: the result in double.
        magnitude: the sum of the terms' magnitudes.
        terms: how many there are.
    """
    accumulated = torch.float64 if ours.dtype == torch.float64 else torch.float32
    bound = exact.abs() * torch.finfo(ours.dtype).eps / 2 + torch.finfo(ours.dtype).smallest_normal
    bound = bound + magnitude * torch.finfo(accumulated).eps * (terms + 2)
    excess = ((ours.double() - exact).abs() - bound).max() if ours.numel() else torch.zeros(())
    assert excess <= 0, f"{excess} beyond the bound"


def check(case: Case, dtype: torch.dtype, memory_format: torch.memory_format, has_bias: bool = True) -> None:
    """Value and gradients of one convolution."""
    inputs = case.inputs(dtype, memory_format)[: 3 if has_bias else 2]
    ours = [tensor.clone().requires_grad_() for tensor in inputs]
    exact = [tensor.double().requires_grad_() for tensor in inputs]
    sizes = [tensor.double().abs().requires_grad_() for tensor in inputs]
    results = [
        torch.depthwise_conv2d(*ours, *([] if has_bias else [None]), *case.parameters),
        *(convolution(t[0], t[1], t[2] if has_bias else None, case) for t in (exact, sizes)),
    ]
    taps = case.kernel[0] * case.kernel[1] + 1
    assert results[0].dtype == dtype and results[0].shape == results[1].shape
    assert_rounded(results[0].detach(), results[1].detach(), results[2].detach(), taps)
    # Where sizes are 1 or 0 the input's strides do not tell its format.
    if case.batch is not None and not (case.channels == 1 or inputs[0].is_contiguous()):
        assert results[0].is_contiguous(memory_format=memory_format)

    grad = torch.randn(results[0].shape, generator=torch.Generator().manual_seed(7)).to(dtype)
    grads = [
        gradients(result, tensors, g)
        for result, tensors, g in zip(
            results, (ours, exact, sizes), (grad, grad.double(), grad.double().abs()), strict=True
        )
    ]
    pixels = grad.numel() // grad.shape[-3]
    for mine, theirs, size, terms in zip(*grads, (taps * case.multiplier, pixels, pixels), strict=False):
        assert mine.shape == theirs.shape
        assert_rounded(mine, theirs, size, terms)


@pytest.mark.parametrize(("case", "dtype", "memory_format"), list(itertools.product(CASES, DTYPES, FORMATS)))
def test_values_and_gradients(case: Case, dtype: torch.dtype, memory_format: torch.memory_format) -> None:
    check(case, dtype, memory_format)


def at_least(least: int, most: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(least, most), st.integers(least, most))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kernel, dilation, padding = draw(at_least(1, 8)), draw(at_least(1, 3)), draw(at_least(0, 9))
    # The least size that the window fits into, and some more.
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding, strict=True)]
    size = (least[0] + draw(st.integers(0, 24)), least[1] + draw(st.integers(0, 40)))
    batch, channels = draw(st.sampled_from([None, 0, 1, 2, 3])), draw(st.integers(1, 40))
    return Case(batch, channels, size, kernel, draw(at_least(1, 4)), padding, dilation, draw(st.integers(1, 3)))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(case=cases(), dtype=st.sampled_from(DTYPES), channels_last=st.booleans(), has_bias=st.booleans())
def test_any_parameters(case: Case, dtype: torch.dtype, channels_last: bool, has_bias: bool) -> None:
    check(case, dtype, FORMATS[channels_last], has_bias)


@pytest.mark.parametrize("case", [case for case in CASES if case.batch is not None and case.size[0] < 30])
def test_against_numpy(case: Case) -> None:
    x, weight, bias = case.inputs(torch.float64, torch.contiguous_format)
    expected = torch.from_numpy(in_numpy(x.numpy(), weight.numpy(), bias.numpy(), case))
    torch.testing.assert_close(torch.depthwise_conv2d(x, weight, bias, *case.parameters), expected)


def test_strided_inputs() -> None:
    case = Case(2, 6, (11, 12), (3, 3), padding=(1, 1))
    x, weight, bias = case.inputs(torch.float32, torch.contiguous_format)
    expected = torch.depthwise_conv2d(x, weight, bias, *case.parameters)
    strided = torch.randn(2, 12, 12, 11).transpose(2, 3)[:, ::2].copy_(x)
    spread = torch.randn(3, 3, 1, 12).permute(3, 2, 1, 0)[::2].copy_(weight)
    ours = torch.depthwise_conv2d(strided, spread, bias.expand(2, -1).t()[:, 0], *case.parameters)
    assert torch.equal(ours, expected)
    everywhere = torch.ones(1).expand(2, 6, 11, 12)
    ours = torch.depthwise_conv2d(everywhere, weight, bias, *case.parameters)
    assert torch.equal(ours, torch.depthwise_conv2d(everywhere.contiguous(), weight, bias, *case.parameters))
    overlapping = torch.arange(40.0).as_strided((1, 6, 5, 6), (0, 2, 3, 1))
    ours = torch.depthwise_conv2d(overlapping, weight, None, *case.parameters)
    assert torch.equal(ours, torch.depthwise_conv2d(overlapping.contiguous(), weight, None, *case.parameters))


@pytest.mark.parametrize("memory_format", FORMATS)
def test_only_the_gradients_that_are_asked_for(memory_format: torch.memory_format) -> None:
    case = Case(2, 6, (9, 8), (3, 3), (2, 2), (1, 1))
    x, weight, _ = case.inputs(torch.float32, memory_format)
    grad = torch.randn_like(torch.depthwise_conv2d(x, weight, None, *case.parameters))
    whole = backward(grad, x, weight, *case.parameters, [True] * 3)
    for mask in itertools.product([False, True], repeat=3):
        some = backward(grad, x, weight, *case.parameters, list(mask))
        for wanted, part, full in zip(mask, some, whole, strict=True):
            assert torch.equal(part, full) if wanted else part is None


@pytest.mark.parametrize("memory_format", FORMATS)
def test_empty_batch(memory_format: torch.memory_format) -> None:
    x = torch.empty(0, 4, 8, 8, requires_grad=True).to(memory_format=memory_format)
    weight, bias = torch.randn(4, 1, 3, 3, requires_grad=True), torch.randn(4, requires_grad=True)
    result = torch.depthwise_conv2d(x, weight, bias)
    assert result.shape == (0, 4, 6, 6)
    grads = gradients(result, [x, weight, bias], torch.empty_like(result))
    assert grads[0].shape == x.shape
    assert not grads[1].any() and not grads[2].any()


def test_input_without_pixels() -> None:
    x, weight, bias = torch.empty(2, 3, 0, 4), torch.randn(3, 1, 3, 3), torch.randn(3)
    result = torch.depthwise_conv2d(x, weight, bias, padding=2)
    assert torch.equal(result, bias.view(3, 1, 1).expand(2, 3, 2, 6))


@pytest.mark.parametrize(("dtype", "memory_format"), list(itertools.product(DTYPES, FORMATS)))
@pytest.mark.parametrize("special", [float("nan"), float("inf")])
@pytest.mark.parametrize("stride", [1, 2])
def test_special_values_reach_the_windows_that_hold_them(
    dtype: torch.dtype, memory_format: torch.memory_format, special: float, stride: int
) -> None:
    """Every pixel in turn, so that no lane beyond an edge leaks in: neither into values nor into gradients."""
    case = Case(1, 2, (6, 5), (3, 3), (stride,) * 2, (1, 1))
    x = torch.ones(1, 2, 6, 5, dtype=dtype).to(memory_format=memory_format)
    weight = torch.ones(2, 1, 3, 3, dtype=dtype)
    grad = torch.ones_like(torch.depthwise_conv2d(x, weight, None, *case.parameters))
    for y, column in itertools.product(range(6), range(5)):
        spoiled = x.clone()
        spoiled[0, 1, y, column] = special
        plain = convolution(spoiled.float(), weight.float(), None, case)
        result = torch.depthwise_conv2d(spoiled, weight, None, *case.parameters)
        assert torch.equal(result.isfinite(), plain.isfinite())
        grad_weight = backward(grad, spoiled, weight, *case.parameters, [False, True, False])[1]
        windows = F.unfold(spoiled.float(), 3, padding=1, stride=stride).view(2, 9, -1)
        assert torch.equal(grad_weight.isfinite().flatten(1), windows.isfinite().all(-1))
    for y, column in itertools.product(range(grad.shape[2]), range(grad.shape[3])):
        spoiled = grad.clone()
        spoiled[0, 1, y, column] = special
        back = backward(spoiled, x, weight, *case.parameters, [True, False, False])[0]
        leaf = x.float().requires_grad_()
        plain = gradients(convolution(leaf, weight.float(), None, case), [leaf], spoiled.float())[0]
        assert torch.equal(back.isfinite(), plain.isfinite())


ERRORS = [
    ({"input": torch.zeros(3, 4)}, r"expected input to be 4-D \[N, C, H, W\] or 3-D \[C, H, W\], got \[3, 4\]"),
    ({"weight": torch.zeros(4, 3, 3)}, r"expected weight to be 4-D \[C \* multiplier, 1, kH, kW\] and not empty"),
    ({"weight": torch.zeros(4, 2, 3, 3)}, r"expected weight to be 4-D .* got \[4, 2, 3, 3\]"),
    ({"weight": torch.zeros(4, 1, 0, 3)}, r"expected weight to be 4-D .* and not empty, got \[4, 1, 0, 3\]"),
    ({"weight": torch.zeros(6, 1, 3, 3)}, r"weight to be a multiple of input's 4 channels, got \[6, 1, 3, 3\]"),
    ({"input": torch.zeros(1, 0, 8, 8)}, r"weight to be a multiple of input's 0 channels"),
    ({"bias": torch.zeros(3)}, r"expected bias to be 1-D with 4 elements, got \[3\]"),
    ({"bias": torch.zeros(4, 1)}, r"expected bias to be 1-D with 4 elements, got \[4, 1\]"),
    ({"input": torch.zeros(1, 4, 8, 8, dtype=torch.int32)}, r"input to be double, float, half or bfloat16, got Int"),
    ({"input": torch.zeros(1, 4, 8, 8, dtype=torch.cfloat)}, r"half or bfloat16, got ComplexFloat"),
    ({"weight": torch.zeros(4, 1, 3, 3).double()}, r"weight to have the dtype of input, Float, got Double"),
    ({"bias": torch.zeros(4).half()}, r"expected bias to have the dtype of input, Float, got Half"),
    ({"stride": 0}, r"expected stride to be at least 1, got \[0, 0\]"),
    ({"stride": (1, -2)}, r"expected stride to be at least 1, got \[1, -2\]"),
    ({"padding": -1}, r"expected padding to be at least 0, got \[-1, -1\]"),
    ({"dilation": 0}, r"expected dilation to be at least 1, got \[0, 0\]"),
    ({"dilation": 2**62}, r"expected padding and dilation to give sizes of 64 bits, .* dilation 4611686018427387904"),
    ({"padding": 2**62}, r"expected padding and dilation to give sizes of 64 bits, got padding 4611686018427387904"),
    ({"weight": torch.zeros(4, 1, 3, 9)}, r"no larger than the padded input, got a width of 9 .* input of 8"),
    ({"dilation": (4, 1)}, r"no larger than the padded input, got a height of 9 \(dilation included\)"),
]


@pytest.mark.parametrize(("wrong", "message"), ERRORS)
def test_errors_name_the_argument(wrong: dict[str, object], message: str) -> None:
    arguments = {"input": torch.zeros(1, 4, 8, 8), "weight": torch.zeros(4, 1, 3, 3), "bias": torch.zeros(4)}
    with pytest.raises(RuntimeError, match=r"depthwise_conv2d\(\): .*" + message):
        torch.depthwise_conv2d(**{**arguments, **wrong})


def test_errors_of_the_backward() -> None:
    x, weight = torch.zeros(1, 4, 8, 8), torch.zeros(4, 1, 3, 3)
    rest = ((1, 1), (0, 0), (1, 1), [True] * 3)
    name = r"depthwise_conv2d_backward\(\): expected grad_output to have the "
    with pytest.raises(RuntimeError, match=name + r"sizes of the result, \[1, 4, 6, 6\], got \[1, 4, 6, 5\]"):
        backward(torch.zeros(1, 4, 6, 5), x, weight, *rest)
    with pytest.raises(RuntimeError, match=name + r"sizes of the result, \[4, 6, 6\], got \[1, 4, 6, 6\]"):
        backward(torch.zeros(1, 4, 6, 6), x[0], weight, *rest)
    with pytest.raises(RuntimeError, match=name + r"dtype of input, Float, got Half"):
        backward(torch.zeros(1, 4, 6, 6).half(), x, weight, *rest)


@pytest.mark.parametrize(
    "parameters", [{"stride": 2**40}, {"padding": (0, 2**20), "dilation": (1, 2**20)}, {"stride": (2**62, 2**33)}]
)
@pytest.mark.parametrize("memory_format", FORMATS)
def test_extreme_parameters(parameters: dict[str, object], memory_format: torch.memory_format) -> None:
    """The work follows the elements that are used, not the parameters."""
    x = torch.randn(1, 3, 9, 9).to(memory_format=memory_format).requires_grad_()
    weight = torch.randn(3, 1, 3, 3, requires_grad=True)
    result = torch.depthwise_conv2d(x, weight, **parameters)
    expected = torch.zeros_like(result)
    stride, padding, dilation = parameters.get("stride", 1), parameters.get("padding"), parameters.get("dilation")
    if padding is None:
        expected = F.conv2d(x[..., :3, :3], weight, groups=3)
        assert stride != 1
    else:
        assert dilation == (1, 2**20)
        # Only the middle column of the window ever meets the image.
        expected = F.conv2d(F.pad(x, (0, 0)), weight[..., 1:2], groups=3)
    torch.testing.assert_close(result, expected)
    for ours, theirs in zip(
        gradients(result, [x, weight], torch.ones_like(result)),
        gradients(expected, [x, weight], torch.ones_like(result)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


DERIVATIVES = [
    Case(1, 2, (4, 5), (3, 3), padding=(1, 1)),
    Case(2, 2, (6, 5), (3, 2), (2, 1), (1, 0), (1, 2), multiplier=2),
    Case(None, 3, (4, 4), (2, 2), (2, 2)),
]


@pytest.mark.parametrize(
    ("case", "memory_format", "has_bias"), list(itertools.product(DERIVATIVES, FORMATS, [True, False]))
)
def test_derivatives(case: Case, memory_format: torch.memory_format, has_bias: bool) -> None:
    inputs = tuple(tensor.requires_grad_() for tensor in case.inputs(torch.float64, memory_format))
    inputs = inputs if has_bias else inputs[:2]

    def f(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return torch.depthwise_conv2d(x, weight, bias, *case.parameters)

    every = {"check_batched_grad": True, "check_forward_ad": True, "check_batched_forward_grad": True}
    assert gradcheck(f, inputs, **every)
    assert gradgradcheck(f, inputs, check_batched_grad=True, check_fwd_over_rev=True, check_rev_over_rev=True)


def test_third_derivative() -> None:
    x = torch.randn(1, 1, 3, 3, dtype=torch.float64, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        first = torch.depthwise_conv2d(x, x.pow(2)[..., :2, :2], None, 1, 1).pow(2).sum()
        return torch.autograd.grad(first, x, create_graph=True)[0]

    assert gradgradcheck(f, (x,))


@pytest.mark.parametrize("case", DERIVATIVES)
def test_opcheck(case: Case) -> None:
    for memory_format in FORMATS:
        inputs = [tensor.requires_grad_() for tensor in case.inputs(torch.float32, memory_format)]
        torch.library.opcheck(torch.ops.aten.depthwise_conv2d.default, (*inputs, *case.parameters))
        grad = torch.randn_like(torch.depthwise_conv2d(*inputs, *case.parameters)).requires_grad_()
        torch.library.opcheck(backward.default, (grad, *inputs[:2], *case.parameters, [True] * 3))


@pytest.mark.parametrize("memory_format", FORMATS)
def test_the_same_bits_every_time(memory_format: torch.memory_format) -> None:
    case = Case(4, 40, (29, 30), (5, 5), padding=(2, 2))
    inputs = [tensor.requires_grad_() for tensor in case.inputs(torch.float32, memory_format)]
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3, 2):
            torch.set_num_threads(threads)
            result = torch.depthwise_conv2d(*inputs, *case.parameters)
            found.append([result, *gradients(result, inputs, torch.ones_like(result))])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(first, second) for first, second in zip(found[0], other, strict=True))


IN_DIMS = [dims for dims in itertools.product([0, None], repeat=3) if any(dim is not None for dim in dims)]


@pytest.mark.parametrize(("in_dims", "batch"), list(itertools.product(IN_DIMS, [2, None])))
@pytest.mark.parametrize("multiplier", [1, 2])
def test_vmap(in_dims: tuple[int | None, ...], batch: int | None, multiplier: int) -> None:
    """By rules of its own: the fallback would warn, and warnings are errors here."""
    case = Case(batch, 3, (6, 7), (3, 3), (1, 2), (1, 1), multiplier=multiplier)
    samples = [case.inputs(torch.float64, torch.contiguous_format, seed) for seed in range(4)]
    stacked = [
        torch.stack([sample[i] for sample in samples]) if dim == 0 else samples[0][i] for i, dim in enumerate(in_dims)
    ]

    def f(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.depthwise_conv2d(x, weight, bias, *case.parameters)

    def grads(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.func.grad(lambda *args: f(*args).sin().sum(), argnums=(0, 1, 2))(x, weight, bias)

    for function in (f, grads):
        results = torch.func.vmap(function, in_dims)(*stacked)
        for k in range(4):
            each = function(*(t[k] if dim == 0 else t for t, dim in zip(stacked, in_dims, strict=True)))
            part = tuple(t[k] for t in results) if isinstance(results, tuple) else results[k]
            torch.testing.assert_close(part, each)


def test_vmap_nested_and_at_other_dimensions() -> None:
    x, weight = torch.randn(2, 5, 3, 6, 4, 6), torch.randn(3, 1, 3, 3, 5)
    nested = torch.func.vmap(torch.func.vmap(torch.depthwise_conv2d, in_dims=(3, None)), in_dims=(1, 4))(x, weight)
    for i, j in itertools.product(range(5), range(4)):
        torch.testing.assert_close(nested[i, j], torch.depthwise_conv2d(x[:, i, :, :, j], weight[..., i]))


def test_autocast() -> None:
    x, weight, bias = Case(1, 4, (8, 8), (3, 3)).inputs(torch.float32, torch.contiguous_format)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            result = torch.depthwise_conv2d(x, weight.requires_grad_(), bias)
        assert result.dtype == dtype
        assert torch.equal(result, torch.depthwise_conv2d(x.to(dtype), weight.to(dtype), bias.to(dtype)))
        assert gradients(result, [weight], torch.ones_like(result))[0].dtype == torch.float32


@pytest.mark.parametrize("memory_format", FORMATS)
def test_meta(memory_format: torch.memory_format) -> None:
    for case in CASES:
        inputs = case.inputs(torch.float32, memory_format)
        real = torch.depthwise_conv2d(*inputs, *case.parameters)
        meta = torch.depthwise_conv2d(*(tensor.to("meta") for tensor in inputs), *case.parameters)
        assert (meta.shape, meta.stride(), meta.dtype) == (real.shape, real.stride(), real.dtype)
    with pytest.raises(RuntimeError, match=r"depthwise_conv2d\(\): expected weight to be no larger than the padded"):
        torch.depthwise_conv2d(torch.empty(1, 4, 2, 2, device="meta"), torch.empty(4, 1, 3, 3, device="meta"))


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_with_backward(memory_format: torch.memory_format, dynamic: bool) -> None:
    case = Case(2, 4, (9, 8), (3, 3), (2, 1), (1, 1))

    @torch.compile(fullgraph=True, backend="aot_eager", dynamic=dynamic)
    def f(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.depthwise_conv2d(x, weight, bias, *case.parameters).relu()

    for size in ((9, 8), (13, 21)):
        sized = Case(2, 4, size, (3, 3), (2, 1), (1, 1))
        inputs = [tensor.requires_grad_() for tensor in sized.inputs(torch.float32, memory_format)]
        ours, eager = f(*inputs), torch.depthwise_conv2d(*inputs, *case.parameters).relu()
        assert torch.equal(ours, eager) and ours.stride() == eager.stride()
        grad = torch.randn_like(eager)
        pairs = zip(gradients(ours, inputs, grad), gradients(eager, inputs, grad), strict=True)
        assert all(torch.equal(first, second) for first, second in pairs)


@pytest.mark.unsanitized("what Inductor compiles is linked without sanitizers")
def test_inductor() -> None:
    case = Case(1, 4, (9, 8), (3, 3), padding=(1, 1))
    inputs = case.inputs(torch.float32, torch.channels_last)
    compiled = torch.compile(lambda *args: torch.depthwise_conv2d(*args, *case.parameters) * 2, fullgraph=True)
    torch.testing.assert_close(compiled(*inputs), torch.depthwise_conv2d(*inputs, *case.parameters) * 2)


def test_export_with_dynamic_shapes() -> None:
    module = torch.nn.DepthwiseConv2d(4, 3, padding=1)
    dynamic = {"input": {0: torch.export.Dim("n"), 2: torch.export.Dim("h", min=4), 3: torch.export.Dim("w", min=4)}}
    program = torch.export.export(module, (torch.randn(2, 4, 9, 8),), dynamic_shapes=dynamic)
    assert "aten.depthwise_conv2d.default" in program.graph_module.code
    x = torch.randn(5, 4, 17, 6)
    assert torch.equal(program.module()(x), module(x))


def test_module() -> None:
    module = torch.nn.DepthwiseConv2d(4, (3, 5), stride=2, padding=(1, 2), dilation=1, channel_multiplier=2)
    peer = torch.nn.Conv2d(4, 8, (3, 5), 2, (1, 2), groups=4)
    peer.load_state_dict(module.state_dict())
    x = torch.randn(2, 4, 9, 10)
    torch.testing.assert_close(module(x), peer(x))
    assert str(module) == (
        "DepthwiseConv2d(4, kernel_size=(3, 5), stride=(2, 2), padding=(1, 2), channel_multiplier=2)"
    )
    assert torch.equal(torch.jit.script(module)(x), module(x))
    plain = torch.nn.DepthwiseConv2d(4, 3, dilation=2, bias=False, dtype=torch.float64)
    assert str(plain) == "DepthwiseConv2d(4, kernel_size=(3, 3), stride=(1, 1), dilation=(2, 2), bias=False)"
    assert plain.bias is None and plain.weight.dtype == torch.float64
    with pytest.raises(ValueError, match="channels and channel_multiplier must be positive, got 0 and 1"):
        torch.nn.DepthwiseConv2d(0, 3)


def test_module_starts_as_conv2d_does() -> None:
    torch.manual_seed(0)
    ours = torch.nn.DepthwiseConv2d(6, 3, channel_multiplier=2)
    torch.manual_seed(0)
    theirs = torch.nn.Conv2d(6, 12, 3, groups=6)
    assert torch.equal(ours.weight, theirs.weight) and torch.equal(ours.bias, theirs.bias)


CAPABILITY = """
import sys
import torch
from {module} import CASES, DTYPES, FORMATS, check
assert torch.backends.cpu.get_cpu_capability() == {capability!r}, torch.backends.cpu.get_cpu_capability()
for case in CASES:
    for dtype in DTYPES:
        for memory_format in FORMATS:
            check(case, dtype, memory_format)
"""


@pytest.mark.parametrize("capability", ["DEFAULT", "AVX2"])
def test_right_at_every_cpu_capability(capability: str) -> None:
    """The highest is what the other tests run with."""
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    if {"AVX2": "avx2"}.get(capability, "") not in flags:
        pytest.skip(f"this processor has no {capability}")
    env = {**os.environ, "ATEN_CPU_CAPABILITY": capability.lower(), "PYTHONPATH": str(Path(__file__).parent)}
    program = CAPABILITY.format(module=Path(__file__).stem, capability=capability)
    subprocess.run([sys.executable, "-c", program], env=env, check=True)
