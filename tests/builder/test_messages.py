"""What is told of the messages of compilers and linkers in ninja's output."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from builds import snapshot_of
from graft.compile.diagnostics import diagnostics
from graft.compile.messages import digest, formula_of, refuse, relevant
from graft.core.errors import BuildError
from graft.core.process import UNTRANSLATED
from graft.inputs.native import load_natives
from helpers import write


def lines(*texts: str) -> list[str]:
    return [f"{text}\n" for text in texts]


def failed(source: str, capability: str, *said: str) -> list[str]:
    """As printed by ninja if a source does not compile."""
    source, target = f"src/ATen/native/{source}.cpp", f"objects/native/{source}.{capability}.o"
    command = f"g++ -MD -MF {target}.d -c {source} -o {target}"
    return lines(f"[3/9] {source}", f"FAILED: [code=1] {target}", command, *said)


def unlinked(library: str, *said: str) -> list[str]:
    """As printed by ninja if a library cannot be linked."""
    command = f"python -m graft.compile.link plans/{library}.plan"
    return lines(f"[4/9] link {library}", f"FAILED: [code=1] {library}", command, *said)


def refused(output: list[str], native: Path, tmp_path: Path) -> BuildError:
    """Return the error that ends the build, with the user's file names."""
    snapshot = snapshot_of(tmp_path, load_natives([native]))
    snapshot.lay_out()
    with pytest.raises(BuildError) as caught:
        refuse(output, tmp_path, snapshot, ())
    return caught.value


def test_errors_of_a_kernel_are_told_once_for_all_capabilities(native: Path, tmp_path: Path) -> None:
    output = []
    for capability in ("DEFAULT", "AVX2"):
        said = f"src/ATen/native/cpu/K.cpp:3:5: error: '{capability}::f' was not declared"
        output += failed("cpu/K", capability, said, "src/ATen/native/cpu/K.cpp:9:1: error: no g")
    output += failed("cpu/K", "AVX512", "src/ATen/native/cpu/K.cpp:7:1: error: no h")
    assert refused(output, native, tmp_path).what.splitlines() == [
        f"{native}/cpu/K.cpp:3:5: error: 'DEFAULT::f' was not declared",
        f"{native}/cpu/K.cpp:9:1: error: no g",
        f"{native}/cpu/K.cpp:7:1: error: no h",
    ]


def test_errors_are_findings_too(native: Path, tmp_path: Path) -> None:
    """Of the user's file, also where the digest names each kind once; what to write is the hint."""
    write(native, {"K.cpp": "\n\n  return at::empty({2});\n"})
    write(tmp_path, {"include/ATen/ops/empty.h": ""})
    places = [f"src/ATen/native/K.cpp:{line}:5: error: 'empty' is not a member of 'at'" for line in (3, 4)]
    snapshot = snapshot_of(tmp_path, load_natives([native]))
    snapshot.lay_out()
    with pytest.raises(BuildError) as caught:
        refuse(failed("K", "DEFAULT", *places), tmp_path, snapshot, (tmp_path / "include",))
    found = caught.value.findings
    assert [(each.file, each.line, each.column) for each in found] == [(native / "K.cpp", line, 5) for line in (3, 4)]
    assert {each.what for each in found} == {"'empty' is not a member of 'at'"}
    assert "<ATen/ops/empty.h>" in found[0].todo


def test_errors_of_two_sources_in_one_header_are_told_for_both(native: Path, tmp_path: Path) -> None:
    output = []
    for name in ("A", "B"):
        chain = f"In file included from src/ATen/native/{name}.cpp:1:"
        output += failed(name, "DEFAULT", chain, f"include/Exception.h:{ord(name)}:1: error: no member g")
    told = refused(output, native, tmp_path).what.splitlines()
    assert [line for line in told if "error" in line] == [f"{native}/{name}.cpp:1: error: no member g" for name in "AB"]


