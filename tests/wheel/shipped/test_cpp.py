"""C++ programs and extensions, built against the installed wheel with only find_package(Torch)."""

import os
import subprocess
import sys
from pathlib import Path

import cmake
import pytest
import torch
from torch.utils import cpp_extension

pytestmark = [
    pytest.mark.unsanitized("programs that are built with CMake load the sanitizers too late"),
    pytest.mark.needs_headers,
]

EXTENSION = """
#include <torch/extension.h>

at::Tensor both(const at::Tensor& x) {
  TORCH_CHECK(c10::Symbol::fromQualString("aten::mul") == c10::aten::mul);
  return x.gdh().mul(2).twice_plus(at::gdh(x));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("both", &both);
}
"""


@pytest.mark.skipif(
    torch.version.cuda is not None and "CUDA_HOME" not in os.environ,
    reason="find_package(Torch) of a wheel for CUDA asks for a CUDA toolkit; CUDA_HOME names none",
)
def test_program(tmp_path: Path) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.gdh(torch.twice_plus(x, x))

    torch.jit.script(Module()).save(f"{tmp_path}/module.pt")
    source = Path(__file__).parent / "program"
    program = Path(cmake.CMAKE_BIN_DIR) / "cmake"
    prefix = f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"
    for command in (
        [program, "-S", source, "-B", tmp_path, prefix, "-DCMAKE_BUILD_TYPE=Release"],
        [program, "--build", tmp_path],
        [tmp_path / "program", tmp_path / "module.pt"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.filterwarnings("ignore")  # cpp_extension warns about unknown compilers
def test_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It looks for ninja there, which the environment has.
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    module = cpp_extension.load_inline("graft_test_extension", EXTENSION, build_directory=str(tmp_path))
    x = torch.rand(2, 3, requires_grad=True)
    result = module.both(x)
    torch.testing.assert_close(result, 5 * x.flatten())
    result.sum().backward()
    assert torch.equal(x.grad, torch.full((2, 3), 5.0))
