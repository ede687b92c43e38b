"""Compiling for CUDA: the toolkit and its architectures; and builds without them."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipInfo

import pytest
from builds import GXX, snapshot_of
from graft import stages
from graft.base import find
from graft.base.base import Base, Library
from graft.base.find import for_this_machine
from graft.codegen import MISSING
from graft.compile import cuda, nvcc
from graft.compile.cuda import Cuda, find_cuda
from graft.compile.extensions import _Build
from graft.compile.messages import relevant
from graft.compile.nvcc import Nvcc, find_nvcc
from graft.compile.products import OPERATORS_FOR_CUDA, products, thin_products
from graft.compile.units import CXX, NVCC, Units
from graft.core.console import StepLine, Steps
from graft.core.cuda_settings import NO_GPU, NO_KERNELS, NOT_SET, OF_BASE, CudaArchs, CudaSettings, running_on
from graft.core.errors import MissingError, UsageError
from graft.core.layout import REPOSITORY, Layout, TorchVersion
from graft.core.pip import UnavailableError
from graft.inputs.libraries import NO_LIBRARIES
from graft.inputs.native import NativeFolders, load_natives
from graft.inputs.pin import Pin, load_pin
from graft.inputs.settings import Extension, Settings
from graft.stages import Job
from helpers import Capture, Patch, make_installable, program, refused, write

PIN = load_pin(REPOSITORY / "patches/2.14.1")
SAYS = "case $1 in --version) echo 'release 13.0, V13.0.88';; *) echo sm_80; echo sm_90;; esac"


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    """A toolkit whose nvcc knows two architectures."""
    return program(tmp_path / "toolkit/bin/nvcc", SAYS).parents[1]


def base_for(cuda: str, folder: Path) -> Base:
    """A base with that version of CUDA, or without CUDA."""
    version = f"__version__ = '2.14.1'\ncuda: Optional[str] = {cuda or None!r}\n"
    write(folder, {"torch/version.py": version, "torch/lib/libtorch_python.so": "\0sm_80 sm_90\0"})
    return Base(folder / "torch.whl", folder)


ENTRY = "- func: a(Tensor self) -> Tensor\n"
ON_CUDA = f"{ENTRY}  dispatch:\n    CPU: a_cpu\n    CUDA: a_cuda\n"


def native_folder(folder: Path, entry: str = ON_CUDA) -> NativeFolders:
    files = dict.fromkeys(("cuda/A.cu", "cuda/A.cuh", "cuda/B.cpp", "C.cpp") if entry == ON_CUDA else (), "")
    return load_natives([write(folder, {"native_functions.yaml": entry, **files})])


def found(
    folder: Path, cuda: str, archs: CudaArchs = OF_BASE, entry: str = ON_CUDA, *, is_required: bool = False
) -> Cuda:
    """Return how a build for a base with that version of CUDA handles the kernels of a folder."""
    base, native = base_for(cuda, folder / "tree"), native_folder(folder / "native", entry)
    snapshot = replace(snapshot_of(folder, native), pin=PIN)
    return find_cuda(snapshot, base, native, CudaSettings(archs), is_required=is_required)


@pytest.mark.parametrize(
    ("text", "names", "wrong"),
    [
        ("", [], []),
        *((text, ["80", "90a"], []) for text in ("80 90a", "8.0,9.0a", "sm_80, sm_90a")),
        (" none", ["none"], []),
        (NO_GPU, ["no-gpu"], []),
        ("80 none", ["80", "none"], ["none"]),
        *((text, [text], [text]) for text in ("hopper", "8", "90b", "1.2.3.4")),
    ],
)
def test_architectures_are_written_in_several_ways(text: str, names: list[str], wrong: list[str]) -> None:
    archs = CudaArchs(text)
    assert (list(archs.names), archs.wrong) == (names, wrong)
    # A build of several wheels, and `make test` after a build, hand them on.
    settings = CudaSettings(archs, "/a folder")
    assert CudaSettings.noted(settings.note) == settings


def test_architectures_that_nvcc_does_not_know_are_refused(toolkit: Path) -> None:
    known = Nvcc(toolkit, GXX, ("80", "90a"))
    known.require_known_architectures()
    assert "-gencode=arch=compute_90a,code=sm_90a" in known.flags
    with pytest.raises(UsageError, match=r"^CUDA_ARCHS=70 81: this nvcc does not support it") as caught:
        Nvcc(toolkit, GXX, ("70", "80", "81")).require_known_architectures()
    assert caught.value.todo == "choose among: 80, 90; or none"


def extending_job(folder: Path, cuda: str, archs: CudaArchs = OF_BASE, home: str = "") -> Job:
    """Return a job for a folder without operators for CUDA, beside an extension that has a CUDA source."""
    write(folder, {"tree/torch/utils/cpp_extension.py": "", "ext/a.cu": "", "ext/b.cpp": "", "pyproject.toml": ""})
    settings = Settings(folder / "pyproject.toml")
    base, native = base_for(cuda, folder / "tree"), native_folder(folder / "native", ENTRY)
    extension = Extension("their._C", "", (folder / "ext/a.cu", folder / "ext/b.cpp"), (), settings)
    snapshot = replace(snapshot_of(folder, native), pin=PIN, extensions=((extension, NO_LIBRARIES),))
    layout = Layout(TorchVersion("2.14.1"), (folder / "native",), folder, cuda=CudaSettings(archs, home))
    return Job(layout, snapshot, base, 1, Steps())


def test_sources_of_extensions_for_cuda_are_in_compile_commands(
    toolkit: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The operators have none, so their build needs no nvcc."""
    monkeypatch.setattr(Layout, "work", tmp_path / "work")
    monkeypatch.setattr(Layout, "commands", tmp_path / "commands")
    write(tmp_path, {"work/generated/fragments.json": "{}"})
    job = extending_job(tmp_path, "13.0", home=str(toolkit))
    how = stages._find_cuda(job)
    assert how.nvcc is None and how.of_extensions and how.of_extensions.folder == toolkit
    stages._units(job, how)
    entries = json.loads((tmp_path / "commands/compile_commands.json").read_text(encoding="utf-8"))
    assert [each["file"] for each in entries if "/ext/" in each["file"]] == [
        f"{tmp_path}/ext/{n}" for n in ("a.cu", "b.cpp")
    ]


