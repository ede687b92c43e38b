"""depthwise_conv2d: values and gradients against F.conv2d in double, errors."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from depthwise import CASES, DTYPES, FORMATS, LARGE, Case, backward, check, convolution
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import at_capability, check_deterministic


@pytest.mark.parametrize(("case", "dtype", "memory_format"), list(itertools.product(CASES, DTYPES, FORMATS)))
def test_values_and_gradients(case: Case, dtype: torch.dtype, memory_format: torch.memory_format) -> None:
    check(case, dtype, memory_format)
    inputs = case.inputs(dtype, memory_format)
    real, meta = (torch.depthwise_conv2d(*(x.to(d) for x in inputs), *case.parameters) for d in ("cpu", "meta"))
    assert (meta.shape, meta.stride(), meta.dtype) == (real.shape, real.stride(), real.dtype)


@pytest.mark.unemulated("how kernels for CPUs use their caches")
@pytest.mark.parametrize(("case", "memory_format"), list(itertools.product(LARGE, FORMATS)))
def test_more_than_caches_hold(case: Case, memory_format: torch.memory_format) -> None:
    check(case, torch.float32, memory_format)


def at_least(least: int, most: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(least, most), st.integers(least, most))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kernel, dilation, padding = draw(at_least(1, 8)), draw(at_least(1, 3)), draw(at_least(0, 9))
    # The smallest size that the window fits into, and some larger ones.
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, d, p in zip(kernel, dilation, padding, strict=True)]
    size = (least[0] + draw(st.integers(0, 24)), least[1] + draw(st.integers(0, 40)))
    batch, channels = draw(st.sampled_from([None, 0, 1, 2, 3])), draw(st.integers(1, 40))
    stride = draw(st.one_of(at_least(1, 4), at_least(40, 80)))
    return Case(batch, channels, size, kernel, stride, padding, dilation, draw(st.integers(1, 3)))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(case=cases(), dtype=st.sampled_from(DTYPES), channels_last=st.booleans(), has_bias=st.booleans())
def test_any_parameters(case: Case, dtype: torch.dtype, channels_last: bool, has_bias: bool) -> None:
    check(case, dtype, FORMATS[channels_last], has_bias)


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
@pytest.mark.parametrize("shape", [(1, 2, 1600, 1600), (64, 17, 112, 112), (2048, 3, 7, 7)])
def test_gradients_that_sum_many_pixels(shape: tuple[int, ...], memory_format: torch.memory_format) -> None:
    """The error must not grow with the image, even for equal numbers, whose rounding errors do not cancel."""
    grad = torch.full(shape, 0.1).to(memory_format=memory_format)
    x, weight = torch.ones_like(grad), torch.ones(shape[1], 1, 1, 1)
    _, of_weight, of_bias = backward(grad, x, weight, (1, 1), (0, 0), (1, 1), [False, True, True])
    expected = grad.double().sum((0, 2, 3))
    torch.testing.assert_close(of_bias.double(), expected, rtol=4e-6, atol=0)
    torch.testing.assert_close(of_weight.double().flatten(), expected, rtol=4e-5, atol=0)


@pytest.mark.unemulated("how much memory kernels for CPUs take")
def test_memory_of_the_weight_gradient() -> None:
    """The backward allocates one sum for each tap, channel and chunk of rows."""
    x, grad, weight = torch.ones(4, 512, 64, 64), torch.ones(4, 512, 64, 64), torch.ones(512, 1, 3, 3)
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        backward(grad, x, weight, (1, 1), (1, 1), (1, 1), [False, True, True])
    # Chunks of 16 rows, and the images that a thread transposes.
    sums = 4 * 64 // 16 * 512 * (3 * 3 + 1) * 4
    packed = torch.get_num_threads() * 16 * (16 + 18) * 64 * 4
    # The memory in an operator's own events excludes what it has freed.
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    assert sum(max(event.nbytes(), 0) for event in events) < 1.2 * (sums + packed)


@pytest.mark.parametrize("special", [float("nan"), float("inf")])
@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("channels", [1, 3, 40])
def test_special_weights_and_gradients_at_the_edges(
    channels: int, memory_format: torch.memory_format, special: float
) -> None:
    """An infinite weight does not reach pixels whose tap is in the padding: 0 times infinity would give NaN."""
    case = Case(1, channels, (5, 40), (3, 3), padding=(1, 1))
    x, weight, _ = (torch.ones_like(t) for t in case.inputs(torch.float32, memory_format))
    finite = F.conv2d(x, weight, padding=1, groups=channels)
    for a, b in itertools.product(range(3), range(3)):
        wrong = weight.clone()
        wrong[-1, 0, a, b] = special
        expected = finite.clone()
        rows, columns = (slice(max(1 - k, 0), size - max(k - 1, 0)) for k, size in ((a, 5), (b, 40)))
        expected[:, -1, rows, columns] = special
        result = torch.depthwise_conv2d(x, wrong, None, *case.parameters)
        torch.testing.assert_close(result, expected, equal_nan=True)
        of_input, *_ = backward(x, x, wrong, *case.parameters, [True, False, False])
        turned = finite.flip(2, 3)
        turned[:, -1, rows, columns] = special
        torch.testing.assert_close(of_input, turned.flip(2, 3), equal_nan=True)
    grad = x.clone()
    grad[0, -1, 0, 0] = special
    _, of_weight, _ = backward(grad, x, weight, *case.parameters, [False, True, False])
    assert of_weight[-1, 0, 1:, 1:].sub(special).isnan().all()
    assert of_weight[-1, 0, 0].isfinite().all() and of_weight[-1, 0, :, 0].isfinite().all()


def test_input_without_pixels() -> None:
    x, weight, bias = torch.empty(2, 3, 0, 4), torch.randn(3, 1, 3, 3), torch.randn(3)
    result = torch.depthwise_conv2d(x, weight, bias, padding=2)
    assert torch.equal(result, bias.view(3, 1, 1).expand(2, 3, 2, 6))


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize(("channels", "batch"), [(0, (2,)), (0, ()), (3, (2,))])
def test_no_output_channels(channels: int, batch: tuple[int, ...], memory_format: torch.memory_format) -> None:
    """Without input channels, or with an empty weight; F.conv2d has no such groups."""
    x = torch.ones(*batch, channels, 5, 6)
    x = (x.to(memory_format=memory_format) if batch else x).requires_grad_()
    weight, bias = torch.ones(0, 1, 3, 2, requires_grad=True), torch.ones(0, requires_grad=True)
    for padding, size in ((1, (5, 7)), ("valid", (3, 5)), ("same", (5, 6))):
        for inputs in ([x, weight, bias], [x.detach().to("meta"), weight.to("meta"), bias.to("meta")]):
            assert torch.depthwise_conv2d(*inputs, padding=padding).shape == (*batch, 0, *size)
    result = torch.depthwise_conv2d(x, weight, bias)
    for grad, of in zip(torch.autograd.grad(result.sum(), (x, weight, bias)), (x, weight, bias), strict=True):
        assert grad.shape == of.shape and not grad.any()


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # of F.conv2d
@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("batch", [2, None])
@pytest.mark.parametrize("kernel", [(3, 5), (4, 2), (1, 6), (3, 2)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 3), (3, 2)])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_by_name(
    padding: str,
    dilation: tuple[int, int],
    kernel: tuple[int, int],
    batch: int | None,
    memory_format: torch.memory_format,
) -> None:
    case, stride = Case(batch, 3, (17, 18), kernel, multiplier=2), (2, 3) if padding == "valid" else (1, 1)
    ours, theirs = ([x.requires_grad_() for x in case.inputs(torch.float64, memory_format)] for _ in "ab")
    result = torch.depthwise_conv2d(*ours, stride, padding, dilation)
    expected = F.conv2d(*theirs, stride, padding, dilation, groups=3)
    torch.testing.assert_close(result, expected)
    if batch:
        assert result.is_contiguous(memory_format=memory_format)
    meta = torch.depthwise_conv2d(*(x.to("meta") for x in ours), stride, padding, dilation)
    assert (meta.shape, meta.stride()) == (result.shape, result.stride())
    grad = torch.randn_like(expected)
    torch.testing.assert_close(torch.autograd.grad(result, ours, grad), torch.autograd.grad(expected, theirs, grad))


@pytest.mark.parametrize(("dtype", "memory_format"), list(itertools.product(DTYPES, FORMATS)))
@pytest.mark.parametrize("special", [float("nan"), float("inf")])
@pytest.mark.parametrize("stride", [1, 2])
def test_special_values_reach_the_windows_that_hold_them(
    dtype: torch.dtype, memory_format: torch.memory_format, special: float, stride: int
) -> None:
    """Each pixel in turn is special, so that a lane outside an edge would show in values or gradients."""
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
        (plain,) = torch.autograd.grad(convolution(leaf, weight.float(), None, case), leaf, spoiled.float())
        assert torch.equal(back.isfinite(), plain.isfinite())


def test_window_has_at_most_2_31_rows() -> None:
    """This is no error input in samples.py, because PyTorch's tests copy those."""
    x, weight = torch.zeros(1, 4, 8, 8), torch.zeros(4, 1, 1, 3).expand(4, 1, 2**40, 3)
    with pytest.raises(RuntimeError, match=rf"from 1 to 2\^31 - 1, got \[4, 1, {2**40}, 3\]"):
        torch.depthwise_conv2d(x, weight)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_errors_of_the_backward(device: str) -> None:
    x, weight = torch.zeros(1, 4, 8, 8, device=device), torch.zeros(4, 1, 3, 3, device=device)
    grad = torch.zeros(1, 4, 6, 6, device=device)
    rest = ((1, 1), (0, 0), (1, 1), [True] * 3)
    name = r"depthwise_conv2d\(\): expected "
    with pytest.raises(RuntimeError, match=name + r".* sizes of the result, \[1, 4, 6, 6\], got \[1, 4, 6, 5\]"):
        backward(grad[..., :5], x, weight, *rest)
    with pytest.raises(RuntimeError, match=name + r".* sizes of the result, \[4, 6, 6\], got \[1, 4, 6, 6\]"):
        backward(grad, x[0], weight, *rest)
    with pytest.raises(RuntimeError, match=name + r"grad_output to have input's dtype Float, but got Half"):
        backward(grad.half(), x, weight, *rest)
    with pytest.raises(RuntimeError, match=name + r"weight to have input's dtype Float, but got Double"):
        backward(grad, x, weight.double(), *rest)
    with pytest.raises(RuntimeError, match=name + r"dilation to be at least 1, got \[1, 0\]"):
        backward(grad, x, weight, (1, 1), (0, 0), (1, 0), [True] * 3)


