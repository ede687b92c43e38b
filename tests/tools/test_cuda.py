"""What `make check-cuda` does before and after the compiler."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile, ZipInfo

import pytest

from scripts.base.tree import Base
from scripts.check.cuda import load_cuda_pin, units
from scripts.common.console import StepLine
from scripts.common.errors import FetchError, PinError, UsageError
from scripts.common.layout import REPOSITORY, Layout
from scripts.compile.ninja import relevant
from scripts.inputs import cuda_toolkit as toolkit
from scripts.inputs.cuda_toolkit import Nvcc, lay_out_toolkit, toolkit_requirement
from scripts.inputs.native import load_native, report_left_out
from scripts.inputs.toolchain import Toolchain

HOST = Toolchain("g++", "g++ 12", "c++20")
METADATA = [
    "Name: torch",
    "Requires-Dist: sympy>=1.13.3",
    'Requires-Dist: cuda-toolkit[cudart,cublas]==13.0.3; platform_system == "Linux"',
]


def test_toolkit_is_the_one_that_the_wheel_asks_for_with_a_compiler() -> None:
    assert toolkit_requirement(METADATA) == "cuda-toolkit[cccl,cublas,cudart,nvcc]==13.0.3"
    with pytest.raises(FetchError, match="does not ask for the package cuda-toolkit"):
        toolkit_requirement(METADATA[:2])


def test_only_programs_and_headers_of_the_packages_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(_: str, folder: Path) -> None:
        with ZipFile(folder / "nvidia_cuda_nvcc-13.0.88-py3-none-any.whl", "w") as wheel:
            program = ZipInfo("nvidia/cu13/bin/nvcc")
            program.external_attr = 0o755 << 16
            wheel.writestr(program, "#!/bin/sh\n")
            for name in ("include/cuda.h", "lib/libcudart.so.13", "nvvm/bin/cicc"):
                wheel.writestr(f"nvidia/cu13/{name}", "")

    tree = tmp_path / "tree"
    (tree / "torch-2.0.dist-info").mkdir(parents=True)
    (tree / "torch-2.0.dist-info/METADATA").write_text("\n".join(METADATA))
    monkeypatch.setattr(toolkit, "_download", download)
    base = Base(tmp_path / "torch.whl", tree)
    top = lay_out_toolkit(base, tmp_path / "toolkit", StepLine("toolkit"))
    kept = sorted(path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file())
    assert kept == ["bin/nvcc", "include/cuda.h", "nvvm/bin/cicc"]
    assert (top / "bin/nvcc").stat().st_mode & 0o111
    monkeypatch.delattr(toolkit, "_download")
    assert lay_out_toolkit(base, tmp_path / "toolkit", StepLine("toolkit")) == top


def test_architectures_that_nvcc_does_not_know_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvcc").write_text("#!/bin/sh\necho sm_80; echo sm_90\n")
    (tmp_path / "bin/nvcc").chmod(0o755)
    known = Nvcc(tmp_path, HOST, ("80", "90a"))
    known.require_known_architectures()
    assert "-gencode=arch=compute_90a,code=sm_90a" in known.flags
    with pytest.raises(UsageError, match=r"--arch 70 81: .* does not compile for that") as caught:
        Nvcc(tmp_path, HOST, ("70", "80", "81")).require_known_architectures()
    assert caught.value.todo == "choose among: 80, 90"


def test_pin_of_a_wheel_for_cpus_has_nothing_to_compile_against() -> None:
    (with_cuda,) = (path.parent for path in REPOSITORY.glob("patches/*/pin.yaml") if "\ncuda:" in path.read_text())
    pin = load_cuda_pin(with_cuda)
    assert pin.architectures[-1] == "90a"
    with pytest.raises(PinError, match="only wheels for CPUs are grafted upon"):
        pin.require_wheel_for_cpus()
    with pytest.raises(PinError, match="this pin's wheel is for CPUs") as caught:
        load_cuda_pin(REPOSITORY / "patches/2.13.0")
    assert caught.value.todo == f"set PIN to one of: {with_cuda.name}"


def native_folder(folder: Path) -> Path:
    entry = "- func: a(Tensor self) -> Tensor\n  dispatch:\n    CPU: a_cpu\n    CUDA: a_cuda\n"
    texts = {"native_functions.yaml": entry, "cuda/A.cu": "", "cuda/A.cuh": "", "cuda/B.cpp": "", "C.cpp": ""}
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_sources_of_cuda_and_registrations_are_compiled(tmp_path: Path) -> None:
    native = load_native(native_folder(tmp_path))
    layout = Layout("0.0.0-no-such-pin", (tmp_path,), tmp_path)
    assert [unit.source.as_posix() for unit in units(layout, native)] == [
        "src/ATen/native/cuda/A.cu",
        "src/ATen/native/cuda/B.cpp",
    ]


def test_build_says_what_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report_left_out(load_native(native_folder(tmp_path)))
    said = capsys.readouterr().err
    assert said.endswith("has no CUDA: 1 kernels for CUDA, cuda/A.cu, cuda/A.cuh, cuda/B.cpp\n")


def test_messages_of_nvcc_name_the_folder_s_own_files() -> None:
    output = [
        "FAILED: [code=1] objects/native/cuda/A.cu.o\n",
        'src/ATen/native/cuda/A.cu(12): error: identifier "threadIx" is undefined\n',
        "          detected during instantiation at line 3 of src/ATen/native/cuda/A.cuh\n",
    ]
    assert relevant(output, Path("/my_ops")) == [
        '/my_ops/cuda/A.cu:12: error: identifier "threadIx" is undefined\n',
        "          detected during instantiation at line 3 of /my_ops/cuda/A.cuh\n",
    ]
