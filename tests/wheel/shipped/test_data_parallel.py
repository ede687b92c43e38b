"""DDP over gloo: the gradients of every shipped operator, averaged over two processes."""

from __future__ import annotations

from pathlib import Path

from two_ranks import NEEDS_TWO_RANKS, run_on_two_ranks

pytestmark = NEEDS_TWO_RANKS

PROGRAM = """
from operators import OPERATORS
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    # Every operator, each with its own inputs as parameters.

    def __init__(self):
        super().__init__()
        self.inputs = torch.nn.ModuleList(torch.nn.ParameterList(o.inputs()) for o in OPERATORS.values())

    def forward(self, scale):
        results = [o.function(*inputs) for o, inputs in zip(OPERATORS.values(), self.inputs, strict=True)]
        return scale * sum(result.square().sum() for result in results)


alone, model = Model(), DistributedDataParallel(Model())
alone(1).backward()
model(1 + rank).backward()
for one, both in zip(alone.parameters(), model.parameters(), strict=True):
    # The mean of once and twice the gradient.
    torch.testing.assert_close(both.grad, 1.5 * one.grad)
"""


def test_gradients_are_averaged(tmp_path: Path) -> None:
    run_on_two_ranks(PROGRAM, tmp_path)
