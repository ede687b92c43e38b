"""``graft adopt``: an extension of the field becomes native operators, and is itself unchanged. Each first call is in a
process of its own, since it imports the extension.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest
from helpers import write
from users import Environment, make

_HERE = Path(__file__).parent

# What calls give in a process without Graft is what they give with it: each line is run with `torch.ops.heads` and
# with `torch`.
SAME = """
x = torch.arange(12.0).reshape(3, 4)
show(NS.blend(x, x + 1, [x, x]))
show(NS.scale_by(x), NS.scale_by(x, 3.0), NS.top_heads(x, 2), NS.lambda_only(x), NS.copy_to(x, torch.empty(3, 4)))
show(NS.sum_lists([x, x]), NS.sum_lists([x, x], [0], 0.5, "mean"), NS.widen(x[:1], [3, 4]), NS.repeat_of(x[0], 2))
show(NS.maybe(x, True), NS.maybe(x, False), NS.python_twice(x, 3), NS.nonzero_of(x), NS.shift(x, 0.5))
show(NS.clash(x, x, 2), NS.halves(x), NS.HALVES, NS.notice(x, 4), NS.noticed())
query, key, into = torch.zeros(3, 4), torch.ones(3, 4), torch.ones(3, 4)
NS.rotate(x, query, key), NS.rotate(x, query, None), NS.accumulate(into, x)
show(query, key, into)
y = x.clone().requires_grad_()
(NS.scale_by(y, 3.0).sum() + NS.python_twice(y, 5).sum()).backward()
show(y.grad)
"""

# The same calls, first in the process.
FIRST = {
    "eight threads": """
import threading
out, go = [], threading.Barrier(8)
def call():
    go.wait()
    out.append(torch.scale_by(x, 3.0))
threads = [threading.Thread(target=call) for _ in range(8)]
[each.start() for each in threads], [each.join() for each in threads]
assert len(out) == 8 and all(torch.equal(each, x * 3) for each in out)
""",
    "fake tensors": """
from torch._subclasses import FakeTensorMode
with FakeTensorMode():
    assert torch.top_heads(torch.randn(3, 4), 2)[0].shape == (3, 2)
import heads
assert torch.equal(torch.scale_by(x), x * 2)
""",
    "vmap": "assert torch.equal(torch.vmap(lambda a: torch.scale_by(a, 3.0))(x), x * 3)",
    "compile": """
f = torch.compile(lambda a: torch.scale_by(a, 3.0).sin(), fullgraph=True)
assert torch.allclose(f(x), (x * 3).sin())
""",
    "dynamic shapes": """
from torch._dynamo.testing import CompileCounter
counter = CompileCounter()
f = torch.compile(lambda a, n: torch.repeat_of(a, n), fullgraph=True, dynamic=True, backend=counter)
assert all(f(x[0], n).shape == (4 * n,) for n in (3, 4, 5, 6, 7)) and counter.frame_count == 1
""",
    "export": """
class Model(torch.nn.Module):
    def forward(self, a):
        return torch.scale_by(a, 3.0)
program = torch.export.export(Model(), (x,))
assert torch.equal(program.module()(x), x * 3)
assert "torch.ops.aten.scale_by" in str(program.graph)
assert "torch.ops.heads.scale_by" in str(program.run_decompositions().graph)
""",
    "script": """
unit = torch.jit.CompilationUnit(
    "def f(a):\\n    return torch.scale_by(a, 3.0)\\n"
    "def g(a):\\n    torch.notice(a, 3)\\n    return a\\n"
    "def h(a, b):\\n    torch.stamp(a, b)\\n    return a + 0\\n"
)
for _ in range(4):
    assert torch.equal(unit.h(torch.ones(3, 4), x), x + 1)
assert torch.equal(unit.f(x), x * 3)
for _ in range(4):
    torch.notice(x, 1)
    unit.g(x)
    assert torch.noticed() == 3  # registered without a schema, so it may have effects
""",
    "trace": "assert torch.equal(torch.jit.trace(lambda a: torch.scale_by(a, 3.0), x)(x + 1), (x + 1) * 3)",
    "no grad": """
with torch.no_grad():
    torch.scale_by(x)
