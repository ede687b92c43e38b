"""The shipped operators and modules on two processes over gloo: DTensor and FSDP2."""

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

PREAMBLE = """
import os
import sys
import torch
import torch.distributed as dist

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
torch.manual_seed(0)
"""

# Python is not finalized: a thread of gloo may still hold the last tensor, and releasing it would then need the GIL and
# end the process in std::terminate (see upstream's pull request 179291).
END = """
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""


def run_on_two_ranks(program: str, folder: Path) -> None:
    """Run ``program`` with ``torch``, ``dist`` and ``rank`` defined. It can import what tests can."""
    (folder / "program.py").write_text(f"{PREAMBLE}{program}{END}")
    command = [sys.executable, str(folder / "program.py")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(folder / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)


SHARDING = """
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing import assert_close

mesh = init_device_mesh("cpu", (2,))
"""


def test_batch_is_sharded_without_communication(tmp_path: Path) -> None:
    """Rules of the folder are in native/python/distributed/tensor/_ops/_conv_ops.py."""
    program = f"""{SHARDING}
BOXES = torch.tensor([0.0, 1, 1, 2, 2])
# Functions, the shapes of their tensors, and how many of these are sharded.
CASES = [
    (lambda x, y: torch.twice_plus(x, y), [(6, 4), (4,)], 1),
    (lambda a, b, c: torch.improved_triplet_loss(a, b, c, reduction='none'), [(6, 5)] * 3, 3),
    (lambda x, k: torch.correlate2d(x, k, mode='same'), [(6, 5, 7), (3, 3)], 1),
    (lambda x: torch.fft.rfft2_abs(x), [(6, 4, 5)], 1),
    (lambda x: torch.gdh(x), [(6, 4)], 1),
    (lambda *given: torch.depthwise_conv2d(*given, (2, 1), (1, 0), (1, 2)), [(4, 3, 7, 6), (6, 1, 3, 2), (6,)], 1),
    (lambda *given: torch.depthwise_conv2d(*given), [(6, 3, 7, 6), (6, 1, 3, 2), (6,)], 1),
    # Boxes are sharded, images are not.
    (lambda b, x: torch.roi_pool(x, b.abs() * BOXES, 1.0, 2, 2), [(6, 5), (2, 3, 8, 9)], 1),
]
if torch.__version__ >= "2.12":  # before, DTensor has no strategy for in-place operators that are not on its lists
    CASES.append((lambda x, y: (x * 1).twice_plus_(y), [(6, 4), (6, 4)], 2))
    x = torch.randn(6, 4)
    in_place, other = (distribute_tensor(each, mesh, [Shard(1)]) for each in (x.clone(), x))
    assert in_place.twice_plus_(other) is in_place and in_place.placements == (Shard(1),)
    assert torch.equal(in_place.full_tensor(), 3 * x)
for number, (function, shapes, sharded) in enumerate(CASES):
    whole = [torch.randn(shape, dtype=torch.double).requires_grad_() for shape in shapes]
    BOXES = torch.tensor([0.0, 1, 1, 2, 2])
    expected = function(*whole)
    expected.backward(expected.detach())
    placements = [[Shard(0)] if i < sharded else [Replicate()] for i in range(len(whole))]
    parts = [distribute_tensor(x.detach(), mesh, p).requires_grad_() for x, p in zip(whole, placements)]
    BOXES = distribute_tensor(BOXES, mesh, [Replicate()])
    with CommDebugMode() as sent:
        result = function(*parts)
        result.backward(result.detach())
    assert sent.get_total_counts() == 0, (number, sent.get_comm_counts())
    assert result.placements == (Shard(0),), number
    assert_close(result.full_tensor(), expected)
    for i, (part, x) in enumerate(zip(parts, whole)):
        assert (part.grad is None) == (x.grad is None)
        if x.grad is not None:
            assert part.grad.placements[0].is_shard(0) if i < sharded else part.grad.placements[0].is_partial()
            assert_close(part.grad.full_tensor(), x.grad)
"""
    run_on_two_ranks(program, tmp_path)


def test_uneven_parts_and_kernels_of_their_own(tmp_path: Path) -> None:
    """Three rows of five and two are not the halves of 25 numbers; a gradient for each kernel has sizes of its own."""
    program = f"""{SHARDING}
x = torch.randn(5, 5)
assert torch.equal(torch.gdh(distribute_tensor(x, mesh, [Shard(0)])).full_tensor(), x.flatten())
whole = torch.randn(4, 1, 6, 5, dtype=torch.double), torch.randn(3, 2, 2, dtype=torch.double)
parts = [distribute_tensor(x, mesh, [Shard(0)]).requires_grad_() for x in whole]
whole = [x.requires_grad_() for x in whole]
ours, theirs = torch.correlate2d(*parts), torch.correlate2d(*whole)
assert_close(ours.full_tensor(), theirs)
for function in (ours, theirs):
    function.square().sum().backward()
for part, x in zip(parts, whole):
    assert_close(part.grad.full_tensor(), x.grad)
# One image without a batch, which both ranks take; and several, without a bias.
weight = torch.randn(6, 1, 3, 2)
for x in (torch.randn(3, 7, 6), torch.randn(4, 3, 7, 6)):
    parts = distribute_tensor(x, mesh, [Shard(0)]), distribute_tensor(weight, mesh, [Replicate()])
    assert_close(torch.depthwise_conv2d(*parts).full_tensor(), torch.depthwise_conv2d(x, weight))
"""
    run_on_two_ranks(program, tmp_path)


MODEL = """
from torch.utils.checkpoint import checkpoint

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.DepthwiseConv2d(3, (3, 3), padding=1)
        self.affine = torch.nn.Affine(3 * 5 * 4, 2)

    def forward(self, x):
        x = checkpoint(self.conv, x, use_reentrant=False)
        return torch.twice_plus(self.affine(x.flatten(1)), torch.ones(2))

model, images = Model(), torch.randn(4, 3, 5, 4)
expected = model(images)
expected.sum().backward()
gradients = {name: parameter.grad / 2 for name, parameter in model.named_parameters()}  # the ranks' mean
model.zero_grad()
"""


def test_fully_sharded_data_parallel(tmp_path: Path) -> None:
    program = f"""{SHARDING}{MODEL}
from torch.distributed.fsdp import fully_shard

for module in (model.conv, model.affine, model):
    fully_shard(module, mesh=mesh)
assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
result = model(images[2 * rank : 2 * rank + 2])
assert_close(result, expected[2 * rank : 2 * rank + 2])
result.sum().backward()
for name, parameter in model.named_parameters():
    assert parameter.grad.placements == (Shard(0),)
    assert_close(parameter.grad.full_tensor(), gradients[name])
torch.optim.SGD(model.parameters(), lr=0.1).step()
model(images)
"""
    run_on_two_ranks(program, tmp_path)
