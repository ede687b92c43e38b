"""What a working tree of PyTorch changes, as a native folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from graft.checkout.answer import Answer, Question
from graft.checkout.changed_entries import composite_name
from graft.checkout.derive import derive
from graft.checkout.operators import Operators
from graft.checkout.repository import Repository
from graft.checkout.versions import WorkingTree
from graft.core.errors import UsageError
from graft.cpp.statements import Kind, statements
from helpers import beside, compiled, git, write
from small_tree import commit, repository

CASES = beside(__file__)

NATIVE = "aten/src/ATen/native"
FUNCTIONS = f"{NATIVE}/native_functions.yaml"
DERIVATIVES = "tools/autograd/derivatives.yaml"
HELPERS = "torch/csrc/autograd/FunctionsManual"
YAML = "torchgen/packaged/ATen/native/native_functions.yaml"
# A small PyTorch, and sources that some tests add to it.
FILES, BRANCHES, HELPED = (CASES[name] for name in ("files", "branches", "helped"))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return repository(tmp_path / "checkout", FILES)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The installed torch that was built of the first commit, for CPUs."""
    installed = {"torch/functional.py": FILES["torch/functional.py"]}
    installed |= {f"torch/include/{HELPERS}.h": FILES[f"{HELPERS}.h"]}
    return write(tmp_path / "site", {**installed, YAML: FILES[FUNCTIONS]})


def of(checkout: Path, site: Path, *edits: tuple[str, str, str], **files: str) -> Answer:
    """Return what edits of files in the working tree change: of a file, a text that it has once, and another."""
    for name, old, new in edits:
        text = (checkout / name).read_text()
        assert text.count(old) == 1, (name, old)
        write(checkout, {name: text.replace(old, new)})
    write(checkout, files)
    base = git(checkout, "rev-list", "--max-parents=0", "HEAD")
    return derive(Question(WorkingTree(Repository(checkout), base), site))


def entries(answer: Answer, file: str = "native_functions.yaml") -> list[dict[str, object]]:
    return yaml.safe_load(answer.files.get(file, b"[]")) or []


def lines(answer: Answer, name: str) -> dict[int, str]:
    """Return the lines of a file that are not blank, by number."""
    return {number: line for number, line in enumerate(answer.files[name].decode().splitlines(), 1) if line.strip()}


def summary(entry: dict[str, Any]) -> str:
    """Return an entry in a line: the operator's name, and what is there besides its schema and `replace`."""
    more = [f"{key}: {value}" for key, value in entry.items() if key not in ("func", "name", "replace", "dispatch")]
    more += [f"{key}: {kernel}" for key, kernel in entry.get("dispatch", {}).items()]
    return " ".join([entry.get("func", entry.get("name")).partition("(")[0], *more])


@pytest.mark.parametrize("name", CASES["changes"])
def test_what_a_change_makes(tmp_path: Path, site: Path, name: str) -> None:
    case = CASES["changes"][name]
    checkout = repository(tmp_path / "checkout", {**FILES, **case.get("add", {})})
    answer = of(checkout, site, *map(tuple, case["edits"]), **case.get("new", {}))
    for file, key in (("native_functions.yaml", "entries"), ("derivatives.yaml", "formulas")):
        assert [summary(entry) for entry in entries(answer, file)] == case.get(key, [])
    for file, numbered in case.get("numbered", {}).items():
        assert lines(answer, file) == numbered
    for file, texts in case.get("there", {}).items():
        assert [text for text in texts if text not in answer.files[file].decode()] == []
    for file, texts in case.get("gone", {}).items():
        assert [text for text in texts if text in answer.files[file].decode()] == []
    assert bool(answer.files) == any(key in case for key in ("entries", "numbered", "there"))
    assert sorted(answer.files) == case.get("files", sorted(answer.files))
    assert sorted(answer.overlay) == case.get("overlay", []) and sorted(answer.added) == case.get("added", [])
    assert {*case.get("operators", [])} <= {*answer.operators}
    for found, wanted in ((answer.left, case.get("left", {})), (answer.refused, case.get("refused", {}))):
        assert found.keys() == wanted.keys()
        for place, why in wanted.items():
            assert found[place].startswith(why.replace("{tree}", str(checkout)))


