"""Documentation, overrides, dispatch modes, stubs and C++."""

import ast
import importlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils import cpp_extension


def test_python_files_of_the_folder_are_in_torch() -> None:
    x = torch.randn(3, 4)
    assert torch.nn.GrGate.__module__ == "torch.nn.modules.gr_gate"
    torch.testing.assert_close(torch.nn.GrGate()(x), torch.nn.functional.gr_gate(x))
    assert importlib.import_module("torch.gr_package").ANSWER == 42


def test_help_says_what_the_folder_does() -> None:
    mix = torch.gr_mix.__doc__
    assert mix.startswith("\ngr_mix(input, other, *, alpha=2, out=None) -> Tensor\n\nAdds :attr:`input`")
    assert Tensor.gr_mix.__doc__ == "\ngr_mix(other, *, alpha=2) -> Tensor\n\nSee :func:`torch.gr_mix`\n"
    assert "gr_center(input, dim=None) -> Tensor\n\nMoves the element" in torch.fft.gr_center.__doc__
    assert "gr_center" in torch.fft.__all__
    # Registrations without a file of their own.
    assert "gr_bump(input) -> Tensor\n\nAn operator that was added" in torch.special.gr_bump.__doc__
    assert "gr_gate(input, weight=None, reduction=1, *, out=None) -> Tensor" in torch.nn.functional.gr_gate.__doc__
    assert "lerp(input, end, weight, *, out=None)" in torch.lerp.__doc__


def test_torch_function_is_asked() -> None:
    class Mine(Tensor):
        called: ClassVar[list[str]] = []

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.called.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = torch.eye(3).as_subclass(Mine)
    results = [
        torch.gr_mix(x, x),
        x.gr_diag(),
        torch.lerp(x, "half"),
        x + "four",
        torch.linalg.gr_anti_trace(x),
        torch.nn.functional.gr_gate(x),
        torch.gr_sum_list([torch.eye(3), x]),
    ]
    assert all(isinstance(result, Mine) for result in results)
    assert {"gr_mix", "gr_diag", "lerp", "linalg_gr_anti_trace", "gr_gate", "gr_sum_list"} <= set(Mine.called)


def test_overrides_know_the_operators() -> None:
    functions = {torch.gr_mix, torch.gr_diag, Tensor.gr_swap_, torch.linalg.gr_anti_trace, Tensor.gr_method_only}
    assert functions <= torch.overrides.get_testing_overrides().keys()


def test_every_new_name_has_a_stub() -> None:
    folder = Path(torch.__file__).parent
    expected = {
        "_C/_VariableFunctions.pyi": ["gr_mix", "gr_extent", "gr_factory", "gr_ints", "gr_strings", "lerp"],
        "_C/__init__.pyi": ["gr_method_only", "gr_mix_", "gr_swap_", "new_gr_filled", "__gr__"],
        "_C/_nn.pyi": ["gr_gate"],
    }
    for file, names in expected.items():
        text = (folder / file).read_text()
        defined = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
        assert set(names) <= defined
    classes = {node.name for node in ast.parse((folder / "return_types.pyi").read_text()).body if hasattr(node, "name")}
    assert {"gr_extent", "gr_three", "gr_take", "gr_moments"} <= classes


CPP = r"""
#include <ATen/ATen.h>
#include <torch/csrc/autograd/generated/variable_factories.h>
#include <iostream>

int main() {
  const at::Tensor x = torch::gr_factory({2, 2}, 3, at::TensorOptions().dtype(at::kDouble).requires_grad(true));
  const at::Tensor y = at::gr_mix(x, x, 2).gr_diag();
  y.gr_square().sum().backward();
  const auto [low, high] = at::gr_extent(x);
  at::Tensor out = at::empty({0}, at::kDouble);
  at::gr_row_sum_out(out, x.detach(), 1, true);
  const at::Tensor z = at::gr_defaults(at::zeros({}));
  const bool is_fine = x.grad()[0][0].item<double>() == 54 && x.grad()[0][1].item<double>() == 0 &&
      high.sum().item<double>() == 6 && out.sizes() == at::IntArrayRef({2, 1}) && z.item<int>() == 2 &&
      at::add(z, "four").item<int>() == 6 && torch::gr_full_like(x, 5).sum().item<double>() == 20 &&
      at::cpu::gr_mix(x.detach(), x.detach()).sum().item<double>() == 36;
  std::cout << (is_fine ? "fine" : "wrong");
}
"""


@pytest.mark.skipif(torch.version.cuda is not None, reason="NVIDIA's libraries are not beside this torch")
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_cpp(tmp_path: Path) -> None:
    source, program, library = tmp_path / "program.cpp", tmp_path / "program", Path(torch.__file__).parent / "lib"
    source.write_text(CPP.replace("#include <iostream>", "#include <ATen/CPUFunctions.h>\n#include <iostream>"))
    includes = [f"-I{folder}" for folder in cpp_extension.include_paths()]
    command = ["g++", "-std=c++20", "-O0", *includes, str(source), "-o", str(program), f"-L{library}"]
    command += ["-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{library}", "-Wl,--no-as-needed"]
    subprocess.run(command, check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False, env={**os.environ, "PATH": ""})
    assert (done.stdout, done.stderr) == ("fine", "")
