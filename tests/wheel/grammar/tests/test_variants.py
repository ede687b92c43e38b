"""Functional, in-place and out variants, handwritten and generated."""

import pytest
import torch
from support import aten, check_gradients, real


@pytest.mark.parametrize("name", ["square", "half", "cube", "logistic"])
def test_functional_in_place_and_out(name: str) -> None:
    expected_of = {
        "square": lambda x: x * x,
        "half": lambda x: x / 2,
        "cube": lambda x: x**3,
        "logistic": lambda x: 1 / (1 + (-x).exp()),
    }
    x = torch.randn(4)
    expected = expected_of[name](x)
    torch.testing.assert_close(getattr(torch, f"gr_{name}")(x), expected)
    out = torch.empty(4)
    assert getattr(aten, f"gr_{name}").out(x, out=out) is out
    torch.testing.assert_close(out, expected)
    if name != "cube":
        assert getattr(torch, f"gr_{name}_")(x) is x
        torch.testing.assert_close(x, expected)


def test_a_hand_written_out_is_bound_and_a_generated_one_is_not() -> None:
    out = torch.empty(2)
    torch.gr_square(torch.ones(2), out=out)
    assert out.tolist() == [1, 1]
    with pytest.raises(TypeError, match="out"):
        torch.gr_cube(torch.ones(2), out=out)


def test_functional_and_out_generated_from_in_place() -> None:
    x = torch.zeros(3)
    assert aten.gr_paint(x, 4).tolist() == [4, 4, 4]
    assert x.tolist() == [0, 0, 0]
    assert aten.gr_paint.out(x, 5, out=torch.empty(3)).tolist() == [5, 5, 5]
    assert torch.gr_paint_(x, 6) is x
    assert x.gr_paint_(value=7).tolist() == [7, 7, 7]
    assert not hasattr(torch, "gr_paint"), "upstream binds no operator that is generated whole"


def test_functional_and_out_generated_from_mutable() -> None:
    x, total = torch.ones(2), torch.full((2,), 10.0)
    assert torch.gr_tally(x, total).tolist() == [10, 10]
    assert total.tolist() == [11, 11]
    before, after = aten.gr_tally_functional(x, total)
    assert (before.tolist(), after.tolist(), total.tolist()) == ([11, 11], [12, 12], [11, 11])
    out = torch.empty(2)
    aten.gr_tally.out(x, total, out=out)  # torchgen's kernel calls the functional variant and drops the new total
    assert out.tolist() == [11, 11]


def test_functional_and_out_generated_from_an_in_place_list() -> None:
    xs = [torch.zeros(2), torch.ones(1)]
    assert torch.gr_bump_all_(xs, 2) is None
    assert [x.tolist() for x in xs] == [[2, 2], [3]]
    assert [x.tolist() for x in aten.gr_bump_all(xs)] == [[3, 3], [4]]
    outs = [torch.empty(2), torch.empty(1)]
    aten.gr_bump_all.out(xs, 5, out=outs)
    assert [x.tolist() for x in outs] == [[7, 7], [8]]
    assert [x.tolist() for x in xs] == [[2, 2], [3]]


def test_foreach_takes_its_derivative_from_the_plain_operator() -> None:
    xs = [real(2), real(3)]
    for squared, x in zip(torch._foreach_gr_square(xs), xs, strict=True):
        torch.testing.assert_close(squared, x * x)
    check_gradients(lambda *xs: torch._foreach_gr_square(list(xs)), *xs, second=False, forward=False)
    ys = [x.detach().clone() for x in xs]
    assert type(torch._foreach_gr_square_(ys)) is type(torch._foreach_add_([torch.ones(1)], 1))
    torch.testing.assert_close(ys[0], (xs[0] * xs[0]).detach())
    leaf = real(2)
    copy = leaf.clone()
    torch._foreach_gr_square_([copy])
    (grad,) = torch.autograd.grad(copy.sum(), leaf)
    torch.testing.assert_close(grad, 2 * leaf.detach())
