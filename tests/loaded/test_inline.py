"""``graft.load_inline``: operators from texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import write
from sessions import Session

# Pieces of code put these together.
TEXTS = '''
SCHEMA = "soft_two(Tensor self, Scalar limit=1) -> Tensor"

def kernel(factor="1", before=""):
    return f"""{before}Tensor soft_two(const Tensor& self, const Scalar& limit) {{
  return self.div(limit).tanh().mul(limit).mul({factor});
}}
"""

def two(factor="1", before="", **more):
    return graft.load_inline(SCHEMA, cpp=kernel(factor, before), **more)

FORMULA = f"- name: {SCHEMA}\\n  self: grad * FACTOR\\n"
x = torch.tensor([3.0, -0.5], requires_grad=True)

def close(result, factor):
    return torch.allclose(result, torch.tanh(x) * factor)

def gradient():
    return torch.autograd.grad(torch.soft_two(x).sum(), x)[0].tolist()
'''


@pytest.fixture(scope="module")
def only(where: Path) -> Iterator[Session]:
    with Session(where) as session:
        session.run(TEXTS)
        yield session
        assert session.ended() == 0


@pytest.fixture
def session(only: Session) -> Iterator[Session]:
    """The session, with nothing loaded."""
    yield only
    only.run("for name in graft.loaded(): graft.unload(name)")
    only.said()


def test_schema_and_kernel_are_enough(session: Session) -> None:
    session.run("ops = two()")
    assert session.value(
        "[close(each, 1) for each in (torch.soft_two(x), ops.soft_two(x), torch.ops.aten.soft_two(x))]"
    )
    assert session.value("close(torch.compile(torch.soft_two, backend='aot_eager', fullgraph=True)(x.detach()), 1)")
    assert session.value("list(graft.loaded()), dir(ops)") == (["soft_two"], ["soft_two"])
    # The check's warning, at most.
    assert [line for line in session.said().splitlines() if "derivatives.yaml" not in line] == []


def test_same_cell_again_replaces(session: Session) -> None:
    session.run("ops = two(); function = torch.soft_two")
    for factor in (2, 3):
        session.run(f"two('{factor}')")
        assert session.value(f"close(torch.soft_two(x), {factor}) and close(ops.soft_two(x), {factor})")
        assert session.value("torch.soft_two is function")
    session.run("two('3', derivatives=FORMULA.replace('FACTOR', '5'))")
    assert session.value("gradient()") == [5.0, 5.0]
    session.run("two('3', derivatives=FORMULA.replace('FACTOR', '6'))")
    assert session.value("gradient()") == [6.0, 6.0]
    session.run("two('3')")
    assert "derivative for aten::soft_two is not implemented" in session.error("gradient()")


def test_other_schema_replaces(session: Session) -> None:
    session.run("two()")
    session.run(
        'graft.load_inline("soft_two(Tensor self, Scalar limit=1, *, bool flip=False) -> Tensor",'
        ' cpp=kernel("flip ? -1 : 1").replace("limit)", "limit, bool flip)", 1))'
    )
    assert session.value("close(torch.soft_two(x, flip=True), -1) and close(torch.soft_two(x), 1)")


def test_other_name_with_the_same_operator_is_refused(session: Session) -> None:
    session.run("two()")
    text = session.error("two('2', name='other')")
    assert "soft_two" in text and 'graft.unload("soft_two")' in text
    assert session.value("close(torch.soft_two(x), 1)")
    session.run("two('4', name='soft_two')")
    assert session.value("close(torch.soft_two(x), 4)")


def test_with_unloads_at_the_end(session: Session) -> None:
    session.run("with two() as ops: inside = close(ops.soft_two(x), 1) and ops.soft_two is torch.soft_two")
    assert session.value("inside")
    assert "AttributeError" in session.error("torch.soft_two")
    assert "was unloaded" in session.error("ops.soft_two")
    assert "ValueError" in session.error("with two(): raise ValueError")
    assert session.value("hasattr(torch, 'soft_two')") is False


def test_headers_python_and_docs(session: Session) -> None:
    session.run(
        "def all_of(factor):\n"
        "    return two('factor()', '#include \"factor.h\"\\n',\n"
        "        headers={'factor.h': f'#pragma once\\ninline int factor() {{ return {factor}; }}\\n'},\n"
        "        python={'_decomp/decompositions.py': '@register_decomposition(aten.soft_two.default)\\n'\n"
        "            f'def soft_two(self, limit=1):\\n    return torch.tanh(self / limit) * limit * {factor}\\n'},\n"
        "        docs={'soft_two': f'Two, {factor} times.'})\n"
        "compiled = torch.compile(torch.soft_two if hasattr(torch, 'soft_two') else lambda x: torch.soft_two(x),"
        " backend='aot_eager_decomp_partition')\n"
    )
    for factor in (9, 8):
        session.run(f"all_of({factor})")
        assert session.value(f"close(torch.soft_two(x), {factor}) and close(compiled(x.detach()), {factor})")
        assert session.value(f"'Two, {factor} times.' in torch.soft_two.__doc__")


def test_entries_and_cpu_kernels(session: Session) -> None:
    session.run(
        """
