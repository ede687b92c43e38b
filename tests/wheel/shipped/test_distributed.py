"""The shipped pointwise operator on two processes: DTensor and DDP over gloo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.parallel import DistributedDataParallel

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
x, y = torch.randn(6, 4), torch.randn(4)

# Shards stay where they are, forward and backward; the other operand is on both.
sharded = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
replicated = distribute_tensor(y, mesh, [Replicate()])
with CommDebugMode() as sent:
    result = torch.twice_plus(sharded, replicated)
    result.backward(torch.ones_like(result))
assert sent.get_total_counts() == 0, sent.get_comm_counts()
assert isinstance(result, DTensor) and result.placements == (Shard(0),)
assert torch.equal(result.to_local(), (2 * x + y)[3 * rank : 3 * rank + 3])
assert torch.equal(sharded.grad.full_tensor(), torch.full_like(x, 2))
in_place = distribute_tensor(x.clone(), mesh, [Shard(1)])
assert in_place.twice_plus_(distribute_tensor(x, mesh, [Shard(1)])) is in_place
assert torch.equal(in_place.full_tensor(), 3 * x)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x):
        return torch.gdh(torch.twice_plus(x, self.weight))


model = DistributedDataParallel(Model())
model(x[3 * rank : 3 * rank + 3]).sum().backward()
assert torch.equal(model.module.weight.grad, torch.full((4,), 3.0))
dist.destroy_process_group()
"""


def test_two_processes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py")]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(2)
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
