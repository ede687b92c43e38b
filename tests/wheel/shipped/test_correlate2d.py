"""correlate2d: scipy.signal.correlate2d on tensors, with a bias and derivatives."""

import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.signal
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import COMPLEX, HALF, allocated, assert_exact, check_deterministic, flops, layouts, values
from vmaps import check_vmap

from tests.kit.samples import SAMPLES, reference_results

MODES = ["full", "same", "valid"]
every_mode = pytest.mark.parametrize("mode", MODES)
every_special = pytest.mark.parametrize("special", [float("nan"), float("inf")])
# Even and odd sizes, kernels larger than the input, lengths around the widths of vectors.
SIZES = [
    ((5, 7), (3, 3)),
    ((6, 9), (2, 4)),
    ((4, 4), (4, 4)),
    ((1, 1), (1, 1)),
    ((1, 70), (1, 3)),
    ((9, 70), (5, 6)),
    ((3, 4), (5, 6)),
    ((2, 3), (9, 8)),
]
# The Fourier transform is faster for these.
LARGE = [((64, 80), (31, 33)), ((90, 61), (40, 50)), ((31, 33), (70, 64))]


def reference(*inputs: torch.Tensor, mode: str, **options: Any) -> torch.Tensor:
    """Correlate with SciPy, in double precision or int64."""
    wide = [x if x.is_floating_point() or x.is_complex() else x.long() for x in inputs]
    (result,) = reference_results(SAMPLES.functions["correlate2d_reference"], *wide, mode=mode, **options)
    return result


def check(x: torch.Tensor, kernel: torch.Tensor, mode: str) -> None:
    result = torch.correlate2d(x, kernel, mode=mode)
    assert result.dtype == x.dtype
    expected = reference(x, kernel, mode=mode)
    if not x.dtype.is_floating_point and not x.is_complex():
        assert_exact(result, expected.to(x.dtype))
        return
    # Errors of sums and transforms depend on the size of the summands, not of the result.
    computed_in = torch.float32 if x.dtype in HALF else x.dtype
    added = kernel.double().abs().square().sum().sqrt() if not kernel.is_complex() else kernel.abs().norm()
    atol = 20 * torch.finfo(computed_in).eps * max(1.0, float(added)) * x.to(torch.complex128).abs().max().item()
    rtol = torch.finfo(x.dtype).eps
    torch.testing.assert_close(result.to(expected.dtype), expected, rtol=rtol, atol=atol)


SUMMED = [torch.float32, torch.float64, *HALF, *COMPLEX, torch.int16, torch.int64, torch.uint8]
TRANSFORMED = [torch.float32, torch.float64, torch.bfloat16, *COMPLEX]


@every_mode
@pytest.mark.parametrize(
    ("sizes", "dtype"), [*itertools.product(SIZES, SUMMED), *itertools.product(LARGE, TRANSFORMED)]
)
def test_values(sizes: tuple[tuple[int, int], tuple[int, int]], dtype: torch.dtype, mode: str) -> None:
    size, kernel = sizes[0], values(sizes[1], dtype, 2)
    for shape in (size, (2, *size), (2, 3, *size)) if sizes in SIZES else ((2, *size),):
        check(values(shape, dtype, 1), kernel, mode)


@every_mode
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64])
def test_kernels_far_larger_than_the_input(dtype: torch.dtype, mode: str) -> None:
    kernel = values((5, 2_000), dtype, 2)
    check(values((3, 4), dtype, 1), kernel, mode)
    check(values((4, 3, 1, 1), dtype, 1).permute(2, 3, 1, 0), kernel, mode)
    check(values((2, 1, 3, 4), dtype, 3), kernel[:, :200], mode)


@every_special
@pytest.mark.parametrize("kernel_size", [(3, 3), (31, 33), (70, 90)])
def test_special_values_stay_where_they_are(kernel_size: tuple[int, int], special: float) -> None:
    """Those of the image, or of a kernel that is larger."""
    x, kernel = values((64, 80), torch.float64, 1), values(kernel_size, torch.float64, 2)
    is_larger = kernel.numel() > x.numel()
    (kernel if is_larger else x)[2 if is_larger else 40, 3] = special
    mode = "valid" if is_larger else "same"
    expected = reference(x, kernel, mode=mode)
    torch.testing.assert_close(torch.correlate2d(x, kernel, mode=mode), expected, equal_nan=True)
    assert expected.isfinite().any()


