"""Depthwise convolutions of PyTorch's operators: which kernel computes them, values, gradients, strides, errors."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, _graft, nn
from torch._inductor import config as inductor

CHANNELS = 24
DTYPES = [torch.float, torch.double, torch.bfloat16, torch.half]
FORMATS = [torch.contiguous_format, torch.channels_last]
Function = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    """More than two were not measured."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def image(*sizes: int, dtype: torch.dtype = torch.float, memory_format: torch.memory_format = FORMATS[0]) -> Tensor:
    return torch.randn(sizes).to(dtype).clone(memory_format=memory_format)


def layer(dtype: torch.dtype = torch.float) -> nn.Conv2d:
    return nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS, dtype=dtype)


def conv(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.conv2d(x, weight, bias, 1, 1, 1, CHANNELS)


# What PyTorch's `_convolution` and `convolution_backward` call.
BACKENDS = {f"aten::{name}" for name in ("mkldnn_convolution", "_slow_conv2d_forward", "_slow_conv2d_backward")}


def is_ours(call: Callable[[], object]) -> bool:
    """Return whether no convolution that this calls is computed by a backend of PyTorch."""
    with torch.autograd.profiler.profile() as profile:
        call()
    names = {event.name for event in profile.function_events}
    assert names & {"aten::_convolution", "aten::convolution_backward"}
    return not names & BACKENDS


def packaged(function: Function, *inputs: Tensor) -> Function:
    class Module(nn.Module):
        def forward(self, *args: Tensor) -> Tensor:
            return function(*args)

    package = torch._inductor.aoti_compile_and_package(torch.export.export(Module(), inputs))
    loaded: Function = torch._inductor.aoti_load_package(package)
    return loaded


def wrapped(function: Function, *inputs: Tensor) -> Function:
    """Compile to C++ that calls operators."""
    with inductor.patch(cpp_wrapper=True):
        compiled = torch.compile(function, fullgraph=True)
        compiled(*inputs)
    return compiled


WAYS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "conv2d": conv,
    "convolution": lambda x, w, b: torch.convolution(x, w, b, [1], [1], [1], False, [0], CHANNELS),
    "padding": lambda x, w, b: F.conv2d(x, w, b, padding="same", groups=CHANNELS),
    "image without a batch": lambda x, w, b: torch.stack([conv(each, w, b) for each in x]),
    "vmap": lambda x, w, b: torch.vmap(conv, (0, None, None))(x, w, b),
    "vmap over weights": lambda x, w, b: torch.vmap(conv, (None, 0, 0))(x, w[None], b[None])[0],
    "out": lambda x, w, b: torch.ops.aten.convolution.out(
        x, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], CHANNELS, out=torch.empty_like(x)
    ),
}
# Each makes a function of another one and its inputs.
COMPILERS: dict[str, Callable[..., Function]] = {
    "trace": lambda function, *inputs: torch.jit.trace(function, inputs),
    "compile": lambda function, *inputs: torch.compile(function, fullgraph=True),
    "cpp_wrapper": wrapped,
    "AOTInductor": packaged,
}


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    return image(2, CHANNELS, 13, 17), image(CHANNELS, 1, 3, 3), image(CHANNELS)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_calls_our_kernel(way: str) -> None:
    arguments = inputs()
    call = partial(WAYS[way], *arguments)
    assert is_ours(call)
    torch.testing.assert_close(call(), torch.depthwise_conv2d(*arguments, 1, 1))
    with _graft.stock():
        assert not is_ours(call)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("compiler", COMPILERS)
