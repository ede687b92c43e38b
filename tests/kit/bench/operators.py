"""The cases of the shipped operators, each compared with what a user would call instead."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial

import scipy.signal
import torch
from torch import Tensor
from torch.nn import functional as F

from .case import Case, Side, compared

_PARAMETERS = (-1.0, 0.01, 0.002)


def cases() -> Iterator[Case]:
    """Yield the cases of the operators that have no module of their own here."""
    for of_operator in (_affine, _correlate2d, _triplet_loss, _mul_constant, _rfft2_abs, _twice_plus):
        yield from of_operator()


def _randn(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float) -> Iterator[Tensor]:
    return (torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _affine() -> Iterator[Case]:
    """From the cost of a call, with its checks, to that of a matrix product."""

    def make(step: str, shape: tuple[int, int], features: int) -> tuple[Side, Side]:
        return compared(step, torch.affine, F.linear, *_randn(shape, (features, shape[1]), (features,)))

    for shape, features in (((1, 4), 4), ((64, 256), 256), ((512, 1024), 1024)):
        for step in ("forward", "backward"):
            name = f"{list(shape)} to {features}"
            yield Case("affine", "F.linear", name, step, 0.98, math.prod(shape), partial(make, step, shape, features))


def _correlate2d() -> Iterator[Case]:
    """From a 3 x 3 filter of an image to a kernel as large as the image."""

    def by_conv2d(x: Tensor, kernel: Tensor) -> Tensor:
        return F.conv2d(x.unsqueeze(1), kernel[None, None]).squeeze(1)

    def several(step: str, batch: int, size: int, kernels: int, dtype: torch.dtype) -> tuple[Side, Side]:
        x, weight = _randn((batch, 1, size, size), (kernels, 3, 3), dtype=dtype)
        return compared(step, torch.correlate2d, lambda x, kernel: F.conv2d(x, kernel[:, None]), x, weight)

    def by_scipy(x: Tensor, kernel: Tensor) -> object:
        return [scipy.signal.correlate2d(image, kernel.numpy(), "valid") for image in x.numpy()]

    def make(step: str, peer: str, batch: int, size: int, kernel: int) -> tuple[Side, Side]:
        x, (weight,) = torch.randn(batch, size, size), _randn((kernel, kernel))
        return compared(step, torch.correlate2d, by_scipy if peer == "SciPy" else by_conv2d, x, weight)

    for sizes in ((1, 64, 3), (1, 512, 3), (16, 128, 5), (1, 256, 11), (4, 128, 21), (1, 256, 41), (1, 128, 128)):
        batch, size, kernel = sizes
        for step, peer in (("forward", "F.conv2d"), ("forward", "SciPy"), ("backward", "F.conv2d")):
            name = f"[{batch}, {size}, {size}] by {kernel} x {kernel}"
            make_it = partial(make, step, peer, *sizes)
            yield Case("correlate2d", peer, name, step, 1, batch * size**2, make_it)
    for of_images, dtype in itertools.product(
        ((1, 512, 4), (8, 128, 12), (32, 128, 16)), (torch.float, torch.bfloat16, torch.double)
    ):
        batch, size, kernels = of_images
        for step in ("forward", "backward"):
            name = f"[{batch}, {size}, {size}] by {kernels} x 3 x 3 {_name(dtype)}"
            make_it = partial(several, step, *of_images, dtype)
            yield Case("correlate2d", "F.conv2d", name, step, 0.95, batch * size**2, make_it, "several kernels")


def _triplet_loss() -> Iterator[Case]:
    """A small batch, a usual one and a large one."""

    def composite(anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        tau1, tau2, beta = _PARAMETERS
        d_ap = (anchor - positive).square().sum(-1)
        d_an = (anchor - negative).square().sum(-1)
        return ((d_ap - d_an).clamp(min=tau1) + beta * d_ap.clamp(min=tau2)).mean()

    def make(step: str, shape: tuple[int, int], dtype: torch.dtype) -> tuple[Side, Side]:
        ours = lambda *given: torch.improved_triplet_loss(*given, *_PARAMETERS)  # noqa: E731
        return compared(step, ours, composite, *_randn(*[shape] * 3, dtype=dtype))

    for shape in ((32, 128), (256, 512), (4096, 400)):
        for dtype in (torch.float, torch.bfloat16):
            for step in ("forward", "backward"):
                make_it = partial(make, step, shape, dtype)
                name = f"{list(shape)} {_name(dtype)}"
                yield Case("improved_triplet_loss", "plain operations", name, step, 3, math.prod(shape), make_it)
    for length, dtype in itertools.product((2, 3, 4, 12, 16, 20, 31), (torch.float, torch.double, torch.bfloat16)):
        for step in ("forward", "backward"):
            make_it = partial(make, step, (16384, length), dtype)
            name, peer = f"[16384, {length}] {_name(dtype)}", "plain operations"
            yield Case("improved_triplet_loss", peer, name, step, 0.95, 16384 * length, make_it, "short rows")


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
    backward = partial(compared, "backward", lambda x: torch.mul_constant(x, 3), lambda x: x * 3, *_randn((2**16,)))
    yield Case("mul_constant", "torch.mul", "2^16 float", "backward", 0.98, 2**16, backward)


def _rfft2_abs() -> Iterator[Case]:
    """Even and odd sizes, one image and many."""

    def make(step: str, shape: tuple[int, ...]) -> tuple[Side, Side]:
        return compared(step, torch.fft.rfft2_abs, lambda x: torch.fft.rfft2(x).abs(), *_randn(shape))

    for shape in ((64, 64), (16, 128, 128), (512, 512), (3, 255, 257)):
        for step, aim in (("forward", 0.98), ("backward", 1.5)):
            name, elements = f"{list(shape)} float", math.prod(shape)
            yield Case("rfft2_abs", "rfft2(x).abs()", name, step, aim, elements, partial(make, step, shape))


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

    def differentiated(size: int) -> tuple[Side, Side]:
        return compared("backward", torch.twice_plus, lambda x, y: torch.add(y, x, alpha=2), *_randn((size,), (size,)))

    for form in ("torch.", "method", "out=", "torch.ops"):
        yield Case("twice_plus", peer, f"1 element, {form}", "forward", 0.98, 1, partial(make, form, 1))
    for exponent in range(4, 27, 2):
        make_it = partial(make, "out=", 2**exponent)
        yield Case("twice_plus", peer, f"2^{exponent} elements", "forward", 0.98, 2**exponent, make_it)
    for dtype in (torch.half, torch.bfloat16, torch.float):
        strided = partial(make, "out=", 2**16, dtype, 2)
        yield Case("twice_plus", peer, f"2^16 elements, every second {_name(dtype)}", "forward", 0.95, 2**16, strided)
    for exponent in (10, 20):
        make_it = partial(differentiated, 2**exponent)
        yield Case("twice_plus", peer, f"2^{exponent} elements", "backward", 0.98, 2**exponent, make_it)
