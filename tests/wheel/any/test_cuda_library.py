"""The library of CUDA kernels, as far as it can be checked without a GPU: dependencies, content and registrations."""

import os
import re
from pathlib import Path

import pytest
import torch
import yaml
from graft.core.cuda_settings import CudaArchs
from graft.core.elf import ElfFile
from graft.core.layout import native_folders
from helpers import architectures

LIBRARIES = Path(torch.__file__).parent / "lib"
KERNELS = LIBRARIES / "libtorch_operators_cuda.so"


@pytest.fixture(autouse=True)
def of_a_wheel_for_cuda() -> None:
    if torch.version.cuda is None:
        pytest.skip("no CUDA: this wheel is for CPUs")


def registered_for_cuda() -> list[str]:
    """Return the folder's operators whose entries name a CUDA kernel."""
    found = []
    for folder in native_folders(os.environ["GRAFT_NATIVE"]):
        for entry in yaml.safe_load((folder / "native_functions.yaml").read_text()):
            keys = re.split(r",\s*", ", ".join(entry.get("dispatch") or {}))
            if "CUDA" in keys:
                found.append(f"aten::{entry['func'].partition('(')[0]}")
    return found


def test_umbrella_loads_the_libraries_that_it_loads_in_the_base(base: Path) -> None:
    ours, theirs = (ElfFile(path).dynamic() for path in (LIBRARIES / "libtorch.so", base / "torch/lib/libtorch.so"))
    assert {name for name in theirs["DT_NEEDED"] if "torch" in name} <= set(ours["DT_NEEDED"])
    assert [ours.get(kind) for kind in ("DT_RPATH", "DT_RUNPATH")] == [
        theirs.get(kind) for kind in ("DT_RPATH", "DT_RUNPATH")
    ]


def test_dispatch_tables_name_the_kernels() -> None:
    names = registered_for_cuda()
    if not names:
        pytest.skip("no operator of the folder has a kernel for CUDA")
    source = "RegisterCUDA.cpp" if KERNELS.is_file() else "RegisterMissingCUDA.cpp"
    for name in names:
        (row,) = (line for line in torch._C._dispatch_dump(name).splitlines() if line.startswith("CUDA:"))
        assert f"/{source}:" in row, name


def test_there_is_code_for_every_architecture() -> None:
    if not KERNELS.is_file():
        pytest.skip("no CUDA kernels were built")
    asked = CudaArchs(os.environ.get("GRAFT_CUDA_ARCHS", "")).names
    found, supported = architectures(KERNELS), {f"sm_{name}" for name in asked} or set(torch.cuda.get_arch_list())
    if os.environ.get("GRAFT_DELIVERY") == "develop":  # which compiles for the GPUs of its machine
        assert found and found <= supported
    else:
        assert found == supported


def test_hidden_functions_are_bound_behind_the_build_id(base: Path) -> None:
    if not KERNELS.is_file():
        pytest.skip("no CUDA kernels were built")
    build_id = ElfFile(base / "torch/lib/libtorch_cuda.so").build_id
    assert build_id and build_id.encode() in KERNELS.read_bytes()


def test_missing_kernels_raise_an_error_that_says_how_to_build_them() -> None:
    if KERNELS.is_file() or not (names := registered_for_cuda()):
        pytest.skip("no kernel is missing")
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    for name in names:
        packet, _, overload = name.removeprefix("aten::").partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
        arguments = operator._schema.arguments
        positional = [stand_in(each) for each in arguments if not each.kwarg_only]
        named = {each.name: stand_in(each) for each in arguments if each.kwarg_only}
        with pytest.raises(
            NotImplementedError, match=r"no CUDA toolkit when it was built.*`make patch-and-build` again"
        ):
            operator.redispatch(keys, *positional, **named)


def stand_in(argument: torch._C.Argument) -> object:
    """Return a value of the argument's type."""
    values = {"Tensor": torch.ones(1), "int": 1, "float": 1.0, "bool": True, "number": 1.0, "str": ""}
    kind = str(argument.type)
    if kind.startswith("Optional"):
        return None
    element = re.fullmatch(r"List\[(\w+)\]", kind)
    return [values[element[1]]] * (argument.N or 2) if element else values[kind]
