"""Compiling for CUDA: the toolkit and its architectures; and builds without them."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile, ZipInfo

import pytest
from graft.base.base import Base, Library
from graft.codegen import FRAGMENTS, MISSING
from graft.compile import cuda as compile_cuda
from graft.compile.cuda import Cuda, Nvcc, find_nvcc, plan_cuda
from graft.compile.messages import relevant
from graft.compile.units import CXX, NVCC, OPERATORS_FOR_CUDA, Planner, products, thin_products
from graft.core import layout as layout_module
from graft.core.console import StepLine
from graft.core.errors import FetchError, UsageError
from graft.core.layout import REPOSITORY, Layout, TorchVersion
from graft.core.pip import MissingError
from graft.inputs import toolchain
from graft.inputs.native import NativeFolders, load_natives
from graft.inputs.pin import load_pin
from graft.inputs.toolchain import NO_GPU, Toolchain, architectures_in, wanted_architectures
from helpers import write

HOST = Toolchain("g++", "g++ 12", "c++20")
PIN = load_pin(REPOSITORY / "patches/2.14.1")
SAYS = "#!/bin/sh\ncase $1 in --version) echo 'release 13.0, V13.0.88';; *) echo sm_80; echo sm_90;; esac\n"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings for CUDA of the user who runs the tests are ignored."""
    monkeypatch.delenv("CUDA_HOME", raising=False)


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    """A toolkit whose nvcc knows two architectures."""
    folder = tmp_path / "toolkit"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/nvcc").write_text(SAYS)
    (folder / "bin/nvcc").chmod(0o755)
    return folder


def base_for(cuda: str, folder: Path) -> Base:
    """A base with that version of CUDA, or without CUDA."""
    (folder / "torch/lib").mkdir(parents=True)
    value = f"'{cuda}'" if cuda else "None"
    (folder / "torch/version.py").write_text(f"__version__ = '2.14.1'\ncuda: Optional[str] = {value}\n")
    (folder / "torch/lib/libtorch_python.so").write_bytes(b"\0sm_80 sm_90\0")
    return Base(folder / "torch.whl", folder)


def native_folder(folder: Path) -> NativeFolders:
    entry = "- func: a(Tensor self) -> Tensor\n  dispatch:\n    CPU: a_cpu\n    CUDA: a_cuda\n"
    texts = {"native_functions.yaml": entry, "cuda/A.cu": "", "cuda/A.cuh": "", "cuda/B.cpp": "", "C.cpp": ""}
    return load_natives([write(folder, texts)])


def plan(base: Base, folder: Path, wanted: str = "", *, is_required: bool = False) -> Cuda:
    snapshot: Any = SimpleNamespace(pin=PIN, toolchain=HOST)
    return plan_cuda(snapshot, base, native_folder(folder), wanted, is_required=is_required)


def test_architectures_are_written_in_several_ways() -> None:
    assert wanted_architectures("") == ()
    for text in ("80 90a", "8.0,9.0a", "sm_80, sm_90a"):
        assert wanted_architectures(text) == ("80", "90a")
    assert wanted_architectures("none") == ("none",)


@pytest.mark.parametrize("text", ["hopper", "80 none", "8", "90b", "1.2.3.4"])
def test_what_is_no_architecture_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"CUDA_ARCHS={text}: .* is not a GPU architecture"):
        wanted_architectures(text)


def test_architectures_that_nvcc_does_not_know_are_refused(toolkit: Path) -> None:
    known = Nvcc(toolkit, HOST, ("80", "90a"))
    known.require_known_architectures()
    assert "-gencode=arch=compute_90a,code=sm_90a" in known.flags
    with pytest.raises(UsageError, match=r"^CUDA_ARCHS=70 81: this nvcc does not support it") as caught:
        Nvcc(toolkit, HOST, ("70", "80", "81")).require_known_architectures()
    assert caught.value.todo == "choose among: 80, 90; or none"


