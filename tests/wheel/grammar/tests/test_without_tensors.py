"""Operators that take no tensor."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support import aten
from torch._subclasses.fake_tensor import FakeTensorMode


def test_calls() -> None:
    assert torch.gr_start(3) is None
    assert torch.gr_started() == aten.gr_started() == 3
    assert torch.gr_restart() is None
    assert torch.gr_started() == 1
    assert torch.gr_is_word("word") is True
    assert torch.gr_is_word("two words") is False
    assert torch.gr_steps(4).tolist() == [0, 1, 2, 3]
    assert torch.gr_steps_composed().tolist() == [0, 1, 2]


def _started(call: Callable[[], object]) -> int:
    torch.gr_start(0)
    call()
    return torch.gr_started()


def test_calls_reach_the_kernel_in_transforms() -> None:
    x = torch.ones(2, 3)
    assert _started(lambda: torch.vmap(lambda x: (torch.gr_restart(), x)[1])(x)) == 1
    assert _started(lambda: torch.func.grad(lambda x: (torch.gr_start(4), x.sum())[1])(x)) == 4
    with torch.inference_mode():
        assert _started(torch.gr_restart) == 1
    with torch.device("meta"):
        assert _started(torch.gr_restart) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_tensors_made_in_a_graph(backend: str) -> None:
    compiled = torch.compile(
        lambda x: x + torch.gr_steps(3) + torch.gr_steps_composed(), backend=backend, fullgraph=True
    )
    assert compiled(torch.ones(3)).tolist() == [1, 3, 5]


def test_tensors_without_data() -> None:
    with FakeTensorMode():
        for made in (torch.gr_steps(3), torch.gr_steps_composed()):
            assert (type(made).__name__, made.shape, made.device.type) == ("FakeTensor", (3,), "cpu")


@pytest.mark.parametrize("overload", [aten.gr_steps.default, aten.gr_is_word.default])
def test_opcheck(overload: torch._ops.OpOverload) -> None:
    torch.library.opcheck(overload, ("word" if overload is aten.gr_is_word.default else 3,))
