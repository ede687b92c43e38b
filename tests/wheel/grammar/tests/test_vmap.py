"""vmap: derived rules, rules of the folder, and the loop."""

import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from support import aten
from torch import Tensor
from vmaps import check_vmap

DROP = "performance drop"
DIMS: tuple[int | None, ...] = (None, 0, 1, -1)
SIZE = 3


def batched(tensor: Tensor, dim: int | None) -> Tensor:
    """Stack ``SIZE`` samples with different values along ``dim``; if it is None, return the one that all share."""
    return tensor if dim is None else torch.stack([tensor, tensor.flip(0) - 1, 2 * tensor], dim)


def check_every_batch(function: Callable[..., Any], *tensors: Tensor) -> None:
    """Compare ``vmap`` with a loop for each choice of batch dimensions, and for two nested ones."""
    for dims in itertools.product(DIMS, repeat=len(tensors)):
        if any(dim is not None for dim in dims):
            check_vmap(function, *map(batched, tensors, dims), in_dims=dims)
    inner, outer = (-1,) * len(tensors), (None, *(0,) * (len(tensors) - 1)) if len(tensors) > 1 else (0,)
    batches = map(batched, map(batched, tensors, inner), outer)
    check_vmap(torch.vmap(function, inner), *batches, in_dims=outer)


def test_vmap_decomposes_what_is_composite() -> None:
    x = torch.randn(2, 3, 3)
    torch.testing.assert_close(torch.vmap(torch.gr_turn)(x), x.transpose(1, 2))
    torch.testing.assert_close(torch.vmap(torch._gr_secret)(x), x + 42)


