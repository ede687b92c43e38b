"""``make bench-build``: the edits, the copy, and the report; one small folder is really built."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from asking import asked
from graft.core.errors import CommandError, UsageError
from graft.core.layout import REPOSITORY
from graft.inputs.native import load_native

from tests.kit.builds import TimedBuild, bench_build
from tests.kit.edits import add_operator, edits_of, remove_operator

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

# Replaces make: the name of its wheel is a hash of the copy's native folder. It notes what it builds.
MAKE = """#!/bin/sh
[ "$1" = patch-and-build ] || exit 2
for each; do case "$each" in NATIVE=*) native=${each#NATIVE=};; esac; done
rm -rf dist; mkdir dist
wheel=torch-$(cd "$native"; find . -type f | sort | xargs sha256sum | sha256sum | cut -c 1-10).whl
touch dist/$wheel; echo $wheel >> ../built
"""
EDITS = ["kernel edited", "documentation edited", "derivative formula edited", "operator added", "operator removed"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    for name, text in SMALL.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace make. Returns its program."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/make").write_text(MAKE, encoding="utf-8")
    (tmp_path / "bin/make").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "bin/make"


def bench(folder: Path, native: Path, *only: str, repeat: int | None = None) -> list[TimedBuild]:
    request = asked(pin="1.0", native=(native,), out=folder, jobs=1)
    return bench_build(request, only=only, repeat=repeat, folder=folder / "copy")


def built(folder: Path) -> list[str]:
    return (folder / "built").read_text(encoding="utf-8").split()


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
        assert edit.file is not None
        for number in (1, 2):
            before = contents(native)
            edit.change(native / edit.file, number)
            after = contents(native)
            edited[edit.name, number] = {name for name in before | after if before.get(name) != after.get(name)}
    yaml = {"native_functions.yaml", "derivatives.yaml", "samples.py"}
    for number in (1, 2):
        assert edited["kernel edited", number] == {"cpu/TwicePlusKernel.cpp"}
        assert edited["slowest kernel edited", number] == {"cpu/DepthwiseConv2dKernel.cpp"}
        assert edited["documentation edited", number] == {"docs/affine.rst"}
        assert edited["derivative formula edited", number] == {"derivatives.yaml"}
        assert edited["operator added", number] == {*yaml, f"bench_scale_{number}.cpp"}
        assert edited["operator removed", number] == edited["operator added", 3 - number]


def test_edits_are_of_code_and_text_that_counts(tmp_path: Path) -> None:
    native = Path(shutil.copytree(REPOSITORY / "native", tmp_path / "native"))
    for edit in edits_of(load_native(native))[:4]:
        assert edit.file is not None
        edit.change(native / edit.file, 7)
        edit.change(native / edit.file, 8)
    kernel = (REPOSITORY / "native/cpu/TwicePlusKernel.cpp").read_text(encoding="utf-8")
    edited = (native / "cpu/TwicePlusKernel.cpp").read_text(encoding="utf-8")
    assert edited.startswith(kernel)
    assert re.fullmatch(r"\nnamespace { .* void edited_by_bench_build\(\) { .* = 8; } }\n", edited[len(kernel) :])
    assert "\n\nThe text was edited for measurement 8.\n\n" in (native / "docs/affine.rst").read_text(encoding="utf-8")
    formulas = (native / "derivatives.yaml").read_text(encoding="utf-8")
    assert "  self: (grad.reshape_symint(self.sym_sizes())).mul(8)\n" in formulas


def test_operator_that_is_removed_leaves_the_folder_as_it_was(small: Path) -> None:
    before = contents(small)
    add_operator(small, 1)
    add_operator(small, 2)
    assert {"samples.py", "derivatives.yaml", "bench_scale_2.cpp"} < {*contents(small)}
    remove_operator(small, 1)
    remove_operator(small, 2)
    assert contents(small) == before


def test_edits_of_files_that_a_folder_has_not_are_left_out(small: Path) -> None:
    files = [edit.file for edit in edits_of(load_native(small))]
    assert files == [Path("OnlyOne.cpp"), None, None, None, Path(), Path()]
    (small / "cpu").mkdir()
    for name in ("A", "B"):
        text = "REGISTER_DISPATCH(a_stub, &a_kernel)\n" * (1 + (name == "B"))
        (small / f"cpu/{name}.cpp").write_text(text, encoding="utf-8")
    assert [edit.file for edit in edits_of(load_native(small))[:2]] == [Path("cpu/A.cpp"), Path("cpu/B.cpp")]


def test_each_row_is_measured_as_often_as_asked(
    tmp_path: Path, small: Path, make: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small / "docs").mkdir()
    (small / "docs/only_one.rst").write_text("Twice.\n", encoding="utf-8")
    (small / "derivatives.yaml").write_text(
        "- name: only_one(Tensor self) -> Tensor\n  self: grad * 2\n", encoding="utf-8"
    )
    rows = bench(tmp_path, small, "from nothing", "unchanged", *EDITS, repeat=2)
    assert [(row.name, len(row.seconds)) for row in rows] == [
        (name, 2) for name in ("from nothing", "unchanged", *EDITS)
    ]
    wheels = built(tmp_path)
    assert len({*wheels[:4]}) == 1
    # Without the operator the folder is the same as before; each other edit gives a wheel of its own.
    assert wheels[-1] == wheels[9] and len({*wheels[4:]}) == len(wheels[4:]) - 2
    report = json.loads((tmp_path / "bench-build.json").read_text(encoding="utf-8"))
    assert "load average" in report["title"] and report["rows"][0]["seconds"] == rows[0].seconds
    assert "| kernel edited (OnlyOne.cpp) | 2 | " in capsys.readouterr().out
    assert not (tmp_path / "copy").exists()


def test_operator_is_there_before_it_is_removed(tmp_path: Path, small: Path, make: Path) -> None:
    bench(tmp_path, small, "operator removed", repeat=2)
    first, removed, second, again = built(tmp_path)
    assert removed == again and len({first, removed, second}) == 3


@pytest.mark.parametrize(
    ("row", "hashed"), [("kernel edited", "find . -name native_functions.yaml"), ("unchanged", "date +%N >now; ls")]
)
def test_build_with_the_wrong_result_is_an_error(
    tmp_path: Path, small: Path, make: Path, row: str, hashed: str
) -> None:
    make.write_text(MAKE.replace("find . -type f", hashed), encoding="utf-8")
    with pytest.raises(CommandError, match=f"{row}: the build wrote torch-"):
        bench(tmp_path, small, row)
    assert not (tmp_path / "copy").exists()


def test_rows_are_listed_and_others_refused(tmp_path: Path, small: Path) -> None:
    command = [sys.executable, "-m", "tests.kit", "bench-build", "--list"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert "from nothing                  100 s\n" in listed
    assert "slowest kernel edited           6 s  cpu/DepthwiseConv2dKernel.cpp\n" in listed
    with pytest.raises(UsageError, match="--only everything: there is no such row"):
        bench(tmp_path, small, "everything")


@pytest.mark.slow
def test_small_folder_is_really_built(tmp_path: Path, small: Path) -> None:
    if "GRAFT_BASE" not in os.environ:
        pytest.skip("a source build has no base wheel to build on")
    base = Path(os.environ["GRAFT_BASE"])
    (wheel,) = base.glob("*.whl")
    watched = [small, *(REPOSITORY / name for name in ("native", "patches", "scripts", "dist"))]
    before = [times(folder) for folder in watched]
    request = asked(pin=base.parents[1].name, native=(small,), out=tmp_path, wheel=wheel, jobs=2)
    only = ("from nothing", "unchanged", "kernel edited", "develop, operator added")
    rows = bench_build(request, only=only, repeat=1, folder=tmp_path / "copy")
    nothing, unchanged, kernel, _ = (row.seconds[0] for row in rows)
    assert unchanged < kernel < nothing
    assert [times(folder) for folder in watched] == before
    assert not (tmp_path / "copy").exists()
