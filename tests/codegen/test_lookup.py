"""Calls for which C++ finds another function than the author means: g++ and ``make check`` agree on each line."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from corpus import said_of
from graft.check import Findings
from graft.check.base import BaseOperators
from graft.check.lookup import check_lookup
from graft.inputs.cplusplus import read_text

# The functions return Mine and the operators Tensor, so the type of a variable says which is called. The comments are
# what check says: "error" where g++ calls the line ambiguous, else "warning" or nothing.
CALLS = """\
#include <ATen/core/Tensor.h>
HEADERS

struct Mine {};
using at::Tensor;

namespace mylib {

Mine digamma(const Tensor& x);
Mine erfc(Tensor x);
Mine log2(Tensor& x);
Mine tril(const Tensor& x, int n);
Mine triu(const Tensor& x, double n);
Mine softmax(const Tensor& x);
Mine cat(const std::vector<Tensor>& x);
Mine stack(at::TensorList x);
Mine relu(const std::optional<Tensor>& x);
Mine eye(int64_t n);
template <class T> Mine erf(const T& x);
Mine tan(const Tensor& x);
Mine mul(const Tensor& a, const Tensor& b, const Tensor& c);
Mine add(const Tensor& a, const Tensor& b, double alpha);
Mine cumsum(const Tensor& a, int64_t dim, bool reverse = false);
Mine neg(const at::TensorBase& a);
Mine sum(const Tensor& a, at::IntArrayRef dims);
Mine mm_out(const Tensor& a, const Tensor& b, Tensor& out);
Mine exp(Tensor&& a);
Mine sinh(const Tensor& a);

void calls(const Tensor& x, Tensor& v, int64_t n, int m, double d, const std::vector<Tensor>& l) {
  const std::optional<Tensor> o;
  at::TensorList list = l;
  Mine a1 = digamma(x);                               // error
  Mine a2 = digamma(v + v);                           // error
  Mine a3 = mylib::digamma(x);
  Mine a4 = (digamma)(x);
  auto a5 = x.digamma();
  Mine a6 = erfc(x);                                  // error
  Mine a7 = log2(v);
  Tensor a8 = log2(x);
  Tensor a9 = tril(x, n);                             // warning
  Mine a10 = tril(x, m);
  Mine a11 = triu(x, d);
  Mine a12 = triu(x, m);                              // ambiguous: warning
  Mine a13 = softmax(x);
  Mine a14 = cat(l);
  Mine a15 = stack(list);                             // error
  Mine a16 = relu(o);
  Tensor a17 = relu(x);                               // warning
  Mine a18 = eye(n);
  Tensor a19 = erf(x);                                // warning
  Mine a20 = erf(d);
  Mine a21 = mul(x, x, x);
  Mine a22 = add(x, x, 1.5);
  Mine a23 = add(x, x, m);
  Mine a24 = cumsum(x, n);                            // error
  Tensor a25 = neg(x);                                // warning
  Mine a26 = sum(x, {1});                             // ambiguous: warning
  Mine a27 = sum(x, a5.sizes());
  Mine a28 = mm_out(x, x, v);
  Mine a29 = mm_out(v, v, v);                         // ambiguous: warning
  Mine a30 = exp(std::move(v));
  auto tan = [](const Tensor& y) { return Mine(); };
  Mine a31 = tan(x);
  const auto inner = [](const Tensor& y) { return sinh(y); };  // error
  Mine (*pointer)(const Tensor&) = &sinh;
  Mine a32 = pointer(x);
}

Mine passed(const Tensor& x, Mine (*digamma)(const Tensor&)) { return digamma(x); }

struct Class {
  Mine acos(const Tensor& x);
  Mine inside(const Tensor& x) { return acos(x); }
  Mine outside(const Tensor& x);
};
Mine acos(const Tensor& x);
Mine Class::outside(const Tensor& x) { return acos(x); }

}

namespace {
Mine cosh(const Tensor& x);
Mine calls_unnamed(const Tensor& x) { return cosh(x); }  // error
}
Mine asin(const Tensor& x);
Mine calls_global(const Tensor& x) { return asin(x); }  // error
Mine mylib::digamma(const Tensor& x) { return digamma(x.neg()); }  // error

namespace at::native {
Tensor calls_later(const Tensor& x) { return atan(x); }
static Mine atan(const Tensor& x) { return Mine(); }
Mine calls_kernel(const Tensor& x) { return atan(x); }  // error
Tensor calls_operator(const Tensor& x) { return asin(x); }
Tensor calls_used(const Tensor& x) {
  using namespace mylib;
  return sinh(x);                                     // warning
}
}