@every_special
@pytest.mark.parametrize("method", ["auto", "direct", "fft"])
@every_mode
def test_special_values_spread_as_in_scipy(mode: str, method: str, special: float) -> None:
    """SciPy multiplies the zeros around the image by special values, but puts none around a larger kernel."""
    image, taps = np.ones((2, 2)), np.arange(1.0, 10).reshape(3, 3)
    for of_image, of_kernel in itertools.chain(
        itertools.product(np.ndindex(2, 2), [None]), itertools.product([None], np.ndindex(3, 3))
    ):
        x, kernel = image.copy(), taps.copy()
        if of_image:
            x[of_image] = special
        if of_kernel:
            kernel[of_kernel] = special
        expected = torch.from_numpy(scipy.signal.correlate2d(x, kernel, mode).copy())
        images = torch.from_numpy(np.stack([image, x]))
        result = torch.correlate2d(images, torch.from_numpy(kernel), mode=mode, method=method)
        torch.testing.assert_close(result[1], expected, equal_nan=True)
        if of_image:
            alone = torch.correlate2d(images[0], torch.from_numpy(kernel), mode=mode, method=method)
            assert_exact(result[0], alone)


@pytest.mark.unemulated("how long kernels for CPUs take")
def test_infinities_do_not_take_hours() -> None:
    """Beyond 2^32 products an image is not computed again directly, but its infinity still shows."""
    x, kernel = torch.ones(2, 1 << 20, 2), torch.ones(1 << 20, 2)
    x[1, 7, 1] = float("inf")
    result = torch.correlate2d(x, kernel, mode="same")
    assert not result[1].isfinite().all()
    rows = (1 << 19) + 1
    torch.testing.assert_close(result[0, 0], torch.tensor([2.0 * rows, rows]))


def test_special_values_of_a_gradient() -> None:
    """A kernel that is nearly as large as the image is larger than the gradient."""
    x, kernel = torch.ones(5, 5, requires_grad=True), torch.ones(4, 4)
    for place in itertools.product(range(2), range(2)):
        grad = torch.ones(2, 2)
        grad[place] = float("inf")
        (found,) = torch.autograd.grad(torch.correlate2d(x, kernel), x, grad)
        result = torch.nn.functional.conv2d(x[None, None], kernel[None, None])
        (expected,) = torch.autograd.grad(result, x, grad[None, None])
        assert expected.isfinite().any() and not expected.isnan().any()
        torch.testing.assert_close(found, expected)


BOUNDARIES = [("wrap", 0), ("symm", 0), ("fill", 2.5), ("fill", -3)]
# The last kernels reach beyond the image's neighbors, and two images away.
BOUNDED = [
    ((5, 7), (3, 3)),
    ((6, 9), (2, 4)),
    ((1, 1), (3, 4)),
    ((3, 4), (5, 6)),
    ((2, 3), (9, 14)),
    ((40, 50), (31, 33)),
]


@every_mode
@pytest.mark.parametrize(("boundary", "fillvalue"), BOUNDARIES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.int32])
@pytest.mark.parametrize(("size", "kernel_size"), BOUNDED)
def test_boundaries(
    size: tuple[int, int], kernel_size: tuple[int, int], dtype: torch.dtype, boundary: str, fillvalue: float, mode: str
) -> None:
    x, kernel = values((2, *size), dtype, 1), values(kernel_size, dtype, 2)
    result = torch.correlate2d(x, kernel, mode=mode, boundary=boundary, fillvalue=fillvalue)
    if mode == "valid":
        assert_exact(result, torch.correlate2d(x, kernel))
        return
    expected = reference(x, kernel, mode=mode, boundary=boundary, fillvalue=fillvalue)
    eps = torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0
    images, taps = (y.to(expected.dtype).abs() for y in (x, kernel))
    atol = eps * float(taps.sum()) * max(float(images.max()), 3)
    torch.testing.assert_close(result.to(expected.dtype), expected, rtol=0, atol=atol)


