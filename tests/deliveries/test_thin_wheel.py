"""``make thin-wheel``: operators in a wheel of their own, for the installed torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import alter_build_id, write
from users import AS_WRITTEN, CLIPPED, CLIPS, Environment, make, thin_wheel, write_clip

MODULE = """from torch import Tensor, nn


class SoftClip(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.soft_clip()
"""

# `roll` is a name that torch has.
OVERLOAD = """- func: roll.by_half(Tensor self, *, bool half) -> Tensor
  variants: function, method
  dispatch:
    CompositeExplicitAutograd: roll_by_half
"""

OVERLOAD_KERNEL = """#include <ATen/ops/roll.h>
#include <ATen/ops/roll_native.h>

namespace at::native {

Tensor roll_by_half(const Tensor& self, bool half) {
  return half ? at::roll(self, {self.size(0) / 2}, {0}) : self.clone();
}

} // namespace at::native
"""


@pytest.fixture(scope="session")
def clips_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three operators and a module."""
    files = {
        "docs/soft_clip.rst": "Clips softly.\n",
        "python/nn/modules/soft_clip.py": MODULE,
        "python/nn/modules/__init__.py": 'from .soft_clip import SoftClip\n\n__all__ += ["SoftClip"]\n',
    }
    return write(tmp_path_factory.mktemp("clips") / "clip_ops", CLIPS | files)


@pytest.fixture(scope="session")
def clips(environment: Environment, clips_folder: Path) -> Path:
    """A thin wheel of that folder."""
    return thin_wheel(environment, clips_folder, clips_folder.parent / "out")


@pytest.fixture(scope="session")
def rolled(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thin wheel with an overload of a name that torch has."""
    files = {"native_functions.yaml": OVERLOAD, "RollByHalf.cpp": OVERLOAD_KERNEL}
    folder = write(tmp_path_factory.mktemp("rolled") / "rolled", files)
    return thin_wheel(environment, folder, folder.parent / "out", "--name", "rolled_ops")


@pytest.fixture(scope="module")
def both(stock_copy: Environment, clips: Path, rolled: Path) -> Environment:
    """A copy of the environment, with both."""
    stock_copy.pip("install", "--no-deps", clips, rolled)
    return stock_copy


def test_it_runs_wherever_that_torch_does(environment: Environment, clips: Path) -> None:
    """What Graft itself puts into wheels needs no newer symbols."""
    (official,) = environment.packages.glob("torch-*.dist-info/WHEEL")
    (tag,) = re.findall(r"^Tag: .*-(\w+)$", official.read_text(encoding="utf-8"), re.M)
    assert clips.stem.endswith(f"-{tag}")


def test_torch_loads_it_and_is_stock_afterwards(stock: Environment, clips: Path) -> None:
    before = stock.content()
    stock.pip("install", clips)
    assert stock.print(CLIPPED) == AS_WRITTEN
    assert stock.print("torch.__version__.count('graft')") == "0"
    stock.pip("uninstall", "-y", "clip_ops")
    assert stock.print("hasattr(torch, 'soft_clip')") == "False"
    assert stock.content() == before


# Prints how many calls of each thread were made meanwhile, and what the new overload returns.
THREADS = """
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
import clip_ops

x = torch.arange(8.0)
expected = [x.tanh(), 1 - x.tanh() ** 2, x[[7, 0, 1, 2, 3, 4, 5, 6]]]
start, imported, over = threading.Barrier(9), threading.Event(), threading.Event()


def calls(number):
    during = 0
    start.wait()
    while not over.is_set():
        given = x.clone().requires_grad_()
        result = torch.soft_clip(given)
        result.sum().backward()
        found = [result.detach(), given.grad, torch.roll(x, 1)]
        assert all(torch.equal(*each) for each in zip(found, expected)), found
        during += not imported.is_set()
    return during


with ThreadPoolExecutor(8) as pool:
    running = [pool.submit(calls, number) for number in range(8)]
    start.wait()
    try:
        import rolled_ops
    finally:
        imported.set()
        threading.Event().wait(0.2)  # they go on with the new binding
        over.set()
    for each in running:
        print(each.result())
print(str(torch.roll(torch.arange(4), half=True).tolist()).replace(" ", ""))
"""


# The expected output for each expression.
EXPECTED = {
    "torch.full((2,), 50).soft_clip(2).tolist()": "[2.0, 2.0]",
    "torch.nn.SoftClip()(torch.ones(1) * 50).item()": "1.0",
    "'Clips' in torch.soft_clip.__doc__ and 'torch.soft_clip' in torch.Tensor.soft_clip.__doc__": "True",
    "torch.func.jvp(torch.soft_clip, (torch.zeros(1),), (torch.ones(1),))[1].item()": "1.0",
    "torch.vmap(torch.soft_clip)(torch.ones(2, 2) * 50).tolist()": "[[1.0, 1.0], [1.0, 1.0]]",
    "torch.clip_apart(torch.arange(2), 1).above.tolist()": "[1, 1]",
    "len(torch.utils._pytree.tree_leaves(torch.clip_apart(torch.arange(2), 1)))": "2",
    "torch.return_types.clip_apart in torch.return_types.all_return_types": "True",
    "torch.soft_clip in torch.overrides.get_testing_overrides()": "True",
    "torch.compile(lambda x: torch.soft_clip(x * 50), fullgraph=True)(torch.ones(1)).item()": "1.0",
    "'soft_clip' in str(torch.export.export(torch.nn.SoftClip(), (torch.ones(1),)).graph)": "True",
    "torch.soft_clip(torch.ones(1, requires_grad=True)).grad_fn.name()": "SoftClipBackward0",
    "torch.roll(torch.arange(4), half=True).tolist()": "[2, 3, 0, 1]",
    "torch.arange(4).roll(half=True).tolist()": "[2, 3, 0, 1]",
    "torch.roll(torch.arange(4), 1).tolist()": "[3, 0, 1, 2]",
    "'by_half' in torch.ops.aten.roll.overloads()": "True",
    "torch.ops.aten.roll(torch.arange(4), half=True).tolist()": "[2, 3, 0, 1]",
    "torch.roll.__doc__.strip()[:4], torch.roll.__module__": "roll torch",
    # An operator that writes an argument, and one of torch.library.
    "[writes(ops)(torch.ones(1) * 3).item() for ops in both]": "[2.0, 2.0]",
    "torch.compile(lambda x: sum(writes(ops)(x) for ops in both), fullgraph=True)(torch.ones(1)).item()": "4.0",
    "['clip_into' in str(torch.jit.trace(writes(ops), torch.ones(1)).graph) for ops in both]": "[True, True]",
    "[{*torch.library.opcheck(ops.clip_into.default, (torch.ones(1), torch.ones(1))).values()} for ops in both]": (
        "[{'SUCCESS'}, {'SUCCESS'}]"
    ),
}

BESIDE = """
import json, torch

library = torch.library.Library("beside", "DEF")
library.define("clip_into(Tensor x, Tensor(a!) out) -> ()")
library.impl("clip_into", lambda x, out: (out.copy_(x.clamp(max=1)), None)[1], "CPU")
both = torch.ops.aten, torch.ops.beside

def writes(ops):
    return lambda x: (y := torch.empty_like(x), ops.clip_into(x, y), y * 2)[2]
"""


@pytest.fixture(scope="module")
def printed(both: Environment) -> dict[str, str]:
    """The output of one program for all of them, or the error of each."""
    code = f"""{BESIDE}
found = {{}}
for each in {list(EXPECTED)!r}:
    try:
        value = eval(each)
        found[each] = " ".join(map(str, value)) if type(value) is tuple else str(value)
    except Exception as error:
        found[each] = repr(error)
print(json.dumps(found))
"""
    done = both.run(code)
    assert "not in torch" not in done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("expression", EXPECTED)
def test_operators_of_two_wheels_are_as_torch_s_own(printed: dict[str, str], expression: str) -> None:
    assert printed[expression] == EXPECTED[expression]


def test_both_are_listed(both: Environment) -> None:
    about = both.about()
    assert "a thin wheel, loaded by the installed torch, clip_ops" in about
    assert "a thin wheel, loaded by the installed torch, rolled_ops" in about


def test_without_autoload_the_package_loads_itself(both: Environment) -> None:
    code = "import torch; print(hasattr(torch, 'soft_clip')); import clip_ops; print(hasattr(torch, 'soft_clip'))"
    assert both.run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.split() == ["False", "True"]


def test_package_may_be_imported_first(both: Environment) -> None:
    assert both.run("import clip_ops, torch; print(torch.soft_clip(torch.ones(1) * 50).item())").stdout.strip() == "1.0"


def test_threads_call_operators_while_a_wheel_is_imported(both: Environment) -> None:
    """Forward and backward of another wheel's operator, and of one of torch that gets an overload meanwhile."""
    done = both.run(THREADS, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.split()
    assert len(done) == 9 and done.pop() == "[2,3,0,1]"
    assert all(int(during) > 0 for during in done), done


def test_same_operator_twice_names_both(both: Environment, clips_folder: Path, tmp_path: Path) -> None:
    again = thin_wheel(both, clips_folder, tmp_path / "out", "--name", "other_ops")
    both.pip("install", "--no-deps", again)
    try:
        done = both.run("import torch; print(torch.soft_clip(torch.ones(1) * 50).item())")
        assert done.stdout.strip() == "1.0"
        (line,) = done.stderr.splitlines()
        assert "clip_ops" in line
        assert "other_ops" in line
        assert "aten::clip_apart" in line
    finally:
        both.pip("uninstall", "-y", "other_ops")


def test_copy_of_the_library_names_both_files(both: Environment, tmp_path: Path) -> None:
    copy = tmp_path / "copy.so"
    code = (
        "import ctypes, shutil, torch; note = torch._thin_wheels['clip_ops']\n"
        "library = note['folder'] + '/' + note['extension']; print(library, flush=True)\n"
        f"ctypes.CDLL(library); shutil.copy(library, {str(copy)!r}); ctypes.CDLL({str(copy)!r})"
    )
    process = both.start(code)
    library, said = process.communicate()
    assert process.returncode == 1
    assert said.startswith(f"torch: {copy} cannot be loaded: it is a copy of {library.strip()}, which is loaded"), said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clip_ops", "rolled_ops"])
def test_operators_of_develop_are_taken_instead_of_a_wheel_s(
    both: Environment, rolled: Path, tmp_path: Path, name: str
) -> None:
    """Of the wheel that PyTorch loads first, and of the other."""
    folder = write_clip(tmp_path / "ops") if name == "clip_ops" else rolled.parent.with_name("rolled")
    program = "import torch; print(torch.ones(1).mul(50).soft_clip(), torch.arange(4).roll(half=True).tolist()); "
    program += "from torch import _graft; print(*(note['delivery'] for note in _graft.notes()))"
    try:
        said = make("develop", both, "--native", folder).splitlines()
        done = both.run(program)
    finally:
        make("undevelop", both)
    assert done.stdout == "tensor([1.]) [2, 3, 0, 1]\ndevelop thin wheel\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{name}: its operators were not added to torch: aten::")
    assert line.endswith(f"; uninstall {name}")
    assert line in said


@pytest.mark.parametrize("name", ["version.py", "lib/libc10.so", "lib/libtorch_python.so"])
def test_another_torch_is_refused_in_one_line(both: Environment, name: str) -> None:
    """Of another commit; or another build of the same size and commit, as a nightly of another index may be."""
    path, version = both.own(f"torch/{name}"), both.print("torch.__version__")
    content, is_library = path.read_bytes(), path.suffix == ".so"
    if is_library:
        alter_build_id(path)
    else:
        path.write_bytes(content.replace(b"git_version = '", b"git_version = '0"))
    try:
        done = both.run("import torch; print(torch.ones(1).item(), hasattr(torch, 'soft_clip'))")
    finally:
        path.write_bytes(content)
    assert done.stdout.split() == ["1.0", "False"]
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    said = f"but this is another build of torch {version}; `pip install" if is_library else "were built for torch"
    assert all(said in line and "install torch==" in line for line in lines)


PROGRAM = """#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/soft_clip.h>

#include <iostream>

int main() {
  std::cout << at::soft_clip(at::arange(4).mul(50), 2).sum().item<float>();
}
"""

CMAKE = """cmake_minimum_required(VERSION 3.18)
project(program CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(clip_ops REQUIRED)
add_executable(program program.cpp)
target_link_libraries(program clip_ops)
"""


def test_program_without_python_calls_the_operators(both: Environment, tmp_path: Path) -> None:
    write(tmp_path, {"program.cpp": PROGRAM, "CMakeLists.txt": CMAKE})
    places = f"{both.packages};{both.packages}/torch/share/cmake"
    cmake = Path(sys.executable).with_name("cmake")
    configure = [cmake, "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={places}"]
    for command in (configure, [cmake, "--build", tmp_path / "build"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert subprocess.run([tmp_path / "build/program"], capture_output=True, text=True, check=True).stdout == "6"


EXTENSION = """#include <ATen/core/Tensor.h>
#include <ATen/ops/soft_clip.h>
#include <torch/library.h>

at::Tensor clip_twice(const at::Tensor& self) {
  return at::soft_clip(at::soft_clip(self, 50), 1);
}

TORCH_LIBRARY(test_of_clips, library) {
  library.def("clip_twice", clip_twice);
}
"""

USE = """
import clip_ops
import torch
from torch.utils.cpp_extension import load

load(
    "extension",
    ["extension.cpp"],
    extra_include_paths=clip_ops.include(),
    extra_ldflags=[clip_ops.library()],
    build_directory=".",
    is_python_module=False,
)
print(torch.ops.test_of_clips.clip_twice(torch.arange(2) * 100.).tolist())
"""


def test_extension_calls_the_operators(both: Environment, tmp_path: Path) -> None:
    (tmp_path / "extension.cpp").write_text(EXTENSION)
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # which has ninja
    done = both.run(f"import os; os.chdir({str(tmp_path)!r}){USE}", PATH=programs)
    assert done.stdout == "[0.0, 1.0]\n"
