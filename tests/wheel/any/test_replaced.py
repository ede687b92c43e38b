"""Operators of PyTorch that a folder replaces kernels or formulas of, compared with what they replace."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from graft.core.folders import PLACES
from graft.core.layout import native_folders
from torch import _graft
from torch._functorch import config as autograd
from torch._inductor import config as inductor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from tests.kit.replaced import difference, dtypes_of, may_differ, replaced, replaced_op_infos
from tests.kit.samples import SAMPLES

INFOS = replaced_op_infos() if replaced() else []
IS_WRITTEN = any((folder / PLACES).is_file() for folder in native_folders(os.environ["GRAFT_NATIVE"]))
CASES = [pytest.param(info, dtype, id=f"{info.formatted_name}-{dtype}") for info in INFOS for dtype in dtypes_of(info)]


if CASES:

    @pytest.mark.parametrize(("info", "dtype"), CASES)
    def test_results_are_those_of_pytorch(info: OpInfo, dtype: torch.dtype) -> None:
        """Results differ only if ``DIFFERS`` in samples.py gives a reason, for this operator or one that it calls."""
        found = difference(info, dtype)
        said = f"{info.name} differs from PyTorch's in {dtype}: {found}; if it is meant, say why in samples.py"
        said += " (of the folder that `make import` writes)" if IS_WRITTEN else ""
        said += f': DIFFERS = {{"{info.name}": "the reason"}}'
        assert not found or may_differ(info, SAMPLES.differs), said


def test_each_stated_difference_is_one() -> None:
    names = {info.name: info for info in INFOS}
    assert SAMPLES.differs.keys() <= names.keys(), f"DIFFERS names what is not replaced; that is {', '.join(names)}"
    same = [name for name in SAMPLES.differs if not any(difference(names[name], d) for d in dtypes_of(names[name]))]
    assert not same, f"DIFFERS names {', '.join(same)}, whose results are PyTorch's"


@pytest.mark.parametrize(
    ("name", "stated", "is_covered"),
    [
        ("special.log_ndtr", "special.log_ndtr", True),
        ("cumulative_trapezoid", "cumsum", True),
        ("cumulative_trapezoid", "cumprod", False),
        ("cumsum", "cumulative_trapezoid", False),
    ],
)
def test_operator_may_differ_if_one_that_it_calls_does(name: str, stated: str, is_covered: bool) -> None:
    info = next(info for info in op_db if info.name == name)
    assert may_differ(info, [stated]) == is_covered


def test_stock_is_left_again() -> None:
    """Kernels are switched back at the end of the block, also after an error."""
    before = torch._C._dispatch_dump_table("aten::add.Tensor")
    with pytest.raises(ValueError, match="inside"), _graft.stock():
        raise ValueError("inside")
    assert torch._C._dispatch_dump_table("aten::add.Tensor") == before


def test_stock_is_nested_and_in_every_thread() -> None:
    """torch.compile stores nothing until the outermost block ends."""
    with ThreadPoolExecutor() as others:
        before = _caches()
        assert any(before) and others.submit(_caches).result() == before  # old releases use only one
        with _graft.stock():
            with _graft.stock():
                pass
            assert _caches() == others.submit(_caches).result() == (False, False)
        assert _caches() == others.submit(_caches).result() == before


def _caches() -> tuple[bool, bool]:
    return inductor.fx_graph_cache, autograd.enable_autograd_cache
