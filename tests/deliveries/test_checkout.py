"""A checkout of PyTorch as SOURCE: what its working tree changes is in the installed torch, and it is only read.

Real git, compilers and the official wheel. ``checkout_repository.py`` says what stands for PyTorch's repository.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from checkout_repository import (
    DERIVATIVES,
    FUNCTIONS,
    MANUAL,
    NATIVE,
    commit,
    edit,
    make_checkout,
    name_commit,
    run_git,
)
from graft.core.layout import HOME, PACKAGES, REPOSITORY
from helpers import kernel, write
from users import Environment, make

POOLING = "aten/src/ATen/functorch/BatchRulesPooling.cpp"
LERP, CROSS = f"{NATIVE}/cpu/LerpKernel.cpp", f"{NATIVE}/Cross.cpp"
LERP_HEADER, FLATTEN = f"{NATIVE}/Lerp.h", "torch/nn/modules/flatten.py"
INTEGRATION, UNPOOLING = f"{NATIVE}/Integration.cpp", f"{NATIVE}/MaxUnpooling.cpp"
SOURCES = (MANUAL, POOLING, LERP, CROSS, INTEGRATION, UNPOOLING)
SCALAR, LIBRARY = "c10/core/Scalar.h", "third_party/library"
OPINFOS = "torch/testing/_internal"
VARIABLES = {**os.environ, "PYTHONPATH": str(PACKAGES)}
FILES = (
    *("torch/csrc/autograd/FunctionsManual.h", LERP_HEADER),
    *(f"{OPINFOS}/common_methods_invocations.py", f"{OPINFOS}/opinfo/definitions/*.py"),
    *(FLATTEN, "torch/functional.py", "torch/_decomp/decompositions.py", "torch/_meta_registrations.py"),
)


class Change:
    """What someone changes.

    Args:
        shown: an expression that shows it.
        value: its value then, which stock torch does not give; text of an error.
        edits: of files: a text that each has once, and another.
        files: new files.
    """

    def __init__(self, shown: str, value: Any, *edits: tuple[str, str, str], files: Mapping[str, str] = {}) -> None:
        self.shown, self.value, self.edits, self.files = shown, value, edits, files

    def make(self, tree: Path) -> None:
        for name, old, new in self.edits:
            edit(tree, name, old, new)
        write(tree, self.files)


MIDPOINT = kernel("midpoint", "const Tensor& self, const Tensor& other", "return self.add(other.sub(self).div(2));")
SCHEMA = "midpoint(Tensor self, Tensor other) -> Tensor"
SUM = "    return (y.sum(dim) - (y.select(dim, 0) + y.select(dim, -1)) * (0.5)) * dx;"
SUM_OF_NEIGHBORS = "    return (y.slice(dim, 0, -1) + y.slice(dim, 1)).sum(dim) * (dx / 2);"
# In a function that no change is about.
OF_UPSTREAM = "cumulative_trapezoid: received a bool input for `y`", "cumulative_trapezoid: `y` is bool"
IS_LONG = """      indices_.scalar_type() == at::ScalarType::Long,
      "elements in indices should be type int64 but got: ", indices_.scalar_type());
  TORCH_CHECK(
      output_size.size() == 2,"""

CHANGES = {
    "stub": Change(
        "torch.full((64,), inf).lerp(torch.full((64,), inf), 0.5).tolist() == [inf] * 64",
        True,
        (
            LERP,
            "  return vec::fmadd(coeff, end - start, base);",
            "  return vec_t::blendv(vec::fmadd(coeff, end - start, base), start, start == end);",
        ),
    ),
    "header": Change(
        "torch.full((3,), inf).lerp(torch.full((3,), inf), 0.5).tolist() == [inf] * 3",
        True,
        (
            LERP_HEADER,
            "  return is_lerp_weight_small(weight)\n",
            "  if (self == end) {\n    return self;\n  }\n  return is_lerp_weight_small(weight)\n",
        ),
    ),
    "table": Change(
        "torch.ops.aten.max_unpool2d(torch.ones(1, 1, 1), torch.tensor([[[3]]], dtype=torch.int32), [2, 2]).tolist()",
        [[[0, 0], [0, 1]]],
        (
            UNPOOLING,
            IS_LONG,
            IS_LONG.replace("scalar_type() == at::ScalarType::Long", "scalar_type() != at::ScalarType::Float"),
        ),
        (
            UNPOOLING,
            "  auto indices = indices_.contiguous(memory_format);\n\n  if (self.ndimension() == 3) {",
            "  auto indices = indices_.to(kLong).contiguous(memory_format);\n\n  if (self.ndimension() == 3) {",
        ),
    ),
    "structured": Change(
        "torch.linalg.cross(*torch.ones(2, 3, dtype=torch.bool))",
        "linalg.cross: truth has no direction",
        (
            CROSS,
            "  auto x_d = input.dim();",
            '  TORCH_CHECK(input.scalar_type() != kBool, "linalg.cross: truth has no direction");\n'
            "  auto x_d = input.dim();",
        ),
    ),
    "composite": Change(
        "[torch.trapezoid(torch.tensor([inf, 1, 1])).item(), torch.trapz(torch.tensor([inf, 1, 1])).item()]",
        [float("inf")] * 2,
        (INTEGRATION, SUM, SUM_OF_NEIGHBORS),
    ),
    "formula": Change(
        "gradient(lambda x: torch.logaddexp(x, x.detach()), inf)",
        0.5,
        (
            DERIVATIVES,
            "  self: grad / (1 + exp(other - self)).conj()\n",
            "  self: at::where(self == other, grad / 2, grad / (1 + exp(other - self)).conj())\n",
        ),
    ),
    "function of a formula": Change(
        "round(gradient(torch.sinc, 1e-10) * 1e10, 6)",
        -3.289868,
        (
            MANUAL,
            "      self_squared_pi == 0.0, at::scalar_tensor(0.0, grad.options()), out);",
            "      self.abs() < 1e-8, grad * (self * (-M_PI * M_PI / 3)).conj(), out);",
        ),
    ),
    "batching rule": Change(
        "batched()",
        [True, True],
        (
            POOLING,
            "  VMAP_SUPPORT(max_pool3d_with_indices,",
            "  EXISTING_BDIM_ALL_BOXED(max_unpool3d);\n  VMAP_SUPPORT(max_pool3d_with_indices,",
        ),
    ),
    "Python": Change(
        "repr(torch.nn.Flatten())",
        "Flatten(start_dim=1, to -1)",
        (FLATTEN, "end_dim={self.end_dim}", "to {self.end_dim}"),
    ),
    "operator": Change(
        "[torch.midpoints(torch.tensor([1.0, 3, 7])).tolist(), gradient(lambda x: torch.midpoint(x, x), 1),"
        " decomposed(torch.ops.aten.midpoint.default, *torch.tensor([1.0, 3])).item()]",
        [[2, 5], 1, 2],
        (
            FUNCTIONS,
            "- func: trapz.x(",
            f"- func: {SCHEMA}\n  dispatch:\n    CompositeExplicitAutograd: midpoint\n\n- func: trapz.x(",
        ),
        (DERIVATIVES, "- name: trace(", f"- name: {SCHEMA}\n  self: grad / 2\n  other: grad / 2\n\n- name: trace("),
        ("torch/functional.py", '    "atleast_1d",', '    "atleast_1d",\n    "midpoints",'),
        (
            "torch/functional.py",
            "def block_diag(",
            "def midpoints(x):\n    return torch.midpoint(x[:-1], x[1:])\n\n\ndef block_diag(",
        ),
        (
            "torch/_decomp/decompositions.py",
            "aten = torch._ops.ops.aten\n",
            "aten = torch._ops.ops.aten\n\n\n@register_decomposition(aten.midpoint)\n"
            "def midpoint(self, other):\n    return self + (other - self) / 2\n",
        ),
        files={f"{NATIVE}/Midpoint.cpp": MIDPOINT},
    ),
}

# Functions that are registered for operators, which can be only once.
OF_TABLES = Change(
    "[decomposed(torch.ops.aten.hardsigmoid.default, torch.tensor(9.0)).item(),"
    " message(torch.mm, *torch.ones(2, 2, device='meta'))]",
    [2, "mat1 must be 2D"],
    (
        "torch/_decomp/decompositions.py",
        "return torch.clamp(torch.clamp(self + 3, min=0), max=6) / 6",
        "return torch.clamp(torch.clamp(self + 3, min=0), max=6) / 3",
    ),
    (
        "torch/_meta_registrations.py",
        'def meta_mm(a, b, out_dtype: torch.dtype | None = None):\n    torch._check(a.dim() == 2, lambda: "a must',
        'def meta_mm(a, b, out_dtype: torch.dtype | None = None):\n    torch._check(a.dim() == 2, lambda: "mat1 must',
    ),
)

SHOW = """
import json, sys, warnings
import torch
from math import inf

def gradient(function, value):
    x = torch.tensor(value, dtype=torch.double, requires_grad=True)
    function(x).backward()
    return x.grad.item()

def decomposed(operator, *arguments):
    import torch._decomp.decompositions
    return torch._decomp.decomposition_table[operator](*arguments)

def message(function, *arguments):
    try:
        function(*arguments)
    except RuntimeError as error:
        return str(error)

def batched():
    x, indices = torch.rand(2, 3, 1, 1, 1), torch.randint(8, (2, 3, 1, 1, 1))
    unpool = lambda x, indices: torch.ops.aten.max_unpool3d(x, indices, [2, 2, 2], [2, 2, 2], [0, 0, 0])
    is_right = torch.equal(torch.vmap(unpool)(x, indices), torch.stack([unpool(*each) for each in zip(x, indices)]))
    return [is_right, torch._C._dispatch_has_kernel_for_dispatch_key("aten::max_unpool3d", "FuncTorchBatched")]

def shown(expression):
    try:
        return eval(expression)
    except Exception as error:
        return str(error).partition("\\n")[0]

print(json.dumps({name: shown(text) for name, text in json.loads(sys.argv[1]).items()}))
"""


def show(environment: Environment, *names: str) -> dict[str, Any]:
    """Return the values of the expressions of changes, of all by default."""
    expressions = {name: CHANGES[name].shown for name in names or CHANGES}
    code = f"import sys; sys.argv[1:] = [{json.dumps(expressions)!r}]\n{SHOW}"
    values: dict[str, Any] = json.loads(environment.run(code).stdout)
    return values


def develop(environment: Environment, tree: Path, *words: str | Path, **options: Any) -> str:
    """Put what a checkout changes into an environment. Return the messages."""
    return make("develop", environment, "--source", tree, *words, **options)


def hashes(tree: Path) -> dict[str, str]:
    """Return the hash of each file of a checkout, and of all below .git."""
    files = (path for path in sorted(tree.rglob("*")) if path.is_file())
    return {str(path.relative_to(tree)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def pytorch(stock_copy: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of PyTorch. The torch of the environment says that it was built from its last commit on main."""
    top = tmp_path_factory.mktemp("pytorch")
    tree = make_checkout(top / "pytorch", stock_copy.packages, FILES, SOURCES)
    library = write(top / "library", {"code.c": "int x;\n"})
    run_git(library, "init", "--quiet")
    commit(library, "A library")
    run_git(tree, "submodule", "--quiet", "add", library, LIBRARY)
    write(tree, {"test/test_ops.py": "", SCALAR: "#pragma once\n"})
    name_commit(stock_copy.packages, commit(tree, "What the wheel was built from"))
    return tree


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same folder for the checkouts of all tests, so that little is built twice."""
    return tmp_path_factory.mktemp("checkout") / "pytorch"


@pytest.fixture
def checkout(pytorch: Path, place: Path) -> Path:
    """Another checkout, of the commit that torch was built from."""
    return clone(pytorch, place)


def clone(pytorch: Path, tree: Path, *words: str) -> Path:
    """Clone the branch main into a folder, in the place of what is there."""
    shutil.rmtree(tree, ignore_errors=True)
    run_git(tree.parent, "clone", "--quiet", "--branch=main", *words, f"file://{pytorch}", tree)
    return tree


@dataclass(frozen=True)
class Built:
    """What was built of all changes together.

    Args:
        tree: the checkout.
        said: the messages.
        stock, values: what the changes show, before and after.
        files: the hashes of the checkout before.
    """

    tree: Path
    said: str
    stock: dict[str, Any]
    values: dict[str, Any]
    files: dict[str, str]


@pytest.fixture(scope="module")
def built(stock_copy: Environment, pytorch: Path) -> Built:
    """All changes in one build: commits, what is staged, and what is not."""
    run_git(pytorch, "checkout", "--quiet", "-b", "work")
    for i, (name, change) in enumerate(CHANGES.items()):
        change.make(pytorch)
        if i == 2:
            commit(pytorch, name)
        elif i == 4:
            run_git(pytorch, "add", "--all")
    stock, files = show(stock_copy), hashes(pytorch)
    said = develop(stock_copy, pytorch)
    return Built(pytorch, said, stock, show(stock_copy), files)


@pytest.mark.parametrize("name", CHANGES)
def test_each_kind_of_change(built: Built, name: str) -> None:
    assert built.values[name] == CHANGES[name].value
    assert built.stock[name] != CHANGES[name].value


def test_a_checkout_is_only_read(built: Built) -> None:
    assert hashes(built.tree) == built.files


def test_line_for_the_tests_of_pytorch_is_printed(built: Built, stock_copy: Environment) -> None:
    (line,) = (line for line in built.said.splitlines() if "PyTorch's own tests" in line)
    assert f": {stock_copy.python} {built.tree}/test/test_ops.py -k " in line
    names = line.split(" -k ")[1:]
    assert {"linalg_cross", "lerp", "logaddexp"} <= {*names} and len(names) == 8


def test_stash_and_back(stock_copy: Environment, checkout: Path) -> None:
    """Without changes, torch is as it was installed."""
    make("undevelop", stock_copy)
    before = trees(stock_copy)
    CHANGES["composite"].make(checkout)
    develop(stock_copy, checkout)
    assert is_there(stock_copy, "composite")
    run_git(checkout, "stash", "--quiet")
    assert "nothing that changes what is built" in develop(stock_copy, checkout)
    assert trees(stock_copy) == before
    run_git(checkout, "stash", "pop", "--quiet")
    develop(stock_copy, checkout)
    assert is_there(stock_copy, "composite")


def test_head_that_does_not_descend_from_the_commit_of_the_wheel(
    stock_copy: Environment, pytorch: Path, checkout: Path, tmp_path: Path
) -> None:
    upstream = clone(pytorch, tmp_path / "upstream")
    run_git(upstream, "checkout", "--quiet", "-B", "main", "HEAD~1")
    CHANGES["structured"].make(upstream)
    commit(upstream, "Upstream's own change")
    edit(upstream, INTEGRATION, *OF_UPSTREAM)
    commit(upstream, "Upstream's change of a file that the branch changes, too")
    run_git(checkout, "remote", "add", "upstream", upstream)
    run_git(checkout, "fetch", "--quiet", "upstream")
    run_git(checkout, "checkout", "--quiet", "-b", "fix", "upstream/main")
    CHANGES["composite"].make(checkout)
    said = develop(stock_copy, checkout)
    base = run_git(upstream, "rev-parse", "HEAD")
    assert f"compared with {base[:12]} of upstream/main: 2 commits ahead of the installed torch" in said
    assert "pip install --pre torch==" in said
    assert f"upstream changed these, too, since the installed torch, so they may not fit: {INTEGRATION}\n" in said
    assert is_there(stock_copy, "composite") and not is_there(stock_copy, "structured")


@pytest.mark.slow
def test_rebase_while_it_watches(stock_copy: Environment, checkout: Path) -> None:
    """A save with a mistake is reported, and the next one builds."""
    for name in ("Python", "composite"):
        run_git(checkout, "checkout", "--quiet", "-b", name, "main")
        CHANGES[name].make(checkout)
        commit(checkout, name)
    command = [sys.executable, "-m", "graft", "develop", "--watch", "--python", stock_copy.python]
    with subprocess.Popen(
        [*command, "--source", checkout], cwd=REPOSITORY, env=VARIABLES, stderr=subprocess.PIPE, text=True
    ) as process:
        lines = process.stderr
        assert lines
        try:
            assert any("ready" in line for line in lines)
            assert is_there(stock_copy, "composite") and not is_there(stock_copy, "Python")
            edit(checkout, INTEGRATION, SUM_OF_NEIGHBORS, SUM_OF_NEIGHBORS.replace("dx / 2", "ex / 2"))
            assert any("waiting for the next save; torch is unchanged" in line for line in lines)
            run_git(checkout, "checkout", "--quiet", INTEGRATION)
            run_git(checkout, "rebase", "--quiet", "Python")
            files = hashes(checkout)
            # It may have seen git at work, and build again.
            assert any(is_there(stock_copy, "Python", "composite") for line in lines if "ready" in line)
        finally:
            process.kill()
    assert hashes(checkout) == files


def test_partial_clone(stock_copy: Environment, pytorch: Path, place: Path, tmp_path: Path) -> None:
    """Nothing is fetched, though the remote would answer. What the line in the message fetches is enough."""
    upstream = clone(pytorch, tmp_path / "upstream")
    run_git(upstream, "config", "uploadpack.allowFilter", "true")
    edit(upstream, INTEGRATION, *OF_UPSTREAM)
    commit(upstream, "Of main since the one that torch was built from")
    tree = clone(upstream, place, "--filter=blob:none")
    CHANGES["composite"].make(tree)
    files = hashes(tree)
    said = develop(stock_copy, tree, is_right=False)
    assert hashes(tree) == files
    (line,) = re.findall(r"next: (git .*)", said)
    run_git(tree, *shlex.split(line)[1:])
    develop(stock_copy, tree)
    assert is_there(stock_copy, "composite")


def test_error_of_the_compiler(stock_copy: Environment, checkout: Path) -> None:
    edit(checkout, INTEGRATION, SUM, SUM_OF_NEIGHBORS.replace("dx / 2", "ex / 2"))
    before = trees(stock_copy)
    said = develop(stock_copy, checkout, is_right=False)
    assert f"error: {checkout / INTEGRATION}:{line_of(checkout, INTEGRATION, 'ex / 2')}:" in said
    assert str(HOME / "checkouts") not in said
    assert trees(stock_copy) == before


def test_refused_operator(stock_copy: Environment, checkout: Path) -> None:
    old = "trapz.x(Tensor y, Tensor x, *, int dim=-1)"
    edit(checkout, FUNCTIONS, old, old.replace("dim=-1", "dim=-1, bool mean=False"))
    old = "trapz(const Tensor& y, const Tensor& x, int64_t dim)"
    edit(checkout, INTEGRATION, old, old.replace("dim", "dim, bool mean"))
    CHANGES["composite"].make(checkout)
    make("undevelop", stock_copy)
    place = f"{checkout / FUNCTIONS}:{line_of(checkout, FUNCTIONS, 'bool mean=False')}: trapz.x: "
    assert place in develop(stock_copy, checkout, "--gaps=error", is_right=False)
    assert not is_there(stock_copy, "composite")
    assert place in develop(stock_copy, checkout, is_right=False)
    assert is_there(stock_copy, "composite")
    assert stock_copy.print("torch.trapz(torch.ones(3), torch.arange(3)).item()") == "2.0"
    said = develop(stock_copy, checkout, "--gaps=allow")
    assert "left out, since GAPS=allow is set: trapz.x" in said and place in said


def test_what_is_left_out_is_listed_once(stock_copy: Environment, checkout: Path) -> None:
    """A header of c10, a submodule, a file that is deleted; then one more."""
    run_git(checkout, "submodule", "--quiet", "update", "--init")
    edit(checkout, SCALAR, "once", "once  // more than")
    write(checkout / LIBRARY, {"code.c": "int y;\n"})
    run_git(checkout, "rm", "--quiet", CROSS)
    CHANGES["composite"].make(checkout)
    said = develop(stock_copy, checkout)
    assert [said.count(f"{name}: ") for name in (SCALAR, LIBRARY, CROSS)] == [1, 1, 1]
    said = develop(stock_copy, checkout)
    assert SCALAR not in said and "not built, as listed before: 3 changes" in said
    write(checkout, {"caffe2/core/new.h": "#pragma once\n"})
    said = develop(stock_copy, checkout)
    assert [said.count(f"{name}: ") for name in (SCALAR, LIBRARY, CROSS, "caffe2/core/new.h")] == [1, 1, 1, 1]
    assert is_there(stock_copy, "composite")
    assert stock_copy.print("torch.linalg.cross(*torch.eye(3)[:2]).tolist()") == "[0.0, 0.0, 1.0]"
    assert "caffe2" in develop(stock_copy, checkout, "--gaps=error", is_right=False)


def test_error_before_anything_is_built(stock_copy: Environment, checkout: Path) -> None:
    CHANGES["operator"].make(checkout)
    assert "no errors found" in make("check", stock_copy, "--pin", "installed", "--source", checkout)
    edit(checkout, DERIVATIVES, "  other: grad / 2\n", "  another: grad / 2\n")
    said = make("check", stock_copy, "--pin", "installed", "--source", checkout, is_right=False)
    assert f"{checkout / DERIVATIVES}:{line_of(checkout, DERIVATIVES, '  another: grad / 2')}:" in said


def test_thin_wheel(stock_copy: Environment, checkout: Path, tmp_path: Path) -> None:
    """Someone installs it beside a stock torch, in another environment. No file of torch is replaced there."""
    for name in ("composite", "operator"):
        CHANGES[name].make(checkout)
    OF_TABLES.make(checkout)
    make("undevelop", stock_copy)
    # Another one would have a torch of another commit.
    other = stock_copy.copied_to(tmp_path / "other")
    options = ("--pin", "installed", "--name", "my_fix", "--out", tmp_path)
    make("thin-wheel", stock_copy, "--source", checkout, *options)
    (wheel,) = tmp_path.glob("my_fix-*.whl")
    assert wheel.stat().st_size < 1e6
    other.pip("install", "--no-deps", wheel)
    assert is_there(other, "composite", "operator") and not is_there(stock_copy, "composite")
    code = f"import sys; sys.argv[1:] = [{json.dumps({'of tables': OF_TABLES.shown})!r}]\n{SHOW}"
    assert json.loads(other.run(code).stdout) == {"of tables": OF_TABLES.value}


@pytest.mark.slow
def test_wheel(stock_copy: Environment, base_wheel: Path, checkout: Path, tmp_path: Path) -> None:
    for name in ("composite", "Python"):
        CHANGES[name].make(checkout)
    make("undevelop", stock_copy)
    command: list[str | Path] = [sys.executable, "-m", "graft", "build", "--wheel", base_wheel, "--source", checkout]
    subprocess.run([*command, "--out", tmp_path], cwd=REPOSITORY, env=VARIABLES, check=True)
    (wheel,) = tmp_path.glob("torch-*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "unpacked")
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'unpacked')!r}); import torch\nfrom math import inf\n"
    for name in ("composite", "Python"):
        assert stock_copy.run(f"{code}print({CHANGES[name].shown})").stdout.strip() == str(CHANGES[name].value)


def trees(environment: Environment) -> tuple[str, str]:
    """Return what tells which torch an environment uses."""
    start = environment.packages / "torch_graft.pth"
    return (start.read_text() if start.is_file() else ""), environment.print("torch.__file__")


def is_there(environment: Environment, *names: str) -> bool:
    """Return whether torch has all these changes."""
    return show(environment, *names) == {name: CHANGES[name].value for name in names}


def line_of(tree: Path, name: str, text: str) -> int:
    """Return the number of the line that has a text."""
    lines = (tree / name).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)
