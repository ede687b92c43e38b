"""What is told of the messages of compilers and linkers: the user's lines, what helps, and the entries that ask."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from builds import snapshot_of
from graft.compile.diagnostics import diagnostics
from graft.compile.link_messages import explain_repeated, explain_undefined
from graft.compile.messages import digest, formula_of, refuse, warned
from graft.core.errors import BuildError
from graft.core.process import UNTRANSLATED
from graft.inputs.native import load_natives
from helpers import beside, write


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


def refused(output: list[str], native: Path, tmp_path: Path, *include: Path) -> BuildError:
    """Return the error that ends the build, with the user's file names."""
    snapshot = snapshot_of(tmp_path, load_natives([native]))
    snapshot.lay_out()
    with pytest.raises(BuildError) as caught:
        refuse(output, tmp_path, snapshot, include)
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


def test_warnings_about_own_sources_are_told_once(native: Path, tmp_path: Path) -> None:
    snapshot = snapshot_of(tmp_path, load_natives([native]))
    snapshot.lay_out()
    at = "src/ATen/native/cpu/K.cpp"
    other = "base/include/ATen/native/cpu/Loops.h:3:1: warning: unused variable 'y' [-Wunused-variable]"
    output = lines("[1/9] K", other, *(f"{at}:{n}:1: warning: unused variable 'x' [-Wunused-variable]" for n in (1, 2)))
    assert warned(output * 2, snapshot) == [
        f"{native}/cpu/K.cpp:{n}:1: warning: unused variable 'x' [-Wunused-variable]" for n in (1, 2)
    ]
    many = [f"{at}:{n}:1: warning: w" for n in range(13)]
    assert warned(lines(*many), snapshot)[10:] == ["and 3 more warnings"]
    (native / "adopted.json").write_text("{}")
    adopted = snapshot_of(tmp_path, load_natives([native]))
    adopted.lay_out()
    assert warned(output, adopted) == []


def test_errors_are_findings_too(native: Path, tmp_path: Path) -> None:
    """Of the user's file, also where the digest names each kind once; what to write is the hint."""
    write(native, {"K.cpp": "\n\n  return at::empty({2});\n"})
    write(tmp_path, {"include/ATen/ops/empty.h": ""})
    places = [f"src/ATen/native/K.cpp:{line}:5: error: 'empty' is not a member of 'at'" for line in (3, 4)]
    found = refused(failed("K", "DEFAULT", *places), native, tmp_path, tmp_path / "include").findings
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


def test_output_without_an_error_is_told_as_it_is(native: Path, tmp_path: Path) -> None:
    error = refused(failed("A", "DEFAULT", "/bin/sh: 1: sccache: not found"), native, tmp_path)
    assert error.what == "/bin/sh: 1: sccache: not found"
    assert error.todo == "fix the errors above and build again; compiled files are kept"


def test_command_that_is_killed_is_told_with_its_exit_code(native: Path, tmp_path: Path) -> None:
    assert "FAILED: [code=1] lib.so" in refused(unlinked("lib.so"), native, tmp_path).what.splitlines()


# What g++ 12 prints, shortened, and what is told.
DIGESTS = beside(__file__)["digests"]
FORMULA = DIGESTS["an error in generated code, at the formula"][0]


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


def test_hints_name_all_headers(native: Path) -> None:
    include = write(native / "include", {f"ATen/ops/{name}.h": "" for name in ("sum", "cat")})
    said = "{}/cpu/K.cpp:{}:1: error: '{}' is not a member of 'at'"
    output = [said.format(native, line, name) for line, name in ((3, "sum"), (4, "cat"), (5, "sum"))]
    lines = digest(diagnostics(output, native), load_natives([native]), [include])
    assert [line for line in lines if "#include" in line] == [
        "  hint: add `#include <ATen/ops/sum.h>`",
        "  and: add `#include <ATen/ops/cat.h>`",
    ]


@pytest.mark.parametrize("kind", DIGESTS)
def test_digest_has(native: Path, kind: str) -> None:
    output, told = DIGESTS[kind]
    assert of(output, native) == told
    assert of(output * 2, native) == told, "each error is taken once"


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


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "int f(int x) {\n  if (x) {\n    x = 3;\n  return x;\n}\n",
            ["S.cpp:2:10: error: this `{` has no `}`: expected '}' at end of"],
        ),
        (
            "namespace n {\nint f(int x) {\n  return x;\n\nint g() { return 1; }\n}\n",
            ["S.cpp:5:9: error: the `{` in line 2 has no `}`: a function-", "S.cpp:2:14: error: this `{` has no"],
        ),
        ("namespace n {\nint f(int x) {\n  return x;\n}\n", ["S.cpp:2:14: error: this `{` has no `}`: expected"]),
    ],
    ids=["in a function", "before a function", "at the end"],
)  # fmt: skip
def test_brace_that_is_not_closed_is_named(code: str, said: list[str], native: Path) -> None:
    """With the real g++, which reports it at the end of the file."""
    (native / "S.cpp").write_text(code)
    command = ["g++", "-fsyntax-only", str(native / "S.cpp")]
    env = {**os.environ, **UNTRANSLATED}
    output = subprocess.run(command, capture_output=True, text=True, check=False, env=env).stderr
    lines = digest(diagnostics(output.splitlines(), native), load_natives([native]), [])
    found = [line.removeprefix(f"{native}/") for line in lines if "error: " in line]
    assert [line[: len(each)] for line, each in zip(found, said, strict=True)] == said
    assert not [line for line in lines if "which leads to" in line]


