"""The packages that make up the toolkit of a version of CUDA."""

from __future__ import annotations

from packaging.version import Version

from ..common.errors import PinError
from .index import MissingError, ask_pip

_PARTS = (
    "cublas", "cudart", "cufft", "cufile", "cupti", "curand", "cusolver", "cusparse",
    "nvjitlink", "nvrtc", "nvtx", "nvcc", "cccl",
)  # fmt: skip

# The compiler, its headers and its optimizer, which only work together.
NVCC = "nvidia-cuda-nvcc"
COMPILER = (NVCC, "nvidia-cuda-crt", "nvidia-nvvm")


def find_toolkit(cuda: str, index: str) -> dict[str, str]:
    """The packages of CUDA ``cuda``, as requirements with the sha256 of each; nothing if pip has no such compiler.

    Raises:
        PinError: the parts of the compiler are of several versions.
        FetchError: pip cannot tell.
    """
    try:
        found = ask_pip(f"cuda-toolkit[{','.join(_PARTS)}]=={cuda}.*", index)
    except MissingError:
        return {}
    packages = sorted((each for each in found if each.name != "cuda-toolkit"), key=lambda each: each.name)
    versions = {each.name: each.version for each in packages}
    # NVIDIA's packages of CUDA 12 hold only parts of a compiler.
    if NVCC not in versions:
        return {}
    require_one_compiler(cuda, versions)
    return {f"{each.name}=={each.version}": each.sha256 for each in packages}


def require_one_compiler(cuda: str, versions: dict[str, str]) -> None:
    """Check that the parts of the compiler are all of CUDA ``cuda``.

    Older releases of cuda-toolkit leave some of them open, and pip takes the newest.

    Raises:
        PinError: naming each part.
    """
    parts = {name: versions.get(name, "missing") for name in COMPILER}
    if any(".".join(map(str, Version(versions.get(name, "0")).release[:2])) != cuda for name in COMPILER):
        raise PinError(
            f"cuda-toolkit {cuda}.*: the parts of its compiler do not belong together",
            cause=", ".join(f"{name} {version}" for name, version in parts.items()),
            todo=f"ask an index that has the newest cuda-toolkit {cuda} with INDEX, or see whether a constraint of "
            "pip's keeps it back",
        )
