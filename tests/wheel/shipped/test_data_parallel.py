"""DDP over gloo: the gradients of every shipped operator, averaged over two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch is built without torch.distributed"),
    pytest.mark.unsanitized("two processes at once, with twice the memory of a sanitized one"),
]

PROGRAM = """
import sys
import torch
import torch.distributed as dist
from operators import OPERATORS
from torch.nn.parallel import DistributedDataParallel

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)


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
dist.destroy_process_group()
"""


def test_gradients_are_averaged(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    commands = [[sys.executable, "-c", PROGRAM, str(rank), str(tmp_path / "store")] for rank in range(2)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
        for command in commands
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
