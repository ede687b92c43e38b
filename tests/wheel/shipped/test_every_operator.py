"""Tests for every shipped operator: autocast, vmap of gradients, any batch."""

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from samples import result_and_gradients, values
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo
from vmaps import check_vmap

from tests.kit.fuzz.judge import run
from tests.kit.fuzz.valid import made, overload_of, valid_calls
from tests.kit.opinfos import added_op_infos


@dataclass(frozen=True)
class Operator:
    """An operator as a function of its differentiable tensors.

    Args:
        function: calls it.
        shapes: returns its tensors' shapes, for a batch of the given size.
    """

    function: Callable[..., Tensor]
    shapes: Callable[[int], list[tuple[int, ...]]]

    def inputs(self, batch: int = 2, dtype: torch.dtype = torch.float32) -> list[Tensor]:
        """Return tensors to call it with."""
        return [values(shape, dtype, seed).requires_grad_() for seed, shape in enumerate(self.shapes(batch))]


BOXES = torch.tensor([[0, 0, 0, 5, 4], [1, 2, 1, 6, 5], [1, 4, 4, 3, 3]], dtype=torch.float32)
OPERATORS = {
    "gdh": Operator(torch.gdh, lambda n: [(n, 3, 4)]),
    "twice_plus": Operator(torch.twice_plus, lambda n: [(n, 3, 4), (4,)]),
    "mul_constant": Operator(lambda x: torch.mul_constant(x, 2.5), lambda n: [(n, 3, 4)]),
    "affine": Operator(torch.affine, lambda n: [(n, 3, 4), (5, 4), (5,)]),
    "depthwise_conv2d": Operator(torch.depthwise_conv2d, lambda n: [(n, 4, 9, 8), (4, 1, 3, 3), (4,)]),
    "improved_triplet_loss": Operator(
        lambda *inputs: torch.improved_triplet_loss(*inputs, -1.0, 0.01, 0.5, "none"), lambda n: [(n, 7)] * 3
    ),
    "roi_pool": Operator(lambda x: torch.roi_pool(x, BOXES.to(x.dtype), 1.0, 2, 3), lambda n: [(n, 3, 6, 7)]),
    "fft.rfft2_abs": Operator(torch.fft.rfft2_abs, lambda n: [(n, 4, 6)]),
    "correlate2d": Operator(torch.correlate2d, lambda n: [(n, 6, 7), (2, 3)]),
}
every_operator = pytest.mark.parametrize("operator", OPERATORS.values(), ids=OPERATORS)


def test_the_table_is_complete() -> None:
    public = set(torch._added_operators.PUBLIC)
    assert public - set(OPERATORS) == {"improved_triplet_loss_with_distances", "roi_pool_with_indices"}


def said_by_pytorch(x: Tensor, y: Tensor) -> str:
    """Return the message of PyTorch's decompositions for shapes that do not fit; it differs between releases."""
    with pytest.raises(RuntimeError) as caught:
        torch._refs.add(x, y)
    return re.escape(str(caught.value))


@pytest.mark.parametrize(
    "info", [info for info in added_op_infos() if info.name in OPERATORS], ids=lambda info: info.name
)
def test_meta_tensors_are_refused_alike(info: OpInfo) -> None:
    for wrong in info.error_inputs("meta"):
        sample = wrong.sample_input
        if "out" in sample.kwargs:  # which a decomposition rejects with its own message
            continue
        expected = wrong.error_regex
        if expected.startswith("The size of tensor a"):
            expected += f"|{said_by_pytorch(sample.input, sample.args[0])}"
        with pytest.raises(wrong.error_type, match=expected):
            info(sample.input, *sample.args, **sample.kwargs)


