"""What the tests need to know of the operators: inputs, references, error inputs, dtypes and derivatives.

PyTorch's families of tests, `make surfaces` and `make fuzz` use it. References get values in double precision.
"""

from __future__ import annotations

import itertools
import math
import unittest
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.testing._internal.common_dtype import (
    all_types_and,
    all_types_and_complex_and,
    floating_and_complex_types_and,
    floating_types_and,
)
from torch.testing._internal.opinfo.core import DecorateInfo

Make = Callable[..., Tensor]

# The check takes no two lists that are one: TorchScript makes one constant of `stride` and `dilation`. The OpInfos of
# PyTorch's own convolutions say the same. The second is the test in PyTorch's test_ops_jit.py.
_LISTS = tuple(
    DecorateInfo(unittest.skip("equal lists are one constant"), "TestJit", name)
    for name in ("test_alias_annotation", "test_variant_consistency_jit")
)

# No fft function of PyTorch 2.6 takes symbolic shapes.
_OLD_FFT = tuple(
    DecorateInfo(unittest.skip("no symbolic shapes in fft"), family, name, active_if=torch.__version__ < "2.7")
    for family, name in (
        ("TestProxyTensorOpInfo", "test_make_fx_symbolic_exhaustive"),
        ("TestEagerFusionOpInfo", "test_aot_autograd_symbolic_exhaustive"),
        ("TestOpcheck", "test_opcheck"),
    )
)

# The kernel returns the losses and distances of half types as float, for the reduction and the backward.
_FLOAT_DISTANCES = DecorateInfo(
    unittest.skip("losses and distances of half types are float"),
    "TestCommon",
    "test_reference",
    dtypes=[torch.half, torch.bfloat16],
)

_HALVES = (torch.half, torch.bfloat16)
_BOTH_DERIVATIVES: dict[str, Any] = {"supports_forward_ad": True, "supports_fwgrad_bwgrad": True}
_FUNCTION_ONLY = {**_BOTH_DERIVATIVES, "supports_out": False}
_FLOATING = {**_FUNCTION_ONLY, "dtypes": floating_types_and(*_HALVES)}

OPINFO: dict[str, dict[str, Any]] = {
    "gdh": {**_FUNCTION_ONLY, "dtypes": all_types_and_complex_and(torch.bool, *_HALVES)},
    "twice_plus": {**_BOTH_DERIVATIVES, "dtypes": all_types_and_complex_and(*_HALVES)},
    "mul_constant": {**_BOTH_DERIVATIVES, "dtypes": all_types_and_complex_and(torch.bool, *_HALVES)},
    "affine": {
        **_FUNCTION_ONLY,
        "dtypes": all_types_and_complex_and(*_HALVES),
        "dtypesIfCUDA": floating_and_complex_types_and(*_HALVES),
    },
    "depthwise_conv2d": {**_FLOATING, "skips": _LISTS},
    "improved_triplet_loss": _FLOATING,
    "improved_triplet_loss_with_distances": {**_FLOATING, "skips": (_FLOAT_DISTANCES,)},
    "roi_pool": _FLOATING,
    "roi_pool_with_indices": _FLOATING,
    "correlate2d": {**_FUNCTION_ONLY, "dtypes": all_types_and_complex_and(*_HALVES)},
    "fft_rfft2_abs": {**_FUNCTION_ONLY, "dtypes": all_types_and(torch.bool), "skips": _OLD_FFT},
}


def gdh(make: Make) -> Iterator[tuple[Any, ...]]:
    for shape in ((), (5,), (2, 3), (2, 0), (2, 3, 4)):
        yield (make(*shape),)
    yield (make(4, 3).mT,)


def gdh_reference(input: Tensor) -> Any:
    return np.ravel(input.numpy(), order="C")


def twice_plus(make: Make) -> Iterator[tuple[Any, ...]]:
    for left, right in (((), ()), ((5,), (5,)), ((2, 1), (1, 3)), ((2, 3), ()), ((), (3,)), ((2, 0), (1,))):
        yield make(*left), make(*right)
    yield make(4, 3).mT, make(3, 4)