def test_kernel_and_entry_are_at_their_lines(checkout: Path, site: Path) -> None:
    answer = of(checkout, site, (f"{NATIVE}/Others.cpp", "self / (n", "self / (1 + n"))
    assert answer.left == {}
    assert entries(answer) == [
        {"func": "third(Tensor self, int n) -> Tensor", "dispatch": {"CPU": "third_cpu"}, "replace": True}
    ]
    whole = (checkout / NATIVE / "Others.cpp").read_text().splitlines()
    found = lines(answer, "Others.cpp")
    assert all(line == whole[number - 1] for number, line in found.items())
    text = "\n".join(found.values())
    assert "third_cpu" in text and "kThree" in text
    assert not any(name in text for name in ("fourth", "count", "only_called", "Counts"))
    assert [*lines(answer, "native_functions.yaml")] == [10]
    assert answer.places["Others.cpp"] == f"{NATIVE}/Others.cpp"


@pytest.mark.parametrize(("old", "new"), CASES["alike"])
def test_what_compiles_alike_builds_nothing(checkout: Path, site: Path, old: str, new: str) -> None:
    edits = [(f"{NATIVE}/Others.cpp", old, new), (FUNCTIONS, "- func: fourth(", "# The fourth.\n- func: fourth(")]
    if "{ namespace" in new:
        edits.append((f"{NATIVE}/Others.cpp", "} // namespace at::native", "}} // namespaces"))
    answer = of(checkout, site, *edits)
    assert (answer.files, answer.left) == ({}, {})


@pytest.mark.parametrize(("old", "new", "there", "gone"), CASES["rules"])
def test_batching_rules(checkout: Path, site: Path, old: str, new: str, there: list[str], gone: list[str]) -> None:
    answer = of(checkout, site, ("aten/src/ATen/functorch/BatchRulesUnaryOps.cpp", old, new))
    text = "\n".join(lines(answer, "BatchRulesUnaryOps.cpp").values())
    assert all(each in text for each in there)
    assert not any(f"{each}" in text.replace("#define RULE(op) VMAP_SUPPORT(op, op ## _rule)", "") for each in gone)


def test_formula_with_a_function_that_the_torch_lacks(checkout: Path, site: Path) -> None:
    """It is not of the branch: upstream added it since."""
    write(site, {f"torch/include/{HELPERS}.h": FILES[f"{HELPERS}.h"].replace("Tensor other_", "// other_")})
    write(site, {f"torch/include/{HELPERS}.h": "Tensor third_backward(const Tensor& grad, int64_t n);\n"})
    answer = of(checkout, site, (DERIVATIVES, "grad / 4", "other_backward(grad)"))
    assert entries(answer, "derivatives.yaml") == [
        {"name": "fourth(Tensor self) -> Tensor", "self": "other_backward(grad)", "replace": True}
    ]
    text = answer.files["FunctionsManual.cpp"].decode()
    assert "other_backward" in text and "scaled" in text and "third_backward" not in text
    assert "other_backward" in answer.files["FunctionsManual.h"].decode()


SHARED, CALLER = f"{NATIVE}/Shared.cpp", f"{NATIVE}/Others.cpp"
WITH_CALLER = {
    f"{NATIVE}/Shared.h": "#pragma once\nnamespace at::native {\nTORCH_API int64_t doubled(int64_t n);\n}\n",
    SHARED: "#include <ATen/native/Shared.h>\nnamespace at::native {\n"
    "TORCH_API int64_t doubled(int64_t n) { return 2 * n; }\nint64_t tripled(int64_t n) { return 3 * n; }\n}\n",
    CALLER: FILES[CALLER]
    .replace("self / (n * kThree)", "self / doubled(n * kThree)")
    .replace("namespace at::native", "#include <ATen/native/Shared.h>\nnamespace at::native", 1),
}


def test_sources_that_call_what_changed(tmp_path: Path, site: Path) -> None:
    """They did not change. The function is defined again, and nothing else of its file."""
    checkout = repository(tmp_path / "checkout", {**FILES, **WITH_CALLER})
    answer = of(checkout, site, (SHARED, "2 * n", "n + n"))
    assert [summary(entry) for entry in entries(answer)] == ["third CPU: third_cpu"]
    assert "doubled" in answer.files["Shared.cpp"].decode() and "tripled" not in answer.files["Shared.cpp"].decode()
    assert "third_cpu" in answer.files["Others.cpp"].decode() and "fourth" not in answer.files["Others.cpp"].decode()
    assert (answer.said, answer.left) == (["also compiled, since they use what changed: Others.cpp"], {})
    # What calls it in a file that changes elsewhere is compiled, too.
    answer = of(checkout, site, (CALLER, "self / 4 * count(self)", "self / 4"))
    assert {summary(entry) for entry in entries(answer)} == {"third CPU: third_cpu", "fourth"} and not answer.said
    answer = of(checkout, site, (CALLER, "self / 4;", "self / 4 * count(self);"), (SHARED, "3 * n", "n * 3"))
    assert answer.left == {f"{SHARED}: tripled": "only PyTorch's own code calls this directly, and keeps PyTorch's"}


