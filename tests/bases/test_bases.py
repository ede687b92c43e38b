"""Bases other than the usual one: a wheel for CUDA, and another Python.

The wheels are built and inspected, not imported: importing needs 2.5 GB of NVIDIA's packages. `make test-matrix` does
that.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from graft.base.symbols import SymbolFile
from graft.core.layout import REPOSITORY
from graft.core.pythons import find_python
from helpers import architectures

MY_OPS = Path(__file__).with_name("my_ops")
KERNELS = "torch/lib/libtorch_operators_cuda.so"


def build(out: Path, pin: str, python: str, archs: str) -> Path:
    """Build a wheel with `make patch-and-build` and return its path."""
    variables = [f"PIN={pin}", f"PYTHON={python}", f"NATIVE={MY_OPS}", f"OUT={out}", f"CUDA_ARCHS={archs}"]
    # Without the variables of the make that runs these tests.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(
        ["make", "patch-and-build", "ARGS=", "WHEEL=", "BUILD=graft", *variables], cwd=REPOSITORY, check=True, env=env
    )
    (wheel,) = out.glob("*.whl")
    return wheel


def read(wheel: Path, folder: Path) -> dict[str, SymbolFile]:
    """The new libraries of the wheel, and libtorch.so of the base."""
    (base,) = (REPOSITORY / "build").glob(f"{wheel.name.split('-')[1].split('+')[0]}/{wheel.name.split('-')[2]}/base")
    with ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"torch/(_C\..*|lib/libtorch)\.so", name)]
        names += [name for name in archive.namelist() if name == KERNELS]
        for name in names:
            archive.extract(name, folder)
    found = {Path(name).name.split(".")[0]: SymbolFile(folder / name) for name in names}
    return {**found, "base": SymbolFile(base / "tree/torch/lib/libtorch.so")}


@pytest.fixture(scope="module")
def wheel_for_cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("cuda"), "2.14.1", sys.executable, "80 90a")


@pytest.fixture(scope="module")
def libraries(wheel_for_cuda: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, SymbolFile]:
    return read(wheel_for_cuda, tmp_path_factory.mktemp("libraries"))


def test_umbrella_loads_what_the_base_s_loads_and_the_kernels(libraries: dict[str, SymbolFile]) -> None:
    ours, theirs = libraries["libtorch"].dynamic(), libraries["base"].dynamic()
    assert {name for name in theirs["DT_NEEDED"] if "torch" in name} <= set(ours["DT_NEEDED"])
    assert Path(KERNELS).name in ours["DT_NEEDED"]
    assert ours["DT_RPATH"] == theirs["DT_RPATH"]


def test_kernels_are_compiled_for_each_architecture(libraries: dict[str, SymbolFile]) -> None:
    assert architectures(libraries["libtorch_operators_cuda"].path) == {"sm_80", "sm_90a"}


def test_dispatch_table_gets_the_kernel(libraries: dict[str, SymbolFile]) -> None:
    """The library registers it when it is loaded, under the name of its source."""
    kernels = libraries["libtorch_operators_cuda"]
    content = kernels.path.read_bytes()
    assert b"generated/units/scaled_shift/cuda/RegisterCUDA.cpp" in content
    assert "_ZN2at4cuda12scaled_shiftERKNS_6TensorERKN3c106ScalarES7_" in kernels.exported()
    assert "libtorch_cuda.so" in kernels.dynamic()["DT_NEEDED"]
    assert "libcudart.so.13" in kernels.dynamic()["DT_NEEDED"]
    assert b"scaled_shift" in content


def test_kernels_call_what_the_folder_has_for_all_devices(libraries: dict[str, SymbolFile]) -> None:
    check = "_ZN2at6native18check_scaled_shiftERKNS_6TensorE"
    assert check in libraries["libtorch"].exported()
    assert check not in libraries["libtorch_operators_cuda"].exported()


def test_wheel_for_another_python(tmp_path: Path) -> None:
    """A wheel of 2.13.0 without CUDA kernels: calling one raises an error that explains it."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    others = (find_python(release) for release in ("3.12", "3.13", "3.10", "3.11") if release != here)
    python = next((found for found in others if found), None)
    if python is None:
        pytest.skip("there is no other Python from 3.10 to 3.13")
    wheel = build(tmp_path / "dist", "2.13.0", str(python.path), "none")
    tag = f"cp{python.release.replace('.', '')}"
    assert f"-{tag}-{tag}-manylinux_2_28_x86_64" in wheel.name
    found = read(wheel, tmp_path / "libraries")
    assert f"cpython-{tag.removeprefix('cp')}" in found["_C"].path.name
    assert "libtorch_operators_cuda" not in found
    assert b"its kernel for CUDA is not in this torch" in found["libtorch"].path.read_bytes()
