"""``make bench-build``: the edits, the copy, and the report. make is replaced; `make bench-peers` builds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from asking import asked
from graft.core.errors import CommandError, UsageError
from graft.core.layout import INTERPRETER, REPOSITORY
from graft.inputs.native import load_native
from helpers import Capture, Patch, program, write

from tests.kit.benchmarks import inline_table
from tests.kit.builds import TimedBuild, bench_build
from tests.kit.edits import edits_of
from tests.kit.timeline import timeline

# A folder with one composite operator.
SMALL = {
    "native_functions.yaml": "- func: only_one(Tensor self) -> Tensor\n",
    "OnlyOne.cpp": "Tensor only_one(const Tensor& self) { return self.mul(2); }\n",
}

# Replaces make: the name of its wheel is a hash of the copy's native folder. It notes what it builds.
MAKE = """[ "$1" = patch-and-build ] || exit 2
for each; do case "$each" in NATIVE=*) native=${each#NATIVE=};; esac; done
rm -rf dist; mkdir dist
wheel=torch-$(cd "$native"; find . -type f | sort | xargs sha256sum | sha256sum | cut -c 1-10).whl
touch dist/$wheel; echo $wheel >> ../built
echo '{"seconds": {"compile and link": 0.001}}' >report.json
log=build/1.0/INTERPRETER/work-1; mkdir -p $log
printf '0\\t1\\t0\\tobjects/native/A.o\\t0\\n' >$log/.ninja_log
""".replace("INTERPRETER", INTERPRETER)
EDITS = ["kernel edited", "documentation edited", "derivative formula edited", "operator added", "operator removed"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path / "small", SMALL)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Replace make. Returns its program."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return program(tmp_path / "bin/make", MAKE)


def bench(folder: Path, native: Path, *only: str, repeat: int | None = None) -> list[TimedBuild]:
    request = asked(pin="1.0", native=(native,), out=folder, jobs=1)
    return bench_build(request, only=only, repeat=repeat, folder=folder / "copy")


def built(folder: Path) -> list[str]:
    return (folder / "built").read_text(encoding="utf-8").split()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_each_edit_changes_its_own_files_each_time(tmp_path: Path) -> None:
    """An operator that is removed leaves the folder as it was."""
    native = Path(shutil.copytree(REPOSITORY / "native", tmp_path / "native"))
    yaml = {"native_functions.yaml", "derivatives.yaml", "samples.py"}
    expected = {
        "kernel edited": [{"cpu/TwicePlusKernel.cpp"}] * 2,
        "slowest kernel edited": [{"cpu/DepthwiseConv2dKernel.cpp"}] * 2,
        "documentation edited": [{"docs/affine.rst"}] * 2,
        "derivative formula edited": [{"derivatives.yaml"}] * 2,
        "operator added": [{*yaml, f"bench_scale_{number}.cpp"} for number in (1, 2)],
        "operator removed": [{*yaml, f"bench_scale_{number}.cpp"} for number in (2, 1)],
    }
    states = [contents(native)]
    for edit in edits_of(load_native(native)):
        for number, names in enumerate(expected.pop(edit.name), 1):
            edit.change(native / (edit.file or ""), number)
            states.append(contents(native))
            before, after = states[-2:]
            assert {name for name in before | after if before.get(name) != after.get(name)} == names, edit.name
    assert expected == {} and states[-1] == states[8]


def test_edits_of_files_that_a_folder_has_not_are_left_out(small: Path) -> None:
    files = [edit.file for edit in edits_of(load_native(small))]
    assert files == [Path("OnlyOne.cpp"), None, None, None, Path(), Path()]
    line = "REGISTER_DISPATCH(a_stub, &a_kernel)\n"
    write(small, {"cpu/A.cpp": line, "cpu/B.cpp": 2 * line})
    assert [edit.file for edit in edits_of(load_native(small))[:2]] == [Path("cpu/A.cpp"), Path("cpu/B.cpp")]


def test_each_row_is_measured_as_often_as_asked(tmp_path: Path, small: Path, make: Path, capsys: Capture) -> None:
    formula = "- name: only_one(Tensor self) -> Tensor\n  self: grad * 2\n"
    write(small, {"docs/only_one.rst": "Twice.\n", "derivatives.yaml": formula})
    names = ["from nothing", "unchanged", *EDITS]
    rows = bench(tmp_path, small, *names, repeat=2)
    assert [(row.name, len(row.seconds)) for row in rows] == [(name, 2) for name in names]
    wheels = built(tmp_path)
    assert len({*wheels[:4]}) == 1
    # Without the operator the folder is the same as before; each other edit gives a wheel of its own.
    assert wheels[-1] == wheels[9] and len({*wheels[4:]}) == len(wheels[4:]) - 2
    said = capsys.readouterr().out
    assert "load average" in said and "| kernel edited (OnlyOne.cpp) | 2 | " in said
    assert not (tmp_path / "copy").exists()
    assert "<title>A.o: 0.0 s</title>" in (tmp_path / "bench-build.svg").read_text(encoding="utf-8")
    (tmp_path / "built").unlink()
    bench(tmp_path, small, "operator removed", repeat=2)
    first, removed, second, again = built(tmp_path)  # it is added before, which is not counted
    assert removed == again and len({first, removed, second}) == 3


def test_timeline_has_a_lane_for_each_core() -> None:
    log = "# ninja log v5\n0\t1500\t0\tobjects/native/A.o\t0\n500\t1900\t0\tobjects/native/B.o\t0\n"
    picture = timeline(log, {"generate": 0.5, "compile and link": 2.0, "pack": 0.5}, 4.0)
    drawn = re.findall(r'x="([\d.]+)" y="(\d+)" width="([\d.]+)".*<title>(.*): ([\d.]+) s</title>', picture)
    assert [(name, seconds) for *_, name, seconds in drawn] == [
        *[("environment", "1.0"), ("generate", "0.5"), ("A.o", "1.5"), ("pack", "0.5"), ("B.o", "1.4")]
    ]
    begins = {name: float(x) / 250 for x, _, _, name, _ in drawn}  # a picture of 4 seconds is 1,000 wide
    assert begins == {"environment": 0.0, "generate": 1.0, "A.o": 1.5, "B.o": 2.0, "pack": 3.5}
    assert len({y for _, y, *_ in drawn}) == 2


@pytest.mark.parametrize(
    ("row", "hashed"), [("kernel edited", "find . -name native_functions.yaml"), ("unchanged", "date +%N >now; ls")]
)
def test_build_with_the_wrong_result_is_an_error(
    tmp_path: Path, small: Path, make: Path, row: str, hashed: str
) -> None:
    program(make, MAKE.replace("find . -type f", hashed))
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


def test_operators_from_text_are_compared_by_medians() -> None:
    calls = {"plain": 2e-6, "plain ratio": 2, "recorded": 3e-6, "recorded ratio": 3}
    rounds = [{"first": n, "first cpu": 2 * n, "edit": n / 2, "edit cpu": n, **calls} for n in (9, 1, 4)]
    lines = inline_table(dict.fromkeys(("graft", "typed", "pch", "no headers"), rounds)).splitlines()
    assert lines[2].startswith("| first operator | 4.0 s (8) |")
    assert lines[3].startswith("| kernel edited | 2.0 s (4) |")
    assert "| 2.0 us (2.0) |" in lines[4] and "| 3.0 us (3.0) |" in lines[5]
    assert {line.count("|") for line in lines} == {6}