def test_fillvalue_is_of_the_results_dtype() -> None:
    """It is converted as SciPy converts it."""
    x, kernel = values((4, 5), torch.complex128, 1), values((3, 2), torch.complex128, 2)
    expected = reference(x, kernel, mode="full", fillvalue=1 - 2j)
    torch.testing.assert_close(torch.correlate2d(x, kernel, mode="full", fillvalue=1 - 2j), expected)
    ones = torch.ones(2, 2, dtype=torch.int64)
    assert_exact(torch.correlate2d(ones, ones, mode="same", fillvalue=1.9), torch.full((2, 2), 4))
    spread = torch.correlate2d(torch.ones(3, 3), torch.ones(3, 3), mode="same", fillvalue=float("nan"))
    assert_exact(spread.isnan().int(), torch.tensor([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=torch.int32))


@every_mode
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.int32])
@pytest.mark.parametrize(
    ("shape", "kernel_shape"),
    [
        ((6, 7), (3, 2, 3)),
        ((2, 1, 6, 7), (3, 2, 3)),
        ((2, 3, 6, 7), (3, 2, 3)),
        ((4, 2, 3, 6, 7), (2, 1, 2, 3)),
        ((3, 6, 7), (2, 1, 2, 3)),
        ((2, 6, 7), (1, 1, 2, 3)),
        ((2, 1, 2, 3), (3, 5, 4)),
        ((2, 1, 64, 80), (3, 31, 33)),
    ],
)
def test_several_kernels(shape: tuple[int, ...], kernel_shape: tuple[int, ...], dtype: torch.dtype, mode: str) -> None:
    x, kernels = values(shape, dtype, 1), values(kernel_shape, dtype, 2)
    biases = values(kernel_shape[:-2], dtype, 3)
    expected = reference(x, kernels, biases, mode=mode)
    torch.testing.assert_close(
        torch.correlate2d(x, kernels, biases, mode=mode), expected.to(dtype), rtol=1e-5, atol=2e-4
    )


def test_no_kernels() -> None:
    """An empty batch of kernels gives no maps, and each image gets a zero gradient."""
    x, kernels = torch.ones(2, 1, 5, 6, requires_grad=True), torch.ones(0, 3, 3, requires_grad=True)
    for boundary in ("fill", "wrap"):
        result = torch.correlate2d(x, kernels, torch.ones(0), mode="same", boundary=boundary)
        assert result.shape == (2, 0, 5, 6)
        found = torch.autograd.grad(result.sum(), (x, kernels))
        assert_exact(found[0], torch.zeros_like(x))
        assert found[1].shape == (0, 3, 3)
    gradient = torch.func.vmap(torch.func.grad(lambda k: torch.correlate2d(x[0, 0].detach(), k).sum()))
    assert gradient(kernels.detach()).shape == (0, 3, 3)


@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_bias_promotes_like_a_number(shape: tuple[int, ...]) -> None:
    """By its category only, also if there is one for each of several kernels."""
    x, kernels = values((5, 6), torch.float32), values((2, 2, 3) if shape == (2,) else (2, 3), torch.float32)
    plain = torch.correlate2d(x, kernels)
    for bias in (torch.full(shape, 2.0, dtype=torch.float64), torch.full(shape, 2), torch.full(shape, 2 + 1j)):
        dtype = torch.complex64 if bias.is_complex() else torch.float32
        torch.testing.assert_close(torch.correlate2d(x, kernels, bias), (plain + bias.flatten()[0]).to(dtype))
    ones = torch.ones(2, 2, dtype=torch.int64)
    assert_exact(torch.correlate2d(ones, ones[:1, :1], torch.tensor(0.5)), torch.full((2, 2), 1.5))


def test_bias_and_type_promotion() -> None:
    x, kernel = values((5, 6), torch.float32), values((2, 3), torch.float64)
    result = torch.correlate2d(x, kernel, torch.tensor([0.5]), mode="same")
    torch.testing.assert_close(result, reference(x.double(), kernel, mode="same") + 0.5)
    for other in (torch.complex64, torch.float32):
        expected = reference(x.to(other), kernel.to(other), mode="valid")
        torch.testing.assert_close(torch.correlate2d(x, kernel.to(other)), expected.to(other))
    assert torch.correlate2d(x > 0, torch.ones(2, 2, dtype=torch.int64)).dtype == torch.int64


