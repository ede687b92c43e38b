"""A branch of PyTorch as a native folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from asking import asked
from graft.checkout.branch import import_branch
from graft.core.errors import UsageError
from graft.core.layout import Layout
from helpers import Capture, beside, git
from small_tree import commit_upstream, import_into, of_branch

NATIVE = "aten/src/ATen/native"
CASES = beside(__file__)
FUNCTIONS, SOURCE, DERIVATIVES = (CASES[name] for name in ("functions", "source", "derivatives"))
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


@pytest.mark.parametrize("name", CASES["branches"])
def test_what_is_imported_of_a_branch(upstream: Path, into: Path, capsys: Capture, name: str) -> None:
    branch, changes = CASES["branches"][name], {}
    for file, old, new in branch["edits"]:
        text = changes.get(file, BEFORE.get(file, ""))
        assert not old or text.count(old) == 1, old
        changes[file] = text.replace(old, new) if old else text + new
    files = of_branch(upstream, into, changes)
    said = "".join(capsys.readouterr())
    assert [line for line in branch.get("said", []) if line not in said] == []
    assert "torch/functional.py" not in said
    found = {name: yaml.safe_load(text) for name, text in files.items() if name.endswith(".yaml")}
    for list_name, entries in branch.get("lists", {}).items():
        if isinstance(entries[0], str):  # their names alone
            found[list_name] = [entry["func"].partition("(")[0] for entry in found[list_name]]
    assert found == branch.get("lists", {})
    assert sorted(files.keys() - found.keys()) == branch.get("others", [])
    for other in branch.get("others", []):
        change = changes.get(f"{NATIVE}/{other}", "y = 2\n")
        assert files[other] == change or other == "Several.cpp"


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


def test_diff(upstream: Path, into: Path, tmp_path: Path) -> None:
    source = upstream / NATIVE / "Several.cpp"
    source.write_text(SOURCE.replace("self / 3", "self / 3.0"))
    diff = tmp_path / "pr.diff"
    diff.write_text(git(upstream, "diff") + "\n")
    git(upstream, "checkout", "--quiet", "--", ".")
    assert b"third_cpu" in import_into(into, upstream, diff=diff)["native_functions.yaml"]
    assert source.read_text() == SOURCE
    with pytest.raises(UsageError, match="there is something already"):
        import_into(into, upstream, diff=diff)


def test_what_to_import_is_asked_for_first(tmp_path: Path) -> None:
    """NATIVE may be the default then: a folder that is there."""
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match="what to import is not given"):
        import_branch(asked(native=(tmp_path,)))


def test_diff_that_does_not_apply(upstream: Path, into: Path, tmp_path: Path) -> None:
    diff = tmp_path / "pr.diff"
    diff.write_text("--- a/torch/other.py\n+++ b/torch/other.py\n@@ -1 +1 @@\n-y = 1\n+y = 2\n")
    with pytest.raises(UsageError, match="does not apply"):
        import_into(into, upstream, diff=diff)
    assert not into.exists()


def test_branch_that_is_not_there(upstream: Path, into: Path) -> None:
    with pytest.raises(UsageError, match="no branch nowhere"):
        import_into(into, upstream, branch="nowhere")
