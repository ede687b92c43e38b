"""Merging YAML: the merged file parses to the base's entries followed by ours, in any form and spelling."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from graft.core.errors import BuildError
from graft.inputs.entries import read_entries
from graft.inputs.merge import MARK, added_list, merge_with_base
from graft.inputs.native import DERIVATIVES, FUNCTIONS, load_native, load_natives
from graft.inputs.spelling import respelled
from helpers import beside, of_the_base_wheel, write
from hypothesis import given, settings
from hypothesis import strategies as st

CASES = beside(__file__)


def added(folder: Path, text: str) -> str:
    """Return what a folder with this list adds to the base's."""
    return added_list(load_native(write(folder, {"native_functions.yaml": text})), FUNCTIONS)


@pytest.mark.parametrize(("text", "message"), CASES["not_lists"])
def test_what_is_not_a_list_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        added(tmp_path, text)


def test_entry_behind_one_that_replaces_pytorch_s_stays(tmp_path: Path) -> None:
    assert added(tmp_path, "- func: a\n  replace: True\n- func: b\n").split() == ["-", "func:", "b"]


TEXT = st.text("ab:#-\n '\"", max_size=12)
ENTRIES = st.lists(st.fixed_dictionaries({"func": TEXT}, optional={"variants": TEXT, "tags": TEXT}), max_size=4)


@settings(deadline=None)
@given(base=ENTRIES.filter(bool), ours=ENTRIES, indent=st.sampled_from(["", "  "]))
def test_merged_file_is_the_base_s_entries_and_then_ours(
    tmp_path_factory: pytest.TempPathFactory, base: list[dict[str, str]], ours: list[dict[str, str]], indent: str
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    for name in ("ATen/native/native_functions.yaml", "autograd/derivatives.yaml"):
        (folder / "base/torchgen/packaged" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "base/torchgen/packaged" / name).write_text(yaml.safe_dump(base))
    text = "".join(f"{indent}{line}\n" for line in (yaml.safe_dump(ours) if ours else "").splitlines())
    natives = load_natives([write(folder / "native", {"native_functions.yaml": text})])
    text = merge_with_base(natives, folder / "base", folder / "wheel")[FUNCTIONS]
    assert (folder / "wheel/torchgen/packaged/ATen/native/native_functions.yaml").read_text() == text
    assert yaml.safe_load(text) == base + ours


def test_lists_of_several_folders_follow_each_other(tmp_path: Path) -> None:
    base = {"ATen/native/native_functions.yaml": "- func: a\n- func: b\n", "autograd/derivatives.yaml": "- name: a\n"}
    tree = write(tmp_path / "base/torchgen/packaged", base).parents[1]
    one = "# comment\n- func: c\n- func: a\n  replace: True\n\n"
    indented = "  - func: d(int a,int b)->()\n    tags: x\n  - func: e"
    texts = (one, "# nothing\n", indented, "- func: b\n  replace: True\n")
    folders = [write(tmp_path / str(n), {"native_functions.yaml": text}) for n, text in enumerate(texts)]
    natives = load_natives(folders)
    merged = merge_with_base(natives, tree, tmp_path / "wheel")
    # There is no derivatives.yaml: the base's is used unchanged.
    assert merged[DERIVATIVES] == "- name: a\n"
    ours = "# comment\n- func: c\n\n\n\n\n- func: d(int a, int b) -> ()\n  tags: x\n- func: e\n"
    assert merged[FUNCTIONS] == f"- func: a\n- func: b\n{MARK}{ours}"
    places = [(entry.operator, entry.file.parent.name, entry.line) for entry in natives.entries(FUNCTIONS)]
    assert places == [("c", "0", 2), ("a", "0", 3), ("d", "2", 1), ("e", "2", 3), ("b", "3", 1)]
    assert [entry.operator for entry in natives.entries(FUNCTIONS, replacing=True)] == ["a", "b"]


@pytest.mark.parametrize(("written", "expected"), CASES["spelling"])
def test_spelling(written: str, expected: str) -> None:
    assert respelled(written) == expected
    assert respelled(expected) == expected


def test_pytorch_s_own_schemas_have_it() -> None:
    folder = of_the_base_wheel("GRAFT_BASE_FOLDER") / "tree/torchgen/packaged/ATen/native"
    entries = read_entries(folder / "native_functions.yaml")
    assert len(entries) > 2000
    assert [entry.written for entry in entries if entry.written != entry.schema] == []


def test_both_files_may_spell_it_otherwise_and_the_wheel_has_one(tmp_path: Path) -> None:
    functions = "# mine\n- func: 'f(Tensor self,int n = 3)->Tensor'\n  variants: function\n"
    write(
        tmp_path, {"native_functions.yaml": functions, "derivatives.yaml": "- name: f(Tensor self, int n=3,)->Tensor\n"}
    )
    schema = "f(Tensor self, int n=3) -> Tensor"
    for name in ("native_functions.yaml", "derivatives.yaml"):
        (entry,) = read_entries(tmp_path / name)
        assert entry.schema == schema and entry.operator == "f"
        assert schema in added_list(load_native(tmp_path), Path(name))
    assert added_list(load_native(tmp_path), Path("native_functions.yaml")) == functions.replace(
        "f(Tensor self,int n = 3)->Tensor", schema
    )
