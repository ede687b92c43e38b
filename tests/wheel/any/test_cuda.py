"""On a GPU, each operator of the folder with CUDA kernels gives the same results as on the CPU."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from tests.kit.opinfos import added_op_infos

# An operator without kernels of its own runs on any device that its callees support.
OPERATORS = added_op_infos()


@pytest.fixture(autouse=True)
def gpu() -> None:
    if not torch.backends.cuda.is_built():
        pytest.skip("no CUDA: this wheel is for CPUs")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA: there is no GPU")


def samples(info: OpInfo, dtype: torch.dtype, device: str) -> Iterator[SampleInput]:
    """The same values for every device."""
    torch.manual_seed(1)
    for sample in info.sample_inputs("cpu", dtype, requires_grad=info.supports_autograd and dtype.is_floating_point):
        yield sample.transform(lambda x: moved(x, device) if isinstance(x, Tensor) else x)


def moved(x: Tensor, device: str) -> Tensor:
    """Return a leaf on ``device`` with the layout of ``x``."""
    return x.detach().to(device).requires_grad_(x.requires_grad)


def results(info: OpInfo, sample: SampleInput) -> list[Tensor]:
    """Return the results, and the gradients of their sum."""
    inputs = (sample.input, *sample.args, *sample.kwargs.values())
    out = [x for x in pytree.tree_leaves(info(sample.input, *sample.args, **sample.kwargs)) if isinstance(x, Tensor)]
    wanted = [x for x in pytree.tree_leaves(inputs) if isinstance(x, Tensor) and x.requires_grad]
    sums = [torch.view_as_real(x).sum() if x.is_complex() else x.sum() for x in out if x.requires_grad]
    gradients = torch.autograd.grad(sums, wanted, allow_unused=True) if sums and wanted else ()
    return [x.detach() for x in (*out, *(g for g in gradients if g is not None))]


@pytest.mark.parametrize("info", OPERATORS, ids=lambda info: info.name)
def test_as_on_the_cpu(info: OpInfo) -> None:
    for dtype in sorted(info.supported_dtypes("cuda"), key=str):
        for here, there in zip(samples(info, dtype, "cpu"), samples(info, dtype, "cuda"), strict=True):
            expected = results(info, here)
            torch.testing.assert_close([x.cpu() for x in results(info, there)], expected, equal_nan=True)


def test_no_access_out_of_bounds() -> None:
    """The same calls under compute-sanitizer, which checks every memory access."""
    if not (sanitizer := shutil.which("compute-sanitizer")):
        pytest.skip("compute-sanitizer, which comes with the CUDA toolkit, is not installed")
    again = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "as_on_the_cpu"]
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    # `import torch` asks the driver for functions that it may not have, which is no error of a kernel.
    command = [sanitizer, "--report-api-errors", "no", "--error-exitcode", "1", *again]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
