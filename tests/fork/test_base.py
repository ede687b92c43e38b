"""A wheel that was built from the fork as the base of one more operator: what it has already is not added again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from graft.base.fetch import fetch
from graft.codegen.description import Description
from graft.compose.appending import behind, our_files, require_names
from graft.compose.composition import Composition
from graft.core.console import StepLine
from graft.core.errors import MissingError, UsageError
from graft.core.layout import REPOSITORY, TorchVersion
from graft.inputs.patches import Patch, patched
from graft.inputs.pin import load_pin
from helpers import beside, write
from packaging.tags import sys_tags

CASES = beside(__file__)

ADDED = "torch/_added_operators.py"
VERSION = "2.6.0+source.7ceabec3e7"


def test_wheel_that_was_built_names_its_pin_and_is_kept(tmp_path: Path) -> None:
    pin = load_pin(REPOSITORY / "patches/2.6.0", TorchVersion(VERSION))
    assert (pin.version, pin.settings) == (VERSION, load_pin(pin.path.parent).settings)
    given = tmp_path / f"torch-{VERSION}-{next(sys_tags()).interpreter}-none-linux_x86_64.whl"
    given = given.with_name(given.name.replace("-none-", f"-{next(sys_tags()).abi}-"))
    with ZipFile(given, "w") as wheel:
        wheel.writestr("torch/lib/libtorch_cpu.so", "")
    kept = fetch(pin, tmp_path / "base", given, StepLine("fetch"))
    assert kept.read_bytes() == given.read_bytes()
    # `make test` names no file.
    assert fetch(pin, tmp_path / "base", None, StepLine("fetch")) == kept
    with pytest.raises(MissingError, match="no wheel that can be downloaded"):
        fetch(pin, tmp_path / "other", None, StepLine("fetch"))
    with pytest.raises(UsageError, match=r"no wheel of version 2\.13\.0\+other"):
        load_pin(REPOSITORY / "patches/2.13.0", TorchVersion("2.13.0+other"))


def test_patches_of_the_pin_are_in_it_already(tmp_path: Path) -> None:
    series = [Patch(tmp_path / "absent.patch", "Subject: x\n", ("cmake/not_in_a_wheel.cmake",))]
    with pytest.raises(UsageError):
        patched(series, tmp_path, tmp_path / "scratch")
    write(tmp_path, {ADDED: ""})
    assert patched(series, tmp_path, tmp_path / "scratch") == {}


def test_lists_have_the_operators_of_both(tmp_path: Path) -> None:
    first, second = (
        Description([f"aten::{name}"], overloads, functions={name: "lambda x: -1"})
        for name, overloads in (("first", []), ("second", ["aten::second"]))
    )
    composition = Composition(write(tmp_path / "tree", {ADDED: first.module()}), {}, tmp_path / "made")
    composition.insert(None, second)  # type: ignore[arg-type]
    script = f"{composition.text(ADDED)}\nprint(OPERATORS, sorted(FUNCTIONS), OVERLOADS)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "['aten::first', 'aten::second'] ['first', 'second'] {'aten::second'}\n"


@pytest.mark.parametrize(("upstream", "text", "expected"), CASES["texts"])
def test_our_text_is_there_once_and_in_its_place(upstream: str, text: str, expected: list[str]) -> None:
    lines = behind(upstream, text, "ours\n").splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == expected


def test_texts_of_another_builder_are_refused(tmp_path: Path) -> None:
    texts = {name: path.read_text() for name, path in our_files().items()}
    tree = write(tmp_path, {ADDED: "", **texts})
    require_names(tree)
    name = next(iter(texts))
    write(tree, {name: "other = 1\n"})
    with pytest.raises(UsageError, match=f"{name}: this torch was built from the fork by another version of Graft"):
        require_names(tree)