y = x.clone().requires_grad_()
torch.scale_by(y, 3.0).sum().backward()
assert torch.equal(y.grad, torch.full_like(x, 3.0))
""",
    "defined again": """
assert torch.equal(torch.python_twice(x, 3), x * 3)
@torch.library.custom_op("heads::python_twice", mutates_args=())
def python_twice(x: torch.Tensor, times: int = 2) -> torch.Tensor:
    return x * times + 1
assert torch.equal(torch.python_twice(x, 3), x * 3 + 1)
@torch.library.custom_op("heads::python_twice", mutates_args=())
def python_twice(x: torch.Tensor, times: float = 2) -> torch.Tensor:
    return x * times
try:
    torch.python_twice(x, 3)
except RuntimeError as error:
    assert str(error).startswith("heads::python_twice is another operator than the one that was adopted"), error
    assert "these are changed or gone: heads::python_twice" in str(error), error
else:
    raise AssertionError
""",
    "half-imported": """
import heads
assert heads.BEFORE_ITS_END == [4.0, 4.0]
""",
    "not there": """
import sys
sys.modules["heads"] = None
try:
    torch.scale_by(x)
except RuntimeError as error:
    assert str(error).startswith("heads::scale_by needs the Python module heads, which cannot be imported"), error
else:
    raise AssertionError
""",
    "writing": """
into = torch.zeros(3, 4)
before = into._version
torch.accumulate(into, x)
assert into._version > before and torch.equal(into, x)
try:
    torch.accumulate(torch.zeros(3, 4, requires_grad=True), x)
except RuntimeError as error:
    assert "leaf Variable" in str(error), error
else:
    raise AssertionError
y = x.clone().requires_grad_()
z = y * 1
torch.accumulate(z, x)
try:
    z.sum().backward()
except RuntimeError as error:
    assert "heads::accumulate is not implemented" in str(error), error
else:
    raise AssertionError
f = torch.compile(lambda a, b: (torch.accumulate(a, b), a + 1)[1], fullgraph=True, backend="aot_eager")
assert torch.equal(f(torch.ones(3, 4), x), x + 2)
""",
    "own gradients": """
y = torch.rand(3, 4, dtype=torch.double, requires_grad=True)
assert torch.autograd.gradcheck(lambda a: torch.python_twice(a, 3), (y,))
assert torch.autograd.gradgradcheck(lambda a: torch.python_twice(a, 3), (y,))
""",
    "opcheck": """
torch.library.opcheck(torch.ops.aten.scale_by.default, (x.clone().requires_grad_(), 3.0))
torch.library.opcheck(torch.ops.aten.nonzero_of.default, (x,), test_utils=["test_schema", "test_faketensor"])
""",
}


@pytest.fixture(scope="module")
def installed(stock_copy: Environment) -> Environment:
    """An environment with the extension. Nothing of Graft compiled it."""
    package = stock_copy.packages / "heads"
    package.mkdir()
    (package / "__init__.py").write_bytes((_HERE / "heads.py").read_bytes())
    stock_copy.compile((_HERE / "heads.cpp").read_text(encoding="utf-8"), package / "_ops.so", "-shared")
    return stock_copy


@pytest.fixture(scope="module")
def folder(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The adopted folder; its operators are in the environment."""
    native = tmp_path_factory.mktemp("adopted") / "heads_ops"
    before = _hash_of(installed.packages / "heads")
    own = ("--own", "nonzero_of", "--own", "heads::python_twice", "--own", "blend")
    said = make("adopt", installed, "heads", "--native", native, *own, "--report", native.parent / "r")
    assert "23 operators: 21 whole, 1 needs a line, 1 cannot be" in said
    assert 'notice need a line in adopt.toml, `writes = {f = ["out"]}`' in said
    make("develop", installed, "--native", native)
    assert _hash_of(installed.packages / "heads") == before
    return native


