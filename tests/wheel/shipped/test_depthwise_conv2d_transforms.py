"""depthwise_conv2d with derivatives, vmap, autocast and compilers; its module."""

import copy
import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from depthwise import FORMATS, Case, backward, convolution
from samples import check_third_derivatives, double, flops
from torch.nn.utils import prune
from vmaps import check_vmap


def test_third_derivative() -> None:
    check_third_derivatives(
        lambda x, weight: torch.depthwise_conv2d(x, weight, None, 1, 1),
        double((1, 1, 3, 3)),
        double((1, 1, 2, 2), seed=2),
    )


IN_DIMS = [dims for dims in itertools.product([0, None], repeat=3) if any(dim is not None for dim in dims)]


@pytest.mark.parametrize(("in_dims", "batch"), list(itertools.product(IN_DIMS, [2, None])))
@pytest.mark.parametrize("multiplier", [1, 2])
def test_vmap(in_dims: tuple[int | None, ...], batch: int | None, multiplier: int) -> None:
    """The operator has batching rules: the fallback would warn, and warnings are errors here."""
    case = Case(batch, 3, (6, 7), (3, 3), (1, 2), (1, 1), multiplier=multiplier)
    samples = [case.inputs(torch.float64, torch.contiguous_format, seed) for seed in range(4)]
    stacked = [
        torch.stack([sample[i] for sample in samples]) if dim == 0 else samples[0][i] for i, dim in enumerate(in_dims)
    ]

    def f(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.depthwise_conv2d(x, weight, bias, *case.parameters)

    def grads(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.func.grad(lambda *args: f(*args).sin().sum(), argnums=(0, 1, 2))(x, weight, bias)

    for function in (f, grads):
        check_vmap(function, *stacked, in_dims=in_dims)


REFUSED = [
    ({"input": (5, 5)}, r"expected input to be 4-D \[N, C, H, W\] or 3-D \[C, H, W\], got \[5, 5\]"),
    ({"weight": (3, 3, 3)}, r"expected weight to be 4-D .* got \[3, 3, 3\]"),
    ({"bias": (1,)}, r"expected bias to be 1-D with 3 elements, got \[1\]"),
    ({"bias": (2, 3)}, r"expected bias to be 1-D with 3 elements, got \[2, 3\]"),
    ({"bias": ()}, r"expected bias to be 1-D with 3 elements, got \[\]"),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
def test_vmap_refuses_what_eager_refuses(wrong: dict[str, tuple[int, ...]], message: str) -> None:
    shapes = {"input": (3, 5, 5), "weight": (3, 1, 2, 2), "bias": (3,), **wrong}
    given = {name: torch.ones(shape) for name, shape in shapes.items()}
    message = r"depthwise_conv2d\(\): " + message
    with pytest.raises(RuntimeError, match=message):
        torch.depthwise_conv2d(**given)
    batched = [x.expand(3, *x.shape) if name in wrong else x for name, x in given.items()]
    with pytest.raises(RuntimeError, match=message):
        torch.vmap(torch.depthwise_conv2d, tuple(0 if name in wrong else None for name in shapes))(*batched)


def test_vmap_refuses_another_dtype() -> None:
    x, weight, bias = torch.ones(3, 5, 5), torch.ones(3, 1, 2, 2), torch.ones(4, 3, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"expected bias to have input's dtype Float, but got Double"):
        torch.vmap(torch.depthwise_conv2d, (None, None, 0))(x, weight, bias)
    grad = torch.ones(4, 3, 4, 3)
    rest = ((1, 1), (0, 0), (1, 1), [True] * 3)
    with pytest.raises(RuntimeError, match=r"the sizes of the result, \[3, 4, 4\], got \[3, 4, 3\]"):
        torch.vmap(lambda g: backward(g, x, weight, *rest))(grad)


def test_vmap_nested_and_at_other_dimensions() -> None:
    x, weight = torch.randn(2, 5, 3, 6, 4, 6), torch.randn(3, 1, 3, 3, 5)
    nested = torch.func.vmap(torch.func.vmap(torch.depthwise_conv2d, in_dims=(3, None)), in_dims=(1, 4))(x, weight)
    for i, j in itertools.product(range(5), range(4)):
        torch.testing.assert_close(nested[i, j], torch.depthwise_conv2d(x[:, i, :, :, j], weight[..., i]))


@pytest.mark.parametrize(
    ("overload", "arguments"), [("default", (3, 1, 1)), ("padding", ((4, 3), 1, "same", (1, 2)))], ids=["", "by name"]
)
def test_export_with_dynamic_shapes(overload: str, arguments: tuple[object, ...]) -> None:
    module = torch.nn.DepthwiseConv2d(4, *arguments)
    dynamic = {"input": {0: torch.export.Dim("n"), 2: torch.export.Dim("h", min=4), 3: torch.export.Dim("w", min=4)}}
    program = torch.export.export(module, (torch.randn(2, 4, 9, 8),), dynamic_shapes=dynamic)
    assert f"aten.depthwise_conv2d.{overload}" in program.graph_module.code
    x = torch.randn(5, 4, 17, 6)
    assert torch.equal(program.module()(x), module(x))


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
@pytest.mark.parametrize("memory_format", FORMATS)
def test_images_that_a_mask_selects(memory_format: torch.memory_format) -> None:
    """The compiler does not know how many images there are."""
    x, weight, bias = Case(3, 4, (9, 8), (3, 3)).inputs(torch.float64, memory_format)
    leaf, mask = weight.clone().requires_grad_(), torch.tensor([True, False, True])
    compiled = torch.compile(
        lambda x, mask, weight: torch.depthwise_conv2d(x[mask], weight, bias), fullgraph=True, backend="aot_eager"
    )
    result = compiled(x, mask, leaf)
    expected = F.conv2d(x[mask], weight.requires_grad_(), bias, groups=4)
    torch.testing.assert_close(result, expected)
    assert result.is_contiguous(memory_format=memory_format)
    (found,), (wanted,) = (torch.autograd.grad(y.square().sum(), w) for y, w in ((result, leaf), (expected, weight)))
    torch.testing.assert_close(found, wanted)


def test_flops_are_those_of_conv2d() -> None:
    for case in (Case(2, 3, (9, 8), (3, 2), (2, 1), (1, 0)), Case(None, 3, (6, 6), (3, 3), multiplier=2)):
        inputs = [x.requires_grad_() for x in case.inputs(torch.float32, torch.contiguous_format)]
        forward = 2 * convolution(*inputs, case).numel() * math.prod(case.kernel)
        # Each of the two gradients takes as many.
        assert flops(lambda *args, c=case: F.depthwise_conv2d(*args, *c.parameters), *inputs) == (forward, 3 * forward)
        assert flops(lambda *args, c=case: convolution(*args, c), *inputs)[0] == forward


def test_module() -> None:
    torch.manual_seed(0)
    module = torch.nn.DepthwiseConv2d(4, (3, 5), stride=2, padding=(1, 2), dilation=1, channel_multiplier=2)
    torch.manual_seed(0)
    peer = torch.nn.Conv2d(4, 8, (3, 5), 2, (1, 2), groups=4)
    assert torch.equal(module.weight, peer.weight) and torch.equal(module.bias, peer.bias)
    peer.load_state_dict(module.state_dict())
    x = torch.randn(2, 4, 9, 10)
    torch.testing.assert_close(module(x), peer(x))
    assert torch.equal(torch.jit.script(module)(x), module(x))
    plain = torch.nn.DepthwiseConv2d(4, 3, dilation=2, bias=False, dtype=torch.float64)
    assert plain.bias is None and plain.weight.dtype == torch.float64
    padded = torch.nn.DepthwiseConv2d(3, padding="same", padding_mode="reflect")
    for each, said in (
        (module, "4, kernel_size=(3, 5), stride=(2, 2), padding=(1, 2), channel_multiplier=2"),
        (torch.nn.DepthwiseConv2d(4), "4, kernel_size=(3, 3), stride=(1, 1)"),
        (plain, "4, kernel_size=(3, 3), stride=(1, 1), dilation=(2, 2), bias=False"),
        (padded, "3, kernel_size=(3, 3), stride=(1, 1), padding='same', padding_mode=reflect"),
    ):
        assert str(each) == f"DepthwiseConv2d({said})"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"channels": 0}, "channels and channel_multiplier must be positive, got 0 and 1"),
        ({"channels": 3, "padding": "full"}, "Invalid padding string 'full'"),
        ({"channels": 3, "stride": 2, "padding": "same"}, "padding='same' is not supported for strided convolutions"),
    ],
)
def test_module_refuses_what_it_cannot_compute(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torch.nn.DepthwiseConv2d(**arguments)


PADDING_MODES = ["zeros", "reflect", "replicate", "circular"]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # of F.conv2d
@pytest.mark.parametrize("padding", [(1, 2), "same", "valid"], ids=str)
@pytest.mark.parametrize("padding_mode", PADDING_MODES)
def test_module_pads_as_conv2d_does(padding_mode: str, padding: tuple[int, int] | str) -> None:
    arguments = {"padding": padding, "dilation": (1, 2), "padding_mode": padding_mode, "dtype": torch.float64}
    peer = torch.nn.Conv2d(3, 6, (4, 3), groups=3, **arguments)
    module = torch.nn.DepthwiseConv2d(3, (4, 3), channel_multiplier=2, **arguments)
    module.load_state_dict(peer.state_dict())
    peer.load_state_dict(module.state_dict())
    for shape in ((2, 3, 9, 8), (3, 9, 8)):
        x = torch.randn(shape, dtype=torch.float64)
        torch.testing.assert_close(module(x), peer(x))
        torch.testing.assert_close(torch.jit.script(module)(x), peer(x))
        torch._dynamo.reset()  # it compiles one function only a few times
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), peer(x))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # of F.conv2d
@pytest.mark.parametrize("padding_mode", PADDING_MODES)
@pytest.mark.parametrize(
    "arguments",
    [
        {"kernel_size": 3, "stride": 2, "padding": 1},
        {"kernel_size": (4, 3), "padding": "same", "dilation": (1, 2), "bias": False},
        {"kernel_size": 3, "padding": "valid", "dtype": torch.float64},
    ],
)
def test_from_conv2d(arguments: dict[str, object], padding_mode: str) -> None:
    conv = torch.nn.Conv2d(4, 8, groups=4, padding_mode=padding_mode, **arguments).eval()
    conv.weight.requires_grad_(False)
    state = torch.get_rng_state()
    module = torch.nn.DepthwiseConv2d.from_conv2d(conv)
    assert torch.equal(torch.get_rng_state(), state)
    assert type(module) is torch.nn.DepthwiseConv2d
    assert module.weight is conv.weight and module.bias is conv.bias
    assert not module.training and not module.weight.requires_grad
    assert (module.channels, module.channel_multiplier) == (4, 2)
    x = torch.randn(2, 4, 9, 10, dtype=conv.weight.dtype)
    torch.testing.assert_close(module(x), conv(x))
    torch.testing.assert_close(copy.deepcopy(module)(x), conv(x))
    assert torch.nn.DepthwiseConv2d.from_conv2d(conv.train()).training