graft.load_inline(
    '''
    - func: soft_two(Tensor self, Scalar limit=1) -> Tensor
      variants: function, method
    ''',
    cpp='''
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorIterator.h>
#include "two.h"
namespace at::native {
DEFINE_DISPATCH(soft_two_stub);
Tensor soft_two(const Tensor& self, const Scalar& limit) {
  Tensor result;
  auto iter = TensorIterator::unary_op(result, self);
  soft_two_stub(iter.device_type(), iter);
  return iter.output();
}
}
''',
    cpu='''
#define TORCH_ASSERT_NO_OPERATORS
#include <ATen/native/cpu/Loops.h>
#include <ATen/native/TensorIterator.h>
#include "../two.h"
namespace at::native {
static void two_kernel(TensorIteratorBase& iter) { cpu_kernel(iter, [](float a) { return a * 2; }); }
REGISTER_DISPATCH(soft_two_stub, &two_kernel)
}
''',
    headers={'two.h': '''
#pragma once
#include <ATen/native/DispatchStub.h>
namespace at { struct TensorIteratorBase; }
namespace at::native { DECLARE_DISPATCH(void (*)(TensorIteratorBase&), soft_two_stub) }
'''},
)"""
    )
    assert session.value("x.detach().soft_two().tolist()") == [6.0, -1.0]


def test_failure_has_findings_and_is_not_cached(session: Session) -> None:
    session.run("two('2')")
    code = "two('K', '#include \"k.h\"\\n')"
    for _ in range(2):
        assert "BuildError" in session.error(code)
        assert session.value("close(torch.soft_two(x), 2)")
    session.run("two('K', '#include \"k.h\"\\n', headers={'k.h': '#pragma once\\nconstexpr int K = 9;\\n'})")
    assert session.value("close(torch.soft_two(x), 9)")
    assert "BuildError" in session.error("two('2)', name='soft_two')")
    session.run("error = sys.last_value if 'sys' in globals() else __import__('sys').last_value")
    assert session.value("[(each.file.name, each.line) for each in error.findings][:1]") == [("SoftTwo.cpp", 2)]
    assert session.value("bool(error.findings[0].what) and isinstance(error, graft.GraftError)")
    assert session.value("close(torch.soft_two(x), 9)")


def test_line_numbers_are_those_of_the_text(session: Session) -> None:
    assert "BuildError" in session.error("two('nothing', before='// a comment\\n\\n#include <cmath>\\n\\nint a;\\n')")
    session.run("error = __import__('sys').last_value")
    assert ("SoftTwo.cpp", 7) in session.value("[(each.file.name, each.line) for each in error.findings]")


@pytest.mark.parametrize(
    "call, word",
    [
        ("two(extra_cflags=['-D_GLIBCXX_USE_CXX11_ABI=0'])", "ABI"),
        ("two(headers='text')", "headers"),
        ("two(python={'../x.py': ''})", "python"),
        ("graft.load_inline(SCHEMA)", "no kernel for soft_two"),
        ("graft.load_inline('', cpp='int a;')", "no operator"),
        ("graft.load_inline('soft_two(Tensor self) -> Nothing', cpp=kernel())", "Nothing"),
        ("graft.load('/nowhere/at/all')", "/nowhere/at/all"),
        ("graft.unload('nothing')", "nothing"),
    ],
)
def test_wrong_arguments_are_named(session: Session, call: str, word: str) -> None:
    text = session.error(call)
    assert text.startswith(("graft.core.errors.", "TypeError")), text
    assert word in text
    assert session.value("list(graft.loaded())") == []
    session.run("two()")


def test_flags_are_part_of_what_is_built(session: Session, where: Path) -> None:
    write(where / "include", {"factor_of.h": "#pragma once\n#define FACTOR_OF 6\n"})
    for factor in (4, 5, 4):
        session.run(f"two('NN', extra_cflags=['-DNN={factor}'])")
        assert session.value(f"close(torch.soft_two(x), {factor})")
    session.run(f"two('FACTOR_OF', '#include <factor_of.h>\\n', extra_include_paths=[{str(where / 'include')!r}])")
    assert session.value("close(torch.soft_two(x), 6)")
    write(where / "include", {"factor_of.h": "#pragma once\n#define FACTOR_OF 7\n"})
    session.run(f"two('FACTOR_OF', '#include <factor_of.h>\\n', extra_include_paths=[{str(where / 'include')!r}])")
    assert session.value("close(torch.soft_two(x), 7)")


def test_saved_folder_is_complete(session: Session, where: Path) -> None:
    saved = where / "saved"
    session.run(
        f"ops = two('K', '#include \"k.h\"\\n', headers={{'k.h': '#pragma once\\nconstexpr int K = 9;\\n'}},"
        f" derivatives=FORMULA.replace('FACTOR', '5')); path = ops.save({str(saved)!r})"
    )
    assert session.value("str(path)") == str(saved)
    assert sorted(path.name for path in saved.iterdir()) == [
        "SoftTwo.cpp",
        "derivatives.yaml",
        "k.h",
        "native_functions.yaml",
    ]
    assert session.error(f"graft.load({str(saved)!r})").count("soft_two") >= 1  # another load has it
    with Session(where) as fresh:
        fresh.run(TEXTS)
        fresh.run(f"ops = graft.load({str(saved)!r})")
        assert fresh.value("close(torch.soft_two(x), 9) and gradient()") == [5.0, 5.0]
        assert "it was loaded from a folder" in fresh.error(f"ops.save({str(where / 'again')!r})")
    write(saved, {"other.txt": ""})
    assert "not empty" in session.error(f"ops.save({str(saved)!r})")


def test_build_directory_has_the_texts(session: Session, where: Path) -> None:
    session.run(f"two('2', build_directory={str(where / 'texts')!r})")
    assert "soft_two" in (where / "texts/SoftTwo.cpp").read_text()
    assert session.value("close(torch.soft_two(x), 2)")


def test_verbose_prints(session: Session) -> None:
    session.run("two('11')")
    assert "built in" not in session.said()
    session.run("two('12', verbose=True)")
    assert "built in" in session.said()
    session.run(
        "import logging\n"
        "class Kept(logging.Handler):\n"
        "    def emit(self, record): kept.append(record.getMessage())\n"
        "kept, logger = [], logging.getLogger('graft')\n"
        "logger.setLevel('INFO'); logger.addHandler(Kept()); logger.propagate = False\n"
        "two('13')"
    )
    assert session.value("any('built in' in each for each in kept)")


def test_jobs_are_those_of_max_jobs(where: Path) -> None:
    with Session(where, MAX_JOBS="3") as session:
        session.run(
            "from graft.core.extra_flags import NO_EXTRA\nfrom graft.session.building import wanted\nimport pathlib"
        )
        assert session.value("wanted(pathlib.Path('.'), 'name', NO_EXTRA).request.jobs") == 3


NORM = '''
import torch, graft

SCHEMA = "rms_norm_own(Tensor self, Tensor weight, float eps=1e-06) -> Tensor"
BACK = "rms_norm_own_backward(Tensor grad, Tensor self, Tensor weight, float eps) -> (Tensor, Tensor)"
FUNCTIONS = f"""
- func: {SCHEMA}
  variants: function, method
  dispatch:
    CompositeExplicitAutograd: rms_norm_own

