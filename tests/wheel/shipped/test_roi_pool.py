"""roi_pool: the largest values in regions of interest, as Fast R-CNN pools them."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import HALF, REAL, assert_exact, check_deterministic, layouts, threads, values
from vmaps import check_vmap

from tests.kit.samples import SAMPLES

# The whole image, one pixel, halves that are rounded away from zero, upside down, past each edge, completely outside.
BOXES = torch.tensor(
    [
        [0, 0, 0, 12, 9],
        [1, 4, 3, 4, 3],
        [0, 0.5, 1.5, 5.5, 4.5],
        [1, 9, 8, 2, 3],
        [1, -5.5, -3, 3, 20],
        [0, 8, 4, 40, 7.49],
        [1, 100, 100, 120, 130],
        [0, -9, -9, -4, -3],
    ]
)


def reference(
    x: torch.Tensor, boxes: torch.Tensor, scale: float, height: int, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and indices, with coordinates in the precision in which the operator computes them."""
    number = np.float64 if x.dtype == torch.float64 else np.float32
    return SAMPLES.functions["roi_pool_with_indices_reference"](x, boxes, scale, height, width, number)


def check(x: torch.Tensor, boxes: torch.Tensor, *parameters: float) -> None:
    output, indices = torch.roi_pool_with_indices(x, boxes, *parameters)
    expected, places = reference(x, boxes, *parameters)
    assert_exact(output, expected)
    assert_exact(indices, places)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("channels", [1, 3, 8, 16, 17, 40])
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (7, 7)])
def test_values(size: tuple[int, int], channels: int, dtype: torch.dtype) -> None:
    x = values((2, channels, 9, 12), dtype)
    check(x, BOXES.to(dtype), 1.0, *size)
    check(x, BOXES, 0.5, *size)
    expected, _ = reference(x, BOXES, 0.75, *size)
    assert_exact(torch.roi_pool(x, BOXES, 0.75, *size), expected)


coordinate = st.floats(-30, 30, width=32)


@given(
    boxes=st.lists(st.tuples(st.integers(0, 2), coordinate, coordinate, coordinate, coordinate), max_size=5),
    shape=st.tuples(st.just(3), st.integers(0, 18), st.integers(1, 9), st.integers(1, 9)),
    scale=st.floats(0.0625, 4, width=32),
    size=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    levels=st.sampled_from([2, 1000]),
)
@settings(deadline=None, max_examples=150)
def test_any_boxes(
    boxes: list[tuple[float, ...]], shape: tuple[int, ...], scale: float, size: tuple[int, int], levels: int
) -> None:
    """With only two values, most maxima are ties."""
    x = torch.from_numpy(np.random.default_rng(0).integers(0, levels, shape)).float()
    check(x, torch.tensor(boxes).reshape(-1, 5), scale, *size)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layouts(dtype: torch.dtype) -> None:
    x = values((2, 17, 9, 12), dtype)
    for other in layouts(x).values():
        check(other, BOXES, 1.0, 3, 2)
    for other in layouts(BOXES).values():
        check(x, other, 1.0, 3, 2)


@pytest.mark.parametrize("channels", [3, 20])
def test_special_values(channels: int) -> None:
    x = values((2, channels, 9, 12), torch.float32)
    x[0, 0, 2:5] = float("nan")
    x[0, 1] = -float("inf")
    x[1, :, ::2] = float("inf")
    check(x, BOXES, 1.0, 3, 3)


def test_far_boxes() -> None:
    x = values((1, 3, 4, 5), torch.float32)
    far = torch.tensor([[0, -3e38, -1e30, 3e38, 1e30], [0, 3e38, 3e38, 3e38, 3e38], [0, 1e12, 0, -1e12, 3]])
    output = torch.roi_pool(x, far, 1.0, 1, 1)
    assert_exact(output[0, :, 0, 0], x.amax((2, 3))[0])
    assert_exact(output[1:], torch.zeros(2, 3, 1, 1))
    # The scale is too large for a float: 0 stays, and other coordinates are far away.
    corner = torch.tensor([[0.0, 0, 0, 0, 0], [0, 0, 0, 1, 1]])
    assert_exact(torch.roi_pool(x, corner, 1e308, 1, 1)[:, :, 0, 0], torch.stack([x[0, :, 0, 0], x.amax((2, 3))[0]]))


