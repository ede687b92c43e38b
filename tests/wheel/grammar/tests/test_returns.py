"""Every type of result."""

import pickle
from collections.abc import Callable

import pytest
import torch
from support import aten, check_gradients, real


def test_two_tensors() -> None:
    x = real(3)
    first, second = x.gr_two()
    assert type(torch.gr_two(x)) is tuple
    torch.testing.assert_close(first, x.sin())
    torch.testing.assert_close(second, x.cos())
    check_gradients(torch.gr_two, x)
    check_gradients(lambda x: torch.gr_two(x)[1], x)


def test_three_named_tensors_and_their_out() -> None:
    x = torch.arange(6.0)
    three = x.gr_three(3)
    assert isinstance(three, torch.return_types.gr_three)
    assert three.n_fields == 3
    assert (three.first.tolist(), three.second.tolist(), three.indices.tolist()) == ([0, 1, 2], [3, 4, 5], [0, 1, 2])
    outs = (torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.long))
    result = torch.gr_three(x, n=2, out=outs)
    assert isinstance(result, torch.return_types.gr_three_out)
    assert outs[1].tolist() == [2, 3]
    assert torch.gr_three(x.to("meta")).indices.dtype == torch.long
    assert pickle.loads(pickle.dumps(three)).indices.tolist() == [0, 1, 2]
    tree = torch.utils._pytree.tree_map(lambda t: t + 1, three)
    assert isinstance(tree, torch.return_types.gr_three)


def test_a_list_of_tensors() -> None:
    x = real(5, 2)
    pieces = torch.gr_pieces(x, 2)
    assert isinstance(pieces, tuple)
    torch.testing.assert_close(torch.cat(pieces), x)
    check_gradients(lambda x: x.gr_pieces(2), x, forward=False)
    check_gradients(lambda x: x.gr_pieces(2)[1], x, forward=False)
    outs = [torch.empty(0, dtype=torch.double) for _ in range(2)]
    aten.gr_pieces.out(x.detach(), 2, out=outs)
    assert [out.shape for out in outs] == [(3, 2), (2, 2)]


def test_a_tensor_and_a_list() -> None:
    head, tail = torch.gr_head_and_tail(torch.arange(3))
    assert head == 0
    assert [x.item() for x in tail] == [1, 2]


def test_no_tensor_returned() -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    assert torch.gr_count(x) == x.gr_count() == 3
    assert type(x.gr_count()) is int
    assert torch.gr_mean_value(x) == 1.5
    assert type(torch.gr_mean_value(x)) is float
    assert x.gr_is_square() is True
    assert torch.gr_is_square(x[0]) is False
    # Python receives a Scalar as a tensor.
    assert (x.long().gr_first().item(), x.long().gr_first().dtype) == (0, torch.long)
    assert (x > 5).gr_first().dtype == torch.bool
    assert type(aten.gr_first(x)) is float
    assert torch.gr_range(x) == (3.0, 4)
    assert torch.gr_promoted(x.long(), 2.5) == torch.float
    assert x.long().gr_promoted(2) == torch.long
    assert aten._gr_sym_length_forward(x) == 8
    assert aten._gr_is_even_forward(x) is True


def test_nothing_returned() -> None:
    assert torch.gr_check(torch.ones(2)) is None
    with pytest.raises(RuntimeError, match="gr_check failed"):
        torch.gr_check(torch.zeros(2))
    with pytest.raises(RuntimeError, match="mine"):
        torch.gr_check(torch.zeros(2), message="mine")


def test_quantization_scheme_returned() -> None:
    x = torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8)
    assert torch.gr_scheme(x) == torch.per_tensor_affine


@pytest.mark.parametrize("parts", [torch.gr_parts, torch.gr_parts_explicit, torch.gr_parts_composed])
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_none_among_results(parts: Callable[..., tuple[torch.Tensor, torch.Tensor | None]]) -> None:
    x = real(3)
    for both in (False, True):
        torch.testing.assert_close(parts(x, both), (2 * x, 3 * x if both else None))
    check_gradients(lambda x: parts(x, False)[0], x, forward=False)
    check_gradients(lambda x: parts(x, True), x, forward=False)
    torch.testing.assert_close(torch.vmap(lambda x: parts(x, False)[0])(torch.ones(2, 3)), torch.full((2, 3), 2.0))
    assert parts(x.detach().to("meta"), False)[1] is None


def test_a_result_that_is_none() -> None:
    x = real(3)
    assert torch.gr_part(x, False) is None
    check_gradients(lambda x: torch.gr_part(x, True), x)


def test_results_of_several_kinds() -> None:
    x = torch.zeros(2, requires_grad=True)
    value, *numbers = torch.gr_results(x)
    assert (value.tolist(), numbers) == ([1, 1], [0.5, 2, True])
    first, second = torch.gr_results_composed(x)
    assert ([each.tolist() for each in first], [each.tolist() for each in second]) == ([[0, 0], [1, 1]], [[2, 2]])
    seven = torch.gr_seven(x)
    assert [each[0].item() for each in seven] == [0, 1, 2, 3, 4, 5, 6]
    (seven[6] * 2 + second[0] + value).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [4, 4]
    unit = torch.jit.CompilationUnit("def f(x):\n    a, b, c, d = torch.gr_results(x)\n    return b + c\n")
    assert unit.f(torch.zeros(2)) == 2.5
