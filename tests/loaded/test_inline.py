"""``graft.load_inline``: operators from texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from clipped import INLINE
from helpers import write
from sessions import Session

BEGINNING = (
    INLINE
    + """
FORMULA = f"- name: {SCHEMA}\\n  self: grad * FACTOR\\n"
x = torch.tensor([3.0, -0.5], requires_grad=True)

def close(result, factor):
    return torch.allclose(result, x * factor)

def gradient():
    return torch.autograd.grad(torch.times(x).sum(), x)[0].tolist()
"""
)


@pytest.fixture
def session(only: Session) -> Iterator[Session]:
    """The session, with nothing loaded."""
    yield only
    only.run("for name in graft.loaded(): graft.unload(name)")
    only.said()


def test_schema_and_kernel_are_enough(session: Session) -> None:
    session.run("ops = times()")
    assert session.value("[close(each, 1) for each in (torch.times(x), ops.times(x), torch.ops.aten.times(x))]")
    assert session.value("close(torch.compile(torch.times, backend='aot_eager', fullgraph=True)(x.detach()), 1)")
    assert session.value("list(graft.loaded()), dir(ops)") == (["times"], ["times"])
    # The check's warning, at most, and the line that it is about.
    assert [line for line in session.said().splitlines() if not re.search(r"derivatives\.yaml| \| ", line)] == []


def test_same_cell_again_replaces(session: Session) -> None:
    session.run("ops = times(); function = torch.times")
    for factor in (2, 3):
        session.run(f"times('{factor}')")
        assert session.value(f"close(torch.times(x), {factor}) and close(ops.times(x), {factor})")
        assert session.value("torch.times is function")
    session.run("times('3', derivatives=FORMULA.replace('FACTOR', '5'))")
    assert session.value("gradient()") == [5.0, 5.0]
    session.run("times('3', derivatives=FORMULA.replace('FACTOR', '6'))")
    assert session.value("gradient()") == [6.0, 6.0]
    session.run("times('3')")
    assert "derivative for aten::times is not implemented" in session.error("gradient()")


def test_with_unloads_at_the_end(session: Session) -> None:
    session.run("with times() as ops: inside = close(ops.times(x), 1) and ops.times is torch.times")
    assert session.value("inside")
    assert "AttributeError" in session.error("torch.times")
    assert "was unloaded" in session.error("ops.times")
    assert "ValueError" in session.error("with times(): raise ValueError")
    assert session.value("hasattr(torch, 'times')") is False


def test_headers_python_and_docs(session: Session) -> None:
    session.run(
        "def all_of(factor):\n"
        "    return times('factor()', '#include \"factor.h\"\\n',\n"
        "        headers={'factor.h': f'#pragma once\\ninline int factor() {{ return {factor}; }}\\n'},\n"
        "        python={'_decomp/decompositions.py': '@register_decomposition(aten.times.default)\\n'\n"
        "            f'def times(self):\\n    return self * {factor}\\n'},\n"
        "        docs={'times': f'Two, {factor} times.'})\n"
        "compiled = torch.compile(torch.times if hasattr(torch, 'times') else lambda x: torch.times(x),"
        " backend='aot_eager_decomp_partition')\n"
    )
    for factor in (9, 8):
        session.run(f"all_of({factor})")
        assert session.value(f"close(torch.times(x), {factor}) and close(compiled(x.detach()), {factor})")
        assert session.value(f"'Two, {factor} times.' in torch.times.__doc__")


def test_compiles_failures_that_have_findings_and_are_not_cached(session: Session) -> None:
    session.run("times('2')")
    code = "times('K', '#include \"k.h\"\\n')"
    for _ in range(2):
        assert "BuildError" in session.error(code)
        assert session.value("close(torch.times(x), 2)")
    session.run("times('K', '#include \"k.h\"\\n', headers={'k.h': '#pragma once\\nconstexpr int K = 9;\\n'})")
    assert session.value("close(torch.times(x), 9)")
    assert "BuildError" in session.error("times('2)', name='times')")
    session.run("error = sys.last_value if 'sys' in globals() else __import__('sys').last_value")
    assert session.value("[(each.file.name, each.line) for each in error.findings][:1]") == [("cpp", 2)]
    assert session.value("bool(error.findings[0].what) and isinstance(error, graft.GraftError)")
    assert session.value("close(torch.times(x), 9)")


@pytest.mark.parametrize(
    "call, word",
    [
        ("times(extra_cflags=['-D_GLIBCXX_USE_CXX11_ABI=0'])", "ABI"),
        ("times(headers='text')", "headers"),
        ("times(python={'../x.py': ''})", "python"),
        ("graft.load_inline(SCHEMA)", "no kernel for times"),
        ("graft.load_inline('', cpp='int a;')", "no operator"),
        ("graft.load_inline('times(Tensor self) -> Nothing', cpp=kernel(1))", "Nothing"),
        ("graft.load('/nowhere/at/all')", "/nowhere/at/all"),
        ("graft.unload('nothing')", "nothing"),
    ],
)
def test_wrong_arguments_are_named(session: Session, call: str, word: str) -> None:
    text = session.error(call)
    assert text.startswith(("graft.core.errors.", "TypeError")), text
    assert word in text
    assert session.value("list(graft.loaded())") == []
    session.run("times()")


def test_compiles_since_flags_are_part_of_what_is_built(session: Session, where: Path) -> None:
    write(where / "include", {"factor_of.h": "#pragma once\n#define FACTOR_OF 6\n"})
    for factor in (4, 5, 4):
        session.run(f"times('NN', extra_cflags=['-DNN={factor}'])")
        assert session.value(f"close(torch.times(x), {factor})")
    session.run(f"times('FACTOR_OF', '#include <factor_of.h>\\n', extra_include_paths=[{str(where / 'include')!r}])")
    assert session.value("close(torch.times(x), 6)")
    write(where / "include", {"factor_of.h": "#pragma once\n#define FACTOR_OF 7\n"})
    session.run(f"times('FACTOR_OF', '#include <factor_of.h>\\n', extra_include_paths=[{str(where / 'include')!r}])")
    assert session.value("close(torch.times(x), 7)")


def test_saved_folder_is_complete(session: Session, where: Path) -> None:
    saved = where / "saved"
    session.run(
        f"ops = times('K', '#include \"k.h\"\\n', headers={{'k.h': '#pragma once\\nconstexpr int K = 9;\\n'}},"
        f" derivatives=FORMULA.replace('FACTOR', '5')); path = ops.save({str(saved)!r})"
    )
    assert session.value("str(path)") == str(saved)
    with Session(where) as fresh:
        fresh.run(BEGINNING)
        fresh.run(f"ops = graft.load({str(saved)!r})")
        assert fresh.value("close(torch.times(x), 9) and gradient()") == [5.0, 5.0]
        assert "it was loaded from a folder" in fresh.error(f"ops.save({str(where / 'again')!r})")


def test_build_directory_has_the_texts(session: Session, where: Path) -> None:
    session.run(f"times('2', build_directory={str(where / 'texts')!r})")
    assert "times" in (where / "texts/Times.cpp").read_text()
    assert session.value("close(torch.times(x), 2)")


def test_script_says_that_it_builds_and_how_long_that_takes(session: Session) -> None:
    cpp = "Tensor said_to_build(const Tensor& self) { return self.clone(); }"
    session.run(f"graft.load_inline('said_to_build(Tensor self) -> Tensor', cpp={cpp!r})")
    first, *_, last = [line for line in session.progress() if "said_to_build: " in line]
    assert " (the first build takes up to " in first and "built in " in last


def test_verbose_prints(session: Session) -> None:
    session.run("times('11')")
    assert "built in" not in session.said()
    session.run("times('12', verbose=True)")
    assert "built in" in session.said()
    session.run(
        "import logging\n"
        "class Kept(logging.Handler):\n"
        "    def emit(self, record): kept.append(record.getMessage())\n"
        "kept, logger = [], logging.getLogger('graft')\n"
        "logger.setLevel('INFO'); logger.addHandler(Kept()); logger.propagate = False\n"
        "times('13')"
    )
    assert session.value("any('built in' in each for each in kept)")


OWN_BACKWARD = r"""
SCALED = "scaled(Tensor self, Tensor weight) -> Tensor"
BACK = "scaled_backward(Tensor grad, Tensor self, Tensor weight) -> (Tensor, Tensor)"
ENTRY = "\n- func: {}\n  dispatch:\n    CompositeExplicitAutograd: {}\n"
CALL = "grad.defined() ? scaled_backward(grad, self, weight) : std::tuple<Tensor, Tensor>()"
CODE = '''
Tensor scaled(const Tensor& self, const Tensor& weight) {
  return self * weight * EDIT;
}

std::tuple<Tensor, Tensor> scaled_backward(const Tensor& grad, const Tensor& self, const Tensor& weight) {
  return {grad * weight * EDIT, grad * self * EDIT};
}
'''

def checked(edit):
    functions = ENTRY.format(SCALED, "scaled") + ENTRY.format(BACK, "scaled_backward")
    formula = f'- name: {SCALED}\n  self, weight: "{CALL}"\n'
    graft.load_inline(functions, derivatives=formula, cpp=CODE.replace("EDIT", edit))
    given = [torch.randn(3, dtype=torch.double, requires_grad=True) for _ in range(2)]
    return torch.autograd.gradcheck(torch.scaled, given)
"""


@pytest.mark.slow
def test_compiles_a_formula_that_calls_an_operator_of_the_same_texts(session: Session) -> None:
    session.run(OWN_BACKWARD)
    assert session.value("[checked('1.0'), checked('1.1')]") == [True, True]
    session.run(
        "SCALED = SCALED.replace('weight)', 'weight, *, float times=1.0)')\n"
        "CALL = CALL.replace('(grad, self', '(grad * times, self')\n"
        "CODE = CODE.replace('weight) {', 'weight, double times) {', 1).replace('EDIT', 'times', 1)"
    )
    assert session.value("checked('1.0')")
    assert session.value("torch.scaled(x, x, times=2).tolist() == (2 * x * x).tolist()")