def twice_plus_reference(input: Tensor, other: Tensor) -> Any:
    return input.numpy() + input.numpy() + other.numpy()


def mul_constant(make: Make) -> Iterator[tuple[Any, ...]]:
    for shape, constant in (((), 2), ((5,), 0.5), ((2, 3), -3), ((2, 0), 1)):
        yield make(*shape), constant
    if (x := make(3)).is_complex():
        yield x, 1 - 2j


def mul_constant_reference(input: Tensor, constant: complex) -> Any:
    return torch.mul(input, constant)


def affine(make: Make) -> Iterator[tuple[Any, ...]]:
    yield make(4, 3), make(5, 3), make(5)
    yield make(4, 3), make(5, 3)
    yield make(2, 4, 3), make(5, 3), make(5)
    yield make(3), make(5, 3)
    yield make(0, 3), make(5, 3), make(5)


def affine_reference(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    product = np.matmul(input.numpy(), weight.numpy().T)
    return product if bias is None else product + bias.numpy()


def depthwise_conv2d(make: Make) -> Iterator[tuple[Any, ...]]:
    yield make(2, 3, 5, 6), make(3, 1, 3, 3), make(3), (1, 1), (1, 1)
    yield make(1, 2, 7, 6), make(4, 1, 3, 2), None, (2, 1), (0, 1), (1, 2)
    yield make(3, 5, 5), make(3, 1, 2, 2), make(3), (2, 2)
    yield make(0, 2, 4, 4), make(2, 1, 3, 3)
    yield make(2, 0, 4, 4), make(0, 1, 3, 3)
    yield make(2, 3, 5, 6), make(6, 1, 4, 3), make(6), {"padding": "same", "dilation": (1, 2)}
    for bias in (make(4), None):
        image, weight = (x.contiguous(memory_format=torch.channels_last) for x in (make(2, 2, 6, 5), make(4, 1, 3, 2)))
        yield image, weight, bias, (2, 1), (1, 0), (1, 2)
    yield make(1, 8, 4, 5).contiguous(memory_format=torch.channels_last), make(8, 1, 3, 3), make(8), (1, 1), (1, 1)


def depthwise_conv2d_reference(input: Tensor, weight: Tensor, *more: Any, **parameters: Any) -> Any:
    conv2d = torch.nn.functional.conv2d
    if weight.shape[0] == 0:  # which conv2d rejects
        image, taps = input.new_zeros(*input.shape[:-3], 1, *input.shape[-2:]), weight.new_zeros(1, *weight.shape[1:])
        return conv2d(image, taps, None, *more[1:], **parameters).narrow(-3, 0, 0)
    if parameters.get("padding") == "same":  # conv2d warns about even kernels with this
        dilation = parameters.get("dilation", (1, 1))
        rows, columns = (d * (k - 1) for d, k in zip(dilation, weight.shape[-2:], strict=True))
        sides = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
        input, parameters = torch.nn.functional.pad(input, sides), {**parameters, "padding": 0}
    return conv2d(input, weight, *more, **parameters, groups=input.shape[-3])


def improved_triplet_loss(make: Make) -> Iterator[tuple[Any, ...]]:
    yield make(4, 3), make(4, 3), make(4, 3)
    for shape, reduction in itertools.product(((4, 3), (3,), (2, 2, 3), (2, 0)), ("none", "mean", "sum")):
        yield *(make(*shape) for _ in range(3)), -1.0, 0.01, 0.5, {"reduction": reduction}


def improved_triplet_loss_with_distances(make: Make) -> Iterator[tuple[Any, ...]]:
    for shape in ((4, 3), (3,), (2, 2, 3)):
        yield *(make(*shape) for _ in range(3)), -1.0, 0.01, 0.5


def improved_triplet_loss_with_distances_reference(
    input: Tensor, positive: Tensor, negative: Tensor, tau1: float, tau2: float, beta: float
) -> Any:
    a, p, n = input.numpy(), positive.numpy(), negative.numpy()
    d_ap, d_an = np.square(a - p).sum(-1), np.square(a - n).sum(-1)
    losses = np.maximum(d_ap - d_an, tau1) + beta * np.maximum(d_ap, tau2)
    return losses, np.stack([d_ap, d_an], -1)


def improved_triplet_loss_reference(
    input: Tensor,
    positive: Tensor,
    negative: Tensor,
    tau1: float = -1.0,
    tau2: float = 0.01,
    beta: float = 0.002,
    reduction: str = "mean",
) -> Any:
    losses, _ = improved_triplet_loss_with_distances_reference(input, positive, negative, tau1, tau2, beta)
    return {"none": losses, "mean": losses.mean(), "sum": losses.sum()}[reduction]


def roi_pool(make: Make) -> Iterator[tuple[Any, ...]]:
    image = make(2, 3, 6, 7)
    boxes = torch.tensor([[0, 0, 0, 5, 4], [1, 2, 1, 6, 5], [1, 4, 4, 3, 3]], dtype=image.dtype, device=image.device)
    yield image, boxes, 1.0, 2, 3
    yield make(2, 3, 6, 7), boxes, 0.5, 1, 1
    yield make(2, 0, 6, 7), boxes, 1.0, 2, 3


def _bins(first: float, last: float, count: int, length: int, number: type[np.floating[Any]]) -> list[range]:
    """Return where the bins of a box begin and end along an axis, clipped to the image."""
    start, end = (int(math.copysign(math.floor(abs(x) + 0.5), x)) for x in (first, last))
    size = number(max(end - start + 1, 1)) / number(count)
    edges = [(start + math.floor(number(i) * size), start + math.ceil(number(i + 1) * size)) for i in range(count)]
    return [range(min(max(low, 0), length), min(max(high, 0), length)) for low, high in edges]


def roi_pool_with_indices_reference(
    input: Tensor,
    boxes: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    number: type[np.floating[Any]] = np.float64,
) -> Any:
    """Return the maximum of each bin and its index: the first NaN, or the first of the largest.

    Args:
        number: the precision of coordinates; the operator uses double only for double.
    """
    output = input.new_zeros(len(boxes), input.shape[1], pooled_height, pooled_width)
    indices = torch.full(output.shape, -1, dtype=torch.int32)
    for k, (image, *corners) in enumerate(boxes.double().tolist()):
        x1, y1, x2, y2 = (number(corner) * number(spatial_scale) for corner in corners)
        rows = _bins(y1, y2, pooled_height, input.shape[2], number)
        columns = _bins(x1, x2, pooled_width, input.shape[3], number)
        for (i, of_row), (j, of_column) in itertools.product(enumerate(rows), enumerate(columns)):
            if of_row and of_column:
                part = input[int(image), :, of_row.start : of_row.stop, of_column.start : of_column.stop].flatten(1)
                at = torch.from_numpy(np.argmax(part.double().numpy(), axis=1))
                output[k, :, i, j] = part.gather(1, at[:, None])[:, 0]
                y, x = of_row.start + at // len(of_column), of_column.start + at % len(of_column)
                indices[k, :, i, j] = y * input.shape[3] + x
    return output, indices


def roi_pool_reference(*arguments: Any, **parameters: Any) -> Any:
    return roi_pool_with_indices_reference(*arguments, **parameters)[0]


roi_pool_with_indices = roi_pool


def correlate2d(make: Make) -> Iterator[tuple[Any, ...]]:
    for mode in ("valid", "same", "full"):
        yield make(2, 5, 6), make(3, 2), make(1), {"mode": mode}
        yield make(2, 2), make(3, 4), {"mode": mode}
    yield make(4, 4), make(4, 4), make()
    image = make(2, 5, 6)
    if image.is_floating_point() or image.is_complex():
        yield image, make(3, 2), {"method": "fft"}
    yield image, make(3, 2), {"mode": "full", "fillvalue": 2}
    for boundary in ("wrap", "symm"):
        yield make(2, 3), make(4, 5), {"mode": "same", "boundary": boundary}
        yield make(2, 2, 3), make(3, 8), {"mode": "full", "boundary": boundary}
    yield make(2, 1, 5, 6), make(3, 3, 2), make(3)
    yield make(3, 3, 4), make(2, 1, 2, 2), make(2, 1)


def correlate2d_reference(
    input: Tensor,
    kernel: Tensor,
    bias: Tensor | None = None,
    *,
    mode: str = "valid",
    boundary: str = "fill",
    fillvalue: complex = 0,
    method: str = "auto",
) -> Any:
    import scipy.signal

    def correlate(image: Any, taps: Any) -> Any:
        # In mode "valid" with a kernel larger than the image, SciPy's correlate2d conjugates the image instead.
        if mode == "valid":
            return scipy.signal.correlate(image, taps, mode, "direct")
        return scipy.signal.correlate2d(image, taps, mode, boundary, fillvalue)

    leading = torch.broadcast_shapes(input.shape[:-2], kernel.shape[:-2])
    images = input.expand(*leading, *input.shape[-2:]).reshape(-1, *input.shape[-2:]).numpy()
    kernels = kernel.expand(*leading, *kernel.shape[-2:]).reshape(-1, *kernel.shape[-2:]).numpy()
    results = np.stack([correlate(image, taps) for image, taps in zip(images, kernels, strict=True)])
    results = results.reshape(*leading, *results.shape[-2:])
    return results if bias is None else results + bias.numpy()[..., None, None]


def fft_rfft2_abs(make: Make) -> Iterator[tuple[Any, ...]]:
    yield (make(4, 5),)
    yield (make(2, 3, 4),)
    yield make(2, 3, 4), (3, -1), (2, 0), "ortho"


def fft_rfft2_abs_reference(
    input: Tensor, s: tuple[int, int] | None = None, dim: tuple[int, int] = (-2, -1), norm: str | None = None
) -> Any:
    sizes = s and [input.shape[axis] if size == -1 else size for size, axis in zip(s, dim, strict=True)]
    return np.abs(np.fft.rfft2(input.double().numpy(), sizes, dim, norm))


_FLOAT8 = torch.float8_e4m3fn
_TRIPLET = "anchor positive negative"
_POOLED = {"spatial_scale": 1.0, "pooled_height": 2, "pooled_width": 2}
_RIGHT: dict[str, Callable[[Make], dict[str, Any]]] = {
    "gdh": lambda t: {"input": t(2)},
    "twice_plus": lambda t: {"input": t(2), "other": t(2)},
    "mul_constant": lambda t: {"input": t(2), "constant": 2},
    "affine": lambda t: {"input": t(2, 4), "weight": t(5, 4), "bias": t(5)},
    "depthwise_conv2d": lambda t: {"input": t(1, 4, 8, 8), "weight": t(4, 1, 3, 3)},
    "improved_triplet_loss": lambda t: {
        **dict.fromkeys(_TRIPLET.split(), t(3, 4)),
        "tau1": -1.0,
        "tau2": 0.01,
        "beta": 0.002,
    },
    "roi_pool": lambda t: {"input": t(2, 3, 4, 5), "boxes": t(8, 5) * 0, **_POOLED},
    "correlate2d": lambda t: {"input": t(4, 5), "kernel": t(2, 3)},
    "fft_rfft2_abs": lambda t: {"input": t(2, 3, 4)},
}
_MOST = f"at most {2**31 - 1}, got"
_KERNEL = r"expected kernel to be \[..., kH, kW\] with a row and a column at least"
_FLOATS = "expected floating-point or complex tensors for method='fft'"
_BIAS = r"expected bias to be one number, of shape \[\] or \[1\], or of the shape of kernel"

# Wrong calls: the operator, the arguments that are not as in _RIGHT, values of each wrong call, the message, and the
# type of the error if it is no RuntimeError. The operator's name is before "expected". `t` is `make`.
_WRONG: tuple[tuple[Any, ...], ...] = (
    ("gdh", "input", [1], r"gdh\(\): argument 'input' \(position 1\) must be Tensor, not int", TypeError),
    ("twice_plus", "input other", lambda t: [(t(2) > 0, t(2) > 0)], "expected .* a number type, but both are bool"),
    ("twice_plus", "other", lambda t: [t(3)], r"The size of tensor a \(2\) must match the size of tensor b \(3\)"),
    ("twice_plus", "out", lambda t: [t(2).long()], "result type Float can't be cast to the desired output type Long"),
    ("twice_plus", "other", ["x"], r"twice_plus\(\): argument 'other' .* must be Tensor, not str", TypeError),
    ("mul_constant", "out", lambda t: [t(2).long()], "result type Float can't be cast to the desired output type Long"),
    ("mul_constant", "input out", lambda t: [((x := t(3))[:2], x[1:])], "some elements of the input tensor and the wr"),
    ("mul_constant", "constant", ["x"], r"argument 'constant' .* must be Number, not str", TypeError),
    ("affine", "input", lambda t: [t()], "expected input to have at least one dimension"),
    ("affine", "weight", lambda t: [t(4)], r"expected weight to be 2-D, .* but got \[4\]"),
    ("affine", "weight", lambda t: [t(5, 3), t(5, 5)], r"expected the .* weight's [35] in_features, .* input \[2, 4\]"),
    ("affine", "bias", lambda t: [t(4), t(5, 1), t()], "expected bias to be 1-D with weight's 5 out_features"),
    ("affine", "weight", lambda t: [t(5, 4).double()], "expected weight to have input's dtype Float, but got Double"),
    ("affine", "bias", lambda t: [t(5).short()], "expected bias to have input's dtype Float, but got Short"),
    ("depthwise_conv2d", "input", lambda t: [t(3, 4)], r"expected input to be 4-D .* 3-D \[C, H, W\], got \[3, 4\]"),
    ("depthwise_conv2d", "weight", lambda t: [t(4, 3, 3)], r"expected weight to be 4-D \[C \* .*, got \[4, 3, 3\]"),
    ("depthwise_conv2d", "weight", lambda t: [t(4, 2, 3, 3)], r"expected weight to be 4-D .* got \[4, 2, 3, 3\]"),
    ("depthwise_conv2d", "weight", lambda t: [t(4, 1, 0, 3)], r"expected .* from 1 to 2\^31 - 1, got \[4, 1, 0, 3\]"),
    ("depthwise_conv2d", "weight", lambda t: [t(6, 1, 3, 3)], r"expected .* input's 4 channels, got \[6, 1, 3, 3\]"),
    ("depthwise_conv2d", "input", lambda t: [t(1, 0, 8, 8)], "expected .* weight to be a multiple of input's 0"),
    ("depthwise_conv2d", "bias", lambda t: [t(3), t(4, 1)], r"expected bias to be 1-D with 4 elements, got \["),
    ("depthwise_conv2d", "input", lambda t: [t(1, 4, 8, 8).int()], "expected input to be double, .* but got Int"),
    ("depthwise_conv2d", "input", lambda t: [t(1, 4, 8, 8) + 0j], "expected input to be .* but got ComplexFloat"),
    ("depthwise_conv2d", "weight", lambda t: [t(4, 1, 3, 3).double()], "expected weight .* Float, but got Double"),
    ("depthwise_conv2d", "bias", lambda t: [t(4).half()], "expected bias to have input's dtype Float, but got Half"),
    ("depthwise_conv2d", "stride", [(1, 1, 1)], r"expected stride to be one or two integers, got \[1, 1, 1\]"),
    ("depthwise_conv2d", "padding", [(1, 1, 1)], r"expected padding to be one or two integers, got \[1, 1, 1\]"),
    ("depthwise_conv2d", "stride", [0, (1, -2)], r"expected stride to be at least 1, got \[[01], (0|-2)\]"),
    ("depthwise_conv2d", "padding", [-1], r"expected padding to be at least 0, got \[-1, -1\]"),
    ("depthwise_conv2d", "padding dilation", [(0, 0), ("same", 0)], r"expected dilation .* least 1, got \[0, 0\]"),
    ("depthwise_conv2d", "padding dilation", [(0, 2**31), ("same", 2**31)], f"expected dilation to be {_MOST}"),
    ("depthwise_conv2d", "padding", [2**31], f"expected padding to be {_MOST}"),
    ("depthwise_conv2d", "padding", ["full"], "expected padding to be 'same' or 'valid', got 'full'"),
    ("depthwise_conv2d", "stride padding", [((1, 2), "same")], r"expected .* padding='same', got \[1, 2\]"),
    ("depthwise_conv2d", "input padding", lambda t: [(t(3, 4), "same")], "expected input to be 4-D"),
    ("depthwise_conv2d", "weight padding", lambda t: [(t(4, 3, 3), "same")], "expected weight to be 4-D"),
    ("depthwise_conv2d", "weight", lambda t: [t(4, 1, 3, 9)], "expected .* padded input, got a width of 9 .* of 8"),
    ("depthwise_conv2d", "dilation", [(4, 1)], r"expected .* padded input, got a height of 9 \(dilation included\)"),
    ("improved_triplet_loss", _TRIPLET, lambda t: [(t(),) * 3], r"expected anchor to be \[..., D\], but got \[\]"),
    ("improved_triplet_loss", "positive", lambda t: [t(3, 1)], r"expected positive .*\[3, 4\], but got \[3, 1\]"),
    ("improved_triplet_loss", "negative", lambda t: [t(3, 4).double()], "expected negative .* Float, but got Double"),
    ("improved_triplet_loss", _TRIPLET, lambda t: [(t(3, 4).int(),) * 3], "expected anchor .* bfloat16, but got Int"),
    ("improved_triplet_loss", _TRIPLET, lambda t: [(t(3, 4).to(torch.uint64),) * 3], "expected anchor .* got UInt64"),
    ("improved_triplet_loss", _TRIPLET, lambda t: [(t(3, 4).to(_FLOAT8),) * 3], "expected .* but got Float8_e4m3fn"),
    ("roi_pool", "input", lambda t: [t(3, 4, 5)], r"expected input to be \[N, C, H, W\], but got \[3, 4, 5\]"),
    ("roi_pool", "input", lambda t: [t(2, 3, 0, 5)], r"expected input to have a row and .* got \[2, 3, 0, 5\]"),
    ("roi_pool", "input", lambda t: [t(2, 3, 4, 5).long()], "expected input to be double, .* bfloat16, but got Long"),
    ("roi_pool", "boxes", lambda t: [t(8, 4), t(5)], r"expected boxes to be 2-D with 5 columns, .* got \[(8, 4|5)\]"),
    ("roi_pool", "boxes", lambda t: [t(8, 5).int()], "expected boxes to be of a floating-point dtype, but got Int"),
    ("roi_pool", "spatial_scale", [0.0, -1.0, math.nan, math.inf], "expected spatial_scale to be positive and finite"),
    ("roi_pool", "pooled_height", [0], "expected pooled_height and pooled_width to be positive, but got 0 and 2"),
    ("correlate2d", "input", lambda t: [t(5)], r"expected input to be \[..., H, W\], but got \[5\]"),
    ("correlate2d", "kernel", lambda t: [t(3), t(0, 3), t(2, 0)], _KERNEL),
    ("correlate2d", "mode", ["wrap"], "expected mode to be 'full', 'same' or 'valid', but got 'wrap'"),
    ("correlate2d", "method", ["quick"], "expected method to be 'auto', 'direct' or 'fft', but got 'quick'"),
    ("correlate2d", "input kernel method", lambda t: [(t(4, 5).int(), t(2, 3).int(), "fft")], _FLOATS),
    ("correlate2d", "input", lambda t: [t(0, 0)], r"expected .* and none empty, for mode='valid', but got \[0, 0\]"),
    ("correlate2d", "bias", lambda t: [t(2), t(1, 1)], _BIAS),
    ("correlate2d", "kernel bias", lambda t: [(t(3, 2, 3), t(2))], _BIAS),
    ("correlate2d", "boundary", ["same"], "expected boundary to be 'fill', 'wrap' or 'symm', but got 'same'"),
    ("correlate2d", "fillvalue", [1j], r"expected fillvalue to be real for .* dtype Float, but got \(0,1\)"),
    ("correlate2d", "input mode boundary", lambda t: [(t(4, 0), "full", "symm")], "expected input .* boundary='symm'"),
    ("correlate2d", "input kernel", lambda t: [(t(2, 4, 5), t(3, 2, 3))], "must match the size|broadcast"),
    ("correlate2d", "input kernel", lambda t: [(t(4, 5) > 0, t(2, 3) > 0)], "expected .* but both are bool"),
    ("fft_rfft2_abs", "input", lambda t: [t(3)], r"expected input to have at least two dimensions, .* \[3\]"),
    ("fft_rfft2_abs", "input", lambda t: [t(3, 3) + 0j], "expected input to be of a real dtype, but got Complex"),
    ("fft_rfft2_abs", "input", lambda t: [t(3, 0)], r"Invalid number of data points \(0\) specified"),
    ("fft_rfft2_abs", "dim", [(0, 1, 2)], r"expected dim to be two dimensions, but got \[0, 1, 2\]"),
    ("fft_rfft2_abs", "s", [(4, 4, 4)], r"expected s to be two sizes, but got \[4, 4, 4\]"),
    ("fft_rfft2_abs", "s", [(0, 4)], r"expected s to be -1 or positive, but got \[0, 4\]"),
    ("fft_rfft2_abs", "norm", ["unit"], "expected norm to be 'backward', .* but got 'unit'"),
)
# A CUDA kernel detects a wrong box by an assertion, which ends the process.
_OF_IMAGE = "expected the first column of boxes to be the index of one of input's 2 images"
_FINITE = "expected boxes to be finite, but there is .* in row 0"
_INDICES = (-1.0, 2.0, 0.5, math.nan, math.inf, 1e30)
_ON_CPU: tuple[tuple[Any, ...], ...] = (
    ("roi_pool", "boxes", lambda t: [torch.tensor([[i, 0, 0, 1, 1]]) for i in _INDICES], _OF_IMAGE),
    ("roi_pool", "input boxes pooled_height", lambda t: [(t(2, 0, 4, 5), t(8, 5) * 0 + 2, 2**40)], _OF_IMAGE),
    ("roi_pool", "boxes", lambda t: [torch.tensor([[0, 0, x, 1, 1]]) for x in (math.nan, math.inf)], _FINITE),
)


def _errors(operator: str, make: Make) -> Iterator[tuple[Any, ...]]:
    """Yield the wrong calls of an operator, with their messages."""
    for name, arguments, values, message, *kind in (*_WRONG, *(_ON_CPU if make(0).is_cpu else ())):
        for each in (values(make) if callable(values) else values) if name == operator else ():
            names, right = arguments.split(), _RIGHT[name](make)
            given = {**right, **dict(zip(names, each if len(names) > 1 else [each], strict=True))}
            start = rf"{name.removeprefix('fft_')}\(\): " if message.startswith("expected") else ""
            yield (*(given.pop(argument) for argument in right), given), start + message, *kind


globals().update({f"{name}_errors": partial(_errors, name) for name in _RIGHT})
improved_triplet_loss_with_distances_errors = partial(_errors, "improved_triplet_loss")
roi_pool_with_indices_errors = partial(_errors, "roi_pool")
