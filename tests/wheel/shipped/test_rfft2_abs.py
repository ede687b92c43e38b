"""torch.fft.rfft2_abs: the magnitude of the Fourier transform over two dimensions, with its own gradient."""

import math

import numpy as np
import pytest
import torch
from samples import check_third_derivatives, double, layouts, values
from vmaps import check_vmap

SHAPES = [(1, 1), (1, 2), (2, 1), (3, 4), (4, 5), (5, 7), (2, 3, 6, 8), (33, 64), (2, 2, 19, 33)]


def composite(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfft2(x).abs()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", SHAPES)
def test_values(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = values(shape, dtype)
    expected = np.abs(np.fft.rfft2(x.double().numpy()))
    result = torch.fft.rfft2_abs(x)
    assert result.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    precision, pixels = torch.finfo(result.dtype).eps, shape[-2] * shape[-1]
    # Each butterfly of the transform rounds once, with values as large as the image is long.
    atol = precision * math.log2(2 * pixels) * float(x.double().square().sum((-2, -1)).amax().sqrt())
    torch.testing.assert_close(result.double(), torch.from_numpy(expected), rtol=8 * precision, atol=atol)


@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("dim", [(-2, -1), (0, 2), (2, 0), (1, -3)])
@pytest.mark.parametrize("s", [None, (4, 7), (9, 2), (-1, 5), (3, -1)])
def test_parameters_of_rfft2(s: tuple[int, int] | None, dim: tuple[int, int], norm: str | None) -> None:
    x = values((5, 6, 7), torch.float64)
    given = {"s": s, "dim": dim, "norm": norm}
    sizes = None if s is None else [x.shape[d] if n == -1 else n for n, d in zip(s, dim, strict=True)]
    expected = torch.from_numpy(np.abs(np.fft.rfft2(x.numpy(), sizes, dim, norm)))
    torch.testing.assert_close(torch.fft.rfft2_abs(x, **given), expected)
    y, z = (x.clone().requires_grad_() for _ in "yz")
    torch.fft.rfft2_abs(y, **given).square().sum().backward()
    torch.fft.rfft2(z, **given).abs().square().sum().backward()
    torch.testing.assert_close(y.grad, z.grad)
    check_vmap(lambda x: torch.fft.rfft2_abs(x, **given), torch.stack([x, 2 * x], 3), in_dims=(3,))


def test_no_images() -> None:
    """MKL's transforms reject a batch without images, so the operator must not call them."""
    x = torch.ones(2, 0, 3, 4, requires_grad=True)
    result = torch.fft.rfft2_abs(x)
    assert result.shape == (2, 0, 3, 3)
    result.sum().backward()
    assert x.grad.shape == x.shape
    assert torch.fft.rfft2_abs(torch.ones(0, 3, 5, dtype=torch.int64)).dtype == torch.float32


def test_layouts() -> None:
    for x in layouts(values((2, 3, 4, 5), torch.float64)).values():
        torch.testing.assert_close(torch.fft.rfft2_abs(x), composite(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradient(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x, y = (values(shape, dtype).requires_grad_() for _ in "xy")
    result = torch.fft.rfft2_abs(x)
    grad = values(tuple(result.shape), dtype, 2)
    result.backward(grad)
    composite(y).backward(grad)
    precision = 64 * torch.finfo(dtype).eps
    torch.testing.assert_close(x.grad, y.grad, rtol=precision, atol=precision * math.sqrt(x.numel()))


@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 5)])
def test_result_may_change_before_the_backward(shape: tuple[int, ...]) -> None:
    """Like the gradient of abs, it needs only the spectrum, and not the result."""
    x, y = (values(shape, torch.float64).requires_grad_() for _ in "xy")
    for argument, function in ((x, torch.fft.rfft2_abs), (y, composite)):
        function(argument).add_(1).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize(("size", "value"), [((4, 6), 1.0), ((4, 6), 0.0), ((3, 5), 0.0)])
def test_gradient_is_zero_where_the_magnitude_is(size: tuple[int, int], value: float) -> None:
    """A constant has only one bin that is not exactly zero, and zeros have none."""
    x = torch.full(size, value, dtype=torch.float64, requires_grad=True)
    result = torch.fft.rfft2_abs(x)
    assert result.count_nonzero() == bool(value)
    result.sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, value))
    (grad,) = torch.autograd.grad(torch.fft.rfft2_abs(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), x)
    assert second.isfinite().all()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e-310, 1e300])
def test_special_values(value: float) -> None:
    x, y = (values((3, 4), torch.float64) for _ in "xy")
    for argument in (x, y):
        argument[1, 2] = value
        argument.requires_grad_()
    torch.testing.assert_close(torch.fft.rfft2_abs(x), composite(y), equal_nan=True)
    torch.fft.rfft2_abs(x).sum().backward()
    composite(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, equal_nan=True)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3), (2, 2, 5), (1, 1)])
def test_third_derivatives(shape: tuple[int, ...]) -> None:
    check_third_derivatives(torch.fft.rfft2_abs, double(shape))


def test_errors_of_the_backward() -> None:
    """The kernel and the transform would read out of bounds if sizes were wrong."""
    backward, spectrum = torch.ops.aten._fft_rfft2_abs_backward, torch.ones(3, 3, dtype=torch.complex64)
    for grad in (torch.ones(3, 2), torch.ones(1, 3), torch.ones(3, 3, dtype=torch.float64)):
        with pytest.raises(
            RuntimeError, match="expected grad_magnitude to have the shape and the real dtype of spectrum"
        ):
            backward(grad, spectrum, 4)
    for columns in (3, 6, 0, -1, 2**63 - 1):
        with pytest.raises(RuntimeError, match=rf"that of the transform of {columns} columns"):
            backward(spectrum.real, spectrum, columns)


@pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="this release calls no kernel of another device")
def test_backward_of_other_devices_is_the_same() -> None:
    """On a device without a kernel, the backward is composed of plain operations."""
    for shape in [(3, 4), (2, 3, 5), (1, 1), (2, 2)]:
        magnitude, spectrum = torch.ops.aten._fft_rfft2_abs(values(shape, torch.float64))
        arguments = (values(tuple(magnitude.shape), torch.float64, 2), spectrum, shape[-1])
        plain = torch.library.get_kernel("aten::_fft_rfft2_abs_backward", "CUDA")
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
        expected = torch.ops.aten._fft_rfft2_abs_backward(*arguments)
        torch.testing.assert_close(plain.call_boxed(keys, *arguments), expected)


def check_cpu_capability() -> None:
    """Run by test_cpu_capabilities.py."""
    for shape in SHAPES:
        test_gradient(shape, torch.float32)


def test_too_few_dimensions_under_vmap() -> None:
    with pytest.raises(RuntimeError, match="at least 2 dimensions, but under vmap there are 1"):
        torch.vmap(torch.ops.aten._fft_rfft2_abs)(torch.ones(3, 4))
