"""Each report is fixed here, and open in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from packaging.specifiers import SpecifierSet
from reports import INF, NAN, REPORTS, Report
from reversing import reversed_in_place
from torch import Tensor, _graft
from torch._decomp import decompositions
from torch._inductor import decomposition
from torch._inductor.fx_passes import post_grad

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: str(report.number))
def test_fixed_here_and_open_in_pytorch(report: Report) -> None:
    assert report.is_right()
    with _graft.stock():
        is_fixed = report.is_right()
    is_open = SpecifierSet(report.releases).contains(torch.__version__, prereleases=True)
    todo = f"PyTorch {torch.__version__} has the fix of #{report.number}: delete it, or give it `releases`"
    assert is_fixed != is_open, todo if is_open else f"#{report.number} is open in PyTorch {torch.__version__}"


def test_decomposition_is_open_in_pytorch() -> None:
    """`stock()` switches no Python. What the folder's decomposition calls is PyTorch's."""
    arguments = torch.full((4,), NAN), torch.ones(1, 4), torch.ones(4, 4)
    found = decomposition._addmm_of_pytorch(*arguments, beta=0)
    said = f"PyTorch {torch.__version__} has the fix of #196596 in Inductor: delete it, or give it `releases`"
    assert found.isnan().all(), said


@pytest.mark.parametrize(
    ("report", "rule"), [(185770, decomposition._gelu_of_pytorch), (160876, decomposition._silu_of_pytorch)]
)
def test_decomposition_of_activations_is_open_in_pytorch(report: int, rule: Callable[[Tensor], Tensor]) -> None:
    said = f"PyTorch {torch.__version__} has the fix of #{report} in Inductor: delete it, or give it `releases`"
    assert rule(torch.tensor(-INF)).isnan(), said


def test_decomposition_of_batch_norm_is_open_in_pytorch() -> None:
    x, mean, var = torch.ones(2, 3, 4).transpose(1, 2), torch.zeros(4), torch.ones(4)
    arguments = None, None, mean, var, False, 0.1, 1e-5, True
    said = f"PyTorch {torch.__version__} has the fix of #192668: delete it, or give it `releases`"
    assert not decompositions._batch_norm_of_pytorch(x, *arguments)[0].is_contiguous(), said
    assert decompositions.native_batch_norm_helper(x, *arguments)[0].is_contiguous()


def test_removal_of_clones_is_open_in_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_grad, "remove_noop_ops", post_grad._remove_noops_of_pytorch)
    x = torch.arange(8.0)
    said = f"PyTorch {torch.__version__} has the fix of #198031: delete it, or give it `releases`"
    assert not torch.equal(reversed_in_place(x), torch.arange(8.0).flip(0)), said