- func: {BACK}
  dispatch:
    CompositeExplicitAutograd: rms_norm_own_backward
"""
FORMULA = f"""
- name: {SCHEMA}
  self, weight: "grad.defined() ? rms_norm_own_backward(grad, self, weight, eps) : std::tuple<Tensor, Tensor>()"
"""
CPP = """
Tensor rms_norm_own(const Tensor& self, const Tensor& weight, double eps) {
  const auto scale = self.pow(2).mean({-1}, true).add(eps).rsqrt();
  return self * scale * weight * EDIT;
}

std::tuple<Tensor, Tensor> rms_norm_own_backward(
    const Tensor& grad, const Tensor& self, const Tensor& weight, double eps) {
  const auto scale = self.pow(2).mean({-1}, true).add(eps).rsqrt();
  const auto normal = self * scale;
  const auto of_normal = grad * weight * EDIT;
  return {scale * (of_normal - normal * (of_normal * normal).mean({-1}, true)),
          (grad * normal * EDIT).reshape({-1, self.size(-1)}).sum({0})};
}
"""

class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8))
    def forward(self, x):
        return torch.rms_norm_own(x, self.weight)

def edited(edit):
    graft.load_inline(FUNCTIONS, derivatives=FORMULA, cpp=CPP.replace("EDIT", edit))

def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(data) - 1).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

edited("1.0")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), Norm(), torch.nn.Linear(8, 1))
data, losses = torch.randn(16, 8), []
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
def checked():
    given = [torch.randn(*shape, dtype=torch.double, requires_grad=True) for shape in ((3, 8), (8,))]
    return torch.autograd.gradcheck(torch.rms_norm_own, given)
train(5)
'''


def test_norm_is_edited_while_a_model_trains(session: Session) -> None:
    session.run(NORM)
    assert session.value("checked()")
    for edit in ("1.1", "1.2", "1.3", "1.2", "1.0"):
        session.run(f"edited('{edit}'); train(5)")
        assert session.value("checked()")
    session.run(
        "for name in ('FUNCTIONS', 'FORMULA'):\n"
        "    globals()[name] = globals()[name].replace('eps=1e-06)', 'eps=1e-06, *, float times=1.0)')\n"
        "FORMULA = FORMULA.replace('(grad, self', '(grad * times, self')\n"
        "CPP = CPP.replace('double eps) {', 'double eps, double times) {', 1)\n"
        "CPP = CPP.replace('weight * EDIT', 'weight * times', 1)\n"
        "edited('1.0'); train(5)"
    )
    assert session.value("checked()")
    assert session.value("len(losses), losses[-1] < losses[0]") == (35, True)
    assert session.value("torch.allclose(torch.rms_norm_own(data, model[1].weight, times=2), 2 * model[1](data))")
