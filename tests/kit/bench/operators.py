"""The cases of the shipped operators, each compared with what a user would call instead."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import partial

import scipy.signal
import torch
from torch import Tensor
from torch.nn import functional as F

from .case import Case, Function, Side, both_steps, compared

_PARAMETERS = (-1.0, 0.01, 0.002)


def cases() -> Iterator[Case]:
    """Yield the cases of the operators that have no module of their own here."""
    for of_operator in (_affine, _correlate2d, _triplet_loss, _mul_constant, _rfft2_abs, _twice_plus):
        yield from of_operator()


def _random(
    step: str, ours: Function, theirs: Function, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype = torch.float
) -> tuple[Side, Side]:
    """Compare functions of random tensors, which all require gradients."""
    return compared(step, ours, theirs, *(torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _affine() -> Iterator[Case]:
    """From the cost of a call, with its checks, to that of a matrix product."""
    for shape, features in (((1, 4), 4), ((64, 256), 256), ((512, 1024), 1024)):
        name, shapes = f"{list(shape)} to {features}", (shape, (features, shape[1]), (features,))
        make = partial(_random, ours=torch.affine, theirs=F.linear, shapes=shapes)
        yield from both_steps("affine", "F.linear", name, 0.98, math.prod(shape), make)


def _correlate2d() -> Iterator[Case]:
    """From a 3 x 3 filter of an image to a kernel as large as the image."""

    def by_conv2d(x: Tensor, kernel: Tensor) -> Tensor:
        return F.conv2d(x.unsqueeze(1), kernel[None, None]).squeeze(1)

    def by_scipy(x: Tensor, kernel: Tensor) -> object:
        return [scipy.signal.correlate2d(image, kernel.numpy(), "valid") for image in x.numpy()]

    def make(step: str, peer: Function, batch: int, size: int, kernel: int) -> tuple[Side, Side]:
        x, weight = torch.randn(batch, size, size), torch.randn(kernel, kernel, requires_grad=True)
        return compared(step, torch.correlate2d, peer, x, weight)

    for batch, size, kernel in (
        *((1, 64, 3), (1, 512, 3), (16, 128, 5), (1, 256, 11), (4, 128, 21), (1, 256, 41), (1, 128, 128)),
    ):
        name, elements = f"[{batch}, {size}, {size}] by {kernel} x {kernel}", batch * size**2
        each = partial(make, batch=batch, size=size, kernel=kernel)
        yield from both_steps("correlate2d", "F.conv2d", name, 1, elements, partial(each, peer=by_conv2d))
        yield Case("correlate2d", "SciPy", name, "forward", 1, elements, partial(each, "forward", by_scipy))
    for (batch, size, kernels), dtype in itertools.product(
        ((1, 512, 4), (8, 128, 12), (32, 128, 16)), (torch.float, torch.bfloat16, torch.double)
    ):
        name = f"[{batch}, {size}, {size}] by {kernels} x 3 x 3 {_name(dtype)}"
        shapes, theirs = ((batch, 1, size, size), (kernels, 3, 3)), lambda x, kernel: F.conv2d(x, kernel[:, None])
        several = partial(_random, ours=torch.correlate2d, theirs=theirs, shapes=shapes, dtype=dtype)
        yield from both_steps("correlate2d", "F.conv2d", name, 0.95, batch * size**2, several, "several kernels")


def _triplet_loss() -> Iterator[Case]:
    """A small batch, a usual one and a large one; and short rows."""

    def ours(*given: Tensor) -> Tensor:
        return torch.improved_triplet_loss(*given, *_PARAMETERS)

    def composite(anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        tau1, tau2, beta = _PARAMETERS
        d_ap = (anchor - positive).square().sum(-1)
        d_an = (anchor - negative).square().sum(-1)
        return ((d_ap - d_an).clamp(min=tau1) + beta * d_ap.clamp(min=tau2)).mean()

    usual = itertools.product(((32, 128), (256, 512), (4096, 400)), (torch.float, torch.bfloat16))
    lengths, dtypes = (2, 3, 4, 12, 16, 20, 31), (torch.float, torch.double, torch.bfloat16)
    short = itertools.product(((16384, length) for length in lengths), dtypes)
    for kinds, aim, group in ((usual, 3, ""), (short, 0.95, "short rows")):
        for shape, dtype in kinds:
            make = partial(_random, ours=ours, theirs=composite, shapes=[shape] * 3, dtype=dtype)
            name, elements = f"{list(shape)} {_name(dtype)}", math.prod(shape)
            yield from both_steps("improved_triplet_loss", "plain operations", name, aim, elements, make, group)


def _mul_constant() -> Iterator[Case]:
    """Sizes from one element to 16 Mi, and dtypes that compute in another."""

    def out(exponent: int, dtype: torch.dtype, step: int = 1) -> tuple[Side, Side]:
        x, z = (torch.ones(step * 2**exponent, dtype=dtype)[::step] for _ in "xz")
        return lambda: torch.mul_constant(x, 3, out=z), lambda: torch.mul(x, 3, out=z)

    sizes = [(exponent, torch.float) for exponent in (0, 4, 8, 12, 16, 20, 24)]
    sizes += [(16, dtype) for dtype in (torch.double, torch.half, torch.bfloat16, torch.int32, torch.complex64)]
    for exponent, dtype in sizes:
        name = f"2^{exponent} {_name(dtype)}"
        yield Case("mul_constant", "torch.mul", name, "forward", 0.98, 2**exponent, partial(out, exponent, dtype))
    for exponent, dtype in itertools.product((16, 22), (torch.int64, torch.complex64, torch.int8)):
        name = f"2^{exponent} {_name(dtype)}"
        if (exponent, dtype) not in sizes:
            make_it = partial(out, exponent, dtype)
            yield Case("mul_constant", "torch.mul", name, "forward", 0.95, 2**exponent, make_it)
    strided = partial(out, 16, torch.half, 2)
    yield Case("mul_constant", "torch.mul", "2^16 float16, every second", "forward", 0.95, 2**16, strided)
    backward = partial(_random, "backward", lambda x: torch.mul_constant(x, 3), lambda x: x * 3, [(2**16,)])
    yield Case("mul_constant", "torch.mul", "2^16 float", "backward", 0.98, 2**16, backward)


def _rfft2_abs() -> Iterator[Case]:
    """Even and odd sizes, one image and many."""
    for shape in ((64, 64), (16, 128, 128), (512, 512), (3, 255, 257)):
        for step, aim in (("forward", 0.98), ("backward", 1.5)):
            make = partial(_random, step, torch.fft.rfft2_abs, lambda x: torch.fft.rfft2(x).abs(), [shape])
            yield Case("rfft2_abs", "rfft2(x).abs()", f"{list(shape)} float", step, aim, math.prod(shape), make)


def _twice_plus() -> Iterator[Case]:
    """Calls on one element, then out= for sizes up to 64 Mi, where memory bandwidth is the limit."""
    aten, peer = torch.ops.aten, "torch.add(alpha=2)"

    def make(form: str, size: int, dtype: torch.dtype = torch.float, step: int = 1) -> tuple[Side, Side]:
        x, y, z = (torch.ones(step * size, dtype=dtype)[::step] for _ in "xyz")
        return {
            "torch.": (lambda: torch.twice_plus(x, y), lambda: torch.add(y, x, alpha=2)),
            "method": (lambda: x.twice_plus(y), lambda: y.add(x, alpha=2)),
            "out=": (lambda: torch.twice_plus(x, y, out=z), lambda: torch.add(y, x, alpha=2, out=z)),
            "torch.ops": (lambda: aten.twice_plus(x, y), lambda: aten.add(y, x, alpha=2)),
        }[form]

    for form in ("torch.", "method", "out=", "torch.ops"):
        yield Case("twice_plus", peer, f"1 element, {form}", "forward", 0.98, 1, partial(make, form, 1))
    for exponent in range(4, 27, 2):
        make_it = partial(make, "out=", 2**exponent)
        yield Case("twice_plus", peer, f"2^{exponent} elements", "forward", 0.98, 2**exponent, make_it)
    for dtype in (torch.half, torch.bfloat16, torch.float):
        strided = partial(make, "out=", 2**16, dtype, 2)
        yield Case("twice_plus", peer, f"2^16 elements, every second {_name(dtype)}", "forward", 0.95, 2**16, strided)
    for exponent in (10, 20):
        add = lambda x, y: torch.add(y, x, alpha=2)  # noqa: E731
        make_it = partial(_random, "backward", torch.twice_plus, add, [(2**exponent,)] * 2)
        yield Case("twice_plus", peer, f"2^{exponent} elements", "backward", 0.98, 2**exponent, make_it)
