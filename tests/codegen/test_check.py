"""``make check``: each mistake is found at its place, and valid folders have no findings.

What is left to the compiler (``compiler:`` in broken/) is in test_check_compiler.py, and what is found in generated
code (``generated:``) in test_names.py.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from corpus import BROKEN, RIGHT, files_of, said_of
from graft.check import FOUND, Findings, generator
from graft.check.__main__ import check
from graft.check.base import BaseOperators
from graft.check.derivatives import check_derivatives
from graft.check.functions import check_functions
from graft.codegen import NO_CUDA
from graft.core.errors import BuildError, Finding
from graft.core.layout import REPOSITORY, Layout, TorchVersion
from graft.cpp.functions import canonical
from graft.cpp.sources import read_text
from graft.inputs.entries import read_entries
from graft.inputs.native import load_natives
from graft.inputs.snapshot import take_snapshot


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case["mistake"])
def test_mistake_is_found_at_its_place(case: dict[str, Any], known: BaseOperators, tmp_path: Path) -> None:
    lines = said_of(tmp_path, known, files_of(case))
    if "expect" not in case:
        assert [line for line in lines if " warning: " not in line] == []
        return
    (line,) = lines
    assert line.startswith(case["expect"]) and line.endswith(f" [{case['code']}]")
    assert "; " in line, "a finding says what to write instead"


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case["right"])
def test_what_is_right_has_no_finding(case: dict[str, Any], known: BaseOperators, tmp_path: Path) -> None:
    assert said_of(tmp_path, known, files_of(case)) == []


@pytest.mark.parametrize("name", ["g[r", "9x", "a-b", "a.b.c", "gr\u00f6\u00dfe", "a.b-c", "a b"])
def test_what_is_no_name_is_refused(name: str, known: BaseOperators, tmp_path: Path) -> None:
    (line,) = said_of(tmp_path, known, {"native_functions.yaml": f"- func: {name}(Tensor self) -> Tensor\n"})
    assert line.startswith(f"native_functions.yaml:1:9: `{name}` is not a name of C++ and Python")


def test_there_is_a_corpus() -> None:
    assert len(BROKEN) >= 60
    assert len({case["mistake"] for case in BROKEN}) == len(BROKEN)


@pytest.mark.parametrize(
    "folders", ["native", "tests/wheel/grammar", "native/fixes", "native native/faster native/fixes"]
)
def test_folders_that_build_have_no_mistake(folders: str, known: BaseOperators) -> None:
    assert check(load_natives([REPOSITORY / folder for folder in folders.split()]), known).errors == []


def test_warnings_about_the_grammar_are_expected(known: BaseOperators) -> None:
    """They are on purpose, so `make test` does not show them."""
    found = check(load_natives([REPOSITORY / "tests/wheel/grammar"]), known).found
    said = sorted(f"{each.file.relative_to(REPOSITORY / 'tests/wheel/grammar')}: {each.what}" for each in found)
    assert said == Path(__file__).with_name("grammar_warnings.txt").read_text(encoding="utf-8").splitlines()


def test_pytorch_s_own_entries_have_no_mistake(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An independent oracle: findings in PyTorch's own YAML are false, or known oddities."""
    nothing = BaseOperators(base)
    # Read now: they depend on what is removed next.
    assert nothing.torch_names and nothing.tensor_names
    nothing.schemas, nothing.derivatives, nothing.base_names = {}, {}, set()
    monkeypatch.setattr(nothing, "functions_like", lambda _: [])
    findings, packaged = Findings(), base / "torchgen/packaged"
    report = partial(findings.add, "invalid-yaml")
    entries = read_entries(packaged / "ATen/native/native_functions.yaml", report)
    functions = check_functions(entries, nothing, findings)
    check_derivatives(
        read_entries(packaged / "autograd/derivatives.yaml", report), functions, set(), [], nothing, findings
    )
    assert len(functions) > 2000
    # PyTorch has formulas of operators that also write statistics or noise, which have no gradient.
    odd = ("manual-binding", "formula-for-mutable")
    found = [finding.what for finding in findings.errors if finding.code not in odd]
    # Three arguments are named `from` (torchgen makes exceptions for them), and one_hot has an entry in addition to a
    # composite kernel.
    assert sorted(what.split()[0] for what in found) == ["`from`", "`from`", "`from`", "one_hot"]


