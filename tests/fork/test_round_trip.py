"""``make import`` of what ``make export`` wrote gives the native folder again."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from asking import asked
from graft.checkout.branch import import_branch
from graft.core.layout import Layout, TorchVersion
from graft.fork.apply import apply
from graft.fork.export import export
from helpers import git, write
from small_tree import NATIVE, commit_upstream, contents
from test_apply_replacing import ADD, ENTRY, STUB, TREE

REPLACING = {
    "native_functions.yaml": f"{ENTRY}\n# Mine.\n- func: mine(Tensor self) -> Tensor\n",
    "derivatives.yaml": "- name: add(Tensor self) -> Tensor\n  self: grad * 2\n  replace: true\n",
    "Add.cpp": ADD.replace("return self", "return +self"),
    "cpu/AddKernel.cpp": STUB.replace("{}", "{ ours(); }", 1),
}


@pytest.fixture
def upstream(tree: Path, patches: Path) -> Path:
    return commit_upstream(tree, patches, TREE)


def imported(tree: Path, layout: Layout, folder: Path) -> dict[str, bytes]:
    """Return what `make import` writes of the patches that `make export` writes of a fork."""
    fork = apply(tree, layout)
    mails = export(tree, folder / "patches")
    git(tree, "checkout", "--quiet", "-b", "theirs", fork.base)
    git(tree, "-c", "user.name=They", "-c", "user.email=they@x.org", "am", "--quiet", "--keep-cr", *map(str, mails))
    into = folder / "imported"
    import_branch(asked(source=str(tree), branch="theirs", native=(into,), pin=TorchVersion("1.2.0")))
    return contents(into)


def test_folder_of_new_operators(upstream: Path, layout: Layout, native: Path, tmp_path: Path) -> None:
    """But for tests, which no tree has."""
    expected = {name: text.encode() for name, text in NATIVE.items() if not name.startswith("tests/")}
    assert imported(upstream, layout, tmp_path) == expected


def test_folder_that_replaces(upstream: Path, layout: Layout, native: Path, tmp_path: Path) -> None:
    for path in native.rglob("*.*"):
        path.unlink()
    write(native, REPLACING)
    found = imported(upstream, layout, tmp_path)
    lists = {name for name in REPLACING if name.endswith(".yaml")}
    assert {name: found[name].decode() for name in found.keys() - lists} == {
        name: text for name, text in REPLACING.items() if name not in lists
    }
    assert {name: yaml.safe_load(found[name]) for name in lists} == {
        name: yaml.safe_load(REPLACING[name]) for name in lists
    }
