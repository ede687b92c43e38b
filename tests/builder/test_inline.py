"""The texts of ``load_inline`` as the files of a native folder. What check says of them is in
tests/codegen/test_inline_checked.py.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from graft.core.errors import UsageError
from graft.inputs.native import load_native
from graft.session.inline import Texts
from helpers import Patch, beside, write

SCHEMA = "clip.mine(Tensor self) -> Tensor"
KERNEL = "Tensor clip_mine(const Tensor& self) {\n  return self;\n}\n"
WHOLE = f"#include <ATen/core/Tensor.h>\nnamespace at::native {{\n{KERNEL}}}\n"


def test_each_text_is_a_file_that_a_build_reads(tmp_path: Path) -> None:
    every = Texts(
        *("- func: clip.mine(Tensor self) -> Tensor\n", "- name: clip.mine(Tensor self) -> Tensor"),
        cpp=WHOLE,
        cpu=f"{WHOLE}// REGISTER_DISPATCH",
        cuda=WHOLE,
        autocast="fp32: [clip.mine]",
        headers={"clip.h": "#pragma once", "cpu/loops.h": "", "cuda/clip.cuh": ""},
        python={"_decomp/decompositions.py": "x = 1", "_C/_nn.pyi": "y: int"},
        docs={"clip": "Clips."},
    )
    files = every.files()
    sources = ("ClipMine.cpp", "cpu/ClipMineKernel.cpp", "cuda/ClipMine.cu")
    others = ("clip.h", "cpu/loops.h", "cuda/clip.cuh", "native_functions.yaml", "derivatives.yaml", "autocast.yaml")
    texts = ("python/_decomp/decompositions.py", "python/_C/_nn.pyi", "docs/clip.rst")
    assert {*files} == {*sources, *others, *texts}
    assert all(text.endswith("\n") for text in files.values())
    every.write(tmp_path / "native")
    assert {*map(str, load_native(tmp_path / "native").paths)} == {*files}
    assert every.cflags == ()
    assert every.name == "clip"


def test_texts_may_be_indented_as_a_whole() -> None:
    functions = """
        - func: clip(Tensor self) -> Tensor
          variants: function
    """
    files = Texts(
        functions, cpp=WHOLE, python={"x.py": "\n    if 1:\n        x = 1\n"}, docs={"clip": "\n    A.\n"}
    ).files()
    assert files["native_functions.yaml"] == "\n- func: clip(Tensor self) -> Tensor\n  variants: function\n"
    assert files["python/x.py"] == "\nif 1:\n    x = 1\n"
    assert files["docs/clip.rst"] == "A.\n"


@pytest.mark.parametrize("text", [WHOLE, "namespace at { namespace native {\n}}", "namespace at::meta {\n}\n"])
def test_cplusplus_with_its_namespace_is_as_given(text: str) -> None:
    texts = Texts(SCHEMA, cpp=text)
    assert texts.files()["ClipMine.cpp"].strip() == text.strip()
    assert not {"graft_includes.h"} & {*texts.files()}


HEADS = [
    "",
    "\n\n",
    "// namespace at::native {\n",
    "/* namespace at::native {\n#include <z.h> */ ",
    '#include "clip.h"\n  # include <cmath>\n\n',
    "#define TWICE(x) \\\n  ((x) * 2)\n#pragma GCC diagnostic push\n",
    "#ifdef __AVX2__\n#include <immintrin.h>\n#else\n# if 1\n#endif\n#endif\n",
]


@pytest.mark.parametrize("head", HEADS)
def test_namespace_begins_in_the_line_of_the_first_code_and_ends_in_its_own(head: str) -> None:
    made = Texts(SCHEMA, cpp=head + KERNEL).files()["ClipMine.cpp"]
    assert made == f"{head}namespace at::native {{ {KERNEL}}} // namespace at::native\n"
    for last in ("", "\n", " // the end", "\n#undef X"):
        made = Texts(SCHEMA, cpp=head + KERNEL.rstrip("\n") + last).files()["ClipMine.cpp"]
        assert made.splitlines()[-1] == "} // namespace at::native"
        assert made.count("\n} // namespace") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"#if X\n{KERNEL}#endif\n", r"ClipMine.cpp:2: its first code depends on an #if\n  next: write `namespace at"),
        (f"// x\n\n{KERNEL}#include <cmath>\n", r"ClipMine.cpp:6: #include <cmath> is behind code\n  next: move it"),
    ],
)
def test_where_a_namespace_cannot_begin_is_said(text: str, said: str) -> None:
    texts = Texts(SCHEMA, cpp=text)
    with pytest.raises(UsageError, match=said):
        texts.files()
    late = f'{KERNEL}#include "table.inc"\n// #include <a>\n/*\n#include <b> */\n'
    assert "table" in Texts(SCHEMA, cpp=late).files()["ClipMine.cpp"]


def test_lines_of_compilers_are_the_user_s(tmp_path: Path) -> None:
    """Those of messages, with the text of the line, and of what debuggers read."""
    cpp = "\n#include <cmath>\n// one\nint one() {\n  return __LINE__;\n}\nint two() { return wrong; }\n"
    texts = Texts(SCHEMA, cpp=cpp)
    folder = write(tmp_path, {**texts.files(), "graft_includes.h": "#pragma once\nint wide;\n"})
    command = ["g++", "-fsyntax-only", f"-iquote{folder}", *texts.cflags, "ClipMine.cpp"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    (error,) = re.findall(r"^ClipMine.cpp:(\d+):\d+: error: .*\n +\d+ \| (.*)", done.stderr, re.M)
    assert error == ("7", "int two() { return wrong; }")


def test_header_has_what_new_op_includes() -> None:
    functions = (
        "- func: clip.a(Tensor self) -> Tensor\n- func: clip.b(Tensor x) -> Tensor\n- func: _fold(Tensor x) -> Tensor\n"
    )
    texts = Texts(functions, cpp="int f() { return 1; }", cuda=WHOLE)
    assert texts.cflags == ("-include", "graft_includes.h")
    assert re.findall(r"ops/(\w+)_native.h", texts.files()["graft_includes.h"]) == ["clip", "_fold"]
    assert "graft_includes.h" in Texts(SCHEMA, cpp=WHOLE, cuda="int f();").files()


def test_unchanged_files_keep_their_times(tmp_path: Path) -> None:
    Texts(SCHEMA, cpp=KERNEL, headers={"old.h": ""}).write(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    Texts(SCHEMA, cpp=f"{KERNEL}\n").write(tmp_path)
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert {name for name in before if after.get(name) != before[name]} == {"old.h", "ClipMine.cpp"}


def test_saved_folder_is_written_as_new_op_does(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    texts = Texts(SCHEMA, cpp=f"\n#include <cmath>\n\n{KERNEL}", cuda=WHOLE)
    path = texts.save("~/my_ops")
    assert path == tmp_path / "my_ops"
    includes = texts.files()["graft_includes.h"].partition("\n")[2]
    expected = f"{includes}\n#include <cmath>\n\nnamespace at::native {{\n\n{KERNEL}\n}} // namespace at::native\n"
    assert (path / "ClipMine.cpp").read_text() == expected
    assert (path / "cuda/ClipMine.cu").read_text() == WHOLE
    assert not (path / "graft_includes.h").exists()
    assert Texts((path / "native_functions.yaml").read_text(), cpp=expected, cuda=WHOLE).save(path) == path


def test_save_deletes_nothing(tmp_path: Path) -> None:
    texts = Texts(SCHEMA, cpp=KERNEL)
    path = texts.save(tmp_path)
    for name, text in {"more.txt": "", "ClipMine.cpp": "// edited\n"}.items():
        before = (path / name).read_text() if (path / name).exists() else None
        (path / name).write_text(text)
        with pytest.raises(UsageError, match=f"{path}: it is not empty\n  next: name a folder"):
            texts.save(path)
        assert (path / name).read_text() == text
        (path / name).unlink() if before is None else (path / name).write_text(before)
    (path / "ClipMine.cpp").unlink()
    with pytest.raises(UsageError, match="it is not empty"):
        texts.save(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file: it is a file"):
        texts.save(tmp_path / "file")


OTHER_TYPES = [
    ({"cpp": Path("x.cpp")}, "cpp: PosixPath instead of text"),
    ({"cuda": "\ud800"}, "cuda: not text that can be written"),
    ({"headers": {"x.h": b""}}, r"headers\['x.h'\]: bytes instead of text"),
]


@pytest.mark.parametrize(("given", "said"), [*beside(__file__)["refused"], *OTHER_TYPES])
def test_what_cannot_be_a_file_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Texts(**{"functions": SCHEMA, "cpp": KERNEL, **given})


def test_name_is_that_of_the_first_operator() -> None:
    assert Texts("", "- name: digamma(Tensor self) -> Tensor\n  self: grad\n").name == "digamma"
    assert Texts("  - func: 'a_b.c(Tensor self) -> Tensor'\n  - func: d(Tensor x) -> Tensor\n", cpp=WHOLE).name == "a_b"
    none = Texts("", cpp=WHOLE)
    assert {*none.files()} == {"Kernels.cpp"}
    with pytest.raises(UsageError, match="functions: it has no operator\n  next: pass a schema"):
        _ = none.name
