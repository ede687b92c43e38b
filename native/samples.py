"""What the tests need to know of the operators: inputs, references, error inputs, dtypes and derivatives.

PyTorch's families of tests, `make surfaces` and `make fuzz` use it. References get values in double precision.
"""

from __future__ import annotations

import itertools
import math
import unittest
from collections.abc import Callable, Iterator
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
Errors = Iterator[tuple[Any, ...]]

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


def gdh_errors(make: Make) -> Errors:
    yield (1,), r"gdh\(\): argument 'input' \(position 1\) must be Tensor, not int", TypeError


def twice_plus(make: Make) -> Iterator[tuple[Any, ...]]:
    for left, right in (((), ()), ((5,), (5,)), ((2, 1), (1, 3)), ((2, 3), ()), ((), (3,)), ((2, 0), (1,))):
        yield make(*left), make(*right)
    yield make(4, 3).mT, make(3, 4)


def twice_plus_reference(input: Tensor, other: Tensor) -> Any:
    return input.numpy() + input.numpy() + other.numpy()


def twice_plus_errors(make: Make) -> Errors:
    x = make(2)
    yield (x > 0, x > 0), r"twice_plus\(\): expected self or other to be a number type, but both are bool"
    yield (x, make(3)), r"The size of tensor a \(2\) must match the size of tensor b \(3\)"
    yield (x, x, {"out": make(2, dtype=torch.long)}), "result type Float can't be cast to the desired output type Long"
    yield (x, "x"), r"twice_plus\(\): argument 'other' \(position 2\) must be Tensor, not str", TypeError


def mul_constant(make: Make) -> Iterator[tuple[Any, ...]]:
    for shape, constant in (((), 2), ((5,), 0.5), ((2, 3), -3), ((2, 0), 1)):
        yield make(*shape), constant
    if (x := make(3)).is_complex():
        yield x, 1 - 2j


def mul_constant_reference(input: Tensor, constant: complex) -> Any:
    return torch.mul(input, constant)


def mul_constant_errors(make: Make) -> Errors:
    x, line = make(2), make(3)
    whole = {"out": make(2, dtype=torch.long)}
    yield (x, 2, whole), "result type Float can't be cast to the desired output type Long"
    yield (line[:2], 2, {"out": line[1:]}), "some elements of the input tensor and the written-to tensor refer"
    yield (x, "x"), r"argument 'constant' \(position 2\) must be Number, not str", TypeError


def affine(make: Make) -> Iterator[tuple[Any, ...]]:
    yield make(4, 3), make(5, 3), make(5)
    yield make(4, 3), make(5, 3)
    yield make(2, 4, 3), make(5, 3), make(5)
    yield make(3), make(5, 3)
    yield make(0, 3), make(5, 3), make(5)