@pytest.mark.parametrize("method", ["direct", "fft"])
def test_gradients_of_kernels_that_share_the_images(method: str) -> None:
    x, kernels = values((2, 1, 9, 8), torch.float64, 1), values((3, 4, 2), torch.float64, 2)
    inputs = [y.requires_grad_() for y in (x, kernels)]
    result = torch.correlate2d(x, kernels, method=method)
    expected = torch.nn.functional.conv2d(x, kernels[:, None])
    # The gradient of a sum is one number, expanded.
    for grad in (values(tuple(result.shape), torch.float64, 3), torch.ones((), dtype=torch.float64).expand_as(result)):
        found = torch.autograd.grad(result, inputs, grad, retain_graph=True)
        torch.testing.assert_close(found, torch.autograd.grad(expected, inputs, grad, retain_graph=True))


@pytest.mark.unemulated("how much memory kernels for CPUs take")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_several_kernels_share_the_images(dtype: torch.dtype) -> None:
    x, kernels = torch.ones(4, 1, 128, 128, dtype=dtype), torch.ones(32, 3, 3, dtype=dtype)
    # The result in the type of the computation and in its own, and images for one kernel.
    most = 4 * 32 * 128 * 128 * (4 if dtype == torch.float32 else 4 + 2 + 2)
    assert allocated(partial(torch.correlate2d, mode="same"), x, kernels) < 1.2 * most


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("boundary", ["wrap", "symm"])
def test_gradients_of_copies_are_rounded_once(dtype: torch.dtype, boundary: str) -> None:
    """A pixel of a small image has many copies beyond the edges."""
    x, kernel = values((2, 3), dtype), values((9, 16), dtype, 2)
    grad = values((10, 18), dtype, 3)
    found, expected = (
        torch.autograd.grad(
            torch.correlate2d(y, kernel.to(y.dtype), mode="full", boundary=boundary), y, grad.to(y.dtype)
        )
        for y in (x.requires_grad_(), x.detach().double().requires_grad_())
    )
    torch.testing.assert_close(found[0], expected[0].to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-3)


@given(
    shape=st.lists(st.integers(1, 12), min_size=2, max_size=4),
    kernel_shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    mode=st.sampled_from(MODES),
    dtype=st.sampled_from([torch.float32, torch.complex128, torch.int32]),
)
@settings(deadline=None, max_examples=150)
def test_any_sizes(shape: list[int], kernel_shape: tuple[int, int], mode: str, dtype: torch.dtype) -> None:
    x, kernel = values(tuple(shape), dtype, 1), values(kernel_shape, dtype, 2)
    larger = [a >= b for a, b in zip(shape[-2:], kernel_shape, strict=True)]
    smaller = [a <= b for a, b in zip(shape[-2:], kernel_shape, strict=True)]
    if mode == "valid" and not all(larger) and not all(smaller):
        with pytest.raises(RuntimeError, match="expected one of input and kernel to be at least as large"):
            torch.correlate2d(x, kernel, mode=mode)
    else:
        check(x, kernel, mode)


@pytest.mark.parametrize("method", ["auto", "direct", "fft"])
def test_small_numbers_beside_a_large_one(method: str) -> None:
    """Each element has a float's precision, not only the largest ones."""
    x, kernel = values((8, 64, 64), torch.float32, 1).abs() * 1e-3, values((15, 15), torch.float32, 2).abs()
    x[1, 10, 10] = 1e5
    result = torch.correlate2d(x.requires_grad_(), kernel, method=method)
    expected = reference(x.detach(), kernel, mode="valid")
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=0)
    (found,) = torch.autograd.grad(result[2:].sum(), x)
    ones = torch.ones_like(expected)
    ones[:2] = 0
    torch.testing.assert_close(found.double(), reference(ones, kernel.flip(0, 1), mode="full"), rtol=1e-5, atol=0)