def test_sources_that_call_what_calls_it(tmp_path: Path, site: Path) -> None:
    middle = {
        f"{NATIVE}/Middle.h": "#pragma once\nnamespace at::native {\nint64_t fourfold(int64_t n);\n}\n",
        f"{NATIVE}/Middle.cpp": "#include <ATen/native/Middle.h>\n#include <ATen/native/Shared.h>\n"
        "namespace at::native {\nint64_t fourfold(int64_t n) { return 2 * doubled(n); }\n}\n",
        CALLER: WITH_CALLER[CALLER].replace("Shared.h", "Middle.h").replace("doubled", "fourfold"),
    }
    checkout = repository(tmp_path / "checkout", {**FILES, **WITH_CALLER, **middle})
    answer = of(checkout, site, (SHARED, "2 * n", "n + n"))
    assert answer.left == {} and answer.said == ["also compiled, since they use what changed: Middle.cpp, Others.cpp"]
    assert sorted(answer.files) == ["Middle.cpp", "Others.cpp", "Shared.cpp", "native_functions.yaml"]


def test_many_sources_that_call_what_changed(tmp_path: Path, site: Path) -> None:
    callers = {f"{NATIVE}/Caller{i}.cpp": WITH_CALLER[CALLER] for i in range(8)}
    checkout = repository(tmp_path / "checkout", {**FILES, **WITH_CALLER, **callers})
    answer = of(checkout, site, (SHARED, "2 * n", "n + n"))
    why = "9 sources of PyTorch that call it keep PyTorch's; FILES=\"native/Caller0.cpp native/Caller1.cpp "
    assert answer.left[f"{SHARED}: doubled"].startswith(why) and answer.files == {}
    base = git(checkout, "rev-list", "--max-parents=0", "HEAD")
    answer = derive(Question(WorkingTree(Repository(checkout), base), site, files=("native/Others.cpp",)))
    assert sorted(answer.files) == ["Others.cpp", "Shared.cpp", "native_functions.yaml"]


def test_a_function_that_the_code_of_every_operator_calls(checkout: Path, site: Path) -> None:
    write(site, {"torchgen/packaged/autograd/templates/Functions.cpp": "  other_backward(grad);\n"})
    edit = (f"{HELPERS}.cpp", "return scaled(grad)", "return scaled(grad) * 2")
    answer = of(checkout, site, edit)
    assert answer.files == {}
    assert answer.left == {f"{HELPERS}.cpp: other_backward": "the code of every operator calls PyTorch's"}
    answer = of(checkout, site, (f"{HELPERS}.cpp", "grad / n", "other_backward(grad) / n"))
    text = answer.files["FunctionsManual.cpp"].decode()
    assert "static Tensor graft_other_backward(const Tensor& grad)" in text and "graft_other_backward(grad) / n" in text
    (why,) = answer.left.values()
    assert why.endswith("functions for formulas that are built call the new one")


def test_operators_that_the_torch_has_not_or_otherwise_are_refused(checkout: Path, site: Path) -> None:
    theirs = FILES[FUNCTIONS].replace("third(Tensor self, int n)", "third(Tensor self, int n, int m)")
    write(site, {YAML: theirs.partition("- func: fourth")[0]})
    answer = of(
        checkout, site, (f"{NATIVE}/Others.cpp", "kThree = 3", "kThree = 4"), (f"{NATIVE}/Others.cpp", "4 *", "5 *")
    )
    assert "has another schema: third(Tensor self, int n, int m)" in answer.refused["third"]
    assert "lacks this operator" in answer.refused["fourth"]
    assert entries(answer) == []


def test_new_overload_has_no_docstring_of_its_own(checkout: Path, site: Path) -> None:
    doc = 'add_docstr(torch.fourth, "fourth(input) -> Tensor")\n'
    overload = "- func: fourth.n(Tensor self, int n) -> Tensor\n"
    edit = (FUNCTIONS, "- func: fourth(", f"{overload}\n- func: fourth(")
    answer = of(checkout, site, edit, ("torch/functional.py", "x = 1\n", f"x = 1\n{doc}"))
    assert answer.overlay["torch/functional.py"][0].decode() == f"x = 1\n{doc}"
    assert answer.added == set() and "docs/fourth.rst" not in answer.files


