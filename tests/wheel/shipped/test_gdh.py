"""gdh: a new contiguous 1-D tensor with self's elements in row-major order."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

SHAPES = [(), (1,), (0,), (7,), (3, 4), (2, 0, 3), (2, 3, 4, 5), (1, 1, 1)]


@pytest.mark.parametrize(
    "x",
    [
        torch.rand(3, 4).t(),
        torch.rand(4, 6)[::2, 1::3],
        torch.rand(1, 4).expand(3, 4),
        torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ],
    ids=["transposed", "strided", "expanded", "channels_last"],
)
def test_non_contiguous_input(x: torch.Tensor) -> None:
    result = x.gdh()
    assert result.is_contiguous()
    np.testing.assert_array_equal(result.numpy(), x.numpy().ravel(order="C"))


@pytest.mark.parametrize("shape", SHAPES)
def test_result_is_never_an_alias(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    torch.gdh(x).zero_()
    assert torch.equal(x, torch.ones(shape))
    assert not x.gdh()._is_view()


def test_gradient_has_the_shape_of_self() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    weight = torch.arange(6.0)
    (x.gdh() * weight).sum().backward()
    assert x.gdh().grad_fn.name() == "GdhBackward0"
    assert torch.equal(x.grad, weight.reshape(2, 3))


def test_symbolic_sizes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    fake = FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.ones(3, 4), static_shapes=False)
    (size,) = torch.gdh(fake).shape
    assert isinstance(size, torch.SymInt) and size == 12


def test_functions_see_subclasses() -> None:
    calls = []

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            calls.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.ones(2).as_subclass(Watched)
    torch.gdh(x)
    x.gdh()
    assert calls == [torch.gdh, torch.Tensor.gdh]


def test_out_variant_that_autogen_makes() -> None:
    x, out = torch.rand(2, 3), torch.empty(0)
    assert torch.ops.aten.gdh.out(x, out=out) is out
    assert torch.equal(out, x.flatten())


def test_method_takes_no_arguments() -> None:
    with pytest.raises(TypeError, match=r"takes no arguments"):
        torch.rand(2).gdh(1)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_sparse_tensors_are_refused_by_name(layout: torch.layout) -> None:
    message = r"gdh\(\): expected self to be a strided tensor, but its layout is Sparse"
    for device in ("cpu", "meta"):
        with pytest.raises(RuntimeError, match=message):
            torch.gdh(torch.eye(3).to_sparse(layout=layout).to(device))


def test_shape_is_logged_at_info_level_only() -> None:
    program = "import torch; torch.rand(2, 3).gdh()"

    def stderr(level: str) -> str:
        env = {**os.environ, "TORCH_CPP_LOG_LEVEL": level, "PYTHONWARNINGS": "ignore"}
        return subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
        ).stderr

    assert "gdh tensor shape 2" in stderr("INFO")
    assert stderr("WARNING") == ""