@pytest.mark.parametrize("size", [(15, 15), (31, 33)])
def test_an_image_does_not_depend_on_the_others(size: tuple[int, int]) -> None:
    x, kernel = values((40, 64, 80), torch.float32, 1), values(size, torch.float32, 2)
    alone = torch.correlate2d(x[3], kernel, mode="same")
    x[5, 20, 30] = float("nan")
    assert_exact(torch.correlate2d(x, kernel, mode="same")[3], alone)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_integers_are_exact(dtype: torch.dtype) -> None:
    """The sums do not fit into a float, and for this size the Fourier transform would be faster."""
    x, kernel = values((2, 90, 90), dtype, 1) * 97, values((31, 31), dtype, 2) * 89
    check(x, kernel, "same")


@every_mode
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex128])
@pytest.mark.parametrize(("size", "kernel_size"), [((5, 7), (3, 3)), ((3, 4), (5, 6)), LARGE[0]])
def test_methods(size: tuple[int, int], kernel_size: tuple[int, int], dtype: torch.dtype, mode: str) -> None:
    x, kernel = values((2, *size), dtype, 1).requires_grad_(), values(kernel_size, dtype, 2).requires_grad_()
    precision = torch.finfo(torch.float32 if dtype in HALF else dtype).eps * (2 if dtype.is_complex else 1)
    found = []
    for method in ("direct", "fft"):
        result = torch.correlate2d(x, kernel, mode=mode, method=method)
        torch.testing.assert_close(
            result.to(torch.complex128),
            reference(x.detach(), kernel.detach(), mode=mode).to(torch.complex128),
            rtol=torch.finfo(dtype).eps,
            atol=1600 * precision,
        )
        # Both get the same gradient: one made of the result would have the sign of a rounding error near 0.
        found.append(torch.autograd.grad(result, (x, kernel), values(tuple(result.shape), dtype, 3)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=2 * torch.finfo(dtype).eps, atol=3200 * precision)


def test_layouts() -> None:
    x, kernel = values((2, 3, 9, 8), torch.complex128, 1), values((3, 4), torch.complex128, 2)
    for other in layouts(x).values():
        check(other, kernel, "same")
    for other in layouts(kernel).values():
        check(x, other, "full")


@pytest.mark.parametrize("shape", [(0, 5, 6), (2, 0, 5, 6), (0, 6), (5, 0)])
def test_empty(shape: tuple[int, ...]) -> None:
    x, kernel = torch.ones(shape, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    assert torch.correlate2d(x, kernel, mode="same").shape == shape
    result = torch.correlate2d(x, kernel, mode="full")
    assert result.shape == (*shape[:-2], shape[-2] + 1, shape[-1] + 2)
    assert_exact(result, torch.zeros_like(result))
    result.sum().backward()
    assert_exact(kernel.grad, torch.zeros(2, 3))


@every_mode
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
@pytest.mark.parametrize(("size", "kernel_size"), [*LARGE, ((100, 200), (3, 5))])
def test_gradients_of_large_inputs(
    size: tuple[int, int], kernel_size: tuple[int, int], dtype: torch.dtype, mode: str
) -> None:
    """The gradients are correlations themselves, here larger than the sizes at which the Fourier transform is used."""
    x, kernel = values((2, *size), dtype, 1).requires_grad_(), values(kernel_size, dtype, 2).requires_grad_()
    result = torch.correlate2d(x, kernel, mode=mode)
    grad = values(tuple(result.shape), dtype, 3)
    result.backward(grad)
    # <grad, correlate(dx, k)> = <x.grad, dx>, and the same for the kernel.
    dx, dk = values(tuple(x.shape), dtype, 4), values(tuple(kernel.shape), dtype, 5)
    for change, tangent in ((x.grad, (dx, kernel)), (kernel.grad, (x, dk))):
        by_result = (grad.conj() * torch.correlate2d(*tangent, mode=mode)).sum().real
        by_input = (change.conj() * tangent[0 if tangent[1] is kernel else 1]).sum().real
        precision = 800 * torch.finfo(dtype).eps
        torch.testing.assert_close(by_input, by_result, rtol=precision, atol=10 * precision * result.numel() ** 0.5)


def test_sizes_beyond_64_bits() -> None:
    with pytest.raises(RuntimeError, match=r"expected lengths of at most 2\^40"):
        torch.ops.aten._correlate2d(torch.ones(1, 1, 4, 5), torch.ones(1, 2, 3), [2**62, 0], [3, 3])


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint64])
def test_dtypes_without_arithmetic_are_refused(dtype: torch.dtype) -> None:
    x, kernel = torch.ones(4, 5), torch.ones(2, 3)
    for wrong in ((x.to(dtype), kernel.to(dtype)), (x, kernel.to(dtype)), (x, kernel, torch.ones(1).to(dtype))):
        said = r"correlate2d\(\): expected .* of a dtype with arithmetic; it is not implemented for '(Float8|UInt)"
        with pytest.raises(NotImplementedError, match=said):
            torch.correlate2d(*wrong)