def test_empty_file_makes_a_package(checkout: Path, site: Path) -> None:
    answer = of(checkout, site, **{"torch/mine/__init__.py": ""})
    assert answer.overlay == {"torch/mine/__init__.py": (b"", "torch/mine/__init__.py")}
    base = git(checkout, "rev-list", "--max-parents=0", "HEAD")
    thin = derive(Question(WorkingTree(Repository(checkout), base), site, is_whole=False))
    assert (thin.files, thin.overlay) == ({"python/mine/__init__.py": b""}, {})


@pytest.mark.parametrize(
    ("operator", "kernel"),
    [("half", "half"), ("half.Scalar", "half"), ("half.out", "half_out"), ("half.Scalar_out", "half_out")],
)
def test_kernel_of_an_entry_without_dispatch_is_named_as_torchgen_does(operator: str, kernel: str) -> None:
    assert composite_name(operator) == kernel


@pytest.mark.parametrize(("written", "is_left"), CASES["flags"])
def test_source_with_flags_of_its_own(checkout: Path, site: Path, written: str, *, is_left: bool) -> None:
    write(checkout, {"aten/src/ATen/CMakeLists.txt": f"set_source_files_properties({written})\n"})
    git(checkout, "add", "--all")
    answer = of(checkout, site, (f"{NATIVE}/Others.cpp", "self / 4", "self / 5"))
    assert (answer.left.get(f"{NATIVE}/Others.cpp") == "PyTorch's build compiles it with flags of its own") is is_left


@pytest.mark.parametrize("link", ["", "nowhere.cpp"])
def test_deleted_source_is_told_and_an_editor_s_lock_is_none(checkout: Path, site: Path, link: str) -> None:
    (checkout / NATIVE / ".#Others.cpp").symlink_to("somebody@host.1")
    answer = of(checkout, site)
    assert (answer.files, answer.left) == ({}, {})
    (checkout / NATIVE / "Others.cpp").unlink()
    if link:
        (checkout / NATIVE / "Others.cpp").symlink_to(link)
    answer = of(checkout, site)
    assert answer.files == {}
    assert answer.left[f"{NATIVE}/Others.cpp"] == "deleted; the torch that is built on keeps it"


def test_conflict_is_an_error_with_its_line(checkout: Path, site: Path) -> None:
    conflict = "<<<<<<< HEAD\n  return self;\n=======\n  return -self;\n>>>>>>> theirs"
    with pytest.raises(UsageError, match=rf"{checkout}/{NATIVE}/Others\.cpp:21: a merge conflict's marker"):
        of(checkout, site, (f"{NATIVE}/Others.cpp", "  return self;", conflict))


def test_half_typed_python_is_an_error_with_its_line(checkout: Path, site: Path) -> None:
    where = rf"{checkout}/torch/functional\.py:1: not Python: "
    with pytest.raises(UsageError, match=where) as caught:
        of(checkout, site, ("torch/functional.py", "x = 1", "x = (1"))
    assert "torch stays as it is" in caught.value.todo


def test_batching_rules_are_compiled_for_their_headers(tmp_path: Path, site: Path) -> None:
    folder = "aten/src/ATen/functorch"
    rules = FILES[f"{folder}/BatchRulesUnaryOps.cpp"].replace("return 1;", "return first(1);")
    header = "namespace at::functorch {\ninline int first(int x) { return x; }\ninline int other() { return 2; }\n}\n"
    texts = {
        f"{folder}/BatchRulesHelper.h": header,
        f"{folder}/BatchRulesUnaryOps.cpp": f"#include <ATen/functorch/BatchRulesHelper.h>\n{rules}",
    }
    checkout = repository(tmp_path / "rules", {**FILES, **texts})
    write(site, {"torch/include/ATen/functorch/BatchRulesHelper.h": header})
    answer = of(checkout, site, (f"{folder}/BatchRulesHelper.h", "return x;", "return x + 1;"))
    text = answer.files["BatchRulesUnaryOps.cpp"].decode()
    assert "one_rule" in text and "two_rule" not in text
    assert answer.said == ["also compiled, since they use what changed: BatchRulesUnaryOps.cpp"]
    back = (f"{folder}/BatchRulesHelper.h", "return x + 1;", "return x;")
    answer = of(checkout, site, back, (f"{folder}/BatchRulesHelper.h", "return 2;", "return 3;"))
    assert answer.said == ["BatchRulesHelper.h: laid into torch/include; nothing uses what changed there"]