def test_cuda_home_is_taken_if_it_is_of_the_base_s_version(toolkit: Path, tmp_path: Path) -> None:
    nvcc = find_nvcc(PIN, base_for("13.0", tmp_path / "tree"), HOST, "", StepLine("toolkit"), str(toolkit))
    assert (nvcc.folder, nvcc.architectures) == (toolkit, ("80", "90"))
    # Another version is not used, and the pins have no toolkit of 99.1.
    with pytest.raises(MissingError, match=r"cuda-toolkits\.yaml: it has no packages for CUDA 99\.1") as caught:
        find_nvcc(PIN, base_for("99.1", tmp_path / "other"), HOST, "", StepLine("toolkit"), str(toolkit))
    assert "CUDA_HOME to a toolkit of CUDA 99.1" in caught.value.todo
    assert "make pin TORCH=2.14.1" in caught.value.todo
    with pytest.raises(UsageError, match=r"CUDA_HOME=.*nowhere: its bin/nvcc does not run"):
        find_nvcc(PIN, base_for("13.0", tmp_path / "third"), HOST, "", StepLine("toolkit"), f"{tmp_path}/nowhere")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip's only source of packages, with an nvcc, for a repository in ``tmp_path``."""
    folder, information = tmp_path / "index", "nvidia_cuda_nvcc-13.0.88.dist-info"
    folder.mkdir()
    wheel = folder / "nvidia_cuda_nvcc-13.0.88-py3-none-any.whl"
    texts = {f"nvidia/cu13/{name}": "" for name in ("include/cuda.h", "lib/libcudart.so.13", "nvvm/bin/cicc")}
    texts[f"{information}/METADATA"] = (
        "Metadata-Version: 2.1\nName: nvidia-cuda-nvcc\nVersion: 13.0.88\nRequires-Dist: nvidia-nvvm\n"
    )
    texts[f"{information}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    texts[f"{information}/RECORD"] = ""
    with ZipFile(wheel, "w") as archive:
        program = ZipInfo("nvidia/cu13/bin/nvcc")
        program.external_attr = 0o100755 << 16
        archive.writestr(program, SAYS)
        for name, text in texts.items():
            archive.writestr(name, text)
    monkeypatch.setattr(toolchain, "HOME", tmp_path / "build")
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(folder)), ("CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(f"PIP_{name}", value)
    return wheel


def found_with(tmp_path: Path, packages: dict[str, str]) -> Path:
    base = Base(tmp_path / "torch.whl", tmp_path / "tree")
    if not base.tree.exists():
        base_for("13.0", base.tree)
    return find_nvcc(
        replace(PIN, toolkits={"13.0": {platform.machine(): packages}}), base, HOST, "", StepLine("toolkit")
    ).folder


def test_toolkit_of_the_pin_is_installed_once(index: Path, tmp_path: Path) -> None:
    packages = {"nvidia-cuda-nvcc==13.0.88": hashlib.sha256(index.read_bytes()).hexdigest()}
    top = found_with(tmp_path, packages)
    kept = sorted(path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file())
    assert kept == ["bin/nvcc", "include/cuda.h", "lib/libcudart.so.13", "nvvm/bin/cicc"]
    assert (top / "bin/nvcc").stat().st_mode & 0o111
    index.unlink()
    assert found_with(tmp_path, packages) == top
    # What a killed build left is not believed.
    (top.parents[1] / "holds.json").unlink()
    with pytest.raises(MissingError):
        found_with(tmp_path, packages)


def test_packages_of_the_toolkit_are_believed_only_by_their_hashes(index: Path, tmp_path: Path) -> None:
    requirement = "nvidia-cuda-nvcc==13.0.88"
    with pytest.raises(FetchError, match="pip could not install nvidia-cuda-nvcc") as caught:
        found_with(tmp_path, {requirement: "0" * 64})
    # This is not a missing network, without which a build continues.
    assert not isinstance(caught.value, MissingError)
    assert "DO NOT MATCH THE HASHES" in caught.value.cause
    assert not list((tmp_path / "build").rglob("nvcc"))
    sha256 = hashlib.sha256(index.read_bytes()).hexdigest()
    with pytest.raises(MissingError, match=r"pip finds no nvidia-cuda-nvcc==13\.0\.88 and 1 other packages") as missing:
        found_with(tmp_path, {requirement: sha256, "nvidia-nvvm==13.0.88": "0" * 64})
    assert "CUDA_HOME to a toolkit of CUDA 13.0" in missing.value.todo


def test_libraries_are_those_of_the_architecture_of_the_host_code(
    toolkit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cuda, "find_toolkit", lambda *given: tmp_path / given[4] if given[4:] else toolkit)
    for folder in ("lib", "targets/sbsa-linux/lib"):
        write(tmp_path / "aarch64" / folder, {"libcudart.so.13": ""})
    write(toolkit / "lib64", {"libcudart.so.13": ""})
    base = base_for("13.0", tmp_path / "tree")
    found = [
        find_nvcc(PIN, base, replace(HOST, machine=machine), "80", StepLine("toolkit"))
        for machine in (platform.machine(), "aarch64")
    ]
    assert [nvcc.folder for nvcc in found] == [toolkit, toolkit]
    libraries = [nvcc.libraries(("libcudart.so.13", "libc.so.6")) for nvcc in found]
    target = tmp_path / "aarch64/targets/sbsa-linux/lib"
    assert libraries == [[toolkit / "lib64/libcudart.so.13"], [target / "libcudart.so.13"]]


def test_base_for_cpus_leaves_cuda_out_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(base_for("", tmp_path / "tree"), tmp_path / "native") == Cuda()
    said = capsys.readouterr().err
    assert said.endswith("has no CUDA: 1 CUDA kernels, cuda/A.cu, cuda/A.cuh, cuda/B.cpp\n")


def test_kernels_for_cuda_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cuda = plan(base_for("13.0", tmp_path / "tree"), tmp_path / "native", "none")
    assert cuda == Cuda(MISSING, None, "none ")
    assert cuda.request == "none "
    assert capsys.readouterr().err == "      CUDA_ARCHS=none; the CUDA kernels of 2 files are left out\n"
    with pytest.raises(UsageError, match=r"^CUDA_ARCHS=none leaves out all CUDA kernels") as caught:
        plan(base_for("13.0", tmp_path / "other"), tmp_path / "native", "none", is_required=True)
    assert caught.value.todo == "unset CUDA_ARCHS"


def test_where_nothing_is_set_the_reason_is_that_there_is_no_gpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = base_for("13.0", tmp_path / "tree")
    cuda = plan(base, tmp_path / "native", NO_GPU)
    assert (cuda.how, cuda.nvcc) == (MISSING, None)
    said = f"no GPU here that torch {base.version} supports; the CUDA kernels of 2 files are left out"
    assert capsys.readouterr().err == f"      {said}\n"
    # A build of several wheels, and `make test` after a build, hand it on.
    assert wanted_architectures(NO_GPU) == (NO_GPU,)
    assert architectures_in(cuda.request) == NO_GPU
    with pytest.raises(UsageError, match=r"^no GPU here that this torch supports") as caught:
        plan(base_for("13.0", tmp_path / "other"), tmp_path / "native", NO_GPU, is_required=True)
    assert caught.value.todo == 'set CUDA_ARCHS, as in CUDA_ARCHS="80 90"'


def test_folder_without_kernels_for_cuda_cannot_be_checked_for_it(tmp_path: Path) -> None:
    (tmp_path / "native/native_functions.yaml").parent.mkdir()
    (tmp_path / "native/native_functions.yaml").write_text("- func: a(Tensor self) -> Tensor\n")
    native = load_natives([tmp_path / "native"])
    snapshot: Any = SimpleNamespace(pin=PIN, toolchain=HOST)
    with pytest.raises(UsageError, match="native: it has no CUDA kernels") as caught:
        plan_cuda(snapshot, base_for("13.0", tmp_path / "tree"), native, "", is_required=True)
    assert caught.value.todo == "add a kernel to its folder cuda/"


def test_build_without_a_toolkit_goes_on_but_looks_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cuda = plan(base_for("99.1", tmp_path / "tree"), tmp_path / "native")
    assert cuda == Cuda(MISSING, None, MISSING)
    assert "CUDA kernels are not built: " in capsys.readouterr().err


def test_toolkit_that_is_not_the_pinned_one_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Nvcc:
        raise FetchError("another hash")

    monkeypatch.setattr(compile_cuda, "find_nvcc", refuse)
    with pytest.raises(FetchError, match="another hash"):
        plan(base_for("99.1", tmp_path / "tree"), tmp_path / "native")


def test_sources_of_cuda_and_registrations_are_compiled(
    toolkit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_module, "HOME", tmp_path / "build")
    native = native_folder(tmp_path / "native")
    layout = Layout(TorchVersion("0.0.0"), (tmp_path / "native",), tmp_path)
    work = layout.work
    (layout.sources / "cuda").mkdir(parents=True)
    for source in native.cplusplus:
        (layout.sources / source).write_text("")
    (work / "generated/units/a/cuda").mkdir(parents=True)
    for name in ("library.cpp", "cuda.cpp", "cuda/RegisterCUDA.cpp"):
        (work / "generated/units/a" / name).write_text("")
    (work / "generated" / FRAGMENTS).write_text("{}")
    nvcc = Nvcc(toolkit, HOST, ("80",))
    units = Planner(layout, Base(tmp_path, tmp_path), HOST, nvcc).plan(native)
    library = Library((), "$ORIGIN", "--enable-new-dtags")
    base: Any = SimpleNamespace(library=lambda _: library, libraries=tmp_path, extension="_C.so")
    wheel, thin = products(units, base, nvcc), thin_products("my_ops", "torch_2", units, base, nvcc)
    assert [each.name for each in (wheel[0], thin[0])] == [OPERATORS_FOR_CUDA, "my_ops/torch_2/libmy_ops_cuda.so"]
    assert thin[0].units == wheel[0].units
    assert [(unit.source.as_posix(), unit.compiler) for unit in wheel[0].units] == [
        ("fixed/compatibility.cpp", CXX),
        ("fixed/trampolines.cpp", CXX),
        ("src/ATen/native/cuda/A.cu", NVCC),
        ("src/ATen/native/cuda/B.cpp", CXX),
        ("generated/units/a/cuda.cpp", CXX),
    ]
    assert all(f"-I{toolkit / 'include'}" in unit.flags for unit in units.cuda[1:])
    assert Planner(layout, Base(tmp_path, tmp_path), HOST).plan(native).cuda == []
    without = replace(units, cuda=[])
    assert not any("cuda" in each.name for each in (*products(without, base, nvcc), *products(units, base)))


def test_messages_of_nvcc_name_the_folder_s_own_files() -> None:
    output = [
        "FAILED: [code=1] objects/native/cuda/A.cu.o\n",
        'src/ATen/native/cuda/A.cu(12): error: identifier "threadIx" is undefined\n',
        "          detected during instantiation at line 3 of src/ATen/native/cuda/A.cuh\n",
    ]
    compiled, linked = relevant(output, Path("/my_ops"))
    assert linked == []
    assert compiled == [
        '/my_ops/cuda/A.cu:12: error: identifier "threadIx" is undefined\n',
        "          detected during instantiation at line 3 of /my_ops/cuda/A.cuh\n",
    ]
