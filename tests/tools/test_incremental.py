"""Incremental source builds: which headers only gain declarations, and what ninja then compiles."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import ninja as ninja_package
import pytest
from graft.core.console import StepLine
from graft.core.errors import CompileError, SourceError
from graft.fork.configure import Configured
from graft.fork.gains import only_gains
from graft.fork.incremental import Changes, forget, generate_incrementally
from graft.fork.ninja import ninja
from graft.fork.orphans import remove_orphans
from graft.fork.verify import compare, left_alone, shuffled_objects

HEADER = """#pragma once
#include <ATen/ops/add.h>
#define NUMBER 1
namespace at {
struct Base;
enum class Kind { A, B };
class TORCH_API Tensor : public Base {
 public:
  Tensor() = default;
  // a comment
  at::Tensor add(const at::Tensor& other) const;
  int count = 0;
 protected:
  void hidden();
};
inline at::Tensor Tensor::add(const at::Tensor& other) const {
  return at::_ops::add::call(*this, other);
}
} // namespace at
"""


@pytest.mark.parametrize(
    ("before", "added"),
    [
        ("  int count", "  at::Tensor mine(int64_t n=1, at::Scalar x={}) const;\n"),
        ("  int count", "  static at::Tensor mine() { return {}; }\n"),
        ("  at::Tensor add(", "  Tensor& operator=(int) &&;\n"),
        ("  void hidden", "  void other();\n"),
        ("  void hidden", "  template <class T> T* other();\n  operator bool() const;\n"),
        ("  Tensor() =", "  explicit Tensor(int);\n"),
        ("#define", "#include <ATen/ops/mine.h>\n"),
        ("inline", "inline at::Tensor mine() {\n  return {};\n}\n"),
        ("inline", "struct Mine : Base {\n  virtual void f();\n  int x = 0;\n};\n"),
        ("inline", "enum class Another { C };\n"),
        ("  // a comment", "  // another comment {\n"),
        ("} // namespace", "namespace inner {\nint f(int);\n}\n"),
    ],
)
def test_added_declarations_are_told(before: str, added: str) -> None:
    assert only_gains(HEADER, HEADER.replace(before, added + before, 1))
    # A removal is not a gain.
    if "//" not in added:
        assert not only_gains(HEADER.replace(before, added + before, 1), HEADER)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  int count = 0;", "  int count = 0;\n  int more;"),
        ("  int count = 0;", "  int more = f();\n  int count = 0;"),
        ("  int count = 0;", "  virtual void f();\n  int count = 0;"),
        ("  int count = 0;", "  void f() override;\n  int count = 0;"),
        ("  int count = 0;", "  struct { int x; } y;\n  int count = 0;"),
        ("  int count = 0;", "  int count = 1;"),
        ("  int count = 0;\n", ""),
        ("A, B", "A, C, B"),
        ("public Base", "public Base, public Other"),
        ("#define NUMBER 1", "#define NUMBER 2"),
        ("#define NUMBER 1", "#define NUMBER 1\n#define OTHER"),
        ("#define NUMBER 1", "#define NUMBER 1 \\\n  + 1"),
        ("other);\n}", "other, 1);\n}"),
        ("add(const at::Tensor& other) const;", "add(const at::Tensor& other, int n=1) const;"),
        (" public:", " private:"),
        ("  int count = 0;", "  int (*function)(int);\n  int count = 0;"),
        ("  int count = 0;", "  ~Tensor();\n  int count = 0;"),
        ("  int count = 0;", "  friend int f();\n  int count = 0;"),
        ("TORCH_API Tensor", "Tensor"),
        ("namespace at", "namespace c10"),
        ("struct Base;", "using namespace c10;\nstruct Base;"),
    ],
)
def test_other_changes_are_told(old: str, new: str) -> None:
    assert old in HEADER
    assert not only_gains(HEADER, HEADER.replace(old, new, 1))


def test_class_whose_head_is_there_twice_ends_once() -> None:
    windows = "#ifdef _WIN32\nstruct Node : Base {\n  TORCH_API Node() = default;\n#else\n"
    text = f"{windows}struct TORCH_API Node : Base {{\n#endif\n  int x;\n}};\nint f();\n"
    assert only_gains(text, text + text.replace("Node", "Mine").replace("int f();", ""))
    assert not only_gains(text, text.replace("int x;", "int x; int y;"))
    assert not only_gains(text, text.replace("struct Node : Base", "struct Node : Other"))


def test_members_that_change_places_are_told() -> None:
    swapped = HEADER.replace("  int count = 0;\n", "").replace("  Tensor()", "  int count = 0;\n  Tensor()", 1)
    assert not only_gains(HEADER, swapped)


# Write headers and a source for a list of operators, each only if it changes, like torchgen.
GENERATOR = """
from pathlib import Path
names = Path("operators").read_text().split()
out = Path("build/aten/src/ATen")
texts = {
    "core/Body.h": "struct Body {\\n" + "".join(f"  int {n.rstrip('!')}() const;\\n" for n in names) + "};\\n",
    "core/aten_interned_strings.h": "enum Names { " + ", ".join(f"n_{n.rstrip('!')}" for n in names) + " };\\n",
    "Layout.h": "struct Layout { " + "".join(f"int x_{n[:-1]}; " for n in names if n.endswith("!")) + "};\\n",
    "Register.cpp": "#include <core/Body.h>\\n" + "".join(f"int r_{n.rstrip('!')};\\n" for n in names),
}
for name, text in texts.items():
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)
"""
NINJA = """
rule generate
  command = cd .. && $python generate.py
  restat = 1
