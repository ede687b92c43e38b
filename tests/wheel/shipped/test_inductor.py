"""Inductor's generated code for the shipped operators."""

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

with warnings.catch_warnings():
    # Importing Inductor uses TorchScript; the suite's filters are set for each test.
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
    from torch._inductor.utils import run_and_get_code

pytestmark = pytest.mark.unsanitized("what Inductor compiles is linked without sanitizers")


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start without kernels of an earlier run."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def kernels(code: str) -> tuple[int, list[str]]:
    """Return the number of kernels in a module that Inductor generated, and the names of other kernels it calls."""
    written = re.findall(r"^\s+cpp_fused_\w+\(", code, re.M)
    external = re.findall(r"torch\.ops\.aten\.(\w+(?:\.\w+)?)\(|extern_kernels\.(\w+)\(", code)
    return len(written), ["".join(names) for names in external]


def out_form(x: Tensor, y: Tensor) -> Tensor:
    return torch.twice_plus(x.sin(), y, out=torch.empty_like(x)).cos()


FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "function": lambda x, y: torch.twice_plus(x.sin(), y).cos(),
    "in-place": lambda x, y: x.sin().twice_plus_(y).cos(),
    "out": out_form,
}


@pytest.mark.parametrize("form", FORMS)
def test_pointwise_operator_is_part_of_one_kernel(form: str) -> None:
    x, y = torch.randn(8, 20), torch.randn(20)
    result, codes = run_and_get_code(torch.compile(FORMS[form], fullgraph=True), x, y)
    torch.testing.assert_close(result, (2 * x.sin() + y).cos())
    assert [kernels(code) for code in codes] == [(1, [])], codes


@pytest.mark.parametrize(
    "dtypes", [(torch.bfloat16, torch.bfloat16), (torch.int8, torch.int64), (torch.int32, torch.half)]
)
def test_fused_kernel_promotes_types_as_the_operator_does(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    x, y = (torch.testing.make_tensor(5, 7, dtype=dtype, device="cpu") for dtype in dtypes)
    result, codes = run_and_get_code(torch.compile(torch.twice_plus, fullgraph=True), x, y)
    torch.testing.assert_close(result, torch.twice_plus(x, y))
    assert [kernels(code) for code in codes] == [(1, [])], codes


def test_backward_and_dynamic_shapes_are_fused() -> None:
    compiled = torch.compile(FORMS["function"], fullgraph=True, dynamic=True)

    def step(rows: int) -> None:
        x, y = torch.randn(rows, 20, requires_grad=True), torch.randn(20, requires_grad=True)
        gradients = torch.autograd.grad(compiled(x, y).sum(), (x, y))
        expected = torch.autograd.grad((2 * x.sin() + y).cos().sum(), (x, y))
        torch.testing.assert_close(gradients, expected)

    _, codes = run_and_get_code(step, 8)
    assert [kernels(code)[1] for code in codes] == [[], []]
    assert kernels(codes[0])[0] == 1
    with torch._dynamo.config.patch(error_on_recompile=True):
        step(9)


class Model(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.gdh(torch.twice_plus(x, y))


def test_aot_inductor_runs(tmp_path: Path) -> None:
    shapes = ({0: torch.export.Dim("rows")}, None)
    program = torch.export.export(Model(), (torch.randn(3, 4), torch.randn(4)), dynamic_shapes=shapes)
    package: Any = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    x, y = torch.randn(5, 4), torch.randn(4)
    torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x, y), (2 * x + y).flatten())
