"""Distributed tensors, other processes, threads and PyTorch's own tests."""

import copy
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils.data import DataLoader

from tests.kit.subject import Subject, first_result
from tests.kit.surfaces import STATELESS, surface

if torch.distributed.is_available():
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor, init_device_mesh
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.testing._internal.distributed.fake_pg import FakeStore

SHARDING = "for an operator that is not pointwise, write a sharding rule into python/distributed/tensor/_ops"


@contextmanager
def sharded(tensors: list[Tensor]) -> Iterator[list[Any]]:
    """Shard tensors over two ranks, one of which is this process. Nothing is sent."""
    if not torch.distributed.is_available():
        pytest.skip("this torch is built without torch.distributed")
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,))
        yield [distribute_tensor(tensor, mesh, [Shard(0)], src_data_rank=None) for tensor in tensors]
    finally:
        torch.distributed.destroy_process_group()


@surface("DTensor: shards stay where they are", SHARDING)
def test_sharded(subject: Subject) -> None:
    subject.require_pointwise()
    call, tensors = subject.on_tensors()
    whole = [torch.rand(4, 3, dtype=torch.double) for _ in tensors]
    with sharded(whole) as parts:
        with CommDebugMode() as sent:
            result = call(*parts)
        assert isinstance(result, DTensor)
        assert sent.get_total_counts() == 0
        assert result.placements == (Shard(0),)
        assert_close(result.to_local(), call(*(tensor[:2] for tensor in whole)))


@surface("DTensor: the backward stays there, too", SHARDING)
def test_sharded_backward(subject: Subject) -> None:
    subject.require_pointwise()
    call, tensors = subject.differentiable()
    with sharded([torch.rand(4, 3, dtype=torch.double) for _ in tensors]) as parts:
        for part in parts:
            part.requires_grad_()
        result = call(*parts)
        with CommDebugMode() as sent:
            result.backward(torch.ones_like(result))
        assert sent.get_total_counts() == 0
        assert all(part.grad.placements == (Shard(0),) for part in parts)


class Calling(torch.nn.Module):
    """Calls the function that it holds."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


@surface("a module that calls it is copied and saved", STATELESS)
def test_saved_module(subject: Subject) -> None:
    model = Calling(subject.function)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        args, kwargs = subject.sample()
        assert_close(first_result(other(*args, **kwargs)), subject.expected())


class Results(torch.utils.data.Dataset[Tensor]):
    """Calls the operator in a data loader's worker process."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Tensor:
        result: Tensor = self.subject.expected()
        return result


@surface("a data loader's process", STATELESS)
def test_loaded(subject: Subject) -> None:
    (batch,) = DataLoader(Results(subject), batch_size=2, num_workers=1, multiprocessing_context="fork")
    assert_close(batch, torch.stack([subject.expected()] * 2))


@surface(
    "as many threads as there are", "use TensorIterator or at::parallel_for in the kernel, and write each element once"
)
def test_threads(subject: Subject) -> None:
    subject.require_pointwise()
    call, tensors = subject.on_tensors()
    large = [torch.rand(300, 301, dtype=torch.double) for _ in tensors]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = call(*large)
    torch.set_num_threads(max(before, 2))
    try:
        assert_close(call(*large), alone)
    finally:
        torch.set_num_threads(before)