rule cxx
  command = g++ -Iaten/src/ATen -MD -MF $out.d -c $in -o $out
  depfile = $out.d
  deps = gcc

build aten/src/ATen/core/Body.h aten/src/ATen/core/aten_interned_strings.h aten/src/ATen/Layout.h $
    aten/src/ATen/Register.cpp: generate ../operators
build ATEN_CPU_FILES_GEN_TARGET: phony aten/src/ATen/Register.cpp
build method.o: cxx ../method.cpp || ATEN_CPU_FILES_GEN_TARGET
build names.o: cxx ../names.cpp || ATEN_CPU_FILES_GEN_TARGET
build layout.o: cxx ../layout.cpp || ATEN_CPU_FILES_GEN_TARGET
build register.o: cxx aten/src/ATen/Register.cpp
build all: phony method.o names.o layout.o register.o
default all
"""
ALL = {"method", "names", "layout", "register"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree whose build generates a header of all operators, one with numbers and one with a layout."""
    sources = {"method": "core/Body.h", "names": "core/aten_interned_strings.h", "layout": "Layout.h"}
    for name, header in sources.items():
        (tmp_path / f"{name}.cpp").write_text(f"#include <{header}>\nint {name};\n")
    (tmp_path / "generate.py").write_text(GENERATOR)
    (tmp_path / "build").mkdir()
    text = NINJA.replace("$python", sys.executable)
    (tmp_path / "build/build.ninja").write_text(text)
    (tmp_path / "operators").write_text("add mul")
    assert build(tree=tmp_path) == ALL
    return tmp_path


def ninja_path() -> dict[str, str]:
    return {"PATH": os.pathsep.join([ninja_package.BIN_DIR, os.environ["PATH"]])}


def run_ninja(tree: Path, *targets: str) -> None:
    ninja(Configured(tree, ninja_path(), [], tree), 2, StepLine("compile"), targets)


def build(tree: Path) -> set[str]:
    """Build. Return what was compiled."""
    objects = {name: tree / f"build/{name}.o" for name in ALL}
    before = {name: path.stat().st_mtime_ns if path.is_file() else 0 for name, path in objects.items()}
    run_ninja(tree)
    return {name for name, path in objects.items() if path.stat().st_mtime_ns != before[name]}


def generate(tree: Path) -> Changes:
    return generate_incrementally(tree, lambda: run_ninja(tree, "ATEN_CPU_FILES_GEN_TARGET"))


def names(changes: Changes) -> tuple[list[str], list[str], list[str]]:
    short = [[name.rpartition("/")[2] for name in each] for each in (changes.gained, changes.kept, changes.changed)]
    return short[0], short[1], short[2]


def test_one_operator_more_compiles_what_registers_it(tree: Path) -> None:
    kept = tree / "build/aten/src/ATen/core/aten_interned_strings.h"
    before = kept.read_text()
    (tree / "operators").write_text("add mine mul")
    changes = generate(tree)
    assert names(changes) == (["Body.h"], ["aten_interned_strings.h"], [])
    assert "1 header only gained declarations" in str(changes)
    assert "mine" in (tree / "build/aten/src/ATen/core/Body.h").read_text()
    assert kept.read_text() == before
    assert build(tree) == {"register"}
    assert build(tree) == set()
    assert str(generate(tree)) == "no header changed"


def test_without_the_mode_everything_that_includes_it_is_compiled(tree: Path) -> None:
    (tree / "operators").write_text("add mine mul")
    assert build(tree) == {"method", "names", "register"}


def test_changed_layout_is_compiled(tree: Path) -> None:
    (tree / "operators").write_text("add mine! mul")
    assert names(generate(tree)) == (["Body.h"], ["aten_interned_strings.h"], ["Layout.h"])
    assert build(tree) == {"layout", "register"}


