"""Each report is fixed here, and open in PyTorch."""

from __future__ import annotations

import pytest
import torch
from packaging.specifiers import SpecifierSet
from reports import NAN, REPORTS, Report
from torch import _graft
from torch._inductor import decomposition

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
