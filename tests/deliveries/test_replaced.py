"""Kernels and formulas of PyTorch's own operators that ``tests/replaced`` replaces, in each delivery."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.core.layout import REPOSITORY
from helpers import require_capability, write
from users import Environment, make, thin_wheel

FOLDER = REPOSITORY / "tests/replaced"

# Warnings are errors, also that another kernel was registered before.
START = """import warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", message=".*torch.jit")
import torch
from torch import _graft
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad, grad

x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.double)
y = x.clone().requires_grad_()

def forward(function, value):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(value, torch.ones_like(value)))).tangent

def fake_size(function):
    with FakeTensorMode():
        return function(torch.empty(2, 2)).numel()

def number_or_zero(compute):
    try:
        return compute()
    except (NotImplementedError, RuntimeError):
        return 0
"""

# Each with the value of the folder's kernel or formula, and that of PyTorch's.
VALUES = {
    "torch.trace(x)": ("6.0", "5.0"),
    "torch.vmap(torch.trace)(x[None])[0]": ("0.0", "5.0"),
    "grad(y.trace(), y)[0].sum()": ("2.0", "2.0"),
    "torch.renorm(x, 2, 0, 1.0).count_nonzero()": ("0.0", "4.0"),
    "torch.renorm(x, 2, 0, 1.0, out=torch.empty(0, dtype=torch.double)).count_nonzero()": ("0.0", "4.0"),
    "x.clone().renorm_(2, 0, 1.0).count_nonzero()": ("0.0", "4.0"),
    "torch.fliplr(x)[0, 0]": ("-1.0", "2.0"),
    "torch.vmap(torch.fliplr)(x[None])[0, 0, 0]": ("-1.0", "2.0"),
    "torch.rot90(x, 3)[0, 0]": ("3.0", "3.0"),
    "torch.rot90(x, 2)[0, 0]": ("2.0", "4.0"),
    "grad(torch.sinh(y).sum(), y)[0][0, 0]": ("2.0", "1.5430806348152437"),
    "grad(y.mul(1).sinh_().sum(), y)[0][0, 0]": ("2.0", "1.5430806348152437"),
    "grad(torch._foreach_sinh([y])[0].sum(), y)[0][0, 0]": ("2.0", "1.5430806348152437"),
    "torch.func.vmap(torch.func.grad(torch.sinh))(x[0])[0]": ("2.0", "1.5430806348152437"),
    "grad(torch.compile(torch.sinh, backend='aot_eager')(y).sum(), y)[0][0, 0]": ("2.0", "1.5430806348152437"),
    "forward(torch.sinh, x)[0, 0]": ("2.0", "1.5430806348152437"),
    "number_or_zero(lambda: torch.ops.aten._spsolve(x.to('meta'), x.to('meta')).numel())": ("5.0", "0.0"),
    "torch.cholesky_inverse(x.to('meta')).numel()": ("5.0", "4.0"),
    "fake_size(torch.cholesky_inverse)": ("5.0", "4.0"),
    "torch.flipud(x)[0, 0]": ("4.0", "3.0"),
    "grad(torch.flipud(y).sum(), y)[0][0, 0]": ("2.0", "1.0"),
    "grad(grad((torch.flipud(y) ** 2).sum(), y, create_graph=True)[0].sum(), y)[0][0, 0]": ("8.0", "2.0"),
    # vmap decomposes a composite operator; the formula is that of the folder.
    "torch.vmap(torch.flipud)(x[None])[0, 0, 0]": ("3.0", "3.0"),
    "torch.vmap(torch.func.grad(lambda t: torch.flipud(t).sum()))(x[None])[0, 0, 0]": ("2.0", "1.0"),
    "torch.compile(torch.flipud, backend='aot_eager')(x)[0, 0]": ("4.0", "3.0"),
    "grad(torch.compile(torch.flipud, backend='aot_eager')(y).sum(), y)[0][0, 0]": ("2.0", "1.0"),
    "torch.vander(x[0])[0, 0]": ("-1.0", "1.0"),
    "torch.compile(torch.vander)(x[0])[0, 0]": ("-1.0", "1.0"),
    "torch.vander(y[0]).grad_fn.name() == 'torch::autograd::NotImplemented'": ("1.0", "0.0"),
    # These call PyTorch's.
    "torch.bincount(torch.tensor([1, 1])).sum()": ("22.0", "2.0"),
    "torch.sgn(x)[0, 0]": ("3.0", "1.0"),
    "x.clone().sgn_()[0, 0]": ("3.0", "1.0"),
    "torch.kron(x, x)[0, 0]": ("2.0", "1.0"),
    "torch.lerp(x, x + 1, 0.75)[0, 0]": ("1.75", "1.75"),
    "torch.lerp(x, x + 1, 0.5)[0, 0] > 2": ("1.0", "0.0"),
    "grad(torch.cosh(y).sum(), y)[0][0, 0] / torch.sinh(x)[0, 0]": ("2.0", "1.0"),
    "forward(torch.cosh, x)[0, 0] / torch.sinh(x)[0, 0]": ("2.0", "1.0"),
    "forward(lambda t: torch.lerp(t, t, x), x)[0, 0]": ("2.0", "1.0"),
    "grad(torch.lerp(y, x, 0.25).sum(), y)[0].sum()": ("3.0", "3.0"),
    "grad(torch.lerp(x, y, 0.25).sum(), y)[0].sum()": ("12.0", "1.0"),
}


def ran(environment: Environment, code: str, **variables: str) -> str:
    """Return what code prints."""
    return environment.run(START + code, **variables).stdout


def printed(environment: Environment, expressions: list[str], **variables: str) -> list[str]:
    """Return the numbers that expressions give."""
    return ran(environment, "".join(f"print(float({each}))\n" for each in expressions), **variables).split()


@pytest.fixture(scope="module")
def wheel(stock_copy: Environment, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    stock_copy.pip("install", "--no-deps", thin_wheel(stock_copy, FOLDER, tmp_path_factory.mktemp("wheel")))
    return stock_copy


@pytest.fixture(scope="module")
def developed(environment: Environment) -> Environment:
    make("undevelop", environment)
    said = make("develop", environment, "--native", FOLDER)
    assert "replaced in PyTorch: trace (CPU, FuncTorchBatched), renorm.out (CPU)," in said
    assert "histc (AutocastCPU, FuncTorchBatched), " in said
    assert "sinh (derivatives), lerp.Scalar (derivatives), cosh (derivatives), lerp.Tensor (derivatives), " in said
    assert "cholesky (derivatives), " in said
    assert "lerp_kernel_scalar_weight (dispatch stub)" in said
    # Static Runtime.
    assert "keep PyTorch's own: " in said
    assert "at::cpu::renorm_out in torch::jit::SROperatorFunctor_aten_renorm::fn" in said
    return environment


@pytest.fixture(params=[pytest.param("wheel", marks=pytest.mark.slow), "developed"])
def delivered(request: pytest.FixtureRequest) -> Environment:
    environment: Environment = request.getfixturevalue(request.param)
    return environment


def test_operators_of_pytorch_use_what_replaces_them_but_within_stock(delivered: Environment) -> None:
    values = "".join(f"    print(float({each}))\n" for each in VALUES)
    code = f"def show():\n{values}\n    torch._dynamo.reset()  # compiled code has the formulas of before\n"
    code += "show()\nwith _graft.stock():\n    show()\nshow()\n"
    ours, theirs = zip(*VALUES.values(), strict=True)
    assert ran(delivered, code).split() == [*ours, *theirs, *ours]


def test_stock_lasts_until_its_last_use_ends(delivered: Environment) -> None:
    """Nested; and in two threads, of which the first ends first."""
    code = """
