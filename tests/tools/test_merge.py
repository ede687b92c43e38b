"""Merging YAML: the merged file parses to the base's entries followed by ours, in any form."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from graft.codegen.merge import entries_text, merge
from graft.core.errors import OperatorError
from graft.inputs.native import load_native
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
        ("- func: f\n - func: g\n", r":2:2: not YAML"),
        ("func: f\n", r":1: expected a list of entries, but got dict"),
        ("[{func: f}]\n", r":1: the list cannot follow PyTorch's own"),
        ("- func: f\n- hello\n", r":2: an entry needs the key `func`, but it is not a mapping"),
        ("- fun: f\n  tags: g\n", r":1: an entry needs the key `func`, but it has fun, tags"),
        ("---\n- func: f\n", r":1: the list cannot follow PyTorch's own"),
    ],
)
def test_what_is_not_a_list_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        entries_text(written(tmp_path, text))


@pytest.mark.parametrize("text", ["", "# only a comment\n", "\n\n"])
def test_file_without_entries_adds_nothing(tmp_path: Path, text: str) -> None:
    assert entries_text(written(tmp_path, text)) == ""


def test_indented_list_follows_the_base_s(tmp_path: Path) -> None:
    assert yaml.safe_load(entries_text(written(tmp_path, "  - func: f\n    tags: x"))) == [{"func": "f", "tags": "x"}]


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
    functions, _ = merge(load_native(native), folder / "base", folder / "wheel")
    assert functions.path == folder / "wheel/torchgen/packaged/ATen/native/native_functions.yaml"
    assert yaml.safe_load(functions.path.read_text()) == base + ours


def test_offset_leads_from_a_merged_line_to_the_native_folder_s(tmp_path: Path) -> None:
    for name in ("ATen/native/native_functions.yaml", "autograd/derivatives.yaml"):
        (tmp_path / "base/torchgen/packaged" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "base/torchgen/packaged" / name).write_text("- func: a\n- func: b\n")
    (tmp_path / "native").mkdir()
    written(tmp_path / "native", "# comment\n- func: wanted\n")
    functions, derivatives = merge(load_native(tmp_path / "native"), tmp_path / "base", tmp_path / "wheel")
    lines = functions.path.read_text().splitlines()
    assert functions.source == tmp_path / "native/native_functions.yaml"
    # There is no derivatives.yaml: the base's is used unchanged.
    assert derivatives.path.read_text() == "- func: a\n- func: b\n"
    assert lines.index("- func: wanted") + 1 - functions.offset == 2
