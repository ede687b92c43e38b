"""FunctionsManual.cpp: which formulas call a function of it, what may be in it, and for which releases."""

from __future__ import annotations

import mmap
import re
from collections import defaultdict
from pathlib import Path

import pytest
from corpus import said_of
from graft.base.callers import direct_callers
from graft.check.__main__ import check
from graft.check.base import BaseOperators
from graft.codegen.__main__ import generate_header_of_helpers
from graft.codegen.operators import Operators, calls_of
from graft.codegen.output import Output
from graft.core.process import run
from graft.cpp.sources import read_text, without_functions
from graft.inputs.helpers import MANGLED, heads, helpers_of, is_same, name_in
from graft.inputs.native import load_native, load_natives
from helpers import write

# The nodes and the kernels that torchgen writes, as the library has them.
NODE = re.compile(r"torch::autograd::generated::(\w+?)(?:::|_apply_functional)")
KERNEL = re.compile(r"torch::autograd::VariableType::(?:\(anonymous namespace\)::)?(\w+)\(")

# Declared upstream but not defined: no formula can call them, even in a source build.
NEVER_DEFINED = {
    "fft_backward",
    "reverse_dim",
    "solve_backward_A",
    "solve_backward_self",
    "sparse_constructor_values_backward",
    "var_jvp",
}

HELPERS = "FunctionsManual.cpp"
HEAD = "#include <torch/csrc/autograd/FunctionsManual.h>\nnamespace torch::autograd::generated::details {\n"
SINC = "Tensor sinc_backward(const Tensor& grad, const Tensor& self) {\n  return grad * self;\n}\n"


def source(*functions: str) -> str:
    return f"{HEAD}{''.join(functions)}}} // namespace torch::autograd::generated::details\n"


def test_every_formula_that_calls_a_function_is_found(known: BaseOperators, everything: Operators) -> None:
    """PyTorch's library is the oracle: it calls each function where our units would call the folder's."""
    names = sorted(known.formula_functions.keys() - known.fixed_formula_functions)
    callers = direct_callers(
        known.tree / "torch/lib/libtorch_cpu.so", [f"{MANGLED}{len(name)}{name}{end}" for name in names for end in "EI"]
    )
    symbols = {*callers, *(caller for each in callers.values() for caller in each)}
    plain = dict(zip(symbols, run(["c++filt"], stdin="\n".join(symbols)).stdout.splitlines(), strict=True))
    ours: dict[str, set[str]] = defaultdict(set)
    for name in names:
        calls = calls_of([name])
        for f in everything.derivatives.functions:
            if calls(f.info):
                ours[name] |= {f.func.func.name.unambiguous_name(), str(f.func.func.name.name)}
                ours[name] |= {info.op for info in (f.info or {}).values() if info.op}
    missed, seen = [], 0
    for symbol, found in callers.items():
        name = name_in(plain[symbol])
        for caller in (plain[each] for each in found):
            node, kernel = NODE.match(caller), KERNEL.match(caller)
            written = (node or kernel or [""])[1] if not caller.startswith(plain[symbol].partition("(")[0]) else ""
            if written and written != "details":
                seen += 1
                missed += [] if written in ours[name] else [(name, caller)]
    assert missed == []
    assert seen > 400


def declared(header: str) -> set[str]:
    """Return the functions that the header declares but does not define."""
    code = re.sub(r"//[^\n]*", "", header)
    names = set(re.findall(r"^(?:TORCH_API )?[\w:<>, &]+?\s(\w+)\([^{;]*\);", code, re.M))
    return names - {"size"}


def test_every_helper_is_in_the_symbol_table(base: Path) -> None:
    names = declared((base / "torch/include/torch/csrc/autograd/FunctionsManual.h").read_text())
    assert len(names) > 180
    with (base / "torch/lib/libtorch_cpu.so").open("rb") as file:
        library = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # Itanium C++ ABI, 5.1.4: a nested name is a sequence of identifiers, each after its length.
        found = {match[2][: int(match[1])].decode() for match in re.finditer(rb"9generated7details(\d+)(\w+)", library)}
    assert names - found == NEVER_DEFINED


@pytest.mark.parametrize(
    ("function", "same"),
    [
        ("torch::autograd::generated::details::sinc_backward(at::Tensor const&, at::Tensor const&)", True),
        ("torch::autograd::generated::details::sinc_backward(at::Tensor const&, long)", False),
        ("torch::autograd::generated::details::sinc_jvp(at::Tensor const&, at::Tensor const&)", False),
    ],
)
def test_overloads_are_told_apart(function: str, same: bool) -> None:
    (definition,) = read_text(Path(), source(SINC)).definitions
    assert is_same(function, definition) is same


def test_names_of_the_demangler() -> None:
    assert (
        name_in("std::tuple<at::Tensor, at::Tensor> a::b<c10::Scalar>(at::Tensor const&, std::array<bool, 2ul>)") == "b"
    )


def test_a_file_that_was_copied_whole(known: BaseOperators, tmp_path: Path) -> None:
    every = [each for name in sorted(known.formula_functions)[:120] for each in known.formula_functions[name]]
    text = source(*(f"{each} {{}}\n" for each in every if each.name not in known.fixed_formula_functions))
    said = said_of(tmp_path, known, {"FunctionsManual.cpp": text})
    assert any(line.startswith("FunctionsManual.cpp:1: warning: this changes the formulas of ") for line in said)


