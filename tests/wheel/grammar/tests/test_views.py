"""Views, their copies, and functionalization."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import aten, check_gradients, complex_, real
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

VIEWS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Tensor], Any]]] = {
    "gr_turn": (torch.gr_turn, torch.t),
    "gr_diag": (lambda x: torch.gr_diag(x, 1), lambda x: torch.diagonal(x, 1)),
    "gr_window": (lambda x: torch.gr_window(x, 1, 2), lambda x: x[1:3]),
    "gr_swap": (torch.gr_swap, lambda x: x.transpose(0, 1)),
    "gr_halves": (lambda x: torch.gr_halves(x, 1)[0], lambda x: x.chunk(2, 1)[0]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view(name: str) -> None:
    view, expected = VIEWS[name]
    x = torch.randn(4, 4)
    result = view(x)
    torch.testing.assert_close(result, expected(x), check_stride=True)
    assert result._is_view()
    assert result._base is x
    result.fill_(7)
    assert (expected(x) == 7).all()


@pytest.mark.parametrize("name", VIEWS)
def test_gradient_of_a_view(name: str) -> None:
    view, _ = VIEWS[name]
    check_gradients(view, real(4, 4))
    check_gradients(view, complex_(4, 4))


@pytest.mark.parametrize("name", [name for name in VIEWS if name != "gr_halves"])
def test_gradient_through_an_in_place_change_of_a_view(name: str) -> None:
    view, expected = VIEWS[name]

    def change(x: Tensor, view: Callable[[Tensor], Tensor]) -> Tensor:
        y = x.clone()
        view(y).mul_(3)
        return y * y

    x = real(4, 4)
    (grad,) = torch.autograd.grad(change(x, view).sum(), x)
    (wanted,) = torch.autograd.grad(change(x, expected).sum(), x)
    torch.testing.assert_close(grad, wanted)
    check_gradients(lambda x: change(x, view), x)


def test_a_view_counts_the_versions_of_its_base() -> None:
    x = torch.ones(3, 3)
    before = x._version
    torch.gr_diag(x).add_(1)
    assert x._version == before + 1
    leaf = torch.ones(3, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        torch.gr_diag(leaf).add_(1)
    with pytest.raises(RuntimeError, match="multiple views"):
        torch.gr_halves(leaf.clone())[0].add_(1)


def test_a_view_in_inference_mode_and_of_no_grad() -> None:
    with torch.inference_mode():
        assert torch.gr_swap(torch.ones(2, 3)).is_inference()
    x = torch.ones(2, 2, requires_grad=True)
    with torch.no_grad():
        y, expected = torch.gr_diag(x), torch.diagonal(x)
    assert (y.requires_grad, y.is_leaf) == (expected.requires_grad, expected.is_leaf)


@pytest.mark.parametrize("name", [name for name in VIEWS if name != "gr_turn"])
def test_copies_of_views(name: str) -> None:
    x = real(4, 4)
    args = {"gr_diag": (1,), "gr_window": (1, 2), "gr_swap": (), "gr_halves": (1,)}[name]
    copy = getattr(torch, f"{name}_copy")
    result, expected = copy(x, *args), getattr(torch, name)(x, *args)
    torch.testing.assert_close(result, expected)
    for one in result if isinstance(result, tuple | list) else [result]:
        assert not one._is_view()
        assert one.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    check_gradients(lambda x: copy(x, *args), x)
    check_gradients(lambda x: copy(x, *args), complex_(4, 4))
    assert torch.Tag.view_copy in getattr(aten, f"{name}_copy").default.tags


def test_copies_of_views_into_out() -> None:
    x = torch.randn(3, 3)
    out = torch.empty(3)
    torch.gr_diag_copy(x, out=out)
    torch.testing.assert_close(out, x.diagonal())
    outs = [torch.empty(2, 3), torch.empty(1, 3)]
    torch.gr_halves_copy(x, out=outs)
    torch.testing.assert_close(outs[1], x[2:])


def test_in_place_view() -> None:
    x = torch.randn(2, 3)
    expected = x.t().clone()
    pointer, version = x.data_ptr(), x._version
    assert x.gr_swap_() is x
    assert (x.shape, x.data_ptr()) == ((3, 2), pointer)
    assert x._version >= version
    torch.testing.assert_close(x, expected)
    check_gradients(lambda x: (x * 1).gr_swap_() * 2, real(2, 3))
    assert torch.Tag.inplace_view in aten.gr_swap_.default.tags


@pytest.mark.parametrize("name", VIEWS)
def test_functionalization_of_a_view(name: str) -> None:
    view, expected = VIEWS[name]

    def change(x: Tensor, view: Callable[[Tensor], Tensor]) -> Tensor:
        y = x.clone()
        view(y).mul_(3)
        view(y).add_(1)
        return y

    x = torch.randn(4, 4)
    for remove in ("mutations", "mutations_and_views"):
        graph = make_fx(torch.func.functionalize(lambda x: change(x, view), remove=remove))(x)
        torch.testing.assert_close(graph(x), change(x, expected))
        assert "mul_(" not in graph.code and "add_(" not in graph.code and ".mul_." not in graph.code
        assert remove == "mutations" or name == "gr_turn" or f"{name}_copy" in graph.code


def test_functionalization_of_in_place_out_and_mutable_operators() -> None:
    def change(x: Tensor) -> Tensor:
        y = x.clone()
        y.gr_mix_(x)
        y.gr_square_()
        y.gr_paint_(3)
        y.gr_half_()
        total = y.clone()
        before = torch.gr_tally(x, total)
        torch.gr_bump_all_([y, total])
        out = torch.empty_like(x)
        torch.gr_mix(y, total, out=out)
        z = y.gr_maybe_add(before)
        z.gr_swap_()
        return out + z.t()

    x = torch.randn(2, 3)
    graph = make_fx(torch.func.functionalize(change, remove="mutations_and_views"))(x)
    torch.testing.assert_close(graph(x), change(x))
    names = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
    assert {"aten.gr_paint.default", "aten.gr_tally_functional.default", "aten.gr_bump_all.default"} <= set(names)
    mutable = [name for name in names if name.startswith("aten.") and eval(name, {"aten": aten})._schema.is_mutable]
    assert mutable == []
