"""``make bench-peers``: ``2 * x + y`` as an operator in three ways: the costs of a call and of a build.

The Python of an environment with a wheel that has ``torch.twice_plus`` runs this. It prints JSON.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.utils import cpp_extension
from torch.utils.benchmark import Timer

from ..stopwatch import measured

_EXTENSION = Path(__file__).with_name("extension.cpp")


def in_python(x: Tensor, y: Tensor) -> Tensor:
    """The kernel of the custom operator."""
    return torch.add(y, x, alpha=2)


def build_extension(folder: Path) -> dict[str, float]:
    """Build and load the extension. Return the seconds, those of CPU time, and the library's bytes."""
    with measured() as taken:
        cpp_extension.load("peers", [str(_EXTENSION)], build_directory=str(folder), is_python_module=False)
    return {"seconds": taken.wall, "cpu": taken.cpu, "bytes": (folder / "peers.so").stat().st_size}


def cost(call: Callable[..., Tensor], *arguments: Tensor) -> float:
    """Return the seconds of a call, the median of at least a second of calls, on one thread."""
    timer = Timer("call(*arguments)", globals={"call": call, "arguments": arguments})
    return timer.blocked_autorange(min_run_time=1).median


def costs(call: Callable[..., Tensor]) -> dict[str, float]:
    """Time calls on tensors of one element: without gradients, and recorded by autograd; as ratios to torch.digamma's,
    too.
    """
    found, other = {}, torch.ones(1)
    for kind, x in {"plain": torch.ones(1), "recorded": torch.ones(1, requires_grad=True)}.items():
        found[kind] = cost(call, x, other)
        found[f"{kind} ratio"] = found[kind] / cost(torch.digamma, x)
    return found


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
    print(json.dumps({"built": extension, **{name: costs(call) for name, call in calls.items()}}))


if __name__ == "__main__":
    main()
