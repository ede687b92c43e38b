"""Each kernel of native/cuda is launched when its operator is called, and no CPU kernel in its place."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from emulated_cuda import kernels_of, launches
from torch import Tensor
from torch.utils import _pytree as pytree

from tests.kit.opinfos import added_op_infos

SOURCES = sorted((Path(os.environ["GRAFT_NATIVE"]) / "cuda").glob("*.cu"))


def operator_of(source: Path) -> str:
    """roi_pool for RoiPoolKernel.cu."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", source.stem.removesuffix("Kernel")).lower()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_each_kernel_is_launched(source: Path) -> None:
    kernels = kernels_of(source)
    assert kernels
    before = {name: launches(name) for name in kernels}
    (info,) = (info for info in added_op_infos() if info.name == operator_of(source))
    dtypes = (torch.double, torch.float)  # some kernels are for some dtypes
    for sample in (each for dtype in dtypes for each in info.sample_inputs("cpu", dtype, requires_grad=True)):
        result = info(sample.input, *sample.args, **sample.kwargs)
        wanted = [
            x for x in pytree.tree_leaves((sample.input, sample.args)) if isinstance(x, Tensor) and x.requires_grad
        ]
        torch.autograd.grad(result.square().sum(), wanted, allow_unused=True)
    assert [name for name in kernels if launches(name) == before[name]] == []