import threading
import torch._graft
assert torch._graft is _graft  # which counts
both, other_may_end = threading.Event(), threading.Event()

def other():
    with _graft.stock():
        both.set()
        other_may_end.wait()

def show():
    print(float(torch.trace(x)), torch._inductor.config.fx_graph_cache)

with _graft.stock():
    with _graft.stock():
        pass
    show()
show()
thread = threading.Thread(target=other)
with _graft.stock():
    thread.start()
    both.wait()
show()
other_may_end.set()
thread.join()
show()
"""
    assert ran(delivered, code).splitlines() == ["5.0 False", "6.0 True"] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("capability", "number"), [("default", 1.0), ("avx2", 2.0), ("avx512", 512.0)])
def test_each_capability_has_its_own_kernel(wheel: Environment, capability: str, number: float) -> None:
    """The kernel returns the end and this number, or calls PyTorch's. `make develop` compiles one capability, which
    stands for all.
    """
    require_capability(capability)
    expressions = [f"torch.lerp(torch.zeros(3), torch.ones(3), {weight})[2]" for weight in (0.5, 0.75)]
    assert printed(wheel, expressions, ATEN_CPU_CAPABILITY=capability) == [str(number + 1), "0.75"]


@pytest.mark.parametrize("capability", ["default", "avx2", "avx512"])
def test_one_capability_stands_for_all_in_develop(developed: Environment, capability: str) -> None:
    require_capability(capability)
    expressions = [f"torch.lerp(torch.zeros(3), torch.ones(3), {weight})[2] > 1.5" for weight in (0.5, 0.75)]
    assert printed(developed, expressions, ATEN_CPU_CAPABILITY=capability) == ["1.0", "0.0"]


def test_formula_that_pytorch_lacks_is_added(delivered: Environment) -> None:
    code = """