# By operator, its dtype under autocast and a call. Matrix products and convolutions take the input in half and the
# parameters in float, as between layers, and run in half; sums of many terms run in float;
# a maximum is one of the inputs.
BOX = torch.zeros(1, 5)
UNDER_AUTOCAST = {
    "affine": (torch.bfloat16, lambda x: torch.affine(x.bfloat16(), x)),
    "depthwise_conv2d": (
        torch.bfloat16,
        lambda x: torch.depthwise_conv2d(x.bfloat16()[None, None], x[None, None, :3, :3]),
    ),
    "depthwise_conv2d.padding": (
        torch.bfloat16,
        lambda x: torch.depthwise_conv2d(x.bfloat16()[None, None], x[None, None, :3, :3], padding="same"),
    ),
    "improved_triplet_loss": (torch.float32, lambda x: torch.improved_triplet_loss(*[x.bfloat16()] * 3)),
    "rfft2_abs": (torch.float32, lambda x: torch.fft.rfft2_abs(x.bfloat16())),
    "correlate2d": (torch.float32, lambda x: torch.correlate2d(x.bfloat16(), x.bfloat16()[:3, :3])),
    "roi_pool": (torch.float32, lambda x: torch.roi_pool(x[None, None], BOX, 1.0, 2, 2)),
    "roi_pool of half": (torch.bfloat16, lambda x: torch.roi_pool(x.bfloat16()[None, None], BOX, 1.0, 2, 2)),
}


@pytest.mark.parametrize("name", UNDER_AUTOCAST)
def test_dtype_under_autocast(name: str) -> None:
    dtype, call = UNDER_AUTOCAST[name]
    with torch.autocast("cpu", torch.bfloat16):
        assert call(torch.rand(5, 5)).dtype == dtype


@every_operator
def test_vmap_of_the_gradient(operator: Operator) -> None:
    """Each choice of batched inputs is tested. A fallback would warn, and warnings are errors here."""
    inputs = [x.detach() for x in operator.inputs(dtype=torch.float64)]
    square = lambda *inputs: operator.function(*inputs).square().sum()  # noqa: E731
    gradient = torch.func.grad(square, argnums=tuple(range(len(inputs))))
    for chosen in itertools.product([None, 0], repeat=len(inputs)):
        if any(dim == 0 for dim in chosen):
            given = [x if dim is None else torch.stack([x, -x, 2 * x]) for x, dim in zip(inputs, chosen, strict=True)]
            check_vmap(gradient, *given, in_dims=chosen)


@every_operator
def test_gradient_of_vmap(operator: Operator) -> None:
    """Autograd records what a batching rule calls, as in a model that uses torch.vmap."""
    inputs = [torch.stack([x, -x, 2 * x]).detach().requires_grad_() for x in operator.inputs(dtype=torch.float64)]
    batched = torch.vmap(operator.function)(*inputs)
    looped = torch.stack([operator.function(*each) for each in zip(*inputs, strict=True)])
    found, expected = (torch.autograd.grad(result.square().sum(), inputs) for result in (batched, looped))
    torch.testing.assert_close(found, expected)


class Calling(torch.nn.Module):
    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.operator.function(*inputs)


@every_operator
def test_compiled_and_exported_for_any_batch(operator: Operator) -> None:
    """Code for a batch of one size gives the results, and compiled code the gradients, for a batch of another."""
    if operator.function is torch.fft.rfft2_abs and torch.__version__ < "2.7":
        pytest.skip("no fft function of this release takes symbolic shapes")
    compiled = torch.compile(operator.function, fullgraph=True, backend="aot_eager", dynamic=True)
    is_batched = [two != three for two, three in zip(operator.shapes(2), operator.shapes(3), strict=True)]
    dynamic = tuple({0: torch.export.Dim.AUTO} if each else None for each in is_batched)
    exported = torch.export.export(Calling(operator), tuple(operator.inputs()), dynamic_shapes=(dynamic,)).module()
    for batch in (2, 4):
        inputs = operator.inputs(batch)
        expected = result_and_gradients(operator.function, *inputs)
        torch.testing.assert_close(result_and_gradients(compiled, *inputs), expected)
        torch.testing.assert_close(exported(*inputs), expected[0])


def test_fuzzer_has_valid_calls() -> None:
    """It varies calls of every operator, including those called only by derivative formulas."""
    calls = valid_calls()
    assert set(calls) == set(torch._added_operators.OPERATORS)
    for name, of_name in calls.items():
        overload = overload_of(name)
        assert of_name, name
        for call in of_name if not overload._schema.is_mutable else []:
            run(overload, made(call))