@pytest.mark.parametrize("devices", [("cpu", "meta"), ("meta", "cpu")])
def test_tensors_on_two_devices_are_refused(devices: tuple[str, str]) -> None:
    """Otherwise the result is memory that nothing was written to."""
    x, kernel = torch.ones(4, 5, device=devices[0]), torch.ones(2, 3, device=devices[1])
    said = f"to be on input's device {devices[0]}, but it is on {devices[1]}"
    with pytest.raises(RuntimeError, match=said):
        torch.correlate2d(x, kernel)
    with pytest.raises(RuntimeError, match=said):
        torch.ops.aten._correlate2d_kernel_grad(kernel[None, None], x[None, None], [0, 0], [3, 3])


def test_flops_are_those_of_conv2d() -> None:
    inputs = torch.ones(2, 1, 6, 7, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    forward, both = flops(torch.correlate2d, *inputs)
    assert forward == flops(lambda x, k: torch.nn.functional.conv2d(x, k[None, None]), *inputs)[0]
    assert forward == 2 * 2 * 5 * 5 * 2 * 3
    # Each of the two gradients takes as many; without a border, 5 x 5 products with zeros are left out.
    assert both >= 3 * forward


def test_number_of_a_compiled_function_fills() -> None:
    """With dynamic=True, a number that a function takes is symbolic. Inductor pads with plain numbers only."""
    x, kernel = values((5, 6), torch.float64, 1), values((2, 3), torch.float64, 2)
    compiled = torch.compile(
        lambda x, value: torch.correlate2d(x, kernel, mode="full", fillvalue=value), fullgraph=True, dynamic=True
    )
    for value in (2, 0, 3, -1.5):
        torch.testing.assert_close(compiled(x, value), reference(x, kernel, mode="full", fillvalue=value))


def test_compiled_with_complex_numbers() -> None:
    """Under AOTAutograd, no dispatch key resolves lazy conjugation."""
    x, large = values((3, 4), torch.complex128, 4), values((9, 8), torch.complex128, 3)
    compiled = torch.compile(partial(torch.correlate2d, mode="full"), fullgraph=True, backend="aot_eager", dynamic=True)
    for image in (x, torch.cat([x, x])):
        torch.testing.assert_close(compiled(image, large), torch.correlate2d(image, large, mode="full"))


@pytest.mark.parametrize("in_dims", [(0, None), (2, None), (None, 0), (1, 2)])
def test_vmap(in_dims: tuple[int | None, int | None]) -> None:
    x, kernel = values((6, 7), torch.float64, 1), values((2, 3), torch.float64, 2)
    x = x if in_dims[0] is None else torch.stack([x, 2 * x], in_dims[0])
    kernel = kernel if in_dims[1] is None else torch.stack([kernel, -kernel], in_dims[1])
    for options in ({}, {"method": "direct"}, {"method": "fft"}, {"boundary": "wrap"}, {"boundary": "symm"}):
        check_vmap(partial(torch.correlate2d, mode="full", **options), x, kernel, in_dims=in_dims)
    check_vmap(torch.correlate2d, x, kernel, in_dims=in_dims)
    check_vmap(lambda x, kernel: torch.correlate2d(x, torch.stack([kernel, kernel + 1])), x, kernel, in_dims=in_dims)
    square = lambda x, kernel: torch.correlate2d(x, kernel, mode="same").square().sum()  # noqa: E731
    check_vmap(torch.func.grad(square, argnums=(0, 1)), x, kernel, in_dims=in_dims)


def test_vmap_over_kernels() -> None:
    """vmap is nested, kernels are larger than the input, or there is no kernel."""
    x, kernels = values((3, 2, 6, 7), torch.float64, 1), values((3, 2, 9, 8), torch.float64, 2)
    gradient = torch.func.grad(lambda x, k: torch.correlate2d(x, k, mode="same").square().sum(), argnums=(0, 1))
    for function in (torch.correlate2d, gradient):
        for in_dims in ((0, 0), (None, 0), (0, None)):
            given = [a if d == 0 else a[0] for a, d in zip((x, kernels), in_dims, strict=True)]
            check_vmap(torch.vmap(function), *given, in_dims=in_dims)
    check_vmap(torch.vmap(torch.correlate2d, in_dims=(None, 0)), x[0, 0], kernels, in_dims=(None, 1))
    none = torch.vmap(torch.correlate2d, in_dims=(None, 0))(x[0, 0], kernels[:0, 0, :3, :3])
    assert none.shape == (0, 4, 5)


def test_deterministic() -> None:
    x, kernel = values((4, 100, 90), torch.float32, 1), values((5, 4), torch.float32, 2).requires_grad_()
    check_deterministic(torch.correlate2d, x, kernel)


def check_cpu_capability() -> None:
    """Run by test_cpu_capabilities.py."""
    for sizes, dtype, mode in itertools.product(SIZES, [torch.float32, torch.complex128, torch.int16], MODES):
        test_values(sizes, dtype, mode)
    test_gradients_of_large_inputs((100, 200), (3, 5), torch.float32, "same")


def test_module() -> None:
    module = torch.nn.Correlate2d((3, 4), mode="full", dtype=torch.float64)
    x = values((2, 9, 8), torch.float64)
    expected = reference(x, module.weight.detach(), mode="full") + module.bias.detach()
    torch.testing.assert_close(module(x).detach(), expected)
    assert_exact(torch.jit.script(module)(x), module(x))
    module(x).sum().backward()
    torch.testing.assert_close(module.bias.grad, torch.tensor([float(expected.numel())], dtype=torch.float64))
    assert module.weight.grad is not None
    # The weight is initialized like that of a convolution of one channel.
    weight = torch.nn.Correlate2d((30, 40)).weight
    assert 0.9 * 1200**-0.5 < weight.abs().max() <= 1200**-0.5
    assert repr(module) == "Correlate2d(kernel_size=(3, 4), mode='full')"
    plain = torch.nn.Correlate2d(3, method="fft", bias=False)
    assert repr(plain) == "Correlate2d(kernel_size=(3, 3), mode='valid', method='fft', bias=False)"
    assert plain(x.float()).shape == (2, 7, 6)


@pytest.mark.parametrize("fillvalue", [2, 1.5, 1j, 1 - 2j])
def test_module_in_script(fillvalue: complex) -> None:
    dtype = torch.complex128 if isinstance(fillvalue, complex) else torch.float64
    module = torch.nn.Correlate2d(3, "full", fillvalue=fillvalue, bias=False, dtype=dtype)
    x = values((9, 8), dtype)
    expected = reference(x, module.weight, mode="full", fillvalue=fillvalue)
    torch.testing.assert_close(torch.jit.script(module)(x).detach(), expected)


def test_module_of_several_kernels() -> None:
    module = torch.nn.Correlate2d(3, "same", "wrap", num_kernels=4)
    x = values((2, 9, 8), torch.float32)
    expected = reference(x[:, None], module.weight, module.bias, mode="same", boundary="wrap")
    torch.testing.assert_close(module(x).detach(), expected.float())
    assert_exact(torch.jit.script(module)(x), module(x))
    assert repr(module) == "Correlate2d(kernel_size=(3, 3), mode='same', boundary='wrap', num_kernels=4)"
    filled = torch.nn.Correlate2d(3, "full", fillvalue=2)
    assert repr(filled) == "Correlate2d(kernel_size=(3, 3), mode='full', fillvalue=2)"
    torch.testing.assert_close(filled(x), torch.correlate2d(x, filled.weight, filled.bias, mode="full", fillvalue=2))
    assert torch.nn.Correlate2d(3, num_kernels=1)(x).shape == (2, 1, 7, 6)