def _hash_of(package: Path) -> str:
    files = sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def test_table(folder: Path) -> None:
    lines = {each["full"]: each for each in json.loads((folder.parent / "r").read_text(encoding="utf-8"))}
    assert lines["heads::widen"]["is_method"] and not lines["heads::repeat_of"]["is_method"]
    assert lines["heads::version"]["function"] == "heads_version"
    assert lines["heads::of_lists"]["verdict"] == "cannot be"
    assert lines["heads::stamp"]["entry"] == "stamp(Tensor(a!) into, Tensor x) -> ()"
    assert lines["heads::clash"]["notes"] == ["argument `result` is `result_`", "argument `node` is `node_`"]
    assert lines["heads::copy_to"]["notes"] == ["it does not return `out`"]
    assert "Meta in Python" in lines["heads::scale_by"]["kernels"]
    fit = "torch.ops tries .integer before .number where both fit, torch.shift may not"
    formulas = (folder / "derivatives.yaml").read_text(encoding="utf-8")
    assert "  x: at::mul(grad, times)\n" in formulas
    todo = '("blend")  # TODO: the formula of its gradient\n'
    assert f"  x: not_implemented{todo}  y: not_implemented{todo}  more: not_implemented_list{todo}" in formulas
    assert lines["heads::shift.integer"]["notes"] == [fit]


def test_calls_are_the_extensions(folder: Path, installed: Environment) -> None:
    show = "import heads, torch\ndef show(*values):\n    print(*values, sep='\\n')\n"
    # torch.ops returns what is written.
    theirs, ours = (
        installed.run(show + SAME.replace("NS.copy_to", copy).replace("HALVES", halves).replace("NS", namespace)).stdout
        for namespace, copy, halves in (
            ("torch.ops.heads", "torch.ops.heads.copy_to", "halves(x, low=torch.empty(0), high=torch.empty(0))"),
            (
                "torch",
                "(lambda x, out: (torch.copy_to(x, out), out)[1])",
                "halves(x, out=(torch.empty(0), torch.empty(0)))",
            ),
        )
    )
    assert _numbers(ours) == _numbers(theirs)


def _numbers(text: str) -> list[str]:
    """Return the words of a text without the names of structures, which torch.ops does not have."""
    plain = re.sub(r"torch\.return_types\.\w+|\b(values|indices|low|high)=", "", text)
    return [word for each in plain.split() if (word := each.strip("(),"))]


# Runs each case in a child of its own, which has imported torch and called nothing.
FORKS = """
import os, sys, traceback
import torch, torch._dynamo, torch._subclasses
torch.set_num_threads(1)
for name, case in CASES.items():
    child = os.fork()
    if child == 0:
        try:
            exec(case, {"__name__": "case", "torch": torch, "x": torch.arange(12.0).reshape(3, 4)})
            code = 0
        except BaseException:
            print(f"{name}: {traceback.format_exc()}", flush=True)
            code = 1
        os._exit(code)
    if os.waitpid(child, 0)[1]:
        print(f"{name} failed", flush=True)
"""


def test_first_calls(folder: Path, installed: Environment) -> None:
    done = installed.run(FORKS.replace("CASES", repr(FIRST)), PYTHONWARNINGS="ignore", OMP_NUM_THREADS="1")
    assert done.stdout == ""


PROGRAM = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/nonzero_of.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scale_by.h>
#include <iostream>
int main() {
  std::cout << at::scale_by(at::ones({2}), 3.0).sum().item<double>() << std::endl;
  try {
    at::nonzero_of(at::ones({2}));
  } catch (const c10::Error& error) {
    std::cout << error.what_without_backtrace() << std::endl;
  }
}
"""


def test_program_without_python(folder: Path, installed: Environment, tmp_path: Path) -> None:
    torch = Path(installed.print("torch.__path__[0]"))
    program = installed.compile(PROGRAM, tmp_path / "program", f"-Wl,-rpath,{torch}/lib", torch=torch)
    value, error = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()[:2]
    assert value == "6"
    assert error.startswith("heads::nonzero_of is not registered, though heads is loaded"), error


SAMPLES = """
def scale_by(make):
    yield make(3, 4)
    yield make(3, 4), 3.0

def accumulate(make):
    yield make(3, 4), make(3, 4)

def copy_to(make):
    yield make(3, 4), make(3, 4)

def top_heads(make):
    yield make(3, 4), 9