def test_headers_that_no_wheel_has(tmp_path: Path, site: Path) -> None:
    """What needs them is not built, by name; for others, their includes are dropped."""
    includes = "#include <ATen/native/mkldnn/Common.h>\n#include <mkl.h>\n"
    more = "static Tensor inner(const Tensor& self) { return to_ideep(self); }\nstatic ideep::engine engine_of;\n"
    old, new = "  return self / 4 * count(self);", "  return inner(self / 4);"
    texts = {
        f"{NATIVE}/Others.cpp": includes
        + FILES[f"{NATIVE}/Others.cpp"].replace(old, new).replace("Tensor fourth", f"{more}Tensor fourth"),
        f"{NATIVE}/mkldnn/Common.h": "#include <ideep.hpp>\n#include <ATen/native/mkldnn/Common.h>\n"
        "namespace at { Tensor to_ideep(const Tensor& self); }\n",
    }
    checkout = repository(tmp_path / "lacking", {**FILES, **texts})
    answer = of(
        checkout,
        site,
        (f"{NATIVE}/Others.cpp", "self / (n", "self / (1 + n"),
        (f"{NATIVE}/Others.cpp", "inner(self / 4)", "inner(self / 8)"),
    )
    assert [summary(entry) for entry in entries(answer)] == ["third CPU: third_cpu"]
    text = answer.files["Others.cpp"].decode()
    assert "third_cpu" in text and not any(word in text for word in ("mkl", "ideep", "inner", "fourth"))
    why = "it needs ideep.hpp, a header of a library that is inside PyTorch's"
    assert answer.left == {
        f"{NATIVE}/Others.cpp: fourth": why,
        f"{FUNCTIONS}: fourth": "it has no kernel that is built",
    }


def test_macros_that_pytorch_was_built_with(tmp_path: Path, site: Path) -> None:
    """What cannot be compiled with one takes another branch."""
    write(site, {"torch/lib/libtorch_cpu.so": ""})
    flags = (
        'extern const char* const flags; const char* const flags = " -DUSE_PTHREADPOOL -DUSE_XNNPACK -DUSE_FBGEMM ";'
    )
    compiled(flags, site / "torch/lib/libtorch_cpu.so", "-shared", "-fPIC")
    write(site, {"torch/include/fbgemm/Fbgemm.h": ""})
    text = FILES[f"{NATIVE}/Others.cpp"].replace(
        "constexpr int kThree = 3;", "#ifdef USE_XNNPACK\nconstexpr int kThree = 3;\n#endif"
    )
    text = text.replace("  return self / 4", "#if defined(USE_FBGEMM)\n#endif\n  return self / 4")
    checkout = repository(tmp_path / "macros", {**FILES, f"{NATIVE}/Others.cpp": text})
    answer = of(checkout, site, (f"{NATIVE}/Others.cpp", "return self / 4", "return self / 8"))
    assert answer.left == {}
    answer = of(checkout, site, (f"{NATIVE}/Others.cpp", "kThree = 3", "kThree = 4"))
    why = "PyTorch was built with it, and this is not: the torch lacks xnnpack.h"
    assert answer.left == {f"{NATIVE}/Others.cpp: #if USE_XNNPACK": why}


def test_other_kernels_of_an_entry_are_built(checkout: Path, site: Path) -> None:
    """An entry keeps its other kernels; one that has none goes, with those that delegate to it."""
    question = Question(WorkingTree(Repository(checkout), git(checkout, "rev-parse", "HEAD")), site)
    both = {
        "func": "third(Tensor self, int n) -> Tensor",
        "dispatch": {"CPU": "third_cpu", "SparseCPU": "third_sparse"},
    }
    operators = Operators(question, {"third": both, "half.out": {"dispatch": {"CPU": "half_out"}}, "half": {}})
    operators = operators.without({"third_sparse", "half_out"})
    assert operators.entries == {"third": {**both, "dispatch": {"CPU": "third_cpu"}}}
    assert [*operators.left] == [f"{FUNCTIONS}: half.out", f"{FUNCTIONS}: half"]


@pytest.mark.parametrize("text", CASES["statements"])
def test_statements_of_headers_as_pytorchs(text: str) -> None:
    """A macro without a semicolon before a brace; heads of a class, and namespaces, in the branches of an ``#if``."""
    found = statements(text)
    assert [name for each in found if each.kind is Kind.FUNCTION for name in each.names] == ["one", "two"]
    assert all(each.namespace[:1] == ("at",) for each in found if each.kind is Kind.FUNCTION)
    assert [each for each in found if each.kind is Kind.WHOLE] == []


