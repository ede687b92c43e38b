"""What pip has for a release: its wheels, and the toolkit of its CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version

from ..base.fetch import in_name_of
from ..core.errors import PinError, UsageError
from ..core.files import sha256_of_file
from ..core.layout import TorchVersion, expanded
from ..core.pip import Distribution, MissingError, ask_pip
from ..inputs.pin import indexes

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

# PyTorch's own index also has wheels of the second kind.
_PLATFORMS = ("manylinux_2_28_x86_64", "linux_x86_64")

_PARTS = (
    "cublas", "cudart", "cufft", "cufile", "cupti", "curand", "cusolver", "cusparse",
    "nvjitlink", "nvrtc", "nvtx", "nvcc", "cccl",
)  # fmt: skip

# The compiler, its headers and its optimizer, which must have the same version.
NVCC = "nvidia-cuda-nvcc"
COMPILER = (NVCC, "nvidia-cuda-crt", "nvidia-nvvm")


@dataclass(frozen=True)
class Release:
    """Wheels of one version of torch.

    Args:
        version: their version, for example ``2.13.0+cpu``.
        wheels: the compatibility tag and sha256 of each.
        file: the only one, if it is a local file; None if pip downloads them.
    """

    version: TorchVersion
    wheels: Mapping[str, str]
    file: Path | None = None


def find_release(torch: str, index: str, patches: Path) -> Release:
    """Return the wheels for ``TORCH``: a version, or a wheel file.

    If pip's indexes and ``index`` have none, PyTorch's own are asked, which ``patches`` lists.

    Raises:
        UsageError: it is neither.
        FetchError: there is no wheel of that version, or pip failed.
    """
    if torch.endswith(".whl"):
        path = expanded(torch)
        version, _ = in_name_of(path, "TORCH")
        return Release(version, {_tag(path.name): sha256_of_file(path)}, path)
    try:
        version = TorchVersion(Version(torch))
    except InvalidVersion as error:
        raise UsageError(
            f"TORCH={torch}: neither a version nor a wheel file",
            todo="set TORCH to a version, such as TORCH=2.15.0 or TORCH=2.13.0+cpu, or to the path of a torch-*.whl",
        ) from error
    try:
        return Release(version, _of_index(version, index))
    except MissingError:
        if not (own := indexes(patches).get(version.local)):
            raise
        return Release(version, _of_index(version, own))


def _of_index(version: str, index: str) -> dict[str, str]:
    options = ["--no-deps", *(f"--platform={name}" for name in _PLATFORMS)]
    found: list[Distribution] = []
    # One after another: if an index does not serve metadata, pip downloads each wheel to read it.
    for python in PYTHONS:
        try:
            found += ask_pip(f"torch==={version}", index, f"--python-version={python}", *options)
        except MissingError as error:
            missing = error
    if found:
        return {_tag(wheel.file): wheel.sha256 for wheel in found}
    missing.todo = missing.todo or "set TORCH to an existing version, or INDEX to an index that has it"
    raise missing


def _tag(file: str) -> str:
    """Return one compatibility tag of a wheel; a file name may contain several."""
    *_, tags = parse_wheel_filename(file)
    return min(map(str, tags))


def find_packages(cuda: str, index: str) -> dict[str, str]:
    """Return the packages of the toolkit of CUDA ``cuda``, as requirements with their hashes; empty if pip has no such
    compiler.

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


def require_one_compiler(cuda: str, versions: Mapping[str, str]) -> None:
    """Check that all parts of the compiler are of CUDA ``cuda``.

    Older releases of cuda-toolkit leave some versions open, and pip chooses the newest.

    Raises:
        PinError: lists each part.
    """
    parts = {name: versions.get(name, "missing") for name in COMPILER}
    if not all(version.startswith(f"{cuda}.") for version in parts.values()):
        raise PinError(
            f"cuda-toolkit {cuda}.*: the parts of its compiler have different versions",
            cause=", ".join(f"{name} {version}" for name, version in parts.items()),
            todo=f"set INDEX to an index that has the newest cuda-toolkit {cuda}, or check whether a constraint of "
            "pip's excludes it",
        )
