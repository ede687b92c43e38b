"""Reading C++ without a compiler: comments, conditions, functions at namespace level."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.cpp.functions import functions
from graft.cpp.sources import read_text
from graft.cpp.tokens import conditions, joined, tokens, without_comments


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('f("// no comment"); // one', 'f("// no comment");       '),
        ("1'000; // it's", "1'000;        "),
        ("1'000'000; /* a\nb */ c", "1'000'000;     \n     c"),
        ("'\"'; // one\\\nof two lines\nx", "'\"';        \n            \nx"),
        ('R"(/* text */)" /* one */', 'R"(/* text */)"          '),
    ],
)
def test_comments_are_blank(text: str, code: str) -> None:
    assert without_comments(text) == code


def test_conditions_around_each_line() -> None:
    lines = ["a", "#if A", "b", "# ifdef B", "c", "#else", "d", "#endif", "e", "#endif", "#endif", "f"]
    around = dict(zip([*lines, "end"], conditions(lines), strict=True))
    assert [around[each] for each in "abcdef"] == [(), ((1,),), ((1,), (3,)), ((1,), (3, 5)), ((1,),), ()]
    assert conditions(lines[:3])[-1] == ((1,),)


def test_tokens_are_joined_in_the_usual_spelling() -> None:
    assert joined(tokens("const  at :: Tensor &")[0]) == "const at::Tensor&"
    assert joined(tokens("std::array<bool,2>const&")[0]) == "std::array<bool, 2> const&"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("namespace at { namespace native {\nTensor f(const Tensor& a, int n = 1) {}\n}}", "2 at::native Tensor f"),
        ("#define MAKE(name) Tensor name(int a) {}\nnamespace x {\nMAKE(f)\n}", "3 x Tensor f"),
        ("#define MAKE(n, m) int n##_##m() { return 0; }\nMAKE(f, g)", "2  int f_g"),
        ("template <> inline c10::complex<T> f<c10::complex<T>, A>(c10::complex<T> z) {}", "1  c10::complex<T> f"),
        ("Tensor& A<T>::B::f(int a) const {}", "1 A<T>::B Tensor& f"),
        ("__global__ void C10_LAUNCH_BOUNDS_1(g<A>(1)) f(int* n) {}", "1  void f"),
        ("#if A\nvoid f(int a) {\n#else\nvoid f() {\n#endif\n}\nint g() {}", "2  void f, 7  int g"),
        ("TORCH_LIBRARY_IMPL(aten, CPU, m) {\nm.impl(x);\n}\nint f() {}", "4  int f"),
        ("BEGIN\nint f() {}\n}}\nint g() {}", "1  int f, 4  int g"),
        ('extern "C" int f();\nint x(3);\nint y = f();', "1  int f"),
    ],
)
def test_functions(text: str, found: str) -> None:
    every = [each for each, _ in functions(text, Path("A.cpp"))]
    assert ", ".join(f"{each.line} {each.namespace} {each.returns} {each.name}" for each in every) == found


def test_definitions_and_declarations() -> None:
    source = read_text(Path("A.cpp"), "int f(int);\nstatic int g(int a, bool b = {}) { return 0; }\n")
    assert [(each.name, each.parameters, each.is_local) for each in source.declarations] == [("f", ("int",), False)]
    assert [(each.name, each.defaults, each.is_local) for each in source.definitions] == [("g", (1,), True)]


@pytest.mark.parametrize(
    "head",
    [
        "template <typename T, std::enable_if_t<sizeof(T) < 8, int> = 0>",
        "template <int N, bool B = N < 3>",
        "\f\ntemplate",
    ],
)
def test_what_follows_a_statement_that_is_hard_to_read(head: str) -> None:
    """What the folder defines behind it counts, at its line."""
    text = f"namespace at::native {{\n{head} int first(int x) {{ return x; }}\nTensor my_op(const Tensor& self);\n}}\n"
    (found,) = (each for each in read_text(Path("x.cpp"), text).declarations if each.name == "my_op")
    assert (found.line, found.namespace) == (text[: text.index("Tensor")].count("\n") + 1, "at::native")
