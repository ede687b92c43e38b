"""The packages of the toolkit for a version of CUDA."""

from __future__ import annotations

from packaging.version import Version

from ..core.errors import PinError
from ..core.pip import MissingError, ask_pip

_PARTS = (
    "cublas", "cudart", "cufft", "cufile", "cupti", "curand", "cusolver", "cusparse",
    "nvjitlink", "nvrtc", "nvtx", "nvcc", "cccl",
)  # fmt: skip

# The compiler, its headers and its optimizer, which must have the same version.
NVCC = "nvidia-cuda-nvcc"
COMPILER = (NVCC, "nvidia-cuda-crt", "nvidia-nvvm")


def find_toolkit(cuda: str, index: str) -> dict[str, str]:
    """Return the packages of CUDA ``cuda``, as requirements with their hashes; empty if pip has no such compiler.

    Raises:
        PinError: the parts of the compiler have different versions.
        FetchError: pip failed.
    """
    try:
        found = ask_pip(f"cuda-toolkit[{','.join(_PARTS)}]=={cuda}.*", index)
    except MissingError:
        return {}
    packages = sorted((each for each in found if each.name != "cuda-toolkit"), key=lambda each: each.name)
    versions = {each.name: each.version for each in packages}
    # NVIDIA's packages of CUDA 12 contain only parts of a compiler.
    if NVCC not in versions:
        return {}
    require_one_compiler(cuda, versions)
    return {f"{each.name}=={each.version}": each.sha256 for each in packages}


def require_one_compiler(cuda: str, versions: dict[str, str]) -> None:
    """Check that all parts of the compiler are of CUDA ``cuda``.

    Older releases of cuda-toolkit leave some versions open, and pip chooses the newest.

    Raises:
        PinError: lists each part.
    """
    parts = {name: versions.get(name, "missing") for name in COMPILER}
    if any(".".join(map(str, Version(versions.get(name, "0")).release[:2])) != cuda for name in COMPILER):
        raise PinError(
            f"cuda-toolkit {cuda}.*: the parts of its compiler have different versions",
            cause=", ".join(f"{name} {version}" for name, version in parts.items()),
            todo=f"set INDEX to an index that has the newest cuda-toolkit {cuda}, or check whether a constraint of "
            "pip's excludes it",
        )