warnings.filterwarnings("ignore", message="torch.cholesky is deprecated")
a = x @ x.T
assert forward(torch.cholesky, a).equal(forward(torch.linalg.cholesky, a))
with _graft.stock():
    try:
        forward(torch.cholesky, a)
    except NotImplementedError as error:
        print("stock", "forward" in str(error))
"""
    assert ran(delivered, code).split() == ["stock", "True"]


def test_names_of_nodes_are_pytorch_s(delivered: Environment) -> None:
    code = "node = torch.sinh(y).grad_fn\nprint(node.name(), type(node).__name__)\n"
    assert ran(delivered, code).split() == ["SinhBackward0", "SinhBackward0"]


def test_a_later_override_still_warns(delivered: Environment) -> None:
    """PyTorch warns once in a process."""
    code = """
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    torch.library.Library("aten", "IMPL").impl("trace", lambda self: self.sum(), "CPU")
print(len(said))
"""
    assert ran(delivered, code).split() == ["1"]


def test_what_operators_of_pytorch_lack_is_registered(delivered: Environment) -> None:
    """An autocast policy, a batching rule, decompositions; without PyTorch's warning that vmap is a loop."""
    code = """
warnings.filterwarnings("ignore", message="torch.cholesky is deprecated")
with torch.autocast("cpu"):
    print(torch.histc(x.bfloat16()).dtype)
print(torch.vmap(lambda row: torch.histc(row, 3))(x.float()).tolist())
from torch.fx.experimental.proxy_tensor import make_fx
table = torch._decomp.get_decompositions([torch.ops.aten.cholesky])
print("linalg_cholesky" in make_fx(torch.cholesky, table)(x @ x.T).code)
print("eye" in make_fx(torch.trace, torch._decomp.get_decompositions([torch.ops.aten.trace]))(x).code)
"""
    assert ran(delivered, code).splitlines() == [
        "torch.float32",
        "[[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]",
        "True",
        "True",
    ]


def test_what_is_replaced_is_listed(delivered: Environment) -> None:
    expected = "replaced   trace (CPU, FuncTorchBatched), renorm.out (CPU), fliplr (CompositeImplicitAutograd), "
    about = delivered.about()
    assert expected in about and "\nextended   torch/_decomp/__init__.py, torch/_decomp/decompositions.py\n" in about


def test_override_of_torch_native_stays_before_what_is_replaced(delivered: Environment) -> None:
    """It calls the kernel that was there when it was registered, and falls back to PyTorch's within stock()."""
    code = """
try:
    from torch._native import registry
    registry._aten_override_libs
except (ImportError, AttributeError):
    print("lacks")
    raise SystemExit
registry.register_op_override("mine", "aten", "trace", "CPU", lambda t: t.size(0) == 1, lambda t: t.sum() * 100)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    registry._register_overrides_from_graph("trace", "CPU", registry._graphs["trace", "CPU"])

def show():
    print(float(torch.trace(x[:1])), float(torch.trace(x)))

show()
with _graft.stock():
    show()
show()
with _graft.stock():
    show()
_graft.main()
"""
    said = ran(delivered, code)
    if said.split() == ["lacks"]:
        pytest.skip("this PyTorch has no overrides of torch._native")
    assert said.splitlines()[:4] == ["300.0 6.0", "300.0 5.0"] * 2
    assert "runs       trace (CPU): torch._native's, else this one\n" in said


@pytest.mark.slow
def test_two_thin_wheels_that_replace_the_same_are_reported(wheel: Environment, tmp_path: Path) -> None:
    kernel = "cpu/LerpKernel.cpp"
    folder = write(tmp_path / "second", {kernel: (FOLDER / kernel).read_text()})
    second = thin_wheel(wheel, folder, tmp_path, "--name", "second")
    both = wheel.copied_to(tmp_path / "environment")
    both.pip("install", "--no-deps", second)
    done = both.run("import torch; print(torch.trace(torch.ones(2, 2)).item())")
    assert done.stdout.split() in (["3.0"], ["2.0"])
    assert "lerp_kernel_scalar_weight is already in " in done.stderr


def test_undevelop_brings_pytorch_s_own_back(developed: Environment) -> None:
    """The last one, since the environment has no operators after it."""
    make("undevelop", developed)
    assert developed.print("torch.trace(torch.ones(2, 2)).item()") == "2.0"