@pytest.mark.parametrize(("code", "said"), [(0, "a.yaml:1: warning: odd; look"), (1, "a.yaml:1: wrong; write it")])
def test_what_was_found_right_is_checked_again_when_it_changes(
    code: int, said: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def torchgen(_: object, read: Callable[[str], None], **__: object) -> int:
        calls.append(read)
        what, _, todo = said.removeprefix("a.yaml:1: ").removeprefix("warning: ").partition("; ")
        found = Findings({Finding(Path("a.yaml"), 1, 0, what, todo, is_warning=code == 0)})
        read(f"{FOUND}{found.as_json()}\n")
        return code

    monkeypatch.setattr(generator, "follow", torchgen)
    folder = tmp_path / "my_ops"
    folder.mkdir()
    file = folder / "native_functions.yaml"
    kernel = folder / "A.cpp"
    for path, text in (file, ""), (file, ""), (file, "# another\n"), (kernel, "int a;\n"), (kernel, "int b;\n"):
        path.write_text(text)
        layout = Layout(TorchVersion("2.13.0+cpu"), (folder,), tmp_path)
        monkeypatch.setattr(Layout, "work", tmp_path / "work")
        snapshot = take_snapshot(layout)
        snapshot.lay_out()
        tree: Any = SimpleNamespace(tree=base)
        with pytest.raises(BuildError) if code else nullcontext() as caught:
            made = generator.Generator(layout, snapshot, tree, NO_CUDA)
            made.start()
            made.finish()
        if caught:
            assert str(caught.value) == said
            assert caught.value.findings == (Finding(Path("a.yaml"), 1, 0, "wrong", "write it"),)
    assert len(calls) == (5 if code else 4)
    assert capfd.readouterr().err.count(said) == (0 if code else 4)


@pytest.mark.parametrize(
    ("text", "returns", "parameters"),
    [
        ("const char* f(int n = 1);", "const char*", ("int",)),
        ("Tensor& f(Tensor& self, std::optional<int64_t>);", "Tensor&", ("Tensor&", "std::optional<int64_t>")),
        ("auto f(void) -> std::vector<Tensor>;", "std::vector<Tensor>", ()),
        ("C10_EXPORT Tensor f(bool a, bool b = false, int c = 3);", "Tensor", ("bool", "bool", "int")),
    ],
)
def test_types_of_a_function_are_as_written(text: str, returns: str, parameters: tuple[str, ...]) -> None:
    (found,) = read_text(Path("a.h"), text).declarations
    assert (found.returns, found.parameters) == (returns, parameters)


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        ("at::Tensor const &", "const Tensor&", True),
        ("const at::Tensor & ", "Tensor&", False),
        ("const int64_t", "long", True),
        ("c10::IntArrayRef", "at::ArrayRef<int64_t>", True),
        ("const ::std::optional<at::Tensor> &", "std::optional<Tensor> const&", True),
        ("::std::tuple<at::Tensor &,at::Tensor &>", "std::tuple<Tensor&, Tensor&>", True),
        ("const at::ITensorListRef &", "const IListRef<at::Tensor>&", True),
        ("const SparseTensor&", "const at::Tensor &", True),
        ("[[maybe_unused]] int64_t", "int", False),
        ("std::array<bool,2>", "std::array<bool, 3>", False),
        ("Tensor", "Tensor&", False),
    ],
)
def test_types_are_compared_without_their_spelling(one: str, other: str, are_same: bool) -> None:
    assert (canonical(one) == canonical(other)) is are_same


@pytest.mark.parametrize(
    ("before", "is_told"),
    [
        ("// No AVX512: it is slower.\n", False),
        ("// No AVX512, which is slower\n// on all machines that we have.\n", False),
        ("// A kernel.\n", True),
        ("ALSO_REGISTER_AVX512_DISPATCH(fq_stub, &fq_kernel)\n", True),
    ],
)
def test_comment_says_that_avx512_is_left_out(known: BaseOperators, tmp_path: Path, before: str, is_told: bool) -> None:
    (case,) = (case for case in BROKEN if case["mistake"] == "a vectorized kernel that leaves AVX512 out")
    files = files_of(case)
    files = {name: files[name].replace("REGISTER_", f"{before}REGISTER_") for name in files}
    told = [line for line in said_of(tmp_path, known, files) if "fq_stub uses the AVX2 kernel" in line]
    assert bool(told) == is_told