def test_operator_that_is_gone_again_is_no_gain(tree: Path) -> None:
    (tree / "operators").write_text("add mine mul")
    generate(tree)
    build(tree)
    (tree / "operators").write_text("add mul")
    assert names(generate(tree)) == ([], [], ["Body.h"])
    assert build(tree) == {"method", "register"}


def test_interrupted_generation_is_compared_with_what_was_before(tree: Path) -> None:
    (tree / "operators").write_text("add mine mul")

    def interrupted() -> None:
        run_ninja(tree, "ATEN_CPU_FILES_GEN_TARGET")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_incrementally(tree, interrupted)
    assert names(generate(tree)) == (["Body.h"], ["aten_interned_strings.h"], [])
    assert build(tree) == {"register"}


def test_whole_build_makes_good_what_incremental_ones_left(tree: Path) -> None:
    (tree / "operators").write_text("add mine mul")
    generate(tree)
    build(tree)
    assert forget(tree) == 2
    assert build(tree) == {"method", "names", "register"}
    assert "mine" in (tree / "build/aten/src/ATen/core/aten_interned_strings.h").read_text()
    assert forget(tree) == 0
    assert build(tree) == set()


def test_compiler_s_messages_name_the_native_folder_s_files(tmp_path: Path) -> None:
    source = "aten/src/ATen/native/Mine.cpp"
    (tmp_path / "build").mkdir()
    (tmp_path / "aten/src/ATen/native").mkdir(parents=True)
    (tmp_path / source).write_text("\nint f() { return missing; }\n")
    rule = "rule cxx\n  command = /usr/bin/env g++ -c $in -o $out\nbuild mine.o: cxx ../" + source + "\n"
    (tmp_path / "build/build.ninja").write_text(rule)
    native = tmp_path / "native"
    with pytest.raises(CompileError) as caught:
        ninja(Configured(tmp_path, ninja_path(), [source], native), 2, StepLine("compile"))
    assert f"{native}/Mine.cpp:2:" in caught.value.what
    assert "was not declared" in caught.value.what


@pytest.fixture
def one_more(tree: Path) -> Configured:
    """The tree after an incremental build with one more operator, and CMake's list of its objects."""
    (tree / "operators").write_text("add mine mul")
    generate(tree)
    build(tree)
    objects = [{"output": f"{name}.o"} for name in sorted(ALL)]
    (tree / "build/compile_commands.json").write_text(json.dumps(objects))
    return Configured(tree, ninja_path(), [], tree)


def test_what_was_left_alone_is_told(one_more: Configured) -> None:
    assert sorted(shuffled_objects(one_more)) == sorted(f"{name}.o" for name in ALL)
    assert set(left_alone(one_more, shuffled_objects(one_more))) == {"method.o", "names.o"}
    (one_more.tree / "method.cpp").touch()
    assert build(one_more.tree) == {"method"}
    assert set(left_alone(one_more, shuffled_objects(one_more))) == {"names.o"}
    forget(one_more.tree)
    assert set(left_alone(one_more, shuffled_objects(one_more))) == set()


def test_object_that_a_whole_build_would_make_otherwise_is_found(one_more: Configured, tmp_path: Path) -> None:
    header = one_more.tree / "build/aten/src/ATen/core/Body.h"
    text = header.read_text()
    assert compare("method.o", tmp_path / "again.o", one_more)
    # Another local function, as when GCC clones one.
    header.write_text(text + "[[gnu::used]] static void clone() {}\n")
    assert not compare("method.o", tmp_path / "again.o", one_more)
    # A declaration that changes the meaning of old code, like a better matching overload.
    header.write_text(text + "#define method other\n")
    with pytest.raises(SourceError, match=r"method\.o: the incremental build skipped it"):
        compare("method.o", tmp_path / "again.o", one_more)


def test_header_of_an_operator_that_is_gone_is_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "build/aten/src/ATen"
    (folder / "ops").mkdir(parents=True)
    for name in ("add", "add_ops", "mine", "mine_cpu_dispatch"):
        (folder / f"ops/{name}.h").write_text("#include <ATen/ops/mine_ops.h>\n")
    (folder / "Functions.h").write_text("#include <ATen/ops/add.h>\n")
    (folder / "Operators.h").write_text("#include <ATen/ops/add_ops.h>\n")
    assert remove_orphans(tmp_path) == 2
    assert sorted(path.name for path in (folder / "ops").iterdir()) == ["add.h", "add_ops.h"]
    assert remove_orphans(tmp_path) == 0
