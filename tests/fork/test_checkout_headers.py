"""Changed headers of a checkout: what is the same, what cannot be laid over an installed PyTorch, who includes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from graft.checkout.headers import is_same, refused, users
from helpers import beside, write

HEADER = beside(__file__)["header"]
AT = "at::native::"
DEFINED = "the declaration of {}, which PyTorch's libraries define, changes"


def edited(*changes: str) -> str:
    """Return the header with texts replaced: each is followed by what takes its place."""
    text = HEADER
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    "changes",
    [
        ("// Whether to divide by all, or by those that count.\n", "/* Of two\nkinds. */"),
        ("return width / 2;", "return\n      width/2 ;  // half"),
        (
            "namespace at {\nnamespace native {",
            "namespace at::native {",
            "} // namespace native\n} // namespace at",
            "}",
        ),
        ("using pool_fn", "} // namespace native\nnamespace native {\nusing pool_fn"),
        ("#include <ATen/core/Tensor.h>\n", ""),
        ("#define WINDOW(name) name##_window", "#define WINDOW(name) \\\n  name##_window"),
    ],
)
def test_same_tokens(changes: tuple[str, ...]) -> None:
    assert is_same(HEADER, edited(*changes))
    assert refused("Window.h", HEADER, edited(*changes)) == ""


@pytest.mark.parametrize(
    "changes",
    [
        ("return width / 2;", "return width / 3;"),
        ("return width_ / 2;", "return width_ / 3;"),
        ("return left() + width_;", "return left() - width_;"),
        ("#define WINDOW(name) name##_window", "#define WINDOW(name) name##_frame"),
        ("#define WINDOW(name) name##_window", "#define WINDOW(name)\nname##_window"),
        ("GRAIN = 32768", "GRAIN = 1024"),
        ("  T value;", "  T value;\n  T rest;"),
        ("  double value;", "  float value;"),
        ("bool keep = false", "bool kept = true"),
        ("TORCH_API int64_t count(", "TORCH_API int64_t count(const Tensor& self);\nTORCH_API int64_t count("),
        ("TORCH_API int64_t count(", "int64_t count("),
        ("const Tensor& self, IntArrayRef dim", "const at::Tensor &self, c10::IntArrayRef dim"),
        (", bool keep = false);", ", bool keep = false) {\n  return 1;\n}"),
        ("const Tensor& out, const Tensor& self", "const Tensor& result, const Tensor& input"),
        ("IntArrayRef dim", "ArrayRef<int64_t> dim"),
        ("COUNTED = 4 }", "COUNTED = 4, NONE }"),
        ("int64_t width_ = 1;", "int64_t width_{2};"),
        ("T as() const;", "T as(int64_t index) const;"),
        ("  int64_t left() const;", "  int64_t left() const;\n  int64_t top() const;"),
        ("template <typename T>\nstruct Sum {", "struct Mean { int64_t count; };\ntemplate <typename T>\nstruct Sum {"),
        (
            "DECLARE_DISPATCH(pool_fn, pool_stub)",
            "DECLARE_DISPATCH(pool_fn, pool_stub);\nDECLARE_DISPATCH(pool_fn, more_stub);",
        ),
        (
            "void (*)(TensorIteratorBase& iter, const Scalar& limit)",
            "void(*)(at::TensorIteratorBase&, const c10::Scalar&)",
        ),
        ("#pragma once\n", "#pragma once\n#include <cmath>\n"),
        (
            "class TORCH_API Window",
            "#ifdef NEVER\nvoid odd() {\n#else\nvoid odd(int) {\n#endif\n}\nclass TORCH_API Window",
        ),
    ],
)
def test_what_is_compiled_into_each_includer_can_be_laid_over(changes: tuple[str, ...]) -> None:
    assert not is_same(HEADER, edited(*changes))
    assert refused("Window.h", HEADER, edited(*changes)) == ""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (("  union {", "  int64_t height_;\n  union {"), f"the data members or bases of {AT}Window change"),
        (("int64_t width_ = 1;", "int32_t width_ = 1;"), f"the data members or bases of {AT}Window change"),
        (("double scale_", "double scale_[2]"), f"the data members or bases of {AT}Window change"),
        (("std::string name_;", "const char* name_;"), f"the data members or bases of {AT}Window change"),
        (("#ifdef USE_NAMES", "#ifndef NO_NAMES"), f"the data members or bases of {AT}Window change"),
        (("#ifdef USE_NAMES\n", "", "#endif\n", ""), f"the data members or bases of {AT}Window change"),
        ((" final : public Shape", ""), f"the data members or bases of {AT}Window change"),
        (("public Shape", "public Shape, Named"), f"the data members or bases of {AT}Window change"),
        (
            ("area() const = 0;", "area() const = 0;\n  virtual int64_t rest();"),
            f"the virtual functions of {AT}Window change",
        ),
        (("  ~Window() override;\n", ""), f"the virtual functions of {AT}Window change"),
        (("area() const", "area(bool exact) const"), f"the virtual functions of {AT}Window change"),
        (("Kind { ROUND, SQUARE }", "Kind { SQUARE, ROUND }"), f"the values of {AT}Window::Kind change"),
        (("COUNTED = 4", "COUNTED = 2"), f"the values of {AT}Divide change"),
        (("enum class Divide {", "enum class Divide : int8_t {"), f"the values of {AT}Divide change"),
        (("bool keep = false", "int64_t keep = 0"), DEFINED.format(f"{AT}count")),
        (("IntArrayRef dim, ", ""), DEFINED.format(f"{AT}count")),
        (("TORCH_API int64_t count(", "TORCH_API Tensor count("), DEFINED.format(f"{AT}count")),
        (("int64_t count(const Tensor& self, IntArrayRef dim, bool keep = false);", ""), DEFINED.format(f"{AT}count")),
        (("explicit Window(int64_t width)", "explicit Window(double width)"), DEFINED.format(f"{AT}Window::Window")),
        (("of(const Tensor& self)", "of(Tensor& self)"), DEFINED.format(f"{AT}Window::of")),
        (("extern TORCH_API int64_t limit", "extern TORCH_API double limit"), DEFINED.format(f"{AT}limit")),
        (
            (
                "void (*)(TensorIteratorBase& iter, const Scalar& limit)",
                "void (*)(TensorIteratorBase& iter, double limit)",
            ),
            "the type of the dispatch stub limit_stub changes",
        ),
        (
            ("int64_t width);\ntypedef", "double width);\ntypedef"),
            "the type of the dispatch stub pool_stub changes; the type of the dispatch stub alias_stub changes; "
            + DEFINED.format(f"{AT}fill_with"),
        ),
        (
            ("DECLARE_DISPATCH(pool_fn, pool_stub)", "DECLARE_DISPATCH(other_fn, pool_stub)"),
            "the type of the dispatch stub pool_stub changes",
        ),
    ],
)
def test_what_the_libraries_were_compiled_with_is_refused(changes: tuple[str, ...], why: str) -> None:
    assert why in refused("Window.h", HEADER, edited(*changes))


def test_headers_of_the_installed_torch_can_have_more_of_everything() -> None:
    folder = Path(torch.__file__).parent / "include/ATen"
    more = "namespace at::native {\nTensor more(int64_t);\ntemplate <class T> T less(T a) { return a; }\n}\n"
    for path in sorted([*(folder / "native").rglob("*.h"), *(folder / "cpu/vec").rglob("*.h")])[::7]:
        text = path.read_text(encoding="utf-8")
        head, first, tail = text.partition("namespace ")
        assert refused(path.name, text, f"{head}#define MORE \\\n  1\n{more}{first}{tail}") == "", path
        assert is_same(text, f"// more\n{text}\n")


def test_users_are_found_through_other_headers(tmp_path: Path) -> None:
    native = "aten/src/ATen/native"
    texts = {
        f"{native}/Window.h": "#include <ATen/native/Shape.h>",
        f"{native}/Shape.h": "#pragma once",
        f"{native}/cpu/Frame.h": "#  include <ATen/native/Window.h>\n#include <ATen/native/cpu/Frames.h>",
        f"{native}/cpu/Frames.h": '#include "Frame.h"',
        f"{native}/A.cpp": "#include <ATen/native/Window.h>",
        f"{native}/B.cpp": '#include "Window.h"',
        f"{native}/cpu/C.cpp": '#include "../Window.h"',
        f"{native}/cpu/D.cpp": '#include "Frames.h"',
        f"{native}/cpu/E.cpp": "#include <ATen/native/Shape.h>\n#include <ATen/native/cpu/Window.h>",
        "torch/csrc/F.cpp": "#include <torch/csrc/f.h>",
        "torch/csrc/f.h": '#include "torch/csrc/g.h"',
        "torch/csrc/g.h": "#include <ATen/native/Gone.h>",
    }
    tree = write(tmp_path, texts)
    sources = [name for name in texts if name.endswith(".cpp")]
    of_window = {f"{native}/{name}.cpp" for name in ("A", "B", "cpu/C", "cpu/D")}
    assert users(tree, [f"{native}/Window.h"], sources) == of_window
    assert users(tree, [f"{native}/Shape.h"], sources) == {*of_window, f"{native}/cpu/E.cpp"}
    assert users(tree, [f"{native}/Window.h"], [f"{native}/A.cpp", f"{native}/cpu/E.cpp"]) == {f"{native}/A.cpp"}
    # The header itself was deleted.
    assert users(tree, [f"{native}/Gone.h"], sources) == {"torch/csrc/F.cpp"}
    assert users(tree, [], sources) == set()