namespace user {
using mylib::sinh;
Mine calls_used(const Tensor& x) { return sinh(x); }  // ambiguous: warning
}
"""
NAMES = "acos add asin atan cat cosh cumsum digamma erf erfc exp eye log2 mm mul neg relu sinh softmax stack sum tan"
HEADERS = [f"#include <ATen/ops/{name}.h>" for name in [*NAMES.split(), "tril", "triu"]]
OPERATORS = "acos add.Tensor asin atan cat cosh cumsum digamma erf erfc exp eye log2 mm.out mul.Tensor neg relu sinh"
OPERATORS += " softmax.int stack sum.dim_IntList tan tril triu"


# The comments are what check says, with a header for abs of tensors, and without one.
ABSOLUTES = """\
#include <ATen/core/Tensor.h>
#include <cmath>
HEADER

template <typename scalar_t>
struct Vectorized {
  Vectorized abs() const;
};
struct Has {
  float abs(float x);
  float inside(float x) { return abs(x); }
};
float outside(float x) { return static_cast<float>(abs(2)); }

namespace at::native {
namespace {
void calls(float f, double d, int64_t n, int i, const Tensor& x, const Vectorized<float>& v, const float* p) {
  float a1 = abs(f);             // warning warning
  float a2 = std::abs(f);
  double a3 = abs(d);            // warning warning
  int64_t a4 = abs(n);           // warning warning
  int64_t a5 = std::abs(n);
  float a6 = abs(*p);            // warning
  auto a7 = v.abs();
  auto a8 = x.abs();
  int a9 = abs(3);               // - warning
  auto a10 = [](double y) { return abs(y); };  // warning warning
}
float declares(float x, float (*abs)(float)) { return abs(x); }
TENSORS
}
}
"""
TENSORS = "auto tensors(const Tensor& x) { auto y = x.neg() * 2; return abs(x) + abs(y - x) + abs(x[0]); }"


def found_in(folder: Path, known: BaseOperators, text: str) -> dict[int, str]:
    """Return what check says of the calls in a source, by line."""
    findings, functions = Findings(), [known.function(name) for name in OPERATORS.split()]
    check_lookup(functions, [], [read_text(folder / "Calls.cpp", text)], [], known.tree, findings)
    return {each.line: "warning" if each.is_warning else "error" for each in findings.found}


def compiled(folder: Path, base: Path, text: str) -> set[int]:
    """Return the lines of a source for which g++ reports an error, or that a number loses a part."""
    (folder / "Compiled.cpp").write_text(text)
    flags = ["-std=c++20", "-fsyntax-only", "-Wconversion", "-DAT_PER_OPERATOR_HEADERS"]
    command = ["g++", *flags, "-isystem", str(base / "torch/include"), "Compiled.cpp"]
    done = subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, check=False)
    return {int(line) for line in re.findall(r"^Compiled\.cpp:(\d+):\d+: (?:error|warning):", done.stderr, re.M)}


def marks_in(text: str) -> dict[int, str]:
    """Return the comments in a source, by line."""
    return {n: line.rpartition("// ")[2] for n, line in enumerate(text.splitlines(), 1) if "  // " in line}


def test_check_says_of_each_call_what_the_compiler_finds(base: Path, known: BaseOperators, tmp_path: Path) -> None:
    text = CALLS.replace("HEADERS", "\n".join(HEADERS))
    marks = marks_in(text)
    assert compiled(tmp_path, base, text) == {n for n, mark in marks.items() if mark != "warning"}
    assert found_in(tmp_path, known, text) == {n: mark.removeprefix("ambiguous: ") for n, mark in marks.items()}


@pytest.mark.parametrize(
    ("headers", "is_found"),
    [
        ("#include <ATen/ATen.h>", "error"),
        ("#include <torch/extension.h>", "error"),
        ("#include <ATen/ops/digamma.h>", "error"),
        ("#ifndef AT_PER_OPERATOR_HEADERS\n#include <ATen/Functions.h>\n#endif", ""),
        ("#ifdef AT_PER_OPERATOR_HEADERS\n#include <ATen/Functions.h>\n#endif", "error"),
        ("#ifdef OTHER\n#include <ATen/Functions.h>\n#endif", "warning"),
        ("#include <ATen/ops/digamma_native.h>\n#include <ATen/Parallel.h>\n#include <torch/library.h>", ""),
    ],
)
def test_calls_are_right_where_no_header_has_the_operator(
    known: BaseOperators, tmp_path: Path, headers: str, is_found: str
) -> None:
    text = (
        "namespace mylib {\nTensor digamma(const Tensor& x);\nTensor call(const Tensor& x) { return digamma(x); }\n}\n"
    )
    assert [*found_in(tmp_path, known, f"{headers}\n{text}").values()] == [is_found] * bool(is_found)


@pytest.mark.parametrize("header", ["", "ATen/ops/abs.h", "ATen/ops/abs_native.h"])
def test_absolute_value_of_a_number_is_std_abs(base: Path, known: BaseOperators, tmp_path: Path, header: str) -> None:
    included = f"#include <{header}>\n#include <ATen/TensorOperators.h>" if header else ""
    text = ABSOLUTES.replace("HEADER", included).replace("TENSORS", TENSORS * bool(header))
    marks = {n: mark.split()[bool(header) :][:1] for n, mark in marks_in(text).items()}
    expected = {n: mark[0] for n, mark in marks.items() if mark and mark[0] != "-"}
    unknown = {n for n, line in enumerate(text.splitlines(), 1) if "abs(*p)" in line}
    assert compiled(tmp_path, base, text) == {*expected} | unknown, "a type that the text does not say"
    assert found_in(tmp_path, known, text) == expected


FOLDER = {
    "native_functions.yaml": """\