def affine_reference(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    product = np.matmul(input.numpy(), weight.numpy().T)
    return product if bias is None else product + bias.numpy()


def affine_errors(make: Make) -> Errors:
    x, weight, bias = make(2, 4), make(5, 4), make(5)
    yield (make(), weight, bias), r"affine\(\): expected input to have at least one dimension"
    yield (x, make(4), bias), r"affine\(\): expected weight to be 2-D, .* but got \[4\]"
    yield (x, make(5, 3), bias), r"last dimension of input to be weight's 3 in_features, .* input \[2, 4\]"
    for wrong in (make(4), make(5, 1), make()):
        yield (x, weight, wrong), r"affine\(\): expected bias to be 1-D with weight's 5 out_features"
    yield (x, weight.double(), bias), "expected weight to have input's dtype Float, but got Double"
    yield (x, weight, bias.short()), "expected bias to have input's dtype Float, but got Short"


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


def depthwise_conv2d_errors(make: Make) -> Errors:
    right = {"input": make(1, 4, 8, 8), "weight": make(4, 1, 3, 3)}

    def but(message: str, **wrong: Any) -> tuple[Any, ...]:
        given = {**right, **wrong}
        return (given.pop("input"), given), r"depthwise_conv2d\(\): .*" + message

    yield but(r"expected input to be 4-D \[N, C, H, W\] or 3-D \[C, H, W\], got \[3, 4\]", input=make(3, 4))
    yield but(r"expected weight to be 4-D \[C \* multiplier, 1, kH, kW\] .* got \[4, 3, 3\]", weight=make(4, 3, 3))
    yield but(r"expected weight to be 4-D .* got \[4, 2, 3, 3\]", weight=make(4, 2, 3, 3))
    for taps in (0, 2**40):
        of_taps = make(4, 1, 1, 3)[:, :, :taps].expand(4, 1, taps, 3)
        yield but(rf"weight .* with kH and kW from 1 to 2\^31 - 1, got \[4, 1, {taps}, 3\]", weight=of_taps)
    yield but(r"weight to be a multiple of input's 4 channels, got \[6, 1, 3, 3\]", weight=make(6, 1, 3, 3))
    yield but(r"weight to be a multiple of input's 0 channels", input=make(1, 0, 8, 8))
    for shape in ((3,), (4, 1)):
        yield but(r"expected bias to be 1-D with 4 elements, got \[", bias=make(*shape))
    for dtype, name in ((torch.int32, "Int"), (torch.cfloat, "ComplexFloat")):
        yield but(f"input to be double, float, half or bfloat16, got {name}", input=make(1, 4, 8, 8, dtype=dtype))
    yield but("weight to have input's dtype Float, but got Double", weight=make(4, 1, 3, 3, dtype=torch.double))
    yield but("expected bias to have input's dtype Float, but got Half", bias=make(4, dtype=torch.half))
    for name in ("stride", "padding"):
        yield but(rf"expected {name} to be one or two integers, got \[1, 1, 1\]", **{name: (1, 1, 1)})
    yield but(r"expected stride to be at least 1, got \[0, 0\]", stride=0)
    yield but(r"expected stride to be at least 1, got \[1, -2\]", stride=(1, -2))
    yield but(r"expected padding to be at least 0, got \[-1, -1\]", padding=-1)
    for padding in (0, "same"):
        yield but(r"expected dilation to be at least 1, got \[0, 0\]", padding=padding, dilation=0)
        yield but(f"expected dilation to be at most {2**31 - 1}, got", padding=padding, dilation=2**31)
    yield but(f"expected padding to be at most {2**31 - 1}, got", padding=2**31)
    yield but("expected padding to be 'same' or 'valid', got 'full'", padding="full")
    yield but(r"expected stride to be 1 with padding='same', got \[1, 2\]", padding="same", stride=(1, 2))
    yield but("expected input to be 4-D", padding="same", input=make(3, 4))
    yield but("expected weight to be 4-D", padding="same", weight=make(4, 3, 3))
    yield but("no larger than the padded input, got a width of 9 .* input of 8", weight=make(4, 1, 3, 9))
    yield but(r"no larger than the padded input, got a height of 9 \(dilation included\)", dilation=(4, 1))


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


def improved_triplet_loss_errors(make: Make) -> Errors:
    x, parameters = make(3, 4), (-1.0, 0.01, 0.002)
    yield (*[make()] * 3, *parameters), r"expected anchor to be \[..., D\], but got \[\]"
    yield (x, x[:, :1], x, *parameters), r"expected positive to have anchor's shape \[3, 4\], but got \[3, 1\]"
    yield (x, x, x.double(), *parameters), r"expected negative to have anchor's dtype Float, but got Double"
    for dtype, name in ((torch.int32, "Int"), (torch.uint64, "UInt64"), (torch.float8_e4m3fn, "Float8_e4m3fn")):
        message = f"expected anchor to be double, float, half or bfloat16, but got {name}"
        yield (*[x.to(dtype)] * 3, *parameters), message


improved_triplet_loss_with_distances_errors = improved_triplet_loss_errors


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


def roi_pool_errors(make: Make) -> Errors:
    x, boxes = make(2, 3, 4, 5), make(8, 5) * 0

    def expected(message: str, x: Tensor = x, boxes: Tensor = boxes, *parameters: float) -> tuple[Any, ...]:
        return (x, boxes, *(parameters or (1.0, 2, 2))), r"roi_pool\(\): expected " + message

    yield expected(r"input to be \[N, C, H, W\], but got \[3, 4, 5\]", x[0])
    yield expected(r"input to have a row and a column at least, but got \[2, 3, 0, 5\]", x[:, :, :0])
    yield expected(r"input to be double, float, half or bfloat16, but got Int", x.int())
    yield expected(r"boxes to be 2-D with 5 columns, .* but got \[8, 4\]", x, boxes[:, 1:])
    yield expected(r"boxes to be 2-D with 5 columns, .* but got \[5\]", x, boxes[0])
    yield expected(r"boxes to be of a floating-point dtype, but got Int", x, boxes.int())
    for scale in (0.0, -1.0, math.nan, math.inf):
        yield expected("spatial_scale to be positive and finite", x, boxes, scale, 2, 2)
    yield expected("pooled_height and pooled_width to be positive, but got 0 and 2", x, boxes, 1.0, 0, 2)
    if x.is_cpu:  # a CUDA kernel detects a wrong box by an assertion, which ends the process
        of_image = "the first column of boxes to be the index of one of input's 2 images"
        for image in (-1.0, 2.0, 0.5, math.nan, math.inf, 1e30):
            yield expected(of_image, x, torch.tensor([[image, 0, 0, 1, 1]]))
        yield expected(of_image, x[:, :0], boxes + 2, 1.0, 2**40, 1)
        for corner in (math.nan, math.inf):
            yield expected("boxes to be finite, but there is .* in row 0", x, torch.tensor([[0, 0, corner, 1, 1]]))


roi_pool_with_indices = roi_pool
roi_pool_with_indices_errors = roi_pool_errors


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


def correlate2d_errors(make: Make) -> Errors:
    x, kernel = make(4, 5), make(2, 3)
    yield (x[0], kernel), r"correlate2d\(\): expected input to be \[..., H, W\], but got \[5\]"
    for wrong in (kernel[0], kernel[:0], kernel[:, :0]):
        yield (x, wrong), r"expected kernel to be \[..., kH, kW\] with a row and a column at least"
    yield (x, kernel, {"mode": "wrap"}), r"expected mode to be 'full', 'same' or 'valid', but got 'wrap'"
    yield (x, kernel, {"method": "quick"}), r"expected method to be 'auto', 'direct' or 'fft', but got 'quick'"
    yield (x.int(), kernel.int(), {"method": "fft"}), "expected floating-point or complex tensors for method='fft'"
    yield (x[:0, :0], kernel), r"and none empty, for mode='valid', but got \[0, 0\]"
    for biases, kernels in ((make(2), kernel), (make(2), kernel.expand(3, 2, 3)), (make(1, 1), kernel)):
        yield (x, kernels, biases), r"expected bias to be one number, of shape \[\] or \[1\], or of the shape of kernel"
    yield (x, kernel, {"boundary": "same"}), "expected boundary to be 'fill', 'wrap' or 'symm', but got 'same'"
    yield (x, kernel, {"fillvalue": 1j}), r"expected fillvalue to be real for tensors of dtype Float, but got \(0,1\)"
    empty = {"mode": "full", "boundary": "symm"}
    yield (x[:, :0], kernel, empty), "expected input to have a row and a column at least for boundary='symm'"
    yield (x.expand(2, 4, 5), kernel.expand(3, 2, 3)), "must match the size|broadcast"
    yield (x > 0, kernel > 0), r"expected input or kernel to be a number type, but both are bool"


def fft_rfft2_abs(make: Make) -> Iterator[tuple[Any, ...]]:
    yield (make(4, 5),)
    yield (make(2, 3, 4),)
    yield make(2, 3, 4), (3, -1), (2, 0), "ortho"


def fft_rfft2_abs_reference(
    input: Tensor, s: tuple[int, int] | None = None, dim: tuple[int, int] = (-2, -1), norm: str | None = None
) -> Any:
    sizes = s and [input.shape[axis] if size == -1 else size for size, axis in zip(s, dim, strict=True)]
    return np.abs(np.fft.rfft2(input.double().numpy(), sizes, dim, norm))


def fft_rfft2_abs_errors(make: Make) -> Errors:
    x = make(2, 3, 4)
    yield (make(3),), r"rfft2_abs\(\): expected input to have at least two dimensions, .* \[3\]"
    yield (make(3, 3, dtype=torch.cfloat),), r"rfft2_abs\(\): expected input to be of a real dtype, but got Complex"
    yield (make(3, 0),), r"Invalid number of data points \(0\) specified"
    yield (x, {"dim": (0, 1, 2)}), r"rfft2_abs\(\): expected dim to be two dimensions, but got \[0, 1, 2\]"
    yield (x, (4, 4, 4)), r"rfft2_abs\(\): expected s to be two sizes, but got \[4, 4, 4\]"
    yield (x, (0, 4)), r"rfft2_abs\(\): expected s to be -1 or positive, but got \[0, 4\]"
    yield (x, {"norm": "unit"}), r"rfft2_abs\(\): expected norm to be 'backward', .* but got 'unit'"