def test_files_to_fix_are_named_once_each(native: Path, tmp_path: Path) -> None:
    said = [
        *FORMULA.splitlines(),
        "src/ATen/native/cpu/K.cpp:3:5: error: no f",
        "src/ATen/native/cpu/K.cpp:9:1: fatal error: no such file",
        "src/ATen/native/cuda/K.cu(12): error #20013-D: not on the device",
        "src/ATen/native/B.h:1:2: warning: #warning error: none",
        "base/include/ATen/Tensor.h:7:1: error: no member g",
    ]
    output = [*unlinked("lib.so", f"{native}/C.cpp:5: calls f"), *failed("cpu/K", "DEFAULT", *said)]
    names = ("derivatives.yaml", "cpu/K.cpp", "cuda/K.cu", "C.cpp")
    todo = f"fix {', '.join(f'{native}/{name}' for name in names)} and build again; compiled files are kept"
    assert refused(output, native, tmp_path).todo.splitlines()[0] == todo


def test_messages_of_commands_are_told_apart() -> None:
    warning = "src/ATen/native/B.cpp:1:2: warning: unused\n"
    output = [*unlinked("lib.so", "C.cpp: calls f"), "[5/9] src/ATen/native/B.cpp\n", warning, "ninja: build stopped\n"]
    assert relevant(output, Path("/mine")) == (["/mine/ATen/native/B.cpp:1:2: warning: unused\n"], ["C.cpp: calls f\n"])


def test_output_without_an_error_is_told_as_it_is(native: Path, tmp_path: Path) -> None:
    error = refused(failed("A", "DEFAULT", "/bin/sh: 1: sccache: not found"), native, tmp_path)
    assert error.what == "/bin/sh: 1: sccache: not found"
    assert error.todo == "fix the errors above and build again; compiled files are kept"


def test_command_that_is_killed_is_told_with_its_exit_code(native: Path, tmp_path: Path) -> None:
    assert "FAILED: [code=1] lib.so" in refused(unlinked("lib.so"), native, tmp_path).what.splitlines()


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
    texts = {
        "cpu/K.cpp": "#include <ATen/native/cpu/Loops.h>\n  cpu_kernel(iter, [](float) {});\n",
        "derivatives.yaml": "# Mine.\n- name: soft_clip(Tensor self, Tensor other) -> Tensor\n"
        "  self: grad\n  other: grad * self.nosuch()\n",
    }
    return write(tmp_path / "mine", texts)


def of(output: str, native: Path) -> list[str]:
    """Return the lines of the digest of ``output``, without the folder's name."""
    include = write(native / "include", {"ATen/TensorOperators.h": ""})
    lines = digest(diagnostics(output.format(native=native).splitlines(), native), load_natives([native]), [include])
    return [line.replace(f"{native}/", "") for line in lines]


def test_first_error_of_each_kind_is_told_with_its_source_line_and_what_helps(native: Path) -> None:
    assert of(OPERATOR, native) == [
        "K.cpp:3:16: error: no match for 'operator/' (operand types are 'const at::Tensor' and 'double')",
        "    3 |   return (self / 2.0);",
        "      |           ~~~~ ^ ~~~",
        "  hint: add `#include <ATen/TensorOperators.h>`, which has the operators on tensors",
        "  the same kind of error in line 5",
        "K.cpp:5:20: error: expected ';' before '}' token",
    ]


@pytest.mark.parametrize(
    ("code", "shown", "rest"),
    [
        ("int f(int x) {\n  int n = x\n  int m = x;\n  for (int i = 0; i < m; ++i) n += i;\n  return n;\n}\n"
         "int g() {\n  return nothing;\n}\n", "expected ',' or ';' before 'int'", "2 more errors in lines 4, 8"),
        ("struct S {\n  int a;\n} s\nint g(int x) {\n  return x;\n}\nint h() {\n  return g(1);\n}\n",
         "expected initializer before 'int'", "1 more error in line 8"),
    ],
    ids=["in a function", "between functions"],
)  # fmt: skip
def test_what_follows_a_missing_semicolon_is_only_counted(code: str, shown: str, rest: str, native: Path) -> None:
    """With the real g++, for which later lines then lack what the unfinished statement declares."""
    (native / "S.cpp").write_text(code)
    command = ["g++", "-fsyntax-only", str(native / "S.cpp")]
    env = {**os.environ, **UNTRANSLATED}
    said = subprocess.run(command, capture_output=True, text=True, check=False, env=env).stderr
    lines = digest(diagnostics(said.splitlines(), native), load_natives([native]), [])
    assert [line for line in lines if "error: " in line] == [lines[0]]
    assert shown in lines[0]
    assert lines[-1] == f"  {rest} may follow from it"