def test_statements_of_every_header_of_the_installed_torch() -> None:
    include = Path(torch.__file__).parent / "include/ATen"
    headers = [path for name in ("native", "cpu/vec", "functorch") for path in (include / name).rglob("*.h")]
    whole = [
        path for path in headers if any(s.kind is Kind.WHOLE for s in statements(path.read_text(encoding="utf-8")))
    ]
    assert len(headers) > 200 and [path for path in whole if "mps" not in path.parts] == []


@pytest.mark.parametrize(("old", "new", "there", "gone"), CASES["branch_edits"])
def test_braces_in_branches_and_comparisons_in_types(
    tmp_path: Path, site: Path, old: str, new: str, there: str, gone: str
) -> None:
    name = f"{NATIVE}/cpu/Branches.cpp"
    answer = of(repository(tmp_path / "branches", {**FILES, name: BRANCHES}), site, (name, old, new))
    text = "\n".join(lines(answer, "cpu/Branches.cpp").values())
    assert there in text and gone not in text
    assert text.count("#if ") == text.count("#endif")


def test_source_without_a_brace_is_left_to_the_compiler(checkout: Path, site: Path) -> None:
    answer = of(checkout, site, (f"{NATIVE}/Others.cpp", "self / (n", "{ self / (n"))
    assert answer.files["Others.cpp"] == (checkout / NATIVE / "Others.cpp").read_bytes()
    assert {str(entry["func"]).partition("(")[0] for entry in entries(answer)} == {"third", "fourth"}


@pytest.mark.parametrize(("name", "old", "new", "line"), CASES["not_yaml"])
def test_what_is_not_yaml_is_an_error_with_its_line(
    checkout: Path, site: Path, name: str, old: str, new: str, line: int
) -> None:
    with pytest.raises(UsageError) as caught:
        of(checkout, site, (name, old, new))
    assert caught.value.what.startswith(f"{checkout / name}:{line}: ")


@pytest.mark.parametrize(("old", "new"), CASES["helped_edits"])
def test_changes_of_what_is_not_named(tmp_path: Path, site: Path, old: str, new: str) -> None:
    """Operators, overloads that go, constants behind others, and conditions around what stays."""
    name = f"{NATIVE}/cpu/Helped.cpp"
    answer = of(repository(tmp_path / "helped", {**FILES, name: HELPED}), site, (name, old, new))
    assert "REGISTER_DISPATCH(half_stub" in "\n".join(lines(answer, "cpu/Helped.cpp").values())


def test_functions_that_macros_define(checkout: Path, site: Path) -> None:
    """Of the file's own macros it is known which functions they define, and what those use."""
    text = """namespace at::native {
int scale() { return 4; }
#define QUARTER(name) Tensor name(const Tensor& self) { return self / scale(); }
#define REGISTERED(op) void op##_kernel(TensorIteratorBase& iter) { run_##op(iter); } \\
  REGISTER_DISPATCH(op##_stub, &op##_kernel)
static void run_half(TensorIteratorBase& iter) { run(iter, 1); }
static void run_full(TensorIteratorBase& iter) { run(iter, 2); }
QUARTER(fourth)
REGISTERED(half)
REGISTERED(full)
}
"""
    name = f"{NATIVE}/Macros.cpp"
    commit(checkout, {name: text})
    base = git(checkout, "rev-parse", "HEAD")

    def edited(old: str, new: str) -> Answer:
        write(checkout, {name: text.replace(old, new)})
        return derive(Question(WorkingTree(Repository(checkout), base), site))

    answer = edited("return 4", "return 8")
    assert [entry["func"] for entry in entries(answer)] == ["fourth(Tensor self) -> Tensor"]
    assert "QUARTER(fourth)" in lines(answer, "Macros.cpp").values()
    assert "REGISTERED(half)" not in lines(answer, "Macros.cpp").values()
    answer = edited("run(iter, 1)", "run(iter, 3)")
    there = lines(answer, "Macros.cpp").values()
    assert "REGISTERED(half)" in there and "REGISTERED(full)" not in there and "QUARTER(fourth)" not in there
    answer = edited("self / scale()", "self * scale()")
    assert [entry["func"] for entry in entries(answer)] == ["fourth(Tensor self) -> Tensor"]
