"""What loads add to registries of PyTorch that are filled when it is imported, and when it is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from clipped import built
from helpers import write
from sessions import Folder, Session

KL = {
    "python/distributions/kl.py": """
@register_kl(Laplace, Cauchy)
def _kl_laplace_cauchy(p, q):
    return torch.full((), 5.0)
"""
}

SCALED = {
    "native_functions.yaml": """
- func: scaled(Tensor self, Tensor weight) -> Tensor
  tags: pointwise
  dispatch:
    CompositeExplicitAutograd: scaled

- func: scaled_by(Tensor self, *, Tensor? weight=None) -> Tensor
  tags: pointwise
  dispatch:
    CompositeExplicitAutograd: scaled_by
""",
    "Scaled.cpp": """
#include <ATen/core/Tensor.h>
#include <ATen/ops/mul.h>

namespace at::native {
Tensor scaled(const Tensor& self, const Tensor& weight) {
  return self.mul(weight);
}

Tensor scaled_by(const Tensor& self, const std::optional<Tensor>& weight) {
  return weight ? self.mul(*weight) : self.mul(2);
}
} // namespace at::native
""",
}

SHARDED = """
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
mesh = init_device_mesh("cpu", (2,))
x, w = (distribute_tensor(torch.ones(4, 3), mesh, [each], src_data_rank=None) for each in (Shard(0), Replicate()))
def shapes(value):
    return value.placements == (Shard(0),), list(value.shape), list(value.to_local().shape)
"""


def test_divergence_is_not_remembered(where: Path) -> None:
    """torch.distributions.kl remembers the function that it has found for two classes."""
    folder = write(where / "divergence", KL)
    divergence = "float(torch.distributions.kl_divergence(one, other))"
    with Session(where) as session:
        session.run("one, other = torch.distributions.Laplace(0.0, 1.0), torch.distributions.Cauchy(0.0, 1.0)")
        for _ in range(2):
            assert "NotImplementedError" in session.error(divergence)
            session.load(folder)
            assert session.value(divergence) == 5
            session.run("graft.unload('divergence')")
        assert "NotImplementedError" in session.error(divergence)


IMPORTED = {
    "python/_meta_registrations.py": "import torch.utils.flop_counter\n",
    "python/utils/flop_counter.py": "flop_registry[torch.ops.aten.digamma] = lambda shape, **_: 17\n",
}


def test_text_of_a_module_that_another_text_imports_is_undone(where: Path) -> None:
    folder = write(where / "imported", IMPORTED)
    has_entry = "torch.ops.aten.digamma in sys.modules['torch.utils.flop_counter'].flop_registry"
    with Session(where) as session:
        session.run("import sys")
        assert session.value("'torch.utils.flop_counter' in sys.modules") is False
        session.load(folder)
        assert session.value(has_entry) is True
        session.run("graft.unload('imported')")
        assert session.value(has_entry) is False


@pytest.mark.parametrize(
    "is_first", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["loaded later", "loaded first"]
)
def test_pointwise_operators_are_sharded(where: Path, is_first: bool) -> None:
    """DTensor registers them when it is imported. It never shards keyword-only tensors again."""
    folder = Folder(where / "pointwise/scaled", SCALED).path
    not_pointwise = {name: text.replace("  tags: pointwise\n", "") for name, text in SCALED.items()}
    others = Folder(where / "others/scaled", not_pointwise).path
    built([folder, others])
    with Session(where) as session:
        if is_first:
            session.load(folder)
        session.run(SHARDED)
        if not is_first:
            session.run("torch.mul(x, w)")
            session.load(folder)
        for call in ("torch.scaled(x, w)", "torch.scaled_by(x)"):
            assert session.value(f"shapes({call})") == (True, [4, 3], [2, 3])
        assert "keyword-only tensor `weight`" in session.error("torch.scaled_by(x, weight=w)")
        session.load(others)
        assert "does not have a sharding strategy" in session.error("torch.scaled(x, w)")
