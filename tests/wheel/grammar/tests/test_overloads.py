"""Overloads, of new names and of PyTorch's own."""

import numpy as np
import pytest
import torch
from support import aten, check_gradients, real


def test_overloads_of_a_new_name() -> None:
    x, y = real(3), real(3)
    torch.testing.assert_close(torch.gr_join(x, y), x * y)
    torch.testing.assert_close(x.gr_join(3), x * 3)
    torch.testing.assert_close(x.gr_join("abc", 2), x * 6)
    torch.testing.assert_close(torch.gr_join(x, other="abc"), x * 3)
    assert set(aten.gr_join.overloads()) == {"Tensor", "Scalar", "str"}
    check_gradients(torch.gr_join, x, y)
    check_gradients(lambda x: torch.gr_join(x, 2.5), x)
    check_gradients(lambda x: torch.gr_join(x, "abc", times=2), x)
    with pytest.raises(TypeError, match="gr_join"):
        torch.gr_join(x, [1])


def test_a_new_overload_of_lerp() -> None:
    x = real(3)
    torch.testing.assert_close(torch.lerp(x, "half"), x / 2)
    torch.testing.assert_close(x.lerp(mode="all"), x)
    with pytest.raises(ValueError, match="mode must be"):
        torch.lerp(x, "none")
    assert aten.lerp.gr_mode_out(x.detach(), "half", out=torch.empty(3, dtype=torch.double)).allclose(x / 2)
    check_gradients(lambda x: torch.lerp(x, "half"), x)


def test_the_old_overloads_of_lerp() -> None:
    x, end, weight = real(3), real(3), real(3)
    torch.testing.assert_close(torch.lerp(x, end, 0.25), x + 0.25 * (end - x))
    torch.testing.assert_close(x.lerp(end, weight=weight), x + weight * (end - x))
    out = torch.empty(3, dtype=torch.double)
    torch.lerp(x.detach(), end.detach(), 0.5, out=out)
    torch.testing.assert_close(out, ((x + end) / 2).detach())
    y = x.detach().clone()
    assert y.lerp_(end.detach(), 1) is y
    torch.testing.assert_close(y, end.detach())
    check_gradients(torch.lerp, x, end, weight)
    with pytest.raises(TypeError, match="lerp"):
        torch.lerp(x, end)


def test_a_new_overload_of_add_and_its_operator() -> None:
    x = real(3)
    torch.testing.assert_close(torch.add(x, "four"), x + 4)
    torch.testing.assert_close(x.add(word="four"), x + 4)
    torch.testing.assert_close(x + "four", x + 4)
    y = torch.zeros(2)
    y += "abc"
    assert y.tolist() == [3, 3]
    assert y.add_("ab").tolist() == [5, 5]
    out = torch.empty(2)
    assert torch.add(y, "a", out=out).tolist() == [6, 6]
    check_gradients(lambda x: x + "four", x)
    z = x.clone()
    z += "abc"
    torch.testing.assert_close(torch.autograd.grad(z.sum(), x)[0], torch.ones(3, dtype=torch.double))


def test_the_old_overloads_of_add_and_its_operator() -> None:
    x, y = real(3), real(3)
    expected = torch.from_numpy(x.detach().numpy() + 2 * y.detach().numpy())
    torch.testing.assert_close(torch.add(x, y, alpha=2).detach(), expected)
    torch.testing.assert_close(x.add(2 * y).detach(), expected)
    torch.testing.assert_close(torch.add(x, 2, y).detach(), expected)  # a signature of deprecated.yaml
    torch.testing.assert_close(x.add(2, y).detach(), expected)
    torch.testing.assert_close((x + 1).detach(), (1 + x).detach())
    torch.testing.assert_close((x + np.float64(1)).detach(), x.detach() + 1)
    out = torch.empty(3, dtype=torch.double)
    assert torch.add(x.detach(), y.detach(), alpha=2, out=out) is out
    torch.testing.assert_close(out, expected)
    z = x.detach().clone()
    z += 2 * y.detach()
    torch.testing.assert_close(z, expected)
    check_gradients(lambda x, y: torch.add(x, y, alpha=2), x, y)

    class Right:
        def __radd__(self, other: object) -> str:
            return "right"

    assert x + Right() == "right"
    with pytest.raises(TypeError, match="unsupported operand"):
        x + object()
    torch.testing.assert_close("four" + x, x + 4)


def test_new_overloads_in_modules_and_of_a_factory() -> None:
    x = real(3)
    torch.testing.assert_close(torch.special.entr(x.abs(), 3), 3 * torch.special.entr(x.abs()))
    torch.testing.assert_close(torch.nn.functional.gelu(x, 3), 3 * torch.nn.functional.gelu(x))
    torch.testing.assert_close(torch.nn.functional.gelu(x, approximate="tanh"), torch.nn.GELU("tanh")(x))
    check_gradients(lambda x: torch.nn.functional.gelu(x, 3), x)
    assert torch.zeros(n=2, word="abc").tolist() == [3, 3]
    assert torch.zeros(n=2, word="abc", dtype=torch.half, device="meta").dtype == torch.half
    assert torch.zeros(2, 3).shape == torch.zeros((2, 3)).shape == (2, 3)
    assert torch.zeros(2, requires_grad=True).requires_grad
