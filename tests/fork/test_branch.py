"""A branch of PyTorch as a native folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from asking import asked
from graft.checkout.branch import import_branch
from graft.core.errors import UsageError
from graft.core.layout import Layout, TorchVersion
from helpers import Capture, beside, git
from small_tree import commit, commit_upstream

NATIVE = "aten/src/ATen/native"
FUNCTIONS, SOURCE, DERIVATIVES = beside(__file__).values()
BEFORE = {
    f"{NATIVE}/native_functions.yaml": FUNCTIONS,
    "tools/autograd/derivatives.yaml": DERIVATIVES,
    f"{NATIVE}/Several.cpp": SOURCE,
    f"{NATIVE}/Several.h": "// a header\n",
    "torch/functional.py": "x = 1\n",
    "torch/_torch_docs.py": "x = 1\ny = 1\n",
    "torch/other.py": "x = 1\n",
    "c10/core/Scalar.h": "// c10\n",
}


@pytest.fixture
def upstream(tree: Path, patches: Path) -> Path:
    """A checkout whose commit is pinned."""
    return commit_upstream(tree, patches, BEFORE)


@pytest.fixture
def into(tmp_path: Path, layout: Layout) -> Path:
    return tmp_path / "imported"


def of_branch(tree: Path, into: Path, changes: dict[str, str]) -> dict[str, str]:
    """Return the imported files of a branch that makes changes."""
    git(tree, "checkout", "--quiet", "-b", "fix")
    commit(tree, changes)
    git(tree, "checkout", "--quiet", "main")
    import_branch(asked(source=str(tree), branch="fix", native=(into,), pin=TorchVersion("1.2.0")))
    return {path.relative_to(into).as_posix(): path.read_text() for path in into.rglob("*") if path.is_file()}


def test_kernel_that_calls_a_changed_function_is_replaced(upstream: Path, into: Path) -> None:
    source = SOURCE.replace("return 2;", "return 1 + 1;")
    files = of_branch(upstream, into, {f"{NATIVE}/Several.cpp": source})
    assert files.keys() == {"native_functions.yaml", "Several.cpp"}
    # Others of the file stay PyTorch's.
    assert "twice_cpu(" in files["Several.cpp"] and "return 1 + 1;" in files["Several.cpp"]
    assert "third_cpu" not in files["Several.cpp"] and "TORCH_META_FUNC" not in files["Several.cpp"]
    assert yaml.safe_load(files["native_functions.yaml"]) == [
        {"func": "twice(Tensor self) -> Tensor", "dispatch": {"CPU": "twice_cpu"}, "replace": True}
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param("return self;", "return +self;", {"add(Tensor self) -> Tensor": None}, id="composite"),
        pytest.param(
            "check(self);",
            "check(self, 1);",
            {"half.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)": {"CPU": "half_out", "CUDA": "half_out"}},
            id="meta function",
        ),
        pytest.param("namespace at::meta {", "// a comment\nnamespace at::meta {", {}, id="comment"),
    ],
)
def test_entries_of_changed_functions(
    upstream: Path, into: Path, old: str, new: str, expected: dict[str, dict[str, str] | None]
) -> None:
    files = of_branch(upstream, into, {f"{NATIVE}/Several.cpp": SOURCE.replace(old, new)})
    entries = yaml.safe_load(files.get("native_functions.yaml", "[]"))
    assert {entry["func"]: entry.get("dispatch") for entry in entries} == expected
    assert all(entry["replace"] is True for entry in entries)


def test_condition_affects_each_kernel_of_the_file(upstream: Path, into: Path) -> None:
    files = of_branch(
        upstream, into, {f"{NATIVE}/Several.cpp": SOURCE.replace("x.h>", "x.h>\n#if TWO\nint two;\n#endif")}
    )
    entries = yaml.safe_load(files["native_functions.yaml"])
    assert {entry["func"].partition("(")[0] for entry in entries} == {"add", "twice", "third", "half.out"}


def test_local_function_is_no_kernel(upstream: Path, into: Path) -> None:
    text = "namespace at::native {\nnamespace {\nvoid add() {}\n}\nstatic void third_cpu() {}\n}\n"
    assert of_branch(upstream, into, {f"{NATIVE}/New.cpp": text}) == {"New.cpp": text}


def test_kernel_is_replaced_though_tags_stay(upstream: Path, into: Path, capsys: Capture) -> None:
    functions = FUNCTIONS.replace("CPU: third_cpu", "CPU: third_cpu\n  tags: core")
    source = SOURCE.replace("self / 3", "self / 3.0")
    files = of_branch(upstream, into, {f"{NATIVE}/native_functions.yaml": functions, f"{NATIVE}/Several.cpp": source})
    (entry,) = yaml.safe_load(files["native_functions.yaml"])
    assert entry == {"func": "third(Tensor self) -> Tensor", "dispatch": {"CPU": "third_cpu"}, "replace": True}
    assert "third: a release keeps its tags" in "".join(capsys.readouterr())


def test_what_a_release_keeps_is_listed(upstream: Path, into: Path, capsys: Capture) -> None:
    functions = FUNCTIONS.replace("- func: add(Tensor self) -> Tensor\n", "").replace("    CUDA: twice_cuda\n", "")
    changes = {
        f"{NATIVE}/native_functions.yaml": functions,
        "tools/autograd/derivatives.yaml": DERIVATIVES.replace("  result: auto_linear\n", ""),
    }
    assert of_branch(upstream, into, changes) == {}
    said = "".join(capsys.readouterr())
    assert "native_functions.yaml: add: a release keeps it" in said
    assert "native_functions.yaml: twice: a release keeps its kernels for CUDA" in said
    assert "derivatives.yaml: twice: a release keeps its formulas for result" in said


def test_docstring_of_a_new_operator(upstream: Path, into: Path) -> None:
    """A graft sets docstrings of new operators itself, and PyTorch allows no second one."""
    doc = 'add_docstr(\n    torch.fourth,\n    r"""\nfourth(input) -> Tensor\n\nWhat it does.\n""",\n)\n'
    changes = {
        f"{NATIVE}/native_functions.yaml": f"{FUNCTIONS}\n- func: fourth(Tensor self) -> Tensor\n",
        "torch/_torch_docs.py": f"x = 1\n{doc}y = 1\n",
    }
    files = of_branch(upstream, into, changes)
    assert files == {
        "native_functions.yaml": "- func: fourth(Tensor self) -> Tensor\n",
        "docs/fourth.rst": "What it does.\n",
    }


def test_new_operator_and_formulas(upstream: Path, into: Path) -> None:
    new = "- func: fourth(Tensor self) -> Tensor\n"
    formulas = DERIVATIVES.replace("grad / 3", "grad / 3.0")
    formulas += "\n- name: fourth(Tensor self) -> Tensor\n  self: grad\n"
    changes = {f"{NATIVE}/native_functions.yaml": f"{FUNCTIONS}\n{new}", "tools/autograd/derivatives.yaml": formulas}
    files = of_branch(upstream, into, {**changes, f"{NATIVE}/Fourth.cpp": "// new\n"})
    assert files["native_functions.yaml"] == new
    assert files["Fourth.cpp"] == "// new\n"
    assert yaml.safe_load(files["derivatives.yaml"]) == [
        {"name": "third(Tensor self) -> Tensor", "self": "grad / 3.0", "replace": True},
        {"name": "fourth(Tensor self) -> Tensor", "self": "grad"},
    ]


def test_other_kernel_of_a_key(upstream: Path, into: Path) -> None:
    changes = {f"{NATIVE}/native_functions.yaml": FUNCTIONS.replace("CPU: third_cpu", "CPU: faster_third")}
    files = of_branch(upstream, into, changes)
    (entry,) = yaml.safe_load(files["native_functions.yaml"])
    assert entry == {"func": "third(Tensor self) -> Tensor", "dispatch": {"CPU": "faster_third"}, "replace": True}


def test_what_has_no_place_is_listed(upstream: Path, into: Path, capsys: Capture) -> None:
    changes = {
        f"{NATIVE}/Several.h": "struct Another {};\n",
        f"{NATIVE}/native_functions.yaml": FUNCTIONS.replace("function, method", "method"),
        "torch/functional.py": "x = 1\ny = 2\n",
        "torch/other.py": "x = 2\n",
        "c10/core/Scalar.h": "// other\n",
        f"{NATIVE}/vulkan/ops/New.cpp": "// new\n",
    }
    assert of_branch(upstream, into, changes) == {"python/functional.py": "y = 2\n"}
    said = "".join(capsys.readouterr())
    for name in (
        *("Several.h", "native_functions.yaml: twice: a release keeps its variants", "torch/other.py"),
        *("c10/core/Scalar.h", "vulkan/ops/New.cpp", "BUILD=source"),
    ):
        assert name in said
    assert "torch/functional.py" not in said


def test_diff(upstream: Path, into: Path, tmp_path: Path) -> None:
    source = upstream / NATIVE / "Several.cpp"
    source.write_text(SOURCE.replace("self / 3", "self / 3.0"))
    diff = tmp_path / "pr.diff"
    diff.write_text(git(upstream, "diff") + "\n")
    git(upstream, "checkout", "--quiet", "--", ".")
    request = asked(source=str(upstream), diff=diff, native=(into,), pin=TorchVersion("1.2.0"))
    import_branch(request)
    assert "third_cpu" in (into / "native_functions.yaml").read_text()
    assert source.read_text() == SOURCE
    with pytest.raises(UsageError, match="there is something already"):
        import_branch(request)


def test_diff_that_does_not_apply(upstream: Path, into: Path, tmp_path: Path) -> None:
    diff = tmp_path / "pr.diff"
    diff.write_text("--- a/torch/other.py\n+++ b/torch/other.py\n@@ -1 +1 @@\n-y = 1\n+y = 2\n")
    with pytest.raises(UsageError, match="does not apply"):
        import_branch(asked(source=str(upstream), diff=diff, native=(into,), pin=TorchVersion("1.2.0")))
    assert not into.exists()


def test_branch_that_is_not_there(upstream: Path, into: Path) -> None:
    with pytest.raises(UsageError, match="no branch nowhere"):
        import_branch(asked(source=str(upstream), branch="nowhere", native=(into,), pin=TorchVersion("1.2.0")))