- func: top_heads(Tensor x, int k) -> Tensor
  dispatch:
    CompositeExplicitAutograd: top_heads
- func: top_tails(Tensor x) -> Tensor
  dispatch:
    CompositeExplicitAutograd: top_tails
""",
    "derivatives.yaml": "- name: top_heads(Tensor x, int k) -> Tensor\n  x: grad\n"
    "- name: top_tails(Tensor x) -> Tensor\n  x: grad\n",
    "mylib.h": """\
#include <torch/extension.h>
namespace mylib {
at::Tensor top_heads(const at::Tensor& x, int64_t k);
}
""",
    "mylib.cpp": """\
#include "mylib.h"
namespace mylib {
at::Tensor top_heads(const at::Tensor& x, int64_t k) { return x.slice(0, 0, k); }
at::Tensor first(const at::Tensor& x) { return top_heads(x, 1); }
}
""",
    "ops.cpp": """\
#include "mylib.h"
#include <ATen/ops/top_heads_native.h>
namespace at::native {
Tensor top_heads(const Tensor& x, int64_t k) { return mylib::top_heads(x, k); }
Tensor top_tails(const Tensor& x) { return top_heads(x.flip(0), 1); }
}
""",
    "tails.cpp": """\
#include <ATen/ops/top_heads.h>
#include <ATen/ops/top_heads_native.h>
namespace at::native {
Tensor tail(const Tensor& x) { return top_heads(x, 1); }
}
""",
}


def test_operators_and_kernels_of_a_folder_are_found_beside_its_functions(known: BaseOperators, tmp_path: Path) -> None:
    lines = [line for line in said_of(tmp_path, known, FOLDER) if "namespace at," in line]
    why = "C++ looks for functions of tensors in namespace at, too, so it finds at::top_heads and"
    todo = "(...)` for the function, `at::top_heads(...)` for the operator"
    assert lines == [
        f"mylib.cpp:4: `top_heads(x, 1)` is ambiguous: {why} mylib::top_heads; write `mylib::top_heads{todo}",
        f"ops.cpp:5: `top_heads(x.flip(0), 1)` is ambiguous: {why} at::native::top_heads; write `at::native::top_heads"
        + todo,
        f"tails.cpp:4: `top_heads(x, 1)` is ambiguous: {why} at::native::top_heads; write `at::native::top_heads{todo}",
    ]


def test_overload_that_may_be_better_makes_a_warning(known: BaseOperators, tmp_path: Path) -> None:
    entries = FOLDER["native_functions.yaml"]
    more = entries.split("- func: top_tails")[0].replace("top_heads(", "top_heads.scalar(").replace("int k", "Scalar k")
    own = FOLDER["mylib.h"].replace("int64_t k", "const at::Scalar& k")
    call = (
        '#include "mylib.h"\nnamespace mylib {\nat::Tensor call(const at::Tensor& x) { return top_heads(x, 1); }\n}\n'
    )
    texts = {"native_functions.yaml": entries + more, "mylib.h": own, "mylib.cpp": call}
    lines = [line for line in said_of(tmp_path, known, texts) if "namespace at," in line]
    assert [line.partition(": C++")[0] for line in lines] == [
        "mylib.cpp:3: warning: `top_heads(x, 1)` may call the operator at::top_heads"
    ]


def test_operator_without_a_function_is_not_found(known: BaseOperators, tmp_path: Path) -> None:
    entries = FOLDER["native_functions.yaml"].replace("Tensor x, int", "Tensor self, int")
    method = entries.replace("  dispatch", "  variants: method\n  dispatch", 1)
    lines = said_of(tmp_path, known, {**FOLDER, "native_functions.yaml": method})
    assert not [line for line in lines if "namespace at," in line]
