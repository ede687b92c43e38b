"""Python modules, names and schemas."""

import numpy as np
import pytest
import torch
from support import aten, check_gradients, real


def test_nn() -> None:
    gate, x, w = torch.nn.functional.gr_gate, real(4), torch.tensor([1.0, 2, 3, 4], dtype=torch.double)
    torch.testing.assert_close(aten.gr_gate(x), x.mean())  # in Python the default is 0, a sum, as for mse_loss
    torch.testing.assert_close(gate(x, reduction=1), x.mean())
    torch.testing.assert_close(torch._C._nn.gr_gate(x, w, 2), (x * w).sum())
    out = torch.empty((), dtype=torch.double)
    assert gate(x.detach(), None, 1, out=out) is out
    torch.testing.assert_close(out, x.detach().mean())
    check_gradients(lambda x: gate(x, w, 1), x, forward=False)
    assert not hasattr(torch, "gr_gate")


def test_fft() -> None:
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.fft.gr_center(x), torch.from_numpy(np.fft.fftshift(x.numpy())))
    torch.testing.assert_close(torch._C._fft.fft_gr_center(x, 1), torch.from_numpy(np.fft.fftshift(x.numpy(), 1)))


def test_linalg() -> None:
    x = torch.randn(3, 3)
    torch.testing.assert_close(torch.linalg.gr_anti_trace(x), torch.tensor(np.trace(np.fliplr(x.numpy()))))
    out = torch.empty(())
    assert torch.linalg.gr_anti_trace(x, out=out) is out
    check_gradients(torch.linalg.gr_anti_trace, real(3, 3))
    with pytest.raises(RuntimeError, match="square matrix"):
        torch.linalg.gr_anti_trace(x[:2])


def test_special_sparse_and_nested() -> None:
    x = real(3)
    torch.testing.assert_close(torch.special.gr_bump(x), (-x * x).exp())
    check_gradients(torch.special.gr_bump, x)
    assert torch.sparse.gr_count(torch.eye(3).to_sparse()) == 3
    assert torch.sparse.gr_count(torch.eye(3).to_sparse(), stored=False) == 6
    assert torch.nested.gr_width(torch.ones(2, 5)) == 5


def test_methods_only_functions_only_private_and_dunder_names() -> None:
    x = torch.ones(2)
    assert x.gr_method_only(4).tolist() == [4, 4]
    assert not hasattr(torch, "gr_method_only")
    assert not hasattr(torch.Tensor, "gr_cube")
    assert torch._gr_secret(x).tolist() == x._gr_secret().tolist() == [43, 43]
    assert "_gr_secret" not in torch.__all__
    assert x.__gr__(x).tolist() == [101, 101]


def test_backward_operators_have_no_binding_but_are_operators() -> None:
    for name in ("gr_smooth_backward", "gr_extent_backward", "gr_maybe_add_backward", "gr_outer_backward"):
        assert not hasattr(torch, name)
        assert callable(getattr(aten, name))
    grads = aten.gr_maybe_add_backward(torch.ones(1), [True, False, True])
    assert grads[1] is None
    assert (grads[0].item(), grads[2].item()) == (1, 2)


def test_ambiguous_defaults() -> None:
    x = torch.zeros(1)
    assert torch.gr_defaults(x) == 2
    assert torch.gr_defaults(x, 3, 4) == 7
    assert torch.gr_defaults(x, 3, "ab") == 60
    assert torch.gr_defaults(x, b="x") == 20


def test_in_place_with_a_const_reference() -> None:
    x = torch.ones(2)
    assert torch.gr_grow_(x, (3,)) is x
    assert x.shape == (3,)
    assert x.gr_grow_((1,)).shape == (1,)
    assert aten.gr_grow(x, (4,)).shape == (4,)


def test_dynamic_shape() -> None:
    assert torch.tensor([0, 1, 2]).gr_nonzero_values().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gr_mix", "gr_mix(Tensor self, Tensor other, *, Scalar alpha=2) -> Tensor"),
        ("gr_ints", "int reduction=1"),
        ("gr_strings", r'str a="\"\'\\", str? b=None, *, str c="sum"'),
        ("gr_halves", "gr_halves(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]"),
        ("gr_bump_all_", "gr_bump_all_(Tensor(a!)[] self, Scalar step=1) -> ()"),
        ("gr_extent", "(Tensor low, Tensor high)"),
    ],
)
def test_schema(name: str, text: str) -> None:
    schema = getattr(aten, name).default._schema
    assert text.replace("\\'", "'") in str(schema).replace("\\'", "'")
