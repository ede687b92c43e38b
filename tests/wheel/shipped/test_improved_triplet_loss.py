"""improved_triplet_loss: max(d_ap - d_an, tau1) + beta * max(d_ap, tau2), with squared distances of rows."""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import (
    HALF,
    REAL,
    allocated,
    assert_exact,
    check_deterministic,
    check_third_derivatives,
    double,
    layouts,
    values,
)

SHAPES = [(0, 3), (1, 1), (3, 0), (5, 7), (4, 129), (2, 1000), (300, 400), (17,), (0,), (1100, 640)]
BATCHES = [(2, 3, 5), (1, 4, 2, 17), (2, 0, 3), (2, 3, 0)]
REDUCTIONS = ["none", "mean", "sum"]
every_reduction = pytest.mark.parametrize("reduction", REDUCTIONS)
PARAMETERS = (-1.0, 0.01, 0.002)


def triple(shape: tuple[int, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    return [values(shape, dtype, seed) for seed in (1, 2, 3)]


def hinge(x: torch.Tensor, tau: float) -> torch.Tensor:
    """``clamp(min=tau)`` with the gradient 1 if ``x >= tau``; clamp's own gradient differs between releases."""
    if math.isnan(tau):  # older releases do not clamp with it
        return x * 0 + tau
    return torch.where(x >= tau, x, x.detach().clamp(min=tau))


def reference(
    inputs: Iterable[torch.Tensor], parameters: tuple[float, float, float] = PARAMETERS, reduction: str = "mean"
) -> torch.Tensor:
    """Compute the loss with plain operations in double, and round once."""
    anchor, positive, negative = inputs
    tau1, tau2, beta = parameters
    a, p, n = (x.double() for x in (anchor, positive, negative))
    d_ap, d_an = (a - p).square().sum(-1), (a - n).square().sum(-1)
    losses = hinge(d_ap - d_an, tau1) + beta * hinge(d_ap, tau2)
    return {"none": losses, "mean": losses.mean(), "sum": losses.sum()}[reduction].to(anchor.dtype)


def loss(*inputs: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return torch.improved_triplet_loss(*inputs, *PARAMETERS, reduction)


def with_distances(*inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.improved_triplet_loss_with_distances(*inputs, *PARAMETERS)


def assert_close_to_loss(
    result: torch.Tensor, expected: torch.Tensor, inputs: list[torch.Tensor], reduction: str = "mean"
) -> None:
    """Allow for the rounding of the result and of the distances, whose difference may be much smaller than they are."""
    anchor, positive, negative = (x.double() for x in inputs)
    distances = (anchor - positive).square().sum(-1) + (anchor - negative).square().sum(-1)
    finite = distances[distances.isfinite()]
    lost = {"none": finite.amax, "mean": finite.mean, "sum": finite.sum}[reduction]() if finite.numel() else 0.0
    computed_in = torch.float32 if result.dtype in HALF else result.dtype
    atol = 4 * torch.finfo(computed_in).eps * float(lost)
    torch.testing.assert_close(result, expected, rtol=2 * torch.finfo(result.dtype).eps, atol=atol, equal_nan=True)


def check_with_gradients(inputs: list[torch.Tensor], parameters: tuple[float, float, float], reduction: str) -> None:
    ours, theirs = ([x.detach().requires_grad_() for x in inputs] for _ in "ab")
    result = torch.improved_triplet_loss(*ours, *parameters, reduction)
    expected = reference(theirs, parameters, reduction)
    assert_close_to_loss(result, expected, inputs, reduction)
    weight = torch.linspace(1, 2, result.numel(), dtype=result.dtype).view_as(result)
    (result * weight).sum().backward()
    (expected * weight).sum().backward()
    # The gradient of the anchor is a difference of the two distances' gradients.
    computed_in = torch.float32 if result.dtype in HALF else result.dtype
    largest = max((float(x.double().nan_to_num(0, 0, 0).abs().max()) for x in inputs if x.numel()), default=0.0)
    for one, other in zip(ours, theirs, strict=True):
        rtol = 4 * torch.finfo(one.dtype).eps
        atol = 16 * torch.finfo(computed_in).eps * largest
        torch.testing.assert_close(one.grad, other.grad, rtol=rtol, atol=atol, equal_nan=True)


@every_reduction
@pytest.mark.parametrize(
    ("shape", "dtype"), list(itertools.product(SHAPES + BATCHES, [torch.float32, torch.float64, *HALF]))
)
def test_values_and_gradients(shape: tuple[int, ...], dtype: torch.dtype, reduction: str) -> None:
    check_with_gradients(triple(shape, dtype), PARAMETERS, reduction)


@given(
    rows=st.integers(0, 5),
    length=st.integers(0, 70),
    tau1=st.floats(-50, 50),
    tau2=st.floats(-50, 50),
    beta=st.floats(-2, 2),
    reduction=st.sampled_from(REDUCTIONS),
)
@settings(deadline=None, max_examples=100)
def test_any_parameters(rows: int, length: int, tau1: float, tau2: float, beta: float, reduction: str) -> None:
    check_with_gradients(triple((rows, length), torch.float64), (tau1, tau2, beta), reduction)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF])
@pytest.mark.parametrize("shape", [(4, 129), (17,), (0, 3), (3, 0)])
def test_distances(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    anchor, positive, negative = (x.requires_grad_() for x in triple(shape, dtype))
    losses, distances = with_distances(anchor, positive, negative)
    assert_exact(losses.mean().to(dtype), loss(anchor, positive, negative))
    assert losses.requires_grad
    assert not distances.requires_grad
    expected = torch.stack([(anchor.double() - x.double()).square().sum(-1) for x in (positive, negative)], dim=-1)
    torch.testing.assert_close(distances, expected.to(torch.float32 if dtype in HALF else dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("length", [100_003, 4_000_000])
def test_distances_of_long_rows(length: int, dtype: torch.dtype) -> None:
    """The error must not grow with the row, even for equal numbers, whose rounding errors do not cancel."""
    zeros = torch.zeros(1, length, dtype=dtype)
    for row in (zeros + 0.1, values((1, length), dtype)):
        _, distances = with_distances(row, zeros, zeros)
        expected = row.double().square().sum().expand(1, 2)
        # The sum of each lane has at most 128 terms.
        rtol = 32 * torch.finfo(distances.dtype).eps
        torch.testing.assert_close(distances.double(), expected, rtol=rtol, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 33), (4, 3, 5)])
def test_layouts(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    anchor, positive, negative = triple(shape, dtype)
    for other in layouts(anchor).values():
        for inputs in ([other, positive, negative], [positive, other, other]):
            assert_close_to_loss(loss(*inputs, reduction="none"), reference(inputs, reduction="none"), inputs, "none")


def test_gradient_at_the_kinks_is_one() -> None:
    anchor, positive, negative = (torch.tensor([x], dtype=torch.float64) for x in ([2.0], [1.0], [0.0]))
    # d_ap is 1 and d_an is 4.
    for tau1, tau2 in itertools.product([-4.0, -3.0, -2.0], [0.0, 1.0, 2.0]):
        check_with_gradients([anchor, positive, negative], (tau1, tau2, 0.5), "sum")


@pytest.mark.parametrize("special", [float("inf"), float("nan"), 1e15])
def test_special_values(special: float) -> None:
    for place, parameters in itertools.product(
        range(3), [PARAMETERS, (float("nan"), 0.0, 1.0), (0.0, float("inf"), 1.0)]
    ):
        inputs = triple((3, 20), torch.float32)
        inputs[place][1, 7] = special
        check_with_gradients(inputs, parameters, "none")


@every_reduction
def test_third_derivatives(reduction: str) -> None:
    inputs = [double((3, 4), seed=seed) for seed in (1, 2, 3)]
    check_third_derivatives(lambda *inputs: torch.improved_triplet_loss(*inputs, 0.5, 1.5, 0.3, reduction), *inputs)


def test_defaults() -> None:
    inputs = triple((3, 4), torch.float32)
    for function in (torch.improved_triplet_loss, torch.ops.aten.improved_triplet_loss, F.improved_triplet_loss):
        assert_exact(function(*inputs), torch.improved_triplet_loss(*inputs, -1.0, 0.01, 0.002, "mean"))
    assert_close_to_loss(torch.improved_triplet_loss(*inputs), reference(inputs), inputs)
    module = torch.nn.ImprovedTripletLoss()
    assert (module.tau1, module.tau2, module.beta, module.reduction) == (-1.0, 0.01, 0.002, "mean")


def test_gradient_of_some_inputs() -> None:
    anchor, positive, negative = triple((3, 4), torch.float64)
    for which in range(3):
        inputs = [anchor, positive, negative]
        inputs[which] = inputs[which].clone().requires_grad_()
        (grad,) = torch.autograd.grad(loss(*inputs), inputs[which])
        torch.testing.assert_close(grad, torch.autograd.grad(reference(inputs), inputs[which])[0])


def backward(*given: Any) -> Any:
    """Call the backward with a gradient of the losses, the inputs and the distances."""
    return torch.ops.aten.improved_triplet_loss_backward(*given, *PARAMETERS, [True] * 3)


def test_errors() -> None:
    x = torch.rand(3, 4)
    with pytest.raises(RuntimeError, match=r"expected negative to be on anchor's device cpu, but it is on meta"):
        loss(x, x, x.to("meta"))
    unsigned = x.to(torch.uint64)
    with pytest.raises(RuntimeError, match=r"expected anchor to be double, float, half or bfloat16, but got UInt64"):
        double_backward = torch.ops.aten.improved_triplet_loss_double_backward
        double_backward(None, None, None, x[:, 0], unsigned, unsigned, unsigned, x[:, :2], *PARAMETERS)
    wanted = r"expected distances to be \[3, 2\] of dtype Float on device cpu, but got "
    for wrong in (x, torch.rand(3), torch.rand(3, 2).double(), torch.rand(3, 2, device="meta")):
        with pytest.raises(RuntimeError, match=wanted):
            backward(x[:, 0], x, x, x, wrong)
    for device, wrong in itertools.product(["cpu", "meta"], [x.sum(), x[:1, 0], x[:, 0].double()]):
        with pytest.raises(RuntimeError, match=r"expected grad_losses to be \[3\] of dtype Float on device"):
            backward(*(each.to(device) for each in (wrong, x, x, x, x[:, :2])))


def test_deterministic() -> None:
    check_deterministic(loss, *(x.requires_grad_() for x in triple((300, 400), torch.float32)))


@pytest.mark.parametrize("dtype", HALF)
def test_half_types_are_rounded_at_last(dtype: torch.dtype) -> None:
    """Losses and distances are larger than the largest half, but their means and tangents are not."""
    anchor = torch.zeros(2, 4, 4, dtype=dtype)
    anchor[:, 0] = 128
    zeros = torch.zeros_like(anchor)
    mean = lambda *inputs: torch.improved_triplet_loss(*inputs, -1.0, 0.01, 0.5)  # noqa: E731
    each = zip(anchor, zeros, anchor, strict=True)
    expected = torch.stack([reference(inputs, (-1.0, 0.01, 0.5)) for inputs in each])
    assert expected.isfinite().all()
    torch.testing.assert_close(torch.vmap(mean)(anchor, zeros, anchor), expected)
    torch.testing.assert_close(mean(anchor[0], zeros[0], anchor[0]), expected[0])
    tangent = torch.zeros(4, 4, dtype=dtype)
    tangent[0, 0] = 200
    inputs = (tangent, zeros[0], zeros[0])
    found, wanted = (torch.func.jvp(f, inputs, inputs)[1] for f in (loss, lambda *inputs: reference(inputs)))
    torch.testing.assert_close(found, wanted)


def test_gradients_of_half_types_are_divided_in_float() -> None:
    """The gradient of one of 4,096 losses is smaller than any half, but not that of its inputs."""
    anchor = torch.zeros(2, 4096, 1, dtype=torch.float16)
    positive, negative = anchor + 2.0**14, anchor - 2.0**14
    mean = torch.vmap(lambda x, p, n: torch.improved_triplet_loss(x, p, n, -1.0, 0.01, 0.0, "mean"))
    _, backward = torch.func.vjp(lambda x: mean(x, positive, negative), anchor)
    (gradient,) = backward(torch.full((2,), 2.0**-20, dtype=torch.float16))
    assert torch.equal(gradient, torch.full_like(anchor, -(2.0**-16)))


@pytest.mark.parametrize(
    ("function", "shape", "message"),
    [
        (lambda x: loss(x.to(torch.uint64), x, x), (3, 4), r"anchor to be double, .* or bfloat16, but got UInt64"),
        (lambda x: loss(x, x, x), (), r"expected anchor to be \[..., D\], but got \[\]"),
        (lambda x: with_distances(x, x, x), (), r"expected at least 1 dimensions, but under vmap there are 0"),
        (lambda x: loss(x, x, x[:, :2]), (3, 4), r"negative to have anchor's shape \[3, 4\], but got \[3, 2\]"),
        (lambda x: loss(x, x.double(), x), (3, 4), r"expected positive to have anchor's dtype Float, but got Double"),
        (
            lambda x: backward(x[:, 0], x, x, x, x[0, :2]),
            (3, 4),
            r"expected distances to be \[2, 3, 2\] of dtype Float .* but got \[2, 2\]",
        ),
        (lambda x: loss(x, x, x, reduction="max"), (3, 4), "reduction to be 'none', 'mean' or 'sum', but got 'max'"),
    ],
)
def test_errors_under_vmap(function: Callable[[torch.Tensor], Any], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError if "reduction" in message else RuntimeError, match=message):
        torch.vmap(function)(torch.rand(2, *shape))


def test_memory_is_that_of_the_losses() -> None:
    """This holds also if a row's elements are not adjacent, and under vmap."""
    inputs = triple((64, 4096), torch.float32)
    # A loss and two distances for each row, plus some small tensors.
    most = 64 * 4 * 10
    for other in (lambda x: x, lambda x: x.t().contiguous().t(), lambda x: x[:, ::2], lambda x: x.view(4, 16, 4096)):
        assert allocated(loss, *map(other, inputs)) < most
    batches = [x.view(4, 16, 4096) for x in inputs]
    for reduction in REDUCTIONS:
        batched = torch.vmap(lambda *x, r=reduction: loss(*x, reduction=r))
        # The losses of the rows and intermediate results: a few numbers for each.
        assert allocated(batched, *batches) < 4 * most
        assert allocated(batched, *(x.half() for x in batches)) < 4 * most


def test_memory_of_the_backward_is_that_of_the_gradients() -> None:
    inputs = [x.t().contiguous().t() for x in triple((64, 4096), torch.float32)]
    assert allocated(backward, torch.ones(64), *inputs, torch.ones(64, 2)) < 3 * 64 * 4096 * 4 + 64 * 4 * 10


def check_cpu_capability() -> None:
    """Run by test_cpu_capabilities.py."""
    for shape, dtype in itertools.product([(3, 1), (3, 15), (3, 16), (3, 65), (5, 400)], REAL):
        check_with_gradients(triple(shape, dtype), PARAMETERS, "none")


@every_reduction
def test_functional_and_module(reduction: str) -> None:
    inputs = triple((3, 4), torch.float32)
    expected = reference(inputs, (0.5, 0.25, 2.0), reduction)
    module = torch.nn.ImprovedTripletLoss(0.5, 0.25, 2.0, reduction=reduction)
    for result in (
        F.improved_triplet_loss(*inputs, tau1=0.5, tau2=0.25, beta=2.0, reduction=reduction),
        module(*inputs),
        torch.jit.script(module)(*inputs),
    ):
        assert_close_to_loss(result, expected, inputs, reduction)
    assert repr(module) == f"ImprovedTripletLoss(tau1=0.5, tau2=0.25, beta=2.0, reduction={reduction})"