def test_images_without_boxes_take_no_memory() -> None:
    x = torch.randn(1, 2, 4, 5)
    boxes = torch.tensor([[2**24, 0, 0, 4, 3], [0, 1, 1, 3, 3]], dtype=torch.float32)
    few = torch.roi_pool(x, boxes * torch.tensor([0, 1, 1, 1, 1]), 1.0, 2, 2)
    assert torch.equal(torch.roi_pool(x.expand(2**40, 2, 4, 5), boxes, 1.0, 2, 2), few)


def test_far_corners_cost_what_the_boxes_cover() -> None:
    """All pixels between the boxes are 2^42: reading them would not end."""
    last = 2**15 - 1
    boxes = torch.tensor([[0, 2, 3, 5, 6], [0, last - 3, last - 2, last, last]], dtype=torch.float32)
    x = torch.ones(1, 1, 1, 1).expand(1, 2**12, last + 1, last + 1)
    assert_exact(torch.roi_pool(x, boxes, 1.0, 2, 2), torch.ones(2, 2**12, 2, 2))


@pytest.mark.parametrize("count", [1, 2, 7])
def test_one_image_on_several_threads(count: int) -> None:
    """Boxes that share pixels, and boxes that do not; fewer of either than threads."""
    x = values((1, 3, 90, 80), torch.float32)
    small = torch.tensor([[0, i, i, i + 2, i + 3] for i in range(0, 80, 8)], dtype=torch.float32)
    large = torch.tensor([[0, i, i, i + 60, i + 50] for i in range(12)], dtype=torch.float32)
    all_sizes = torch.cat([small, large, BOXES * torch.tensor([0, 1, 1, 1, 1])])
    with threads(count):
        for boxes in (small, large, large[:1], large[:3], all_sizes):
            check(x, boxes, 1.0, 3, 2)


def test_bins_beyond_memory_without_channels() -> None:
    output = torch.roi_pool(torch.ones(1, 0, 4, 5), torch.tensor([[0.0, 0, 0, 1, 1]]), 1.0, 2**40, 1)
    assert output.shape == (1, 0, 2**40, 1)


@pytest.mark.parametrize("shape", [(0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 1, 1)])
def test_no_boxes(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, requires_grad=True)
    output = torch.roi_pool(x, torch.zeros(0, 5), 1.0, 2, 3)
    assert output.shape == (0, shape[1], 2, 3)
    output.sum().backward()
    assert_exact(x.grad, torch.zeros(shape))