def test_error_before_a_missing_semicolon_is_shown_in_full(native: Path) -> None:
    said = "".join(
        f"{{native}}/K.cpp:{n}:1: error: {text}\n    {n} |   a line\n"
        for n, text in ((2, "no match"), (3, "expected ';' before '}}' token"), (4, "'m' was not declared"))
    )
    assert of(said, native) == [
        "K.cpp:2:1: error: no match",
        "    2 |   a line",
        "K.cpp:3:1: error: expected ';' before '}' token",
        "    3 |   a line",
        "  1 more error in line 4 may follow from it",
    ]


def test_error_in_a_header_is_told_at_the_line_of_the_user_that_leads_there(native: Path) -> None:
    assert of(TEMPLATE, native) == [
        "cpu/K.cpp:2:13: error: no type named 'result' in 'struct function_traits'",
        "      2 |   cpu_kernel(iter, [](float) {});",
        "  which leads to ATen/native/cpu/Loops.h:120:",
        "  120 |   using result = typename traits::result;",
    ]


def test_unknown_macro_of_dispatch_is_not_hidden_behind_an_unknown_name(native: Path) -> None:
    """It causes the others."""
    names = ("x", "AT_DISPATCH_FLOATING_TYPES", "scalar_t")
    said = [
        f"{{native}}/K.cpp:{n}:1: error: '{name}' was not declared in this scope\n" for n, name in enumerate(names, 3)
    ]
    lines = of("".join(said), native)
    assert [line for line in lines if "AT_DISPATCH_FLOATING_TYPES" in line]
    assert "  the same kind of error in line 5" in lines


def test_first_note_of_the_compiler_is_shown(native: Path) -> None:
    said = "{native}/K.cpp:3:5: error: too few arguments to function 'f'\n    3 |   f();\n      |   ~^~\n"
    said += "base/include/ATen/F.h:7:6: note: declared here\n    7 | int f(int);\n      |     ^\n"
    said += "base/include/ATen/F.h:9:6: note: another\n"
    assert of(said, native)[1:] == ["    3 |   f();", "      |   ~^~", "  ATen/F.h:7:6: note: declared here"]


def test_error_in_generated_code_is_told_at_the_formula_first(native: Path) -> None:
    lines = of(FORMULA, native)
    said = "error: a formula of soft_clip is not valid C++: 'class at::Tensor' has no member named 'nosuch'"
    assert lines[0] == f"derivatives.yaml:4: {said}"
    assert "    9 |   auto grad_result = grad * self.nosuch();" in lines


_FORWARD = "at::Tensor torch::autograd::VariableType::{anonymous}::soft_clip(c10::DispatchKeySet, const at::Tensor&)"


@pytest.mark.parametrize("function", [_FORWARD, _FORWARD.replace("soft_clip", "soft_clip_out")])
def test_generated_forward_function_is_that_of_the_formula(native: Path, function: str) -> None:
    entry = formula_of(function, load_natives([native]))
    assert entry
    assert (entry.file, entry.line) == (native / "derivatives.yaml", 2)


def test_error_in_the_user_s_own_kernel_is_not_told_of_its_formula(native: Path) -> None:
    said = "{native}/S.cpp: In function 'at::Tensor at::native::soft_clip(int)':\n{native}/S.cpp:3:1: error: x\n"
    assert of(said, native) == ["S.cpp:3:1: error: x"]


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