def test_check_for_cuda_compiles_the_sources_of_extensions(toolkit: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    compiled: list[Path] = []
    monkeypatch.setattr(stages, "_make", lambda *_: None)
    monkeypatch.setattr(Layout, "work", tmp_path / "work")
    monkeypatch.setattr(_Build, "_compiled", lambda _, units, *__: compiled.extend(unit.source for unit in units))
    nvcc = stages.make_for_cuda(extending_job(tmp_path, "13.0", CudaArchs("90"), str(toolkit)))
    assert (nvcc.architectures, compiled) == (("90",), [tmp_path / "ext/a.cu"])
    by_default = stages.make_for_cuda(extending_job(tmp_path, "13.0", OF_BASE, str(toolkit)))
    assert by_default.architectures == ("90",)  # and not 80
    job = replace(
        extending_job(tmp_path, "13.0"), snapshot=replace(snapshot_of(tmp_path, native_folder(tmp_path, ENTRY)))
    )
    with pytest.raises(UsageError, match="it has no CUDA kernels"):
        stages.make_for_cuda(job)


@pytest.mark.parametrize(
    ("cuda", "archs", "said"),
    [
        ("", OF_BASE, "a.cu is for CUDA, and torch 2.14.1 is not"),
        ("13.0", NO_KERNELS, "a.cu is for CUDA, and CUDA_ARCHS=none compiles none"),
        ("13.0", NO_GPU, "a.cu is for CUDA, and no GPU is here"),
    ],
)
def test_sources_of_extensions_need_cuda(tmp_path: Path, cuda: str, archs: CudaArchs, said: str) -> None:
    job = extending_job(tmp_path, cuda, archs)
    with pytest.raises(UsageError, match=said):
        stages._find_cuda(job)


def test_torch_s_list_of_architectures_is_told_that_it_is_not_read(
    toolkit: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(Layout, "work", tmp_path / "work")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    for archs, said in (OF_BASE, ["TORCH_CUDA_ARCH_LIST=9.0 is not read: compiled for 80 90"]), (CudaArchs("90"), []):
        job = extending_job(tmp_path, "13.0", archs, str(toolkit))
        nvcc = stages._find_cuda(job).of_extensions
        notes = _Build(job.layout, job.snapshot, job.base, nvcc)._notes()
        assert [note.partition(";")[0] for note in notes] == said


def nvcc_for(base: Base, home: Path | str = "", pin: Pin = PIN) -> Nvcc:
    return find_nvcc(pin, base, GXX, CudaSettings(home=str(home)), StepLine("toolkit"))


def test_cuda_home_is_taken_if_it_is_of_the_base_s_version(toolkit: Path, tmp_path: Path) -> None:
    base = base_for("13.0", tmp_path / "tree")
    assert (nvcc_for(base, toolkit).folder, nvcc_for(base, toolkit).architectures) == (toolkit, ("80", "90"))
    with pytest.raises(UsageError, match=r"CUDA_HOME=.*nowhere: its bin/nvcc does not run"):
        nvcc_for(base, tmp_path / "nowhere")
    # Another version is not used, and the pins have no toolkit of 99.1.
    with pytest.raises(UnavailableError, match=r"cuda-toolkits\.yaml: it has no packages for CUDA 99\.1") as caught:
        nvcc_for(base_for("99.1", tmp_path / "other"), toolkit)
    assert "CUDA_HOME to a toolkit of CUDA 99.1" in caught.value.todo
    assert "make pin TORCH=2.14.1" in caught.value.todo


@pytest.fixture
def index(tmp_path: Path, monkeypatch: Patch) -> Path:
    """pip's only source of packages, with an nvcc, for a repository in ``tmp_path``."""
    nvcc_program = ZipInfo("nvidia/cu13/bin/nvcc")
    nvcc_program.external_attr = 0o100755 << 16
    members: dict[Any, str] = {nvcc_program: f"#!/bin/sh\n{SAYS}\n"}
    members |= {f"nvidia/cu13/{name}": "" for name in ("include/cuda.h", "lib/libcudart.so.13", "nvvm/bin/cicc")}
    metadata = "Metadata-Version: 2.1\nName: nvidia-cuda-nvcc\nVersion: 13.0.88\nRequires-Dist: nvidia-nvvm\n"
    members["nvidia_cuda_nvcc-13.0.88.dist-info/METADATA"] = metadata
    wheel = make_installable(tmp_path / "index/nvidia_cuda_nvcc-13.0.88-py3-none-any.whl", members)
    monkeypatch.setattr(nvcc, "store", lambda: tmp_path / "build")
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(wheel.parent)), ("CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(f"PIP_{name}", value)
    return wheel


def toolkit_of(tmp_path: Path, packages: dict[str, str]) -> Path:
    pin = replace(PIN, toolkits={"13.0": {platform.machine(): packages}})
    return nvcc_for(base_for("13.0", tmp_path / "tree"), pin=pin).folder


def test_toolkit_of_the_pin_is_installed_once(index: Path, tmp_path: Path) -> None:
    packages = {"nvidia-cuda-nvcc==13.0.88": hashlib.sha256(index.read_bytes()).hexdigest()}
    top = toolkit_of(tmp_path, packages)
    kept = sorted(path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file())
    assert kept == ["bin/nvcc", "include/cuda.h", "lib/libcudart.so.13", "nvvm/bin/cicc"]
    assert (top / "bin/nvcc").stat().st_mode & 0o111
    index.unlink()
    assert toolkit_of(tmp_path, packages) == top
    # What a killed build left is not believed.
    (top.parents[1] / "holds.json").unlink()
    with pytest.raises(UnavailableError):
        toolkit_of(tmp_path, packages)


def test_packages_of_the_toolkit_are_believed_only_by_their_hashes(index: Path, tmp_path: Path) -> None:
    requirement = "nvidia-cuda-nvcc==13.0.88"
    with pytest.raises(MissingError, match="pip could not install nvidia-cuda-nvcc") as caught:
        toolkit_of(tmp_path, {requirement: "0" * 64})
    # This is not a missing network, without which a build continues.
    assert not isinstance(caught.value, UnavailableError)
    assert "DO NOT MATCH THE HASHES" in caught.value.cause
    assert not list((tmp_path / "build").rglob("nvcc"))
    more = {requirement: hashlib.sha256(index.read_bytes()).hexdigest(), "nvidia-nvvm==13.0.88": "0" * 64}
    what = r"pip finds no nvidia-cuda-nvcc==13\.0\.88 and 1 other packages"
    with pytest.raises(UnavailableError, match=what) as missing:
        toolkit_of(tmp_path, more)
    assert "CUDA_HOME to a toolkit of CUDA 13.0" in missing.value.todo


def test_libraries_are_those_of_the_architecture_of_the_host_code(
    toolkit: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(nvcc, "_find_toolkit", lambda *given: tmp_path / given[4] if given[4:] else toolkit)
    for folder in ("lib", "targets/sbsa-linux/lib"):
        write(tmp_path / "aarch64" / folder, {"libcudart.so.13": ""})
    write(toolkit / "lib64", {"libcudart.so.13": ""})
    base = base_for("13.0", tmp_path / "tree")
    found = [
        find_nvcc(PIN, base, replace(GXX, machine=machine), CudaSettings(CudaArchs("80")), StepLine("toolkit"))
        for machine in (platform.machine(), "aarch64")
    ]
    assert [nvcc.folder for nvcc in found] == [toolkit, toolkit]
    libraries = [nvcc.libraries(("libcudart.so.13", "libc.so.6")) for nvcc in found]
    target = tmp_path / "aarch64/targets/sbsa-linux/lib"
    assert libraries == [[toolkit / "lib64/libcudart.so.13"], [target / "libcudart.so.13"]]


@pytest.mark.parametrize(
    ("here", "expected"),
    [([], "90"), (["90"], "90"), (["80", "90"], "80 90"), (["86"], "80"), (["89", "61"], "80"), (["61"], "90")],
)
def test_a_build_for_this_machine_is_for_its_gpus_or_one_architecture(
    tmp_path: Path, monkeypatch: Patch, here: list[str], expected: str
) -> None:
    """61 is a GPU that this torch does not support; 86 and 89 run the code of 80."""
    monkeypatch.setattr(find, "gpu_architectures", lambda: here)
    base = base_for("13.0", tmp_path / "tree")
    chosen = for_this_machine(NOT_SET, base)
    assert chosen.archs == expected
    assert ("no GPU" in chosen.reason) is (here in ([], ["61"]))
    # So that a build for other GPUs is another one.
    assert chosen.note == CudaSettings(CudaArchs(expected)).note
    given = CudaSettings(CudaArchs("75"))
    assert (
        for_this_machine(given, base) == given and for_this_machine(NOT_SET, base_for("", tmp_path / "cpu")) == NOT_SET
    )


@pytest.mark.parametrize(
    ("gpu", "supported", "expected"),
    [
        ("90", ["80", "90a"], "90a"),
        ("103", ["90", "100", "120"], "100"),
        ("103", ["100a", "120"], ""),
        ("87", ["75", "80", "86", "90"], "86"),
        ("75", ["80"], ""),
    ],
)
def test_architecture_that_a_gpu_runs(gpu: str, supported: list[str], expected: str) -> None:
    assert running_on(gpu, supported) == expected


@pytest.mark.parametrize(
    ("cuda", "archs", "said"),
    [
        ("", OF_BASE, "left out, since torch 2.14.1 has no CUDA: cuda/A.cu, cuda/A.cuh, cuda/B.cpp"),
        ("13.0", NO_KERNELS, "CUDA_ARCHS=none; the CUDA kernels of 2 files are left out"),
        ("13.0", NO_GPU, "no GPU here that torch 2.14.1 supports; the CUDA kernels of 2 files are left out"),
    ],
)
def test_kernels_that_are_left_out(tmp_path: Path, capsys: Capture, cuda: str, archs: CudaArchs, said: str) -> None:
    assert found(tmp_path, cuda, archs) == (Cuda(MISSING, None, CudaSettings(archs).note) if cuda else Cuda())
    assert capsys.readouterr().err == f"      {said}\n"


@pytest.mark.parametrize(
    ("archs", "entry", "what", "todo"),
    [
        (NO_KERNELS, ON_CUDA, "CUDA_ARCHS=none leaves out all CUDA kernels", "unset CUDA_ARCHS"),
        (NO_GPU, ON_CUDA, "no GPU here that this torch supports", 'set CUDA_ARCHS, as in CUDA_ARCHS="80 90"'),
        (OF_BASE, ENTRY, ".*/native: it has no CUDA kernels", "add a kernel to its folder cuda/"),
    ],
)
def test_kernels_that_are_required(tmp_path: Path, archs: CudaArchs, entry: str, what: str, todo: str) -> None:
    error = refused(UsageError, found, tmp_path, "13.0", archs, entry, is_required=True, match=f"^{what}")
    assert error.todo == todo


def test_build_without_a_toolkit_goes_on_but_looks_again(tmp_path: Path, capsys: Capture) -> None:
    cuda = found(tmp_path, "99.1")
    assert (cuda.how, cuda.nvcc) == (MISSING, None)
    assert cuda.note not in ("", CudaSettings().note)
    assert CudaSettings.noted(cuda.note).archs == OF_BASE
    assert "CUDA kernels are not built: " in capsys.readouterr().err


def test_toolkit_that_is_not_the_pinned_one_ends_the_build(tmp_path: Path, monkeypatch: Patch) -> None:
    def refuse(*_: object) -> Nvcc:
        raise MissingError("another hash")

    monkeypatch.setattr(cuda, "find_nvcc", refuse)
    with pytest.raises(MissingError, match="another hash"):
        found(tmp_path, "99.1")


def test_sources_of_cuda_and_registrations_are_compiled(tmp_path: Path, units: Callable[..., Units]) -> None:
    native = native_folder(tmp_path / "native")
    generated = [f"a/{name}" for name in ("library.cpp", "cuda.cpp", "cuda/RegisterCUDA.cpp")]
    with_cuda, without = (units(native, generated, has_nvcc=has_nvcc) for has_nvcc in (True, False))
    library, nvcc = Library((), "$ORIGIN", "--enable-new-dtags"), Nvcc(tmp_path / "cuda", GXX, ("90",))
    base: Any = SimpleNamespace(library=lambda _: library, libraries=tmp_path, extension="_C.so")
    wheel, thin = products(with_cuda, base, nvcc), thin_products("my_ops", "torch_2", with_cuda, base, nvcc)
    assert [each.name for each in (wheel[0], thin[0])] == [OPERATORS_FOR_CUDA, "my_ops/torch_2/libmy_ops_cuda.so"]
    assert thin[0].units == wheel[0].units
    assert [(unit.source.as_posix(), unit.compiler) for unit in wheel[0].units] == [
        ("fixed/compatibility.cpp", CXX),
        ("fixed/trampolines.cpp", CXX),
        ("src/ATen/native/cuda/A.cu", NVCC),
        ("src/ATen/native/cuda/B.cpp", CXX),
        ("generated/units/a/cuda.cpp", CXX),
    ]
    assert all(f"-I{nvcc.folder / 'include'}" in unit.flags for unit in with_cuda.cuda[1:])
    assert without.cuda == []
    none = products(replace(with_cuda, cuda=[]), base, nvcc), products(with_cuda, base)
    assert not any("cuda" in each.name for each in (*none[0], *none[1]))


def test_messages_of_nvcc_name_files_that_compilers_read() -> None:
    output = [
        "FAILED: [code=1] objects/native/cuda/A.cu.o\n",
        'src/ATen/native/cuda/A.cu(12): error: identifier "threadIx" is undefined\n',
        "          detected during instantiation at line 3 of src/ATen/native/cuda/A.cuh\n",
    ]
    compiled, linked = relevant(output, Path("/my_ops/src"))
    assert linked == []
    assert compiled == [
        '/my_ops/src/ATen/native/cuda/A.cu:12: error: identifier "threadIx" is undefined\n',
        "          detected during instantiation at line 3 of /my_ops/src/ATen/native/cuda/A.cuh\n",
    ]
