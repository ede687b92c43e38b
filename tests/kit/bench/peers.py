"""``make bench-peers``: ``2 * x + y`` as an operator in three ways: the costs of a call and of a build.

The Python of an environment with a wheel that has ``torch.twice_plus`` runs this. It prints JSON.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.utils import cpp_extension
from torch.utils.benchmark import Timer

# As in the tutorial on custom C++ operators: a kernel, and an autograd function for the derivatives.
_EXTENSION = """
#include <torch/library.h>
#include <torch/csrc/autograd/custom_function.h>
#include <ATen/ATen.h>

using torch::autograd::variable_list;

at::Tensor kernel(const at::Tensor& x, const at::Tensor& y) {
  return at::add(y, x, 2);
}

at::Tensor call(const at::Tensor& x, const at::Tensor& y) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("peers::extension", "").typed<decltype(kernel)>();
  return op.call(x, y);
}

struct Formula : torch::autograd::Function<Formula> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x, const at::Tensor& y) {
    at::AutoDispatchBelowADInplaceOrView below;
    return call(x, y);
  }

  static variable_list backward(torch::autograd::AutogradContext*, const variable_list& grad) {
    return {grad[0] * 2, grad[0]};
  }
};

at::Tensor differentiated(const at::Tensor& x, const at::Tensor& y) {
  return Formula::apply(x, y);
}

TORCH_LIBRARY(peers, m) {
  m.def("extension(Tensor x, Tensor y) -> Tensor");
}
TORCH_LIBRARY_IMPL(peers, CPU, m) {
  m.impl("extension", &kernel);
}
TORCH_LIBRARY_IMPL(peers, Autograd, m) {
  m.impl("extension", &differentiated);
}
"""


def in_python(x: Tensor, y: Tensor) -> Tensor:
    """The kernel of the custom operator."""
    return torch.add(y, x, alpha=2)


def build_extension(folder: Path) -> dict[str, float]:
    """Build and load the extension. Return the seconds and the library's bytes."""
    source = folder / "extension.cpp"
    source.write_text(_EXTENSION, encoding="utf-8")
    start = time.perf_counter()
    cpp_extension.load("peers", [str(source)], build_directory=str(folder), is_python_module=False)
    return {"seconds": time.perf_counter() - start, "bytes": (folder / "peers.so").stat().st_size}


def cost(call: Callable[..., Tensor], *arguments: Tensor) -> float:
    """Return the seconds of a call, the median of at least a second of calls, on one thread."""
    timer = Timer("call(*arguments)", globals={"call": call, "arguments": arguments})
    return timer.blocked_autorange(min_run_time=1).median


def costs(call: Callable[..., Tensor], operands: int = 2) -> dict[str, float]:
    """Time calls on tensors of one element: without gradients, and recorded by autograd."""
    plain = [torch.ones(1) for _ in range(operands)]
    recorded = [torch.ones(1, requires_grad=True), *plain[1:]]
    return {"plain": cost(call, *plain), "recorded": cost(call, *recorded)}


def check(call: Callable[..., Tensor]) -> None:
    """Check the operator and its derivative."""
    x, y = torch.rand(3, requires_grad=True), torch.rand(3)
    result = call(x, y)
    torch.testing.assert_close(result, 2 * x + y)
    assert torch.equal(torch.autograd.grad(result.sum(), x)[0], torch.full((3,), 2.0))


def main() -> None:
    """Measure, and print the results."""
    custom_op = torch.library.custom_op("peers_in_python::custom_op", in_python, mutates_args=())
    custom_op.register_autograd(lambda _, grad: (grad * 2, grad))
    with tempfile.TemporaryDirectory() as folder:
        extension = build_extension(Path(folder))
    calls = {"graft": torch.twice_plus, "custom_op": custom_op, "extension": torch.ops.peers.extension.default}
    for call in calls.values():
        check(call)
    found = {name: costs(call) for name, call in calls.items()} | {"digamma": costs(torch.digamma, 1)}
    print(json.dumps({"calls": found, "extension": extension}))


if __name__ == "__main__":
    main()