@pytest.mark.parametrize(
    "parameters", [{"stride": 2**40}, {"padding": (0, 2**20), "dilation": (1, 2**20)}, {"stride": (2**62, 2**33)}]
)
@pytest.mark.parametrize("channels", [3, 32])
@pytest.mark.parametrize("memory_format", FORMATS)
def test_extreme_parameters(parameters: dict[str, object], memory_format: torch.memory_format, channels: int) -> None:
    """The work depends on the elements that are used, not on the parameters. 32 channels are read without packing."""
    x = torch.randn(1, channels, 9, 9).to(memory_format=memory_format).requires_grad_()
    weight = torch.randn(channels, 1, 3, 3, requires_grad=True)
    result = torch.depthwise_conv2d(x, weight, **parameters)
    if "stride" in parameters:
        expected = F.conv2d(x[..., :3, :3], weight, groups=channels)
    else:  # only the middle column of the window overlaps the image
        expected = F.conv2d(x, weight[..., 1:2], groups=channels)
    torch.testing.assert_close(result, expected)
    ours, theirs = (torch.autograd.grad(each.sum(), (x, weight)) for each in (result, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("memory_format", FORMATS)
@pytest.mark.parametrize("case", [Case(4, 40, (29, 30), (5, 5), padding=(2, 2)), LARGE[0], LARGE[2]])
def test_the_same_bits_every_time(case: Case, memory_format: torch.memory_format) -> None:
    inputs = [tensor.requires_grad_() for tensor in case.inputs(torch.float32, memory_format)]
    check_deterministic(lambda *inputs: torch.depthwise_conv2d(*inputs, *case.parameters), *inputs)


def check_cpu_capability() -> None:
    """Run by test_cpu_capabilities.py."""
    for case, dtype, memory_format in itertools.product(CASES, DTYPES, FORMATS):
        check(case, dtype, memory_format)
    for case in LARGE:
        check(case, torch.float32, torch.channels_last)


ROUNDING = """
import torch
for dtype in (torch.half, torch.bfloat16):
    x = torch.arange(-2**15, 2**15, dtype=torch.int16).view(dtype).view(1, 64, 32, 32)
    for factor in torch.tensor([1.0, 1.5, -0.334, 2.0**-9, 2.0**9], dtype=dtype):
        expected = (x.float() * factor.float()).to(dtype)
        for memory_format in (torch.contiguous_format, torch.channels_last):
            image = x.contiguous(memory_format=memory_format)
            for channels in (64, 40):
                result = torch.depthwise_conv2d(image[:, :channels], factor.expand(channels, 1, 1, 1))
                wanted = expected[:, :channels]
                assert torch.equal(result.isnan(), wanted.isnan()), (factor, memory_format, channels)
                result, wanted = (t[~wanted.isnan()] + 0.0 for t in (result, wanted))  # to which -0 adds as 0
                assert torch.equal(result, wanted), (factor, memory_format, channels)
"""


@pytest.mark.parametrize("capability", ["DEFAULT", "AVX2", "AVX512"])
def test_half_types_round_every_number(capability: str) -> None:
    """Every value of a half type is multiplied by a few factors: ties, subnormal numbers, overflow, inf and NaN."""
    at_capability(capability, ROUNDING)
