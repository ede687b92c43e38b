"""Derivative formulas."""

from collections.abc import Callable

import pytest
import torch
from support import aten, check_gradients, complex_, real
from torch import Tensor
from torch.autograd import forward_ad
from torch.testing._internal.opinfo.core import OpInfo

from tests.kit.opinfos import added_op_infos


@pytest.mark.parametrize(
    "function",
    [
        torch.gr_mix,
        torch.gr_axpy,
        lambda x, y: torch.gr_mix(x, y[:1], alpha=3),
        lambda x, y: x.clone().gr_mix_(y, alpha=3),
        lambda x, y: torch.gr_square(x) + y,
        lambda x, y: x.clone().gr_square_() + y,
        lambda x, y: torch.gr_negate(x) + torch.gr_negate_(y.clone()),
        lambda x, y: torch.gr_half(x) + y.clone().gr_half_(),
        lambda x, y: x.clone().gr_paint_(2) + y,
        lambda x, y: torch.gr_join(x, y),
    ],
)
@pytest.mark.parametrize("make", [real, complex_])
def test_gradients(function: Callable[..., Tensor], make: Callable[..., Tensor]) -> None:
    check_gradients(function, make(2, 3), make(2, 3))


def test_a_real_gradient_for_a_real_input_of_a_complex_result() -> None:
    check_gradients(torch.gr_mix, real(3), complex_(3))
    check_gradients(lambda x, y: torch.gr_mix(x, y, alpha=1 + 2j), complex_(3), complex_(3))


def test_gradients_of_named_outputs() -> None:
    x = torch.tensor([[1.0, 5, 2], [4, 3, 9]], dtype=torch.double, requires_grad=True)
    check_gradients(lambda x: torch.gr_extent(x, dim=1), x)
    check_gradients(lambda x: torch.gr_extent(x, dim=0).high, x)


def test_a_saved_result() -> None:
    x = real(3)
    check_gradients(torch.gr_logistic, x)
    check_gradients(lambda x: x.clone().gr_logistic_(), x)
    y = torch.gr_logistic(x)
    assert y.grad_fn._saved_result is not None
    y.data_ptr()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_saved_values_of_every_type() -> None:
    x = real(3)
    args = (1.5, None, [1, 2], "mode", 3, 4)
    y = torch.gr_keep_all(x, *args, t=2, more=[5], size=(6, 7), factors=[0.5], flag=True, word="ab", dtype=torch.int)
    total = 1.5 + 3 + 4 + 3 + 4 + 2 + 5 + 13 + 0.5 + 1 + 2 + 3
    torch.testing.assert_close(y, x * total)
    (grad,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(grad, torch.full_like(x, total))
    node = y.grad_fn
    assert node.name() == "GrKeepAllBackward0"
    assert (node._saved_a, node._saved_b, node._saved_dims, node._saved_mode) == (1.5, None, (1, 2), "mode")
    assert (node._saved_n, node._saved_s, node._saved_t, node._saved_more) == (3, 4, 2, (5,))
    assert (node._saved_size, node._saved_factors, node._saved_flag, node._saved_word) == ((6, 7), (0.5,), True, "ab")
    y = torch.gr_keep_all(x, *args)
    assert y.grad_fn._saved_word is None
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], torch.full_like(x, 16.5))


def test_saved_size_instead_of_the_tensor() -> None:
    node = torch.gr_row_sum(torch.ones(2, 3, requires_grad=True)).grad_fn
    assert node._saved_self_sym_sizes == (2, 3)
    assert not hasattr(node, "_saved_self")


def test_wrap_opt_if_saves_only_what_is_needed() -> None:
    x, y = real(3), real(2)
    check_gradients(torch.gr_outer, x, y)
    node = torch.gr_outer(x, y.detach()).grad_fn
    assert node._saved_self is None
    assert node._saved_other is not None
    node = torch.gr_outer(x.detach(), y).grad_fn
    assert node._saved_other is None


