"""Reports about ninja's output."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.compile.diagnostics import diagnostics
from graft.compile.digest import digest
from graft.compile.ninja import faulty, without_repetition

NATIVES = (Path("/my_ops"), Path("/more"))


def failed(source: str, capability: str, *said: str) -> list[str]:
    """As printed by ninja if a source does not compile."""
    target = f"objects/native/{source}.{capability}.o"
    command = f"g++ -MD -MF {target}.d -c src/ATen/native/{source}.cpp -o {target}\n"
    return [f"FAILED: [code=1] {target}\n", command, *(f"{line}\n" for line in said)]


def test_errors_of_a_kernel_are_told_once_for_all_capabilities() -> None:
    places = ("src/ATen/native/cpu/K.cpp:3:5", "src/ATen/native/cpu/K.cpp:9:1")
    default = failed("cpu/K", "DEFAULT", *(f"{place}: error: no DEFAULT::f" for place in places))
    assert without_repetition([*default, *failed("cpu/K", "AVX2", f"{places[0]}: error: no AVX2::f")]) == default


def test_errors_of_one_capability_are_told() -> None:
    output = failed("cpu/K", "DEFAULT", "src/ATen/native/cpu/K.cpp:3:5: error: no f")
    output += failed("cpu/K", "AVX512", *(f"src/ATen/native/cpu/K.cpp:{n}:5: error: no f" for n in (3, 7)))
    assert without_repetition(output) == output


def test_errors_of_two_sources_in_one_header_are_told() -> None:
    error = "include/c10/util/Exception.h:7:1: error: no member g"
    output = [*failed("A", "DEFAULT", error), *failed("B", "DEFAULT", error)]
    assert without_repetition(output) == output


def test_what_names_no_place_is_told_each_time() -> None:
    output = [*failed("cpu/K", "DEFAULT", "K.cpp:3:5: error: no f")]
    for capability in ("AVX2", "AVX512"):
        output += failed("cpu/K", capability, "K.cpp:3:5: error: no f", "/tmp/cc.s:12: Error: no such instruction")
    assert without_repetition(output) == output


def test_files_to_fix_are_named_once_each() -> None:
    blamed = """\
/my_ops/derivatives.yaml:4: error: a formula of f is not valid C++: no g
/my_ops/cpu/K.cpp:3:5: error: no f
/my_ops/cpu/K.cpp:9:1: fatal error: no such file
/more/cuda/K.cu:12: error #20013-D: not on the device
/my_ops/B.h:1:2: warning: #warning error: none
base/include/ATen/Tensor.h:7:1: error: no member g
"""
    assert faulty(blamed, NATIVES) == ["/my_ops/derivatives.yaml", "/my_ops/cpu/K.cpp", "/more/cuda/K.cu"]


# As printed by g++ 12, shortened.
OPERATOR = """\
{native}/K.cpp: In function 'at::Tensor f(const at::Tensor&)':
{native}/K.cpp:3:16: error: no match for 'operator/' (operand types are 'const at::Tensor' and 'double')
    3 |   return (self / 2.0);
      |           ~~~~ ^ ~~~
      |           |      |
      |           |      double
In file included from base/include/c10/util/complex.h:8,
                 from {native}/K.cpp:1:
base/include/torch/headeronly/util/complex.h:416:22: note: candidate: 'template<class T> complex<U> operator/(T)'
  416 | constexpr complex<T> operator/(const complex<T>& lhs, const complex<T>& rhs) {{
      |                      ^~~~~~~~
{native}/K.cpp:5:16: error: no match for 'operator*' (operand types are 'const at::Tensor' and 'double')
    5 |   return (self * 2.0);
      |           ~~~~ ^ ~~~
{native}/K.cpp:5:20: error: expected ';' before '}}' token
"""
TEMPLATE = """\
In file included from {native}/cpu/K.cpp:2:
base/include/ATen/native/cpu/Loops.h: In instantiation of 'void at::native::loop(F) [with F = f()::<lambda()>]':
base/include/ATen/native/cpu/Loops.h:300:5:   required from 'void at::native::cpu_kernel(F)'
{native}/cpu/K.cpp:2:13:   required from here
base/include/ATen/native/cpu/Loops.h:120:9: error: no type named 'result' in 'struct function_traits'
  120 |   using result = typename traits::result;
      |         ^~~~~~
"""
FORMULA = """\
generated/autograd/Functions.cpp: In function 'L torch::autograd::generated::SoftClipBackward0_apply_functional(T&)':
generated/autograd/Functions.cpp:9:38: error: 'class at::Tensor' has no member named 'nosuch'
    9 |   auto grad_result = grad * self.nosuch();
      |                                  ^~~~~~
"""


@pytest.fixture
def native(tmp_path: Path) -> Path:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/K.cpp").write_text("#include <ATen/native/cpu/Loops.h>\n  cpu_kernel(iter, [](float) {});\n")
    (tmp_path / "derivatives.yaml").write_text("# Mine.\n- name: soft_clip(Tensor self) -> Tensor\n  self: grad\n")
    return tmp_path


def of(output: str, native: Path) -> list[str]:
    """Return the lines of the digest of ``output``, without the folder's name."""
    text = digest(output.format(native=native).splitlines(keepends=True), native, lambda name: True)
    return text.replace(f"{native}/", "").splitlines()


def test_first_error_of_each_kind_is_told_with_its_source_line_and_what_helps(native: Path) -> None:
    assert of(OPERATOR, native) == [
        "K.cpp:3:16: error: no match for 'operator/' (operand types are 'const at::Tensor' and 'double')",
        "    3 |   return (self / 2.0);",
        "      |           ~~~~ ^ ~~~",
        "  hint: add `#include <ATen/TensorOperators.h>`, which has the operators on tensors",
        "  the same kind of error in line 5",
        "K.cpp:5:20: error: expected ';' before '}' token",
    ]


def test_error_in_a_header_is_told_at_the_line_of_the_user_that_leads_there(native: Path) -> None:
    assert of(TEMPLATE, native) == [
        "cpu/K.cpp:2:13: error: no type named 'result' in 'struct function_traits'",
        "      2 |   cpu_kernel(iter, [](float) {});",
        "  which leads to ATen/native/cpu/Loops.h:120:",
        "  120 |   using result = typename traits::result;",
    ]


def test_error_in_generated_code_is_told_at_the_formula_first(native: Path) -> None:
    lines = of(FORMULA, native)
    said = "error: a formula of soft_clip is not valid C++: 'class at::Tensor' has no member named 'nosuch'"
    assert lines[0] == f"derivatives.yaml:2: {said}"
    assert "    9 |   auto grad_result = grad * self.nosuch();" in lines


def test_digest_of_many_errors_is_one_screen(native: Path) -> None:
    kinds = [f"native/K.cpp:{n}:1: error: {'x' * n} is wrong" for n in range(1, 40)]
    lines = of("".join(f"{kind}\n    {kind[13:15]} |   a line\n      |   ^\n" * 5 for kind in kinds), native)
    assert len(lines) <= 40
    assert lines[-1] == "native/K.cpp: 33 more errors of other kinds"


def test_each_error_is_taken_once(native: Path) -> None:
    lines = OPERATOR.format(native=native).splitlines()
    assert len(diagnostics([*lines, *lines], native)) == 3


@pytest.mark.parametrize(
    "line", ["/tmp/cc.s:12: Error: no such instruction: `foo'", "g++: fatal error: Killed signal terminated program"]
)
def test_errors_of_other_programs_are_told(native: Path, line: str) -> None:
    first = of(f"{line}\ncompilation terminated.\n", native)[0]
    assert first.lower() == line.lower().replace("fatal ", "")


def test_text_without_an_error_is_no_error(native: Path) -> None:
    assert of("/bin/sh: 1: sccache: not found\n", native) == []
