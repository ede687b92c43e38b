"""Texts that go into PyTorch's own Python files: where, and which names of those files they need."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from graft import stages
from graft.codegen.description import Description
from graft.compose import appending
from graft.compose.appending import our_files, require_names
from graft.compose.composition import Composition, installed_headers
from graft.core.console import Steps
from graft.core.errors import UsageError
from graft.inputs.native import load_natives
from helpers import Patch, beside, refused, write

CASES = beside(__file__)


def test_patch_of_a_stub_is_kept(tmp_path: Path) -> None:
    name = "torch/_C/_nn.pyi"
    tree = write(tmp_path / "tree", {name: "def a() -> int: ...\ndef d() -> int: ...\n"})
    patched = {name: b"def a() -> str: ...\ndef d() -> int: ...\n"}
    composition = Composition(tree, patched, tmp_path / "generated")
    hints = {"nn": {"c": ["def c() -> int: ..."]}}
    composition.insert(None, Description(hints=hints))  # type: ignore[arg-type]
    composition.append({name: "class Own: ...\n"})
    text = composition.text(name) or ""
    assert text.startswith("def a() -> str: ...\ndef c() -> int: ...\ndef d() -> int: ...\n")
    assert text.endswith("class Own: ...\n")
    assert (tree / name).read_text() == "def a() -> int: ...\ndef d() -> int: ...\n"


def test_sources_that_others_include_are_no_headers_of_the_wheel(tmp_path: Path) -> None:
    files = ("lib/impl.cpp", "lib/impl.cc", "lib/impl.h", "lib/impl.inl", "lib/impl.cu")
    includes = "".join(f'#include "{name}"\n' for name in files)
    texts = {"native_functions.yaml": "", "A.cpp": includes, "A.h": "", **dict.fromkeys(files, "")}
    native = load_natives([write(tmp_path / "my_ops", texts)])
    assert {*map(str, native.headers)} == {"A.h", *files}
    found = {name.removeprefix("torch/include/ATen/native/") for name in installed_headers(tmp_path, native)}
    assert found == {"A.h", "lib/impl.h", "lib/impl.inl"}


# The text of every wheel that is a file of its own.
NEW = "torch/_graft.py"

Require = Callable[[str, str | None], list[str]]


@pytest.fixture
def require(tmp_path: Path) -> Require:
    """Check one text after one module. Return the missing names."""

    def missing(text: str, upstream: str | None) -> list[str]:
        folder, path = tmp_path / "tree", tmp_path / "text.py"
        (folder / "torch").mkdir(parents=True)
        if upstream is not None:
            (folder / "torch/module.py").write_text(upstream)
        path.write_text(text)
        try:
            require_names(folder, {"torch/module.py": path})
        except UsageError as error:
            assert "differs from the supported ones" in error.cause
            return [line.partition("`")[2].partition("`")[0] for line in error.what.splitlines()]
        return []

    return missing


@pytest.mark.parametrize(
    ("text", "names"),
    [pytest.param(*row, id=name) for name, row in CASES["names"].items()],
)
def test_each_name_that_upstream_lacks_is_found(require: Require, text: str, names: list[str]) -> None:
    assert require(text, "other = 1\n") == names


@pytest.mark.parametrize("upstream", CASES["upstream"])
def test_what_upstream_defines_is_no_fault(require: Require, upstream: str) -> None:
    assert require("listed.update(x=1)", upstream) == []


@pytest.mark.parametrize("upstream", ["def f():\n    listed = 1", "print(listed)", None])
def test_what_upstream_does_not_bind_at_its_top_is_missing(require: Require, upstream: str | None) -> None:
    assert require("listed.update(x=1)", upstream) == ["listed"]


def test_every_module_and_name_is_reported_with_the_text(tmp_path: Path) -> None:
    error = refused(UsageError, require_names, tmp_path)
    lines = error.what.splitlines()
    files = our_files()
    path = files["torch/overrides.py"]
    assert f"torch/overrides.py: it has no `get_testing_overrides`, which {path} needs" in lines
    assert {line.partition(":")[0] for line in lines} == set(files) - {NEW}


def test_what_was_found_right_is_remembered_until_the_builder_changes(tmp_path: Path, monkeypatch: Patch) -> None:
    text, module, note = (tmp_path / name for name in ("text.py", "torch/module.py", "note"))
    module.parent.mkdir()
    text.write_text("listed.update(x=1)")
    for upstream, is_right in (("other = 1", False), ("listed = {}", True), ("other = 1", True)):
        module.write_text(upstream)
        with nullcontext() if is_right else pytest.raises(UsageError):
            require_names(tmp_path, {"torch/module.py": text}, note)
    monkeypatch.setattr(appending, "hash_of_builder", lambda: "another builder")
    with pytest.raises(UsageError):
        require_names(tmp_path, {"torch/module.py": text}, note)


def test_build_and_check_refuse_such_a_pytorch(tmp_path: Path, monkeypatch: Patch) -> None:
    """Folder, patches and headers are right; the base has no modules."""
    monkeypatch.setattr(stages, "Generator", lambda *_: nullcontext(SimpleNamespace(start=str, finish=str)))
    monkeypatch.setattr(stages, "installed_headers", lambda *_: {})
    monkeypatch.setattr(stages, "_units", lambda *_: None)
    (tmp_path / "tree").mkdir()
    snapshot: Any = SimpleNamespace(series=(), natives=None)
    layout: Any = SimpleNamespace(work=tmp_path, base=tmp_path)
    base: Any = SimpleNamespace(tree=tmp_path / "tree", cuda="")
    with pytest.raises(UsageError, match="get_testing_overrides"):
        stages.check(stages.Job(layout, snapshot, base, 1, Steps()))
    assert not (tmp_path / "required-names").exists()