class PadsLikeTensorFlow(torch.nn.Conv2d):
    """A "same" convolution, as timm has one for weights of TensorFlow."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(F.pad(x, (1, 1, 1, 1)))


class Named(torch.nn.Conv2d):
    """Computes what its base class does."""


class Scaled(torch.nn.Conv2d):
    def _conv_forward(self, *args: torch.Tensor) -> torch.Tensor:
        return 2 * super()._conv_forward(*args)


def replaced() -> torch.nn.Conv2d:
    conv = torch.nn.Conv2d(4, 4, 3, groups=4)
    conv.forward = lambda x: x  # type: ignore[method-assign]
    return conv


def pruned(name: str) -> torch.nn.Module:
    return prune.l1_unstructured(torch.nn.Conv2d(4, 4, 3, groups=4), name, 0.5)


NO_PARAMETER = "to be a parameter; remove its parametrization or pruning first"
OTHERWISE = "expected a Conv2d that computes as Conv2d does, but"


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (torch.nn.Conv2d(8, 8, 3, groups=2), "as many groups as input channels, got groups=2 for 8 input channels"),
        (torch.nn.Conv1d(4, 4, 3, groups=4), "expected a Conv2d, got Conv1d"),
        (torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(4, 4, 3, groups=4)), f"weight {NO_PARAMETER}"),
        (pruned("weight"), f"expected conv.weight {NO_PARAMETER}"),
        (pruned("bias"), f"expected conv.bias {NO_PARAMETER}"),
        (PadsLikeTensorFlow(4, 4, 3, groups=4), f"{OTHERWISE} PadsLikeTensorFlow"),
        (Scaled(4, 4, 3, groups=4), f"{OTHERWISE} Scaled"),
        (replaced(), f"{OTHERWISE} Conv2d"),
    ],
)
def test_from_conv2d_refuses_other_convolutions(module: torch.nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torch.nn.DepthwiseConv2d.from_conv2d(module)


@pytest.mark.parametrize("conv", [Named(4, 4, 3, groups=4), torch.nn.DepthwiseConv2d(4, padding=1)])
def test_from_conv2d_takes_subclasses_that_compute_the_same(conv: torch.nn.Module) -> None:
    x, module = torch.randn(2, 4, 6, 5), torch.nn.DepthwiseConv2d.from_conv2d(conv)
    torch.testing.assert_close(module(x), conv(x))
    assert type(module) is torch.nn.DepthwiseConv2d