"""


def test_compared(folder: Path, installed: Environment) -> None:
    samples = folder / "samples.py"
    said = make("adopt", installed, "--native", folder, "--compare", is_right=False)
    assert f"{samples}: there are no inputs to call the operators with" in said and "def " in said
    samples.write_text(SAMPLES, encoding="utf-8")
    said = make("adopt", installed, "--native", folder, "--compare")
    lines = {
        line.split()[0]: line.split()[1:] for line in said.splitlines() if line.startswith(("operator", "heads::"))
    }
    ways = lines.pop("operator")
    assert ways == ["call", "script", "trace", "compile", "export", "vmap", "grad", "leaf", "version", "opcheck"]
    assert lines["heads::scale_by"] == ["same"] * 8  # it writes nothing
    assert lines["heads::accumulate"].count("same") == 7 and "heads::shift.integer" in said
    assert (
        lines["heads::top_heads"] == ["refused"] and "on the CPU, or random there: an input of heads::top_heads" in said
    )
    samples.unlink()


def test_names_of_other_folders_are_taken(folder: Path, installed: Environment, tmp_path: Path) -> None:
    package = installed.packages / "tails.py"
    package.write_text(
        "import torch\n\n@torch.library.custom_op('tails::scale_by', mutates_args=())\n"
        "def scale_by(x: torch.Tensor, factor: float) -> torch.Tensor:\n    return x * factor\n",
        encoding="utf-8",
    )
    said = make("adopt", installed, "tails", "--native", tmp_path / "tails_ops", "--dry-run")
    assert "torch.tails_scale_by" in said and not (tmp_path / "tails_ops").exists()
    other = tmp_path / "other"
    other.mkdir()
    (other / "native_functions.yaml").write_text("- func: tails_scale_by(Tensor self) -> Tensor\n", encoding="utf-8")
    said = make("adopt", installed, "tails", "--native", f"{tmp_path / 'tails_ops'} {other}", "--dry-run")
    assert "torch.tails_scale_by_2" in said


def test_again(folder: Path, installed: Environment) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    make("adopt", installed, "--native", folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    package = installed.packages / "heads/__init__.py"
    text = package.read_text(encoding="utf-8")
    package.write_text(text.replace("times: int = 2", "times: int = 3"), encoding="utf-8")
    said = make("adopt", installed, "--native", folder, "--dry-run")
    package.write_text(text, encoding="utf-8")
    assert "changed since it was adopted:\n  heads::python_twice: " in said
    assert "times=2) -> Tensor is now heads::python_twice(Tensor x, SymInt times=3) -> Tensor" in said
    entries = folder / "native_functions.yaml"
    entries.write_bytes(before[entries] + b"# mine\n")
    said = make("adopt", installed, "--native", folder, is_right=False)
    assert f"{entries}: it was edited since `graft adopt` wrote it" in said
    entries.write_bytes(before[entries])


# A source tree whose package imports its extension at the first call. Its build writes where git keeps settings.
LATE = {
    "setup.py": """
import subprocess
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

subprocess.run(["git", "config", "late.step", "1"], check=True)
extension = CppExtension("late._C", ["late.cpp"], extra_compile_args=["-march=native"])
setup(name="late", packages=["late"], ext_modules=[extension], cmdclass={"build_ext": BuildExtension})
""",
    "late/__init__.py": "import no_such_module\n",
    "late/fakes.py": """
def grown(x, by):
    return x.new_empty(x.shape[0] + by[0] * by[1])

def scaled(x, by):
    return x.new_empty(x.shape)
""",
    "late.cpp": """#include <ATen/ops/full.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/utils/pybind.h>