def test_a_template_is_replaced(base: Path, tmp_path: Path) -> None:
    text = source("template <typename T>\nTensor mul_tensor_backward(const Tensor& grad, T other, ScalarType t) {}\n")
    write(tmp_path / "a", {"FunctionsManual.cpp": text})
    natives = load_natives([tmp_path / "a"])
    replaced = Operators(base, []).replaced_by([], [], helpers_of(natives).names)
    assert {"mul.Tensor", "_foreach_mul.List"} <= {str(f.func.name) for f in replaced.formulas.functions}


def test_a_function_in_two_folders(known: BaseOperators, tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / name, {"FunctionsManual.cpp": source(SINC)})
    (error,) = check(load_natives([tmp_path / "a", tmp_path / "b"]), known).errors
    assert error.what == (
        f"`Tensor sinc_backward(const Tensor&, const Tensor&)` is also defined in {tmp_path}/a/FunctionsManual.cpp:3"
    )


def test_three_folders_have_files_of_their_own(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / name, {"FunctionsManual.h": "#pragma once\n"} | ({} if name == "a" else {HELPERS: source()}))
    natives = load_natives([tmp_path / name for name in "abc"])
    assert [*map(str, natives.helper_headers)] == [f"FunctionsManual{n}.h" for n in ("", ".1", ".2")]
    assert [natives.file(name).parent.name for name in natives.helpers] == ["b", "c"]


@pytest.mark.parametrize("local", ["static {}", "namespace {{\n{}}}\n"])
def test_what_formulas_depend_on_is_known(local: str) -> None:
    assert heads(source(SINC)) != heads(source(local.format(SINC)))
    assert heads(source(SINC)) == heads(source(SINC.replace("grad * self", "grad + self")))


def test_a_template_is_left_out_with_its_instances() -> None:
    template = "template <typename T>\nTensor scaled(const Tensor& x, T by) {\n  return x * by;\n}\n"
    instance = "template Tensor scaled(const Tensor&, double);\n"
    text = without_functions(source(template, instance, SINC), {"scaled"})
    assert "".join(text.split()) == "".join(source(SINC).split())
    assert text.count("\n") == source(template, instance, SINC).count("\n")


def test_a_header_takes_the_place_of_declarations(base: Path, tmp_path: Path) -> None:
    template = "template <typename T>\nTensor mul_tensor_backward(const Tensor& grad, T other);\n"
    text = source("Tensor sinc_backward(const Tensor& grad, c10::SymInt n);\n", template)
    write(tmp_path / "a", {"FunctionsManual.h": text, "FunctionsManual.cpp": source()})
    generate_header_of_helpers(helpers_of(load_natives([tmp_path / "a"])), base, Output(tmp_path / "out"))
    header = (tmp_path / "out/include/torch/csrc/autograd/FunctionsManual.h").read_text()
    assert "sinc_backward" not in header and "Tensor sinc_jvp" not in header and "norm_backward(" in header
    assert not re.search(r"template <typename T>\s+template", header)
    assert header.endswith("#include <ATen/native/FunctionsManual.h>\n")


def test_only_some_releases(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "native_functions.yaml": "- func: trace(Tensor self) -> Tensor\n  dispatch:\n    CPU: my_trace\n"
            '  replace: True\n  releases: "<2.13"\n',
            "FunctionsManual.cpp": source(SINC),
            "cpu/LerpKernel.cpp": "",
            "pyproject.toml": '[tool.graft.releases]\n"cpu/LerpKernel.cpp" = "<2.14"\n'
            'sinc_backward = ">=2.12,<2.13.1"\n',
        },
    )
    whole = load_native(tmp_path)
    left_out = {
        release: [*whole.for_release(release).left_out(whole)] for release in ("2.12.1", "2.13.0+cpu", "2.14.0")
    }
    assert left_out == {
        "2.12.1": [],
        "2.13.0+cpu": ["trace"],
        "2.14.0": ["trace", "cpu/LerpKernel.cpp", "sinc_backward"],
    }


PROD = "Tensor prod_backward(const Tensor& grad, const Tensor& input, const Tensor& result) {\n  return grad;\n}\n"
OF_DIM = "Tensor prod_backward(\n    Tensor grad, const Tensor& input, Tensor result, int64_t dim, bool keepdim) {\n"


def test_an_overload_that_stays(known: BaseOperators, tmp_path: Path) -> None:
    (said,) = said_of(tmp_path, known, {HELPERS: source(PROD)})
    assert said.startswith("FunctionsManual.cpp:3: warning: ")
    assert "`prod_backward(at::Tensor, at::Tensor const&, at::Tensor, long, bool)` stays PyTorch's" in said
    assert "ProdBackward1" in said and "ProdBackward0" not in said
    keep = "[tool.graft]\nkeep = ['prod_backward']\n"
    assert said_of(tmp_path, known, {HELPERS: source(PROD), "pyproject.toml": keep}) == []
    (tmp_path / "pyproject.toml").unlink()
    assert said_of(tmp_path, known, {HELPERS: source(PROD, f"{OF_DIM}  return grad;\n}}\n")}) == []


def test_all_that_calls_it_stays(known: BaseOperators, tmp_path: Path) -> None:
    """Only three functions of PyTorch call it, no formula."""
    safe = "Tensor prod_safe_zeros_backward(const Tensor& grad, const Tensor& inp, int64_t dim) {\n  return grad;\n}\n"
    keep = "[tool.graft]\nkeep = ['prod_backward', 'linalg_det_backward']\n"
    (error,) = said_of(tmp_path, known, {HELPERS: source(safe), "pyproject.toml": keep})
    assert "prod_safe_zeros_backward has no effect: only linalg_det_backward, prod_backward of PyTorch call it" in error
    assert said_of(tmp_path, known, {HELPERS: source(safe, PROD), "pyproject.toml": keep}) == []