def test_unknown_macro_of_dispatch_is_not_hidden_behind_an_unknown_name(native: Path) -> None:
    """It causes the others."""
    names = ("x", "AT_DISPATCH_FLOATING_TYPES", "scalar_t")
    said = "{{native}}/K.cpp:{}:1: error: '{}' was not declared in this scope\n"
    lines = of("".join(said.format(number, name) for number, name in enumerate(names, 3)), native)
    assert [line for line in lines if "AT_DISPATCH_FLOATING_TYPES" in line]
    assert "  the same kind of error in line 5" in lines


_FORWARD = "at::Tensor torch::autograd::VariableType::{anonymous}::soft_clip(c10::DispatchKeySet, const at::Tensor&)"


_TANGENT = "at::Tensor torch::autograd::tangents::soft_clip__result(const at::Tensor&)"


@pytest.mark.parametrize(
    "function",
    [
        *(_FORWARD, _FORWARD.replace("soft_clip", "soft_clip_out")),
        *(_TANGENT, _TANGENT.replace("__result", "___self"), _TANGENT.replace("__result", "__AutogradCPU_result")),
    ],
)
def test_generated_forward_function_is_that_of_the_formula(native: Path, function: str) -> None:
    entry = formula_of(function, load_natives([native]))
    assert entry
    assert (entry.file, entry.line) == (native / "derivatives.yaml", 2)


def test_digest_of_many_errors_is_one_screen(native: Path) -> None:
    kinds = [f"native/K.cpp:{n}:1: error: {'x' * n} is wrong" for n in range(1, 40)]
    lines = of("".join(f"{kind}\n    {kind[13:15]} |   a line\n      |   ^\n" * 5 for kind in kinds), native)
    assert len(lines) <= 40
    assert lines[-1] == "native/K.cpp: 33 more errors of other kinds"


CASES = beside(__file__)

FUNCTIONS = CASES["functions"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "native_functions.yaml").write_text(FUNCTIONS)
    return tmp_path


@pytest.mark.parametrize(("symbol", "line", "operator"), CASES["asked"])
def test_undefined_symbol_names_the_entry_that_asks_for_it(folder: Path, symbol: str, line: int, operator: str) -> None:
    assert explain_undefined({symbol: ["library_0.cpp", "library_1.cpp"]}, load_natives([folder])) == (
        f"{folder}/native_functions.yaml:{line}: no file defines {symbol}, the kernel of {operator}; "
        "define it in a .cpp file with exactly these parameters"
    )


@pytest.mark.parametrize(
    "symbol",
    ["helper(int)", "mine::soft_sum(int)", "mine::soft_clip_cpu(int)", "at::soft_clip_cpu(int)", "soft_max_cpu(int)"],
)
def test_undefined_symbol_that_no_entry_asks_for_names_its_caller(folder: Path, symbol: str) -> None:
    """Also where an operator has the name of the function."""
    said = explain_undefined({symbol: ["Soft.cpp"]}, load_natives([folder]))
    assert said.startswith(f"Soft.cpp: calls {symbol}, which is not defined; define it")


MINE = CASES["mine"]


def test_undefined_symbol_is_told_at_the_line_that_calls_it(folder: Path) -> None:
    """And where another file defines one of its name."""
    write(folder, {"Mine.cpp": MINE, "Other.cpp": "int helper(long x) { return 0; }\n"})
    said = explain_undefined({"at::native::helper(int)": [f"{folder}/Mine.cpp"]}, load_natives([folder]))
    called = f"{folder}/Mine.cpp:6: calls at::native::helper(int), which is not defined; "
    assert said.startswith(f"{called}{folder}/Other.cpp:1 defines `int helper(long)`: declare")


def test_stub_of_the_folder_has_no_kernel_of_pytorchs(folder: Path) -> None:
    text = "namespace at::native {\nDEFINE_DISPATCH(own_stub);\nvoid f() { stock::of(own_stub)(kCPU); }\n}\n"
    (folder / "Mine.cpp").write_text(text)
    stub = "at::native::DispatchStub<void (*)(), at::native::Stock<at::native::own_stub_DECLARE_DISPATCH_type> >"
    callers = {f"{stub}::{capability}": [f"{folder}/Mine.cpp"] for capability in ("AVX2", "DEFAULT")}
    said = f"{folder}/Mine.cpp:3: calls stock::of(own_stub), but PyTorch has no such stub; write `own_stub(...)`"
    assert explain_undefined(callers, load_natives([folder])) == said


REPEATED = {"at::native::twice(int)": ["Mine.cpp", "A.cpp"]}


def test_symbol_that_is_there_twice_is_told_at_both_lines(folder: Path) -> None:
    (folder / "Mine.cpp").write_text(MINE)
    (folder / "A.cpp").write_text(
        "namespace at::native {\nint twice(int, int) { return 2; }\nint twice(int) { return 1; }\n}\n"
    )
    assert explain_repeated(REPEATED, load_natives([folder])) == (
        f"{folder}/Mine.cpp:4: defines at::native::twice(int), which {folder}/A.cpp:3 defines, too; "
        "give one another name, or write `static` before both"
    )


def test_function_of_a_header_that_is_there_twice_is_told_at_its_line(folder: Path) -> None:
    (folder / "Twice.h").write_text("namespace at::native {\nint twice(int x) { return x; }\n}\n")
    assert explain_repeated(REPEATED, load_natives([folder])) == (
        f"{folder}/Twice.h:2: defines at::native::twice(int) in a header, included by Mine.cpp and A.cpp; "
        "write `inline` before it"
    )
