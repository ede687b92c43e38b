"""Merging YAML: the merged file parses to the base's entries followed by ours, in any form."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from graft.core.errors import OperatorError
from graft.inputs.merge import added_list, merge_with_base
from graft.inputs.native import DERIVATIVES, FUNCTIONS
from helpers import write
from hypothesis import given, settings
from hypothesis import strategies as st


def written(folder: Path, text: str) -> Path:
    path = folder / "native_functions.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- func: f\n  bad: [\n", r":3:1: not YAML"),
        ("- func: f\n - func: g\n", r":2:2: line 2 is indented by 1, its siblings by 0; "),
        ("func: f\n", r":1: not a list of entries; start each entry with `- `"),
        ("[{func: f}]\n", r":1: the list is in brackets, or a document of its own; start each entry with `- `"),
        ("- func: f\n- hello\n", r":2:3: this entry is not a mapping; write `- func: "),
        ("- fun: f\n  tags: g\n", r":1: an entry needs the key `func`; start it with `- func: `"),
        ("---\n- func: f\n", r":1: the list is in brackets, or a document of its own; start each entry with `- `"),
    ],
)
def test_what_is_not_a_list_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        added_list(written(tmp_path, text))


@pytest.mark.parametrize("text", ["", "# only a comment\n", "\n\n"])
def test_file_without_entries_adds_nothing(tmp_path: Path, text: str) -> None:
    assert added_list(written(tmp_path, text)) == ""


def test_indented_list_follows_the_base_s(tmp_path: Path) -> None:
    assert yaml.safe_load(added_list(written(tmp_path, "  - func: f\n    tags: x"))) == [{"func": "f", "tags": "x"}]


TEXT = st.text("ab:#-\n '\"", max_size=12)
ENTRIES = st.lists(
    st.fixed_dictionaries({"func": TEXT}, optional={"variants": TEXT, "tags": TEXT}),
    max_size=4,
)


@settings(deadline=None)
@given(base=ENTRIES.filter(bool), ours=ENTRIES, indent=st.sampled_from(["", "  "]))
def test_merged_file_is_the_base_s_entries_and_then_ours(
    tmp_path_factory: pytest.TempPathFactory, base: list[dict[str, str]], ours: list[dict[str, str]], indent: str
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    for name in ("ATen/native/native_functions.yaml", "autograd/derivatives.yaml"):
        (folder / "base/torchgen/packaged" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "base/torchgen/packaged" / name).write_text(yaml.safe_dump(base))
    native = folder / "native"
    native.mkdir()
    text = yaml.safe_dump(ours) if ours else ""
    written(native, "".join(f"{indent}{line}\n" for line in text.splitlines()))
    text = merge_with_base([native], folder / "base", folder / "wheel")[FUNCTIONS].text
    assert (folder / "wheel/torchgen/packaged/ATen/native/native_functions.yaml").read_text() == text
    assert yaml.safe_load(text) == base + ours


def test_each_merged_line_leads_to_its_file_and_line(tmp_path: Path) -> None:
    base = {"ATen/native/native_functions.yaml": "- func: a\n- func: b\n", "autograd/derivatives.yaml": "- name: a\n"}
    tree = write(tmp_path / "base/torchgen/packaged", base).parents[1]
    one = write(tmp_path / "one", {"native_functions.yaml": "# comment\n- func: c\n\n"})
    two = write(tmp_path / "two", {"native_functions.yaml": "  - func: d\n    tags: x\n  - func: e"})
    none = write(tmp_path / "none", {"native_functions.yaml": "# nothing\n"})
    merged = merge_with_base([one, none, two], tree, tmp_path / "wheel")
    functions, derivatives = merged[FUNCTIONS], merged[DERIVATIVES]
    # There is no derivatives.yaml: the base's is used unchanged.
    assert derivatives.text == "- name: a\n"
    assert [entry["func"] for entry in yaml.safe_load(functions.text)] == ["a", "b", "c", "d", "e"]
    files = {tree / "torchgen/packaged/ATen/native/native_functions.yaml", *(each / FUNCTIONS for each in (one, two))}
    found = set()
    for number, line in enumerate(functions.text.splitlines(), 1):
        file, there = functions.place(number)
        if line.startswith(("-", "  ")):
            assert file.read_text().splitlines()[there - 1].strip() == line.strip()
            found.add(file)
    assert found == files