def test_non_differentiable_and_not_implemented() -> None:
    x, index, other = real(4), torch.tensor([0, 2, 2]), torch.ones(1)
    check_gradients(lambda x: torch.gr_take(x, index, other)[0], x)
    taken = torch.gr_take(x, index, other)
    assert isinstance(taken, torch.return_types.gr_take)
    assert taken.values.requires_grad
    assert not taken.index_out.requires_grad
    other.requires_grad_()
    with pytest.raises(RuntimeError, match=r"derivative for .*gr_take.* is not implemented"):
        torch.gr_take(x, index, other).values.sum().backward()


def test_output_differentiability() -> None:
    assert not torch.gr_no_gradient(real(2), real(2)).requires_grad
    x = real(3, 4)
    moments = torch.gr_moments(x, 1)
    assert (moments.mean.requires_grad, moments.spread.requires_grad, moments.arg.requires_grad) == (True, True, False)
    check_gradients(lambda x: torch.gr_moments(x, 1)[:2], x)
    check_gradients(lambda x: x.gr_moments(0).spread, x)


def test_an_operator_without_a_formula() -> None:
    y = torch.gr_unlisted(real(2))
    with pytest.raises(RuntimeError, match="derivative for aten::gr_unlisted is not implemented"):
        y.sum().backward()


def test_a_list_with_hidden_helpers() -> None:
    a, b = real(2, 3), real(1, 3)
    torch.testing.assert_close(torch.gr_cat([a, b]), torch.cat([a, b]))
    check_gradients(lambda a, b: torch.gr_cat([a, b]), a, b)
    check_gradients(lambda a: torch.gr_cat([a, b.detach()], dim=-2), a)


def test_a_list_beside_a_tensor() -> None:
    a, b, weight = real(3), real(3), real(3)
    check_gradients(lambda a, b, w: torch.gr_weighted([a, b], w), a, b, weight, forward=False)
    check_gradients(lambda w: torch.gr_weighted([a.detach(), b.detach()], w), weight, forward=False)
    check_gradients(lambda b: torch.gr_weighted([a.detach(), b], weight.detach()), b, forward=False)


def test_the_gradient_of_a_gradient() -> None:
    x = real(4)
    check_gradients(lambda x: torch.gr_smooth(x, 2), x)
    check_gradients(lambda g, x: aten.gr_smooth_backward(g, x, 2), real(4), x)
    (first,) = torch.autograd.grad(torch.gr_smooth(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    torch.testing.assert_close(second, 1 - x.tanh() ** 2)
    assert first.grad_fn.name() == "GrSmoothBackwardBackward0"


def test_forward_mode() -> None:
    x, t = torch.randn(3), torch.randn(3)
    value, tangent = torch.func.jvp(torch.gr_cube, (x,), (t,))
    torch.testing.assert_close(value, x**3)
    torch.testing.assert_close(tangent, 3 * x * x * t)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(2), torch.ones(2))
        dual.gr_mix_(torch.ones(2))
        assert forward_ad.unpack_dual(dual).tangent.tolist() == [1, 1]
        with pytest.raises(NotImplementedError, match="forward AD"):
            torch.nn.functional.gr_gate(dual)


def test_out_refuses_gradients() -> None:
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        torch.gr_mix(real(2), real(2), out=torch.empty(2, dtype=torch.double))


# The operators that get an OpInfo for tests.
INFOS: dict[str, OpInfo] = {info.name: info for info in added_op_infos()}


@pytest.mark.parametrize(
    ("name", "why"),
    [("gr_count", "returns an int"), ("gr_mean_value", "returns a float"), ("gr_grow_", "writes to its argument")],
)
def test_operators_that_an_op_info_cannot_describe(name: str, why: str) -> None:
    assert name in torch._added_operators.PUBLIC
    assert name not in INFOS, why


@pytest.mark.parametrize(
    ("name", "backward", "forward"),
    [("gr_square", True, True), ("gr_no_gradient", False, False), ("gr_strided", False, False)],
)
def test_what_op_infos_state(name: str, backward: bool, forward: bool) -> None:
    assert (INFOS[name].supports_autograd, INFOS[name].supports_forward_ad) == (backward, forward)