using at::Tensor;
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("grown", [](const Tensor& x, std::pair<int64_t, int64_t> by) {
    return at::full({x.size(0) + by.first * by.second}, 3.0);
  });
  m.def("scaled", [](const Tensor& x, double by) { return x * by + 0.5; });
  m.def("scaled", [](const Tensor& x, int64_t by) { return x * by; });
}
""",
}


@pytest.mark.slow
def test_source_tree(installed: Environment, tmp_path: Path) -> None:
    tree, ops = write(tmp_path / "tree", LATE), tmp_path / "late_ops"
    subprocess.run(["git", "init", "--quiet", tree], check=True)
    config = (tree / ".git/config").read_bytes()
    said = make("adopt", installed, tree, "--native", ops, is_right=False)
    assert f"{tree}/late/__init__.py:1: it imports no_such_module, which {installed.python} does not have" in said
    assert "compile" not in said.replace("nothing was compiled", "") and not ops.exists()
    (tree / "late/__init__.py").write_text("import torch\n", encoding="utf-8")
    write(ops, {"adopt.toml": 'writes = {"*" = []}\nfakes = {"*" = "late.fakes"}\nnames = {scaled = "scaled_late"}\n'})
    said = make("adopt", installed, tree, "--native", ops)
    assert "2 operators: 2 whole" in said and "late::scaled: its name is scaled_late" in said
    assert "-march=native is for processors like this one; for a wheel, write what its sources need" in said
    assert (tree / ".git/config").read_bytes() == config
    assert 'modules = ["late", "late._C"]' in (ops / "adopt.toml").read_text(encoding="utf-8")
    said = make("thin-wheel", installed, "--native", ops, "--name", "late_ops", is_right=False)
    assert f"{ops}/pyproject.toml:" in said and "such as -mavx2" in said
    make("develop", installed, "--native", ops)
    code = """
import torch
x = torch.ones(3)
assert torch.grown(x, (2, 4)).shape == (11,) and torch.grown(x, [1, 1]).tolist() == [3.0] * 4
assert torch.scaled_late(x, 2).tolist() == [2.0] * 3 and torch.scaled_late(x, 2.0).tolist() == [2.5] * 3
assert torch.compile(torch.scaled_late, backend="aot_eager", fullgraph=True)(x, 2).tolist() == [2.0] * 3
"""
    installed.run(code)


def test_one_name_of_two_packages(installed: Environment, tmp_path: Path) -> None:
    texts = {f"{name}/native_functions.yaml": "- func: f_of(Tensor self) -> Tensor\n" for name in "ab"}
    write(tmp_path, texts)
    said = make("check", installed, "--native", f"{tmp_path / 'a'} {tmp_path / 'b'}", is_right=False)
    assert "`graft adopt --prefix`" in said


def test_mistakes(installed: Environment, tmp_path: Path) -> None:
    (installed.packages / "broken.py").write_text("import no_such_module\n", encoding="utf-8")
    (installed.packages / "empty.py").touch()
    faults = {
        "broken": "cannot import it: ModuleNotFoundError: No module named 'no_such_module'",
        "empty": "importing it registers no operator",
        "no_such_package": "cannot import it: ModuleNotFoundError: No module named 'no_such_package'",
        "their-ext-1.0": "cannot import it: ModuleNotFoundError: No module named 'their-ext-1'",
        "./their-ext-1.0": "./their-ext-1.0: no such folder",
    }
    for package, fault in faults.items():
        said = make("adopt", installed, package, "--native", tmp_path / "ops", is_right=False)
        assert fault in said and len(said.splitlines()) < 8
        assert not (tmp_path / "ops").exists()
    remedies = {"broken": "install no_such_module", "no_such_package": "is not always that of pip"}
    for package, remedy in remedies.items():
        assert remedy in make("adopt", installed, package, "--native", tmp_path / "ops", is_right=False)
    (installed.packages / "wrong.py").write_text("raise ValueError('a wish')\n", encoding="utf-8")
    said = make("adopt", installed, "wrong", "--native", tmp_path / "ops", is_right=False)
    assert "ValueError: a wish" in said and "install" not in said
    library = tmp_path / "libother.so"
    installed.compile("int graft_missing(); int call() { return graft_missing(); }", library, "-shared")
    text = f"import ctypes\nctypes.CDLL({str(library)!r}, os.RTLD_NOW)\n"
    (installed.packages / "other.py").write_text(f"import os\n{text}", encoding="utf-8")
    said = make("adopt", installed, "other", "--native", tmp_path / "ops", is_right=False)
    assert "it was built for another torch" in said
    assert "no package is given" in make("adopt", installed, "--native", tmp_path / "ops", is_right=False)