@pytest.fixture
def always_warns() -> Iterator[None]:
    """Warnings that PyTorch otherwise gives only the first time."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("no_loop")
def test_vmap_has_a_rule_for_what_is_tagged_pointwise() -> None:
    x, y = torch.randn(2, 3, 3), torch.randn(3, 2)
    torch.testing.assert_close(torch.vmap(torch.gr_negate)(x), -x)
    expected = torch.stack([-x[i].mT for i in range(2)])
    assert torch.equal(torch.vmap(torch.gr_negate_)(x.clone().mT), expected)
    torch.testing.assert_close(torch.vmap(torch.gr_axpy, (0, 1))(x, y), y.T[:, None] + x)
    torch.testing.assert_close(
        torch.vmap(torch.func.grad(lambda x: torch.gr_mix(x, x).sum()))(x), torch.full_like(x, 3)
    )


@pytest.mark.usefixtures("no_loop")
def test_vmap_uses_the_rules_of_the_folder() -> None:
    x = torch.randn(3, 2, 4)
    torch.testing.assert_close(torch.vmap(torch.gr_row_sum, 1)(x), x.sum(-1).T)
    torch.testing.assert_close(torch.vmap(lambda x: torch.gr_row_sum(x, 0, True), 1)(x), x.sum(0)[:, None])
    torch.testing.assert_close(torch.vmap(aten.gr_cube, 1, 1)(x), x**3)
    assert re.search(r"FuncTorchBatched: .*GrammarBatching\.cpp", torch._C._dispatch_dump("aten::gr_mix"))


def test_vmap_prefers_kernels_of_the_folder() -> None:
    x = torch.zeros(2, 3)
    for own in (
        torch.gr_own_pointwise,
        torch.gr_own_composite,
        torch.gr_own_explicit,
        lambda x: torch.gr_own_composite(x, 0),
    ):
        assert torch.equal(torch.vmap(own)(x), x + 100)
        assert own(x).max() < 2


def test_autocast_prefers_the_kernel_of_the_folder() -> None:
    x = torch.zeros(3, dtype=torch.bfloat16)
    with torch.autocast("cpu"):
        result = torch.gr_own_cast(x)
    assert torch.equal(result, x + 100)
    assert torch.equal(torch.gr_own_cast(x), x + 1)


X, Y, W, B = torch.arange(20.0).view(4, 5).sin(), torch.arange(20.0).view(4, 5).cos(), torch.eye(3, 5), torch.ones(3)


@pytest.mark.usefixtures("no_loop")
@pytest.mark.parametrize(
    ("function", "tensors"),
    [
        (torch.gr_chain, (X, Y)),
        (lambda x, y: torch.gr_chain(x, y, alpha=3), (X, Y[0])),
        (torch.gr_normalize, (X,)),
        (lambda x: x.gr_normalize(0, 0.5), (X,)),
        (torch.gr_project, (X, W)),
        (torch.gr_signs, (X,)),
        (torch.gr_places, (X,)),
        (torch.gr_square, (X,)),
        (torch.gr_round_through, (X,)),
        (torch.gr_cast_product, (X, X.T)),
        (lambda x, y: torch.gr_sum_list([x, y, x], scale=2), (X, Y)),
        (lambda x, y: aten.gr_sum_some(x, [None, y]), (X, Y)),
        (lambda x: torch.gr_pieces(x, 2), (X,)),
        (lambda x: x.gr_diag(1), (X,)),
        (lambda x: torch.gr_halves(x, 1)[1], (X,)),
    ],
)
def test_vmap_calls_a_kernel_of_operators_once(function: Callable[..., Any], tensors: tuple[Tensor, ...]) -> None:
    check_every_batch(function, *tensors)


@pytest.mark.usefixtures("no_loop")
def test_vmap_calls_a_kernel_with_an_optional_tensor_once() -> None:
    for dims in [(0, None, 0), (0, 0, None), (1, -1, -1), (None, 0, 0)]:
        check_vmap(torch.gr_project, *map(batched, (X, W, B), dims), in_dims=dims)


def test_vmap_takes_an_empty_batch_without_a_loop() -> None:
    assert torch.vmap(torch.gr_normalize)(torch.empty(0, 3)).shape == (0, 3)
    assert torch.vmap(torch.gr_places)(torch.empty(0, 3)).shape == (0, 3)


@pytest.mark.usefixtures("always_warns")
@pytest.mark.parametrize(
    ("function", "tensors"),
    [
        (torch.gr_by_value, (X,)),
        (torch.gr_by_pointer, (X, Y)),
        (torch.gr_by_iterator, (X,)),
        (torch.gr_by_copy, (X,)),
        (torch.gr_by_shape, (X + 9,)),
        (torch.gr_on_cpu, (X,)),
        (torch.gr_square_, (X,)),
    ],
)
def test_vmap_loops_over_other_kernels(function: Callable[..., Any], tensors: tuple[Tensor, ...]) -> None:
    batches = [batched(tensor, 0) for tensor in tensors]
    with pytest.warns(UserWarning, match=DROP):
        check_vmap(lambda *tensors: function(*(x.clone() for x in tensors)), *batches, in_dims=(0,) * len(batches))
    if function is not torch.gr_square_:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=f".*{DROP}")
            check_every_batch(function, *tensors)


def flat(result: Any) -> list[Tensor]:
    return [result[0], *result[1]]


LISTS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "two lists, two results": (lambda x, y: flat(aten.gr_products([x, y, x], [None, y])), (X, Y)),
    "lists of different shapes": (lambda x, y: flat(aten.gr_products([x, x + 1], [y[0], None])), (X, Y)),
    "a tensor and lists": (lambda x, y, w: aten.gr_total(x, [y, x], [None, w]), (X, Y, X.exp())),
    "an empty list": (lambda x, y: aten.gr_total(x, [y], []), (X, Y)),
    "a result that is a list": (lambda x, y: aten.gr_total_backward(x, [y, None], 3), (X, Y)),
    "data-dependent": (lambda x: aten.gr_positive([x.exp(), -x.exp(), x.exp()]), (X,)),
}


@pytest.mark.filterwarnings(f"ignore:.*{DROP}")
@pytest.mark.parametrize("name", LISTS)
def test_vmap_loops_over_kernels_with_lists(name: str) -> None:
    function, tensors = LISTS[name]
    check_every_batch(function, *tensors)


def test_vmap_loops_over_lists_in_place() -> None:
    x, y, changed = batched(X, 0), batched(Y, 1), batched(X, 0)
    with pytest.warns(UserWarning, match=f"{DROP}.*gr_total_"):
        result = torch.vmap(lambda x, y: x.gr_total_([y, y], [W[0]]), (0, 1))(changed, y)
    expected = x + y.movedim(1, 0) * (1 + W[0])
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(changed, expected)
    with pytest.raises(RuntimeError, match="gr_total_"):
        torch.vmap(lambda y: X.clone().gr_total_([y], []), 1)(y)


@pytest.mark.usefixtures("always_warns")
def test_vmap_warns_of_a_loop_over_lists_as_of_others() -> None:
    x = batched(X, 0)
    with pytest.warns(UserWarning, match=DROP) as seen:
        torch.vmap(lambda x: torch.gr_total(x, [x], []) + torch.gr_on_cpu(x))(x)
    ours, theirs = (str(each.message).partition(" (")[0] for each in seen)
    assert ours == theirs.replace("gr_on_cpu", "gr_total")


@pytest.mark.filterwarnings("error")
def test_vmap_loops_over_lists_without_a_warning_that_is_disabled() -> None:
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)
    try:
        check_vmap(lambda x: torch.gr_total(x, [x], []), batched(X, 0), in_dims=(0,))
    finally:
        torch._C._functorch._set_vmap_fallback_warning_enabled(True)


@pytest.mark.filterwarnings(f"ignore:.*{DROP}")
def test_vmap_reports_what_a_loop_over_lists_cannot_do() -> None:
    with pytest.raises(RuntimeError, match=r"^stack expects each tensor to be equal size"):
        torch.vmap(lambda x: aten.gr_positive([x]))(torch.tensor([[1.0, -1], [1, 1]]))
    with pytest.raises(RuntimeError, match="gr_positive returned a list of 0 tensors for one sample, and of 1 for"):
        torch.vmap(lambda x: aten.gr_positive([x]))(torch.tensor([[-1.0, -1], [1, 1]]))
    with pytest.raises(RuntimeError, match=r"rule not implemented for aten::gr_total, .* a batch of size 0"):
        torch.vmap(lambda x: aten.gr_total(x, [x], []))(torch.ones(0, 3))


@pytest.mark.usefixtures("no_loop")
def test_vmap_without_a_loop_refuses_lists() -> None:
    with pytest.raises(RuntimeError, match="aten::gr_total hit the vmap fallback which is currently disabled"):
        torch.vmap(lambda x: aten.gr_total(x, [x], []))(X)
    # None of its tensors is batched at this level.
    found = torch.vmap(lambda x: x + aten.gr_total(Y, [Y], []))(X[:, None])
    torch.testing.assert_close(found, X[:, None] + 2 * Y)


@pytest.mark.usefixtures("no_loop")
def test_vmap_looks_at_the_arguments_of_each_call() -> None:
    """If all samples share a tensor, vmap does not change how the kernel reads it."""
    batch = batched(Y, 0)
    torch.testing.assert_close(torch.vmap(torch.gr_by_pointer, (None, 0))(X, batch), 2 * X + batch)


def test_vmap_gives_results_that_can_be_written_to() -> None:
    x = batched(X, 0)
    result = torch.vmap(lambda x: torch.gr_places(x).add_(x.round().long()))(x)
    assert torch.equal(result, torch.arange(20).view(4, 5) + x.round().long())
    view = torch.vmap(lambda x: x.gr_diag().zero_())(x)
    assert torch.equal(view, torch.zeros(SIZE, 4))
    assert torch.equal(x.diagonal(0, 1, 2), view)


def test_vmap_reports_what_a_sample_would() -> None:
    with pytest.raises(RuntimeError, match=r"^The size of tensor a \(5\) must match the size of tensor b \(3\)"):
        torch.vmap(torch.gr_chain)(torch.ones(2, 4, 5), torch.ones(2, 3))
    with pytest.raises(RuntimeError, match=r"^gr_project\(\): expected 3 columns, got 5"):
        torch.vmap(torch.gr_project)(torch.ones(2, 4, 5), torch.ones(2, 4, 3))
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.vmap(lambda x: torch.gr_normalize(x, 4))(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match=r"^The size of tensor a \(5\) must match [^\n]* dimension 0$"):
        torch.vmap(lambda x, y: torch.gr_sum_list([x, y]))(torch.ones(2, 5), torch.ones(2, 3))


@pytest.mark.usefixtures("always_warns")
def test_vmap_is_random_as_it_is_told() -> None:
    x = torch.zeros(SIZE, 8)
    with pytest.warns(UserWarning, match=DROP):
        looped_over = torch.vmap(torch.gr_jitter)(x)
    assert not torch.equal(looped_over[0], looped_over[1])
    different = torch.vmap(torch.gr_jitter, randomness="different")(x)
    assert not torch.equal(different[0], different[1])
    same = torch.vmap(torch.gr_jitter, randomness="same")(x)
    assert torch.equal(same[0], same[1])
    assert same.min() >= 0
    assert same.unique().numel() > 1
    for randomness in ("error", "same", "different"):
        for function in (torch.gr_shaken, lambda x: torch.gr_shaken_together([x, x])):
            with pytest.warns(UserWarning, match=DROP):
                shaken = torch.vmap(function, randomness=randomness)(x)
            assert not torch.equal(shaken[0], shaken[1])


def chain(x: Tensor) -> Tensor:
    return torch.gr_chain(x, Y.double(), alpha=3)


def tanh(x: Tensor) -> Tensor:
    return torch.tanh(3 * x + Y.double())


def softplus(x: Tensor) -> Tensor:
    return x.cosh().log()


@pytest.mark.filterwarnings(f"ignore:.*{DROP}")
@pytest.mark.parametrize(("ours", "theirs"), [(chain, tanh), (torch.gr_smooth, softplus)])
def test_vmap_and_derivatives_compose(ours: Callable[..., Tensor], theirs: Callable[..., Tensor]) -> None:
    x = batched(X, 0).double()

    def jvp(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1]

    def summed(f: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: (f(x) ** 2).sum()

    for transform in (torch.func.grad, torch.func.hessian):
        torch.testing.assert_close(torch.vmap(transform(summed(ours)))(x), torch.vmap(transform(summed(theirs)))(x))
    for transform in (torch.func.jacrev, torch.func.jacfwd, jvp):
        torch.testing.assert_close(torch.vmap(transform(ours))(x), torch.vmap(transform(theirs))(x))
        torch.testing.assert_close(transform(ours)(x[0]), transform(theirs)(x[0]))


@pytest.mark.usefixtures("no_loop")
def test_vmap_of_derivatives_needs_no_loop() -> None:
    x = batched(X, 0).double()
    expected = 3 * (1 - tanh(x) ** 2)
    torch.testing.assert_close(torch.vmap(torch.func.grad(lambda x: chain(x).sum()))(x), expected)
    per_sample = torch.vmap(lambda x: torch.func.jvp(chain, (x,), (torch.ones_like(x),))[1])(x)
    torch.testing.assert_close(per_sample, expected)
    # gr_smooth_backward has a composite kernel, too.
    torch.testing.assert_close(torch.func.jacrev(torch.gr_smooth)(x[0, 0]), x[0, 0].tanh().diag())


@pytest.mark.filterwarnings(f"ignore:.*{DROP}")
def test_derivatives_of_vmap_are_those_of_the_formulas() -> None:
    """The kernel rounds, so the derivatives of the operators that it calls would be zero."""
    x = batched(X, 0)
    through = torch.vmap(torch.gr_round_through)
    expected = torch.full_like(x, 3)
    torch.testing.assert_close(torch.func.grad(lambda x: through(x).sum())(x), expected)
    torch.testing.assert_close(torch.func.jvp(through, (x,), (torch.ones_like(x),))[1], expected)
    leaf = x.clone().requires_grad_()
    through(leaf).sum().backward()
    torch.testing.assert_close(leaf.grad, expected)
    with torch.autograd.forward_ad.dual_level():
        dual = through(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(dual).tangent, expected)
    nested = torch.vmap(torch.func.grad(lambda x: through(x).sum()))(torch.stack([x, x]))
    torch.testing.assert_close(nested, torch.stack([expected] * 2))


@pytest.mark.filterwarnings(f"ignore:.*{DROP}")
def test_vmap_over_lists_and_derivatives_compose() -> None:
    x, y = batched(X, 0).double(), Y.double()

    def ours(x: Tensor) -> Tensor:
        return aten.gr_total(x, [x, y, x * x], [None, y, y]) ** 2

    def theirs(x: Tensor) -> Tensor:
        return (2 * x + y * y + y * x * x) ** 2

    expected = torch.func.grad(lambda x: theirs(x).sum())(x)
    torch.testing.assert_close(torch.vmap(torch.func.grad(lambda x: ours(x).sum()))(x), expected)
    torch.testing.assert_close(torch.func.grad(lambda x: torch.vmap(ours)(x).sum())(x), expected)
    leaf = x.clone().requires_grad_()
    torch.vmap(ours)(leaf).sum().backward()
    torch.testing.assert_close(leaf.grad, expected)
    torch.testing.assert_close(torch.func.jacrev(ours)(x[0]), torch.func.jacrev(theirs)(x[0]))
    torch.testing.assert_close(torch.vmap(torch.func.jacrev(ours))(x), torch.vmap(torch.func.jacrev(theirs))(x))


@pytest.mark.filterwarnings(f"ignore:.*{DROP}")
def test_derivatives_of_vmap_over_lists_are_those_of_the_formulas() -> None:
    """The kernel is composed of others, and only looped over because it has a formula of its own."""
    x = batched(X, 0).double()

    def total(cat: Callable[..., Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda x: (torch.vmap(lambda x: cat([x, Y.double(), x * x], 1))(x) ** 2).sum()

    ours, theirs = total(torch.gr_cat), total(torch.cat)
    for transform in (torch.func.grad, torch.func.jacfwd):
        torch.testing.assert_close(transform(ours)(x), transform(theirs)(x))


@pytest.mark.usefixtures("no_loop")
def test_vmap_without_gradients_needs_no_loop() -> None:
    leaf = batched(X, 0).requires_grad_()
    with torch.no_grad():
        torch.testing.assert_close(torch.vmap(torch.gr_round_through)(leaf), leaf.round())


@pytest.mark.filterwarnings(f"ignore:.*{DROP}")
def test_autocast_casts_under_vmap() -> None:
    x = batched(X, 0).bfloat16()
    with torch.autocast("cpu"):
        result = torch.vmap(torch.gr_cast_product, (0, None))(x, X.T)
    assert result.dtype == torch.float
    torch.testing.assert_close(result, x.float() @ X.T)


@pytest.mark.usefixtures("always_warns")
def test_vmap_takes_kernels_that_are_registered_later() -> None:
    x = torch.zeros(2, 3)
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("gr_own_cast", lambda x: x + 7, "CPU")
        with pytest.warns(UserWarning, match=DROP):
            assert torch.equal(torch.vmap(torch.gr_own_cast)(x), x + 7)
    assert torch.equal(torch.vmap(torch.gr_own_cast)(x), x + 1)