def test_compiled_calls_our_kernel(compiler: str) -> None:
    torch._dynamo.reset()
    arguments = inputs()
    with torch.no_grad():
        call = partial(COMPILERS[compiler](conv, *arguments), *arguments)
        call()
        assert is_ours(call)
        assert torch.equal(call(), torch.depthwise_conv2d(*arguments, 1, 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_calls_our_kernels(dtype: torch.dtype) -> None:
    """Forward and backward, also through the parameters of a module."""
    module, x = layer(dtype), image(2, CHANNELS, 13, 17, dtype=dtype).requires_grad_()
    y = module(x)
    grad = torch.randn_like(y)
    assert is_ours(lambda: module(x))
    # oneDNN's backward is no operator.
    assert is_ours(lambda: y.backward(grad)) or dtype in (torch.float, torch.bfloat16)
    ours = torch.ops.aten.depthwise_conv2d_backward(grad, x.detach(), module.weight.detach(), [1], [1], [1], [True] * 3)
    for found, expected in zip((x.grad, module.weight.grad, module.bias.grad), ours, strict=True):
        assert torch.equal(found, expected)


def test_one_dimension() -> None:
    """Its stride and padding are those of the width."""
    x, weight, bias = image(2, CHANNELS, 90), image(CHANNELS, 1, 5), image(CHANNELS)
    call = partial(F.conv1d, x, weight, bias, 2, 3, 1, CHANNELS)
    ours = torch.depthwise_conv2d(x[:, :, None], weight[:, :, None], bias, [1, 2], [0, 3])[:, :, 0]
    assert is_ours(call) and torch.equal(call(), ours)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_settings_keep_their_meaning() -> None:
    call = partial(conv, *inputs())
    assert is_ours(call)
    with torch.backends.mkldnn.flags(enabled=False):
        assert not is_ours(call)
    for precision in ("bf16", "tf32"):
        torch.backends.mkldnn.conv.fp32_precision = precision
        try:
            assert not is_ours(call)
        finally:
            torch.backends.mkldnn.conv.fp32_precision = "none"
    torch.use_deterministic_algorithms(True)
    try:
        assert is_ours(call)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("variables", [{"TORCH_FASTER": "0"}, {"ATEN_CPU_CAPABILITY": "default"}, {}])
def test_variables(variables: dict[str, str]) -> None:
    """``TORCH_FASTER=0`` turns all kernels of this folder off; processors that were not measured do not use it."""
    code = f"""import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import {Path(__file__).stem} as test
print(test.is_ours(lambda: test.conv(*test.inputs())))"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OMP_NUM_THREADS": "2"} | variables,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{not variables}\n", done.stderr


GEOMETRIES = [
    # sizes, kernel, stride, padding, dilation
    ((2, 6, 9, 11), (3, 3), 1, 1, 1),
    ((2, 40, 9, 11), (5, 3), 2, 2, 1),
    ((3, 7, 12, 5), (3, 3), 1, 2, 2),
    ((1, 6, 1, 1), (3, 3), 1, 1, 1),
    ((1, 6, 1, 1), (1, 1), 1, 0, 1),
    ((2, 6, 3, 3), (3, 3), 1, 0, 1),
    ((1, 5, 7, 1), (3, 3), 1, 4, 1),
    ((2, 16, 20), (3,), 2, 1, 1),
    ((1, 5, 1), (3,), 1, 1, 1),
]
CASES = list(itertools.product(GEOMETRIES, DTYPES, FORMATS, FORMATS, [True, False]))


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *parameters: int) -> tuple[Tensor, ...]:
    """Return the result and the gradients for a fixed gradient of the result."""
    stride, padding, dilation = ([each] * (x.dim() - 2) for each in parameters)
    kind = stride, padding, dilation, False, [0] * (x.dim() - 2), x.shape[1]
    y = torch.convolution(x, weight, bias, *kind)
    grad = torch.linspace(-1, 1, y.numel(), dtype=torch.double).view(y.shape).to(y)
    sizes = None if bias is None else bias.shape
    grads = torch.ops.aten.convolution_backward(grad, x, weight, sizes, *kind, [True, True, bias is not None])
    return (y, *grads) if bias is not None else (y, *grads[:2])


@pytest.mark.parametrize(("geometry", "dtype", "x_format", "weight_format", "has_bias"), CASES)
def test_values_and_strides(
    geometry: tuple[tuple[int, ...], tuple[int, ...], int, int, int],
    dtype: torch.dtype,
    x_format: torch.memory_format,
    weight_format: torch.memory_format,
    has_bias: bool,
) -> None:
    """Strides are those of PyTorch's backend, values those in double up to rounding."""
    sizes, kernel, *parameters = geometry
    if len(sizes) == 3:
        x_format = weight_format = torch.contiguous_format
    x = image(*sizes, dtype=dtype, memory_format=x_format)
    weight = image(sizes[1], 1, *kernel, dtype=dtype, memory_format=weight_format)
    bias = image(sizes[1], dtype=dtype) if has_bias else None
    with _graft.stock():
        stock = convolution(x, weight, bias, *parameters)
        exact = convolution(x.double(), weight.double(), None if bias is None else bias.double(), *parameters)
    for found, theirs, expected in zip(convolution(x, weight, bias, *parameters), stock, exact, strict=True):
        assert (found.shape, found.stride(), found.dtype) == (theirs.shape, theirs.stride(), theirs.dtype)
        scale = max(1.0, float(expected.abs().max()))
        assert float((found.double() - expected).abs().max()) <= 4 * torch.finfo(dtype).eps * scale


def test_second_derivatives() -> None:
    inputs = [image(*sizes, dtype=torch.double).requires_grad_() for sizes in [(1, 3, 4, 5), (3, 1, 3, 3), (3,)]]
    function = partial(F.conv2d, padding=1, groups=3)
    assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, inputs)


def test_gradient_of_taps_that_see_only_padding_is_zero() -> None:
    """oneDNN leaves them as they were in memory, in bfloat16 and with a stride."""
    x = image(1, 40, 1, 1, dtype=torch.bfloat16)
    weight = image(40, 1, 3, 3, dtype=torch.bfloat16)
    grad = convolution(x, weight, None, 2, 1, 1)[2]
    assert grad.flatten(1).count_nonzero(0).tolist() == [0, 0, 0, 0, 40, 0, 0, 0, 0]


@pytest.mark.parametrize("memory_format", FORMATS)
def test_threads_do_not_change_bits(memory_format: torch.memory_format) -> None:
    inputs = image(2, CHANNELS, 40, 40, memory_format=memory_format), image(CHANNELS, 1, 3, 3), image(CHANNELS)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(convolution(*inputs, 1, 1, 1))
    for each in results[1:]:
        assert all(map(torch.equal, each, results[0]))


def sizes_of(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float) -> list[Tensor]:
    return [torch.ones(shape, dtype=dtype) for shape in shapes]


BROKEN: list[Callable[[], object]] = [
    lambda: F.conv2d(*sizes_of((1, 4, 5, 5), (4, 1, 7, 7)), groups=4),
    lambda: F.conv2d(*sizes_of((1, 4, 5, 5), (4, 1, 3, 3), (3,)), groups=4),
    lambda: F.conv2d(*sizes_of((1, 4, 5, 5), (4, 1, 3, 3)), stride=0, groups=4),
    lambda: F.conv2d(*sizes_of((1, 4, 5, 5), (4, 1, 3, 3)), padding=-1, groups=4),
    lambda: F.conv2d(*sizes_of((1, 4, 5, 5), (4, 1, 3, 3)), dilation=0, groups=4),
    lambda: F.conv2d(*sizes_of((1, 4, 5, 5), (4, 1, 3, 3)), stride=(1, 1, 1), groups=4),
    lambda: F.conv2d(*sizes_of((1, 4, 5, 5)), *sizes_of((4, 1, 3, 3), dtype=torch.double), groups=4),
    lambda: F.conv2d(*sizes_of((1, 4, 5, 5), (4, 1, 3, 3), dtype=torch.long), groups=4),
    lambda: F.conv2d(*sizes_of((1, 4, 5, 5), (4, 1, 3, 3)), *sizes_of((4,), dtype=torch.half), groups=4),
    lambda: F.conv2d(*sizes_of((1, 4, 5, 5), (4, 1, 3, 3)).__reversed__(), groups=4),
    lambda: torch.convolution(*sizes_of((1, 4, 5, 5), (4, 1, 3, 3), (4,)), [1], [1], [1], False, [1], 4),
    lambda: torch.ops.aten.convolution_backward(
        *sizes_of((1, 4, 9, 9), (1, 4, 5, 5), (4, 1, 3, 3)), [0], [1], [1], [1], False, [0], 4, [True] * 3
    ),
    lambda: F.conv2d(*sizes_of((0, 4, 5, 5), (4, 1, 3, 3)), groups=4),
]


def outcome(call: Callable[[], object]) -> str:
    try:
        return str(call())
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("call", BROKEN)
def test_errors_are_those_of_pytorch(call: Callable[[], object]) -> None:
    with _graft.stock():
        expected = outcome(call)
    assert outcome(call) == expected


def test_other_convolutions_are_those_of_pytorch() -> None:
    """Dense, grouped and transposed ones."""
    x = image(2, 8, 9, 9)
    for groups in (1, 2, 4):
        for function in (F.conv2d, F.conv_transpose2d):
            weight = image(8, 8 // groups, 3, 3)
            with _graft.stock():
                stock = function(x, weight, groups=groups)
            assert torch.equal(function(x, weight, groups=groups), stock)
