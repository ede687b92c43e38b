"""gdh: a new contiguous 1-D tensor with self's elements in row-major order."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from samples import layouts, values


def test_layouts() -> None:
    for x in layouts(values((2, 3, 4, 5), torch.float32)).values():
        result = x.gdh()
        assert result.is_contiguous()
        np.testing.assert_array_equal(result.numpy(), x.numpy().ravel(order="C"))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (7,), (3, 4), (2, 0, 3), (2, 3, 4, 5), (1, 1, 1)])
def test_result_is_never_an_alias(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape)
    torch.gdh(x).zero_()
    assert torch.equal(x, torch.ones(shape))
    assert not x.gdh()._is_view()


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_sparse_tensors_are_refused_by_name(layout: torch.layout) -> None:
    message = r"gdh\(\): expected self to be a strided tensor, but its layout is Sparse"
    for device in ("cpu", "meta"):
        with pytest.raises(RuntimeError, match=message):
            torch.gdh(torch.eye(3).to_sparse(layout=layout).to(device))


def test_shape_is_logged_at_info_level_only() -> None:
    program = "import torch; torch.rand(2, 3).gdh()"

    def stderr(level: str) -> str:
        env = {**os.environ, "TORCH_CPP_LOG_LEVEL": level, "PYTHONWARNINGS": "ignore"}
        command = [sys.executable, "-c", program]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stderr

    assert "gdh tensor shape 2" in stderr("INFO")
    assert stderr("WARNING") == ""
