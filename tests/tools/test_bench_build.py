"""``make bench-build``: the edits, the copy, and the report; one small folder is really built."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from graft.core.layout import REPOSITORY
from graft.inputs.native import NativeFolder, load_native

from tests.kit.edits import edits_of

# A folder with one composite operator: the smallest build.
SMALL = {
    "native_functions.yaml": "- func: only_one(Tensor self) -> Tensor\n",
    "OnlyOne.cpp": """#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/only_one_native.h>

namespace at::native {

Tensor only_one(const Tensor& self) {
  return self.mul(2);
}

} // namespace at::native
""",
}

# Replaces make: the name of its wheel is a hash of the copy's native folder.
MAKE = """#!/bin/sh
[ "$1" = patch-and-build ] || exit 2
for each; do case "$each" in NATIVE=*) native=${each#NATIVE=};; esac; done
rm -rf dist; mkdir dist
touch "dist/torch-$(cd "$native"; find . -type f | sort | xargs sha256sum | sha256sum | cut -c 1-10).whl"
echo '{"compile": 0.5}' > timings.json
"""
EDITS = ["kernel edited", "documentation edited", "derivative formula edited", "operator added", "operator removed"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    for name, text in SMALL.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def bench_build(folder: Path, *arguments: str | Path, make: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the verb with its files in ``folder``, and with ``make`` as the program make if given."""
    env = dict(os.environ)
    if make:
        (folder / "bin").mkdir()
        (folder / "bin/make").write_text(make, encoding="utf-8")
        (folder / "bin/make").chmod(0o755)
        env["PATH"] = f"{folder / 'bin'}{os.pathsep}{env['PATH']}"
    command = [sys.executable, "-m", "graft", "bench-build", "--copy", folder / "copy", "--json", folder / "json"]
    return subprocess.run(
        [*command, *arguments], cwd=REPOSITORY, env=env, capture_output=True, text=True, encoding="utf-8", check=False
    )


def only(*names: str) -> list[str]:
    return [word for name in names for word in ("--only", name)]


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    report = json.loads((folder / "json").read_text(encoding="utf-8"))
    assert report["processor"] and report["cores"] and report["date"] and "load" in report
    return {row["name"]: row for row in report["rows"]}


def wheels(row: dict[str, Any]) -> list[str]:
    return [run["wheel"] for run in row["runs"]]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def times(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the size and time of every file below ``folder`` except for Python's own."""
    files = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def test_each_edit_changes_its_own_files_and_otherwise_each_time(tmp_path: Path) -> None:
    native = Path(shutil.copytree(REPOSITORY / "native", tmp_path / "native"))
    edited = {}
    for edit in edits_of(load_native(native)):
        assert not edit.left_out
        for number in (1, 2):
            before = contents(native)
            edit.apply(native, number)
            after = contents(native)
            edited[edit.name, number] = {name for name in before | after if before.get(name) != after.get(name)}
    yaml = {"native_functions.yaml", "derivatives.yaml", "samples.py"}
    for number in (1, 2):
        assert edited["kernel edited", number] == {"cpu/TwicePlusKernel.cpp"}
        assert edited["slowest kernel edited", number] == {"cpu/DepthwiseConv2dKernel.cpp"}
        assert edited["documentation edited", number] == {"docs/affine.rst"}
        assert edited["derivative formula edited", number] == {"derivatives.yaml"}
        assert edited["operator added", number] == {*yaml, f"bench_scale_{number}.cpp"}
        assert edited["operator removed", number] == edited["operator added", number]


def test_edits_are_of_code_and_text_that_counts(tmp_path: Path) -> None:
    native = Path(shutil.copytree(REPOSITORY / "native", tmp_path / "native"))
    for edit in edits_of(load_native(native))[:4]:
        edit.apply(native, 7)
        edit.apply(native, 8)
    kernel = (REPOSITORY / "native/cpu/TwicePlusKernel.cpp").read_text(encoding="utf-8")
    edited = (native / "cpu/TwicePlusKernel.cpp").read_text(encoding="utf-8")
    assert edited.startswith(kernel)
    assert re.fullmatch(r"\nnamespace { .* void edited_by_bench_build\(\) { .* = 8; } }\n", edited[len(kernel) :])
    assert "\n\nThe text was edited for measurement 8.\n\n" in (native / "docs/affine.rst").read_text(encoding="utf-8")
    formulas = (native / "derivatives.yaml").read_text(encoding="utf-8")
    assert "  self: (grad.reshape_symint(self.sym_sizes())).mul(8)\n" in formulas


def test_operator_that_is_removed_leaves_the_folder_as_it_was(small: Path) -> None:
    before = contents(small)
    *_, added, removed = edits_of(load_native(small))
    added.apply(small, 1)
    added.apply(small, 2)
    assert {"samples.py", "derivatives.yaml", "bench_scale_2.cpp"} < {*contents(small)}
    removed.apply(small, 1)
    removed.apply(small, 2)
    assert contents(small) == before


def test_what_a_folder_has_not_is_left_out_with_the_reason(small: Path) -> None:
    def reasons(native: NativeFolder) -> dict[str, str]:
        return {edit.name: edit.left_out for edit in edits_of(native) if edit.left_out}

    assert reasons(load_native(small)) == {
        "slowest kernel edited": "the folder has no larger one",
        "documentation edited": "the folder has no docs/*.rst",
        "derivative formula edited": "the folder has no formula for one tensor in derivatives.yaml",
    }
    (small / "cpu").mkdir()
    for name in ("A", "B"):
        (small / f"cpu/{name}.cpp").write_text("// longer\n" * (1 + (name == "B")), encoding="utf-8")
    chosen = [edit.about for edit in edits_of(load_native(small))[:2]]
    assert chosen == ["cpu/A.cpp", "cpu/B.cpp"]


def test_each_row_is_measured_as_often_as_asked_and_the_copy_goes(tmp_path: Path, small: Path) -> None:
    (small / "docs").mkdir()
    (small / "docs/only_one.rst").write_text("Twice.\n", encoding="utf-8")
    (small / "derivatives.yaml").write_text(
        "- name: only_one(Tensor self) -> Tensor\n  self: grad * 2\n", encoding="utf-8"
    )
    arguments = ["--native", small, "--repeat", "2", "--markdown", tmp_path / "md"]
    done = bench_build(tmp_path, *arguments, *only("from nothing", "unchanged", *EDITS), make=MAKE)
    assert done.returncode == 0, done.stderr
    measured = rows(tmp_path)
    assert list(measured) == ["from nothing", "unchanged", *EDITS]
    assert all(len(row["runs"]) == 2 and row["verdict"] for row in measured.values())
    assert len({*wheels(measured["from nothing"]), *wheels(measured["unchanged"])}) == 1
    # Without the operator the folder is the same as before.
    assert wheels(measured["operator removed"])[-1] == wheels(measured["derivative formula edited"])[-1]
    others = [wheel for name in EDITS for wheel in wheels(measured[name])]
    assert len({*others}) == len(others) - 1
    table = (tmp_path / "md").read_text(encoding="utf-8")
    assert "load average" in table and "| operator added (kernel, function and method, formula, samples) " in table
    assert table in done.stdout
    assert not (tmp_path / "copy").exists()


def test_operator_is_there_before_it_is_removed(tmp_path: Path, small: Path) -> None:
    done = bench_build(tmp_path, "--native", small, *only("operator removed"), make=MAKE)
    assert done.returncode == 0, done.stderr
    assert "a build before operator removed, which is not counted" in done.stderr
    assert len({*wheels(rows(tmp_path)["operator removed"])}) == 3


def test_build_that_takes_no_notice_of_an_edit_is_an_error(tmp_path: Path, small: Path) -> None:
    deaf = MAKE.replace("find . -type f", "find . -name native_functions.yaml")
    done = bench_build(tmp_path, "--native", small, *only("kernel edited"), make=deaf)
    assert done.returncode == 10
    assert "error: kernel edited: the build wrote torch-" in done.stderr
    assert not (tmp_path / "copy").exists()


def test_folder_of_somebody_else_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/letter").touch()
    done = bench_build(tmp_path, make=MAKE)
    assert done.returncode == 2
    assert f"error: {tmp_path / 'copy'}: it exists, and was not created by `make bench-build`\n  next: " in done.stderr
    assert (tmp_path / "copy/letter").is_file()


def test_kept_copy_makes_way_for_the_next(tmp_path: Path, small: Path) -> None:
    for _ in range(2):
        shutil.rmtree(tmp_path / "bin", ignore_errors=True)
        done = bench_build(tmp_path, "--native", small, "--keep", *only("unchanged"), make=MAKE)
        assert done.returncode == 0, done.stderr
        assert not (tmp_path / "copy/stale").exists()
        (tmp_path / "copy/stale").mkdir()


def test_rows_are_listed_and_others_refused(tmp_path: Path) -> None:
    listed = bench_build(tmp_path, "--list").stdout
    assert "from nothing                  100 s  the builder's environment" in listed
    assert "slowest kernel edited           6 s  cpu/DepthwiseConv2dKernel.cpp" in listed
    assert "load_inline, TORCH_LIBRARY" in listed
    refused = bench_build(tmp_path, *only("everything"))
    assert refused.returncode == 2
    assert 'error: --only everything: there is no such row\n  next: choose one of "from nothing", ' in refused.stderr
    assert not (tmp_path / "copy").exists()


@pytest.mark.slow
def test_small_folder_is_really_built(tmp_path: Path, small: Path) -> None:
    if "GRAFT_BASE" not in os.environ:
        pytest.skip("a source build has no base wheel to build on")
    base = Path(os.environ["GRAFT_BASE"])
    (wheel,) = base.glob("*.whl")
    watched = [small, *(REPOSITORY / name for name in ("native", "patches", "scripts", "dist"))]
    before = [times(folder) for folder in watched]
    arguments = ["--native", small, "--wheel", wheel, "--pin", base.parents[1].name, "--repeat", "1"]
    done = bench_build(tmp_path, *arguments, *only("from nothing", "unchanged", "kernel edited"))
    assert done.returncode == 0, done.stderr
    measured = rows(tmp_path)
    assert wheels(measured["from nothing"]) == wheels(measured["unchanged"]) != wheels(measured["kernel edited"])
    assert {"check and compile", "pack"} <= {*measured["from nothing"]["runs"][0]["steps"]}
    assert measured["unchanged"]["median"] < measured["kernel edited"]["median"] < measured["from nothing"]["median"]
    assert [times(folder) for folder in watched] == before
    assert not (tmp_path / "copy").exists()