def added(grad: torch.Tensor, boxes: torch.Tensor, indices: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Add each gradient at its maximum, box by box and bin by bin: in float for float, otherwise in double."""
    number = np.float32 if grad.dtype == torch.float32 else np.float64
    total = np.zeros((*like.shape[:2], like.shape[2] * like.shape[3]), number)
    for (k, c, i, j), place in np.ndenumerate(indices.numpy()):
        if place >= 0:
            total[int(boxes[k, 0]), c, place] += number(grad[k, c, i, j].item())
    return torch.from_numpy(total).reshape(like.shape).to(like.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF])
def test_gradient(dtype: torch.dtype) -> None:
    """Half types are added in float."""
    x = values((2, 5, 9, 12), dtype).requires_grad_()
    output = torch.roi_pool(x, BOXES, 1.0, 4, 3)
    grad = values(tuple(output.shape), dtype, 2)
    _, indices = reference(x.detach(), BOXES, 1.0, 4, 3)
    torch.testing.assert_close(torch.autograd.grad(output, x, grad)[0], added(grad, BOXES, indices, x.detach()))


def test_gradients_are_added_in_order() -> None:
    """Many boxes have their maximum at the same pixel."""
    x = torch.zeros(2, 1, 9, 12)
    x[:, :, 4, 5] = 1
    boxes = torch.tensor([[1 - k % 2, k % 5, k % 4, 6 + k % 5, 5 + k % 3] for k in range(200)], dtype=torch.float32)
    output, indices = torch.roi_pool_with_indices(x.requires_grad_(), boxes, 1.0, 2, 3)
    assert not indices.requires_grad
    grad = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
    assert_exact(torch.autograd.grad(output, x, grad)[0], added(grad, boxes, indices, x.detach()))


def test_deterministic() -> None:
    boxes = BOXES.repeat(20, 1) * torch.tensor([1, 2, 2, 2, 2])
    x = values((2, 64, 30, 30), torch.float32).requires_grad_()
    check_deterministic(lambda x: torch.roi_pool(x, boxes, 1.0, 7, 7), x)


X, PLACES = torch.ones(2, 3, 4, 5), torch.zeros((8, 3, 2, 2), dtype=torch.int32)
pool = torch.roi_pool
backward = torch.ops.aten.roi_pool_backward


@pytest.mark.unemulated("a kernel for CUDA finds a wrong box by an assertion, which tells no numbers")
@pytest.mark.parametrize(
    ("function", "given", "message"),
    [
        (pool, (X.to("meta", torch.float8_e5m2), BOXES.to("meta"), 1.0, 2, 2), "input to be double, .* but got Float8"),
        (pool, (X, BOXES.to("meta"), 1.0, 2, 2), "boxes to be on input's device cpu, but they are on meta"),
        (pool, (X, torch.tensor([[0, 0, 0, 1, 1], [0.5, 0, 0, 1, 1]]), 1.0, 2, 2), r"images, but it is 0\.5 in row 1"),
        (backward, (PLACES.to(torch.uint32), BOXES, PLACES, X.shape), "expected grad_output to be double, float, half"),
        (backward, (X[:1, :, :2, :2], BOXES[:1], PLACES[:1] + 20, X.shape), "expected indices to be below 20, but got"),
        (
            pool,
            (X[:1, :1, :1, :1].expand(1, 1, 2**16, 2**15), BOXES[:1] * 0, 1.0, 1, 1),
            r"expected a plane of input to have less than 2\^31 elements",
        ),
    ],
)
def test_errors(function: Callable[..., Any], given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(IndexError if "below" in message else RuntimeError, match=message):
        function(*given)


@pytest.mark.parametrize("axis", [2, 3])
def test_export_with_a_dynamic_height_or_width(axis: int) -> None:
    x, sizes = values((2, 3, 9, 12), torch.float32), {axis: torch.export.Dim("size", min=2)}
    exported = torch.export.export(torch.nn.RoIPool((2, 3), 0.5), (x, BOXES), dynamic_shapes=(sizes, None))
    for size in (2, 40):
        other = values((2, 3, *(size if a == axis else x.shape[a] for a in (2, 3))), torch.float32)
        assert_exact(exported.module()(other, BOXES), reference(other, BOXES, 0.5, 2, 3)[0])


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_images_and_boxes_that_a_mask_selects(memory_format: torch.memory_format) -> None:
    """The compiler does not know how many images and boxes there are."""
    x = values((3, 17, 9, 12), torch.float32).to(memory_format=memory_format)
    pool = lambda x, images, boxes: torch.roi_pool(x[images], BOXES[boxes], 1.0, 2, 3)  # noqa: E731
    compiled = torch.compile(pool, fullgraph=True, backend="aot_eager")
    images, boxes = torch.tensor([True, False, True]), BOXES[:, 1] > 0
    expected, _ = reference(x[images], BOXES[boxes], 1.0, 2, 3)
    assert_exact(compiled(x, images, boxes), expected)


@pytest.mark.parametrize("in_dims", [(0, None), (4, None), (None, 0), (0, 0), (3, 1)])
def test_vmap(in_dims: tuple[int | None, int | None]) -> None:
    x, boxes = values((2, 3, 9, 12), torch.float32), BOXES
    if in_dims[0] is not None:
        x = torch.stack([values((2, 3, 9, 12), torch.float32, seed) for seed in (1, 2, 3)], in_dims[0])
    if in_dims[1] is not None:
        boxes = torch.stack([BOXES, BOXES.flip(0), BOXES[[1] * 8]], in_dims[1])
    pool = lambda x, boxes: torch.roi_pool(x, boxes, 1.0, 2, 3)  # noqa: E731
    check_vmap(pool, x, boxes, in_dims=in_dims)
    check_vmap(torch.func.grad(lambda x, boxes: pool(x, boxes).square().sum()), x, boxes, in_dims=in_dims)


@pytest.mark.unemulated("a kernel for CUDA finds a wrong box by an assertion, which tells no numbers")
def test_vmap_keeps_images_apart() -> None:
    boxes = torch.tensor([[[2.0, 0, 0, 1, 1]], [[0.0, 0, 0, 1, 1]]])
    pool = torch.vmap(lambda x, boxes: torch.roi_pool(x, boxes, 1.0, 1, 1))
    for image in (2.0, 3.0, -1.0, 0.5, float("nan")):
        boxes[0, 0, 0] = image
        with pytest.raises(RuntimeError, match=rf"the index of one of input's 2 images, but it is {image:g}"):
            pool(torch.ones(2, 2, 3, 4, 5), boxes)


@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0)])
def test_vmap_over_an_empty_batch(in_dims: tuple[int | None, int | None]) -> None:
    x, boxes = values((2, 3, 9, 12), torch.float32), BOXES
    x, boxes = (y if dim is None else y.expand(0, *y.shape) for y, dim in zip((x, boxes), in_dims, strict=True))
    pool = lambda x, boxes: torch.roi_pool(x, boxes, 1.0, 2, 4)  # noqa: E731
    assert torch.vmap(pool, in_dims)(x, boxes).shape == (0, 8, 3, 2, 4)
    gradient = torch.func.grad(lambda x, boxes: pool(x, boxes).sum())
    assert torch.vmap(gradient, in_dims)(x, boxes).shape == (0, 2, 3, 9, 12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_vmap_of_more_images_than_half_types_count(dtype: torch.dtype) -> None:
    """Images are numbered across the batch: half types cannot represent all integers above 256, or 2048."""
    count = 300 if dtype == torch.bfloat16 else 2100
    x = torch.arange(count).view(count, 1, 1, 1, 1).float()
    boxes = torch.tensor([[0.0, 0, 0, 0, 0]], dtype=dtype).expand(count, 1, 5)
    result = torch.vmap(lambda x, boxes: torch.roi_pool(x, boxes, 1.0, 1, 1))(x, boxes)
    assert torch.equal(result.flatten(), x.flatten())


def test_tangents_have_signs() -> None:
    """gradcheck's tangents have no negative values."""
    x, tangent = values((2, 3, 9, 12), torch.float64), values((2, 3, 9, 12), torch.float64, 1)
    boxes = BOXES.double()
    output, result = torch.func.jvp(lambda x: torch.roi_pool(x, boxes, 1.0, 2, 3), (x,), (tangent,))
    step = 1e-7
    moved = torch.roi_pool(x + step * tangent, boxes, 1.0, 2, 3)
    assert (tangent < 0).any()
    torch.testing.assert_close(result, (moved - output) / step, rtol=1e-5, atol=1e-5)


def check_cpu_capability() -> None:
    """Run by test_cpu_capabilities.py."""
    for channels, dtype in itertools.product((1, 16, 17), REAL):
        check(values((2, channels, 9, 12), dtype), BOXES, 1.0, 3, 2)


def test_memory_format_is_kept() -> None:
    x = values((2, 17, 9, 12), torch.float32).to(memory_format=torch.channels_last)
    for device in ("cpu", "meta"):
        output = torch.roi_pool(x.to(device), BOXES.to(device), 1.0, 3, 2)
        assert output.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_list_of_boxes(dtype: torch.dtype) -> None:
    """As in torchvision, there is one tensor of corners for each image; some images have no boxes."""
    x = values((300, 1, 9, 12), torch.float32)
    each: list[torch.Tensor] = [torch.empty(0, 4, dtype=dtype)] * 300
    each[1], each[297] = BOXES[:3, 1:].to(dtype), BOXES[3:, 1:].to(dtype)
    images = torch.tensor([1] * 3 + [297] * 5)[:, None]
    expected = torch.roi_pool(x, torch.cat([images, BOXES[:, 1:].to(dtype).float()], 1), 0.5, 2, 3)
    module = torch.nn.RoIPool((2, 3), 0.5)
    for function in (partial(F.roi_pool, output_size=(2, 3), spatial_scale=0.5), module, torch.jit.script(module)):
        assert_exact(function(x, each), expected)
    with pytest.raises(ValueError, match=r"expected a list of boxes to hold tensors \[K, 4\]"):
        module(x, [BOXES])


def test_functional_and_module() -> None:
    x = values((2, 3, 9, 12), torch.float32)
    expected, module = torch.roi_pool(x, BOXES, 0.5, 2, 3), torch.nn.RoIPool((2, 3), 0.5)
    for function in (partial(F.roi_pool, output_size=(2, 3), spatial_scale=0.5), module, torch.jit.script(module)):
        assert_exact(function(x, BOXES), expected)
    assert repr(torch.nn.RoIPool(7)) == "RoIPool(output_size=(7, 7), spatial_scale=1.0)"
