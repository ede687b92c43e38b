"""``make pin``: write the files of a release's pin. pip finds its wheels and CUDA toolkit; a wheel has the rest."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import yaml
from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version

from ..base.base import Base
from ..base.fetch import get_base, in_name_of
from ..base.private_names import missing_in
from ..core.architecture import ARCHITECTURES
from ..core.console import Steps, say
from ..core.errors import UsageError
from ..core.files import file_lock, sha256_of_file, write_if_changed
from ..core.layout import IS_CHECKOUT, OWN_PATCHES, PATCHES, TorchVersion, expanded
from ..core.pip import Distribution, UnavailableError, ask_pip
from ..deliveries import Wheel, run
from ..inputs.patches import SERIES
from ..inputs.pin import TOOLKITS, GitSource, Pin, SourceSettings, indexes, load_pin, platform_options
from ..options import Request

SMALLEST = Path(__file__).parent / "smallest"

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")

# PyTorch's own index also has wheels with the second tag.
_PLATFORMS = ("manylinux_2_28_{}", "linux_{}")

_PARTS = (
    "cublas", "cudart", "cufft", "cufile", "cupti", "curand", "cusolver", "cusparse",
    "nvjitlink", "nvrtc", "nvtx", "nvcc", "cccl",
)  # fmt: skip

# The compiler, its headers and its optimizer, which must have the same version. Older releases of cuda-toolkit do not
# fix the versions of all three, and pip would choose the newest.
COMPILER = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm")

# The oldest g++ that supports enough of a C++ standard for PyTorch's headers.
_GXX = {"c++17": 9, "c++20": 11}

_WHEELS = "\nwheels:\n"
_ABOVE_WHEELS = "# The official wheels, by version, compatibility tag and sha256. Their version is what PIN names."

_NEW = """\
# What the builds are pinned to. Nothing of this is repeated anywhere else.
version: {version}
source:
  git:
    commit: {commit}
compiler:
  # The oldest g++ that PyTorch's headers of this version compile with.
  gxx: {gxx}
  standard: {standard}
"""
_NO_PATCHES = (
    "# Nothing needs patching: what Graft adds to PyTorch's Python files goes behind them "
    "(scripts/graft/compose/appended).\n"
)


def make_pin(request: Request, patches: Path = OWN_PATCHES) -> None:
    """Write the pin of a release, or complete an existing one; then build the smallest operator with it.

    Args:
        request: the release, and an index for pip in addition to its configuration.
        patches: the folder of all pins.

    Raises:
        GraftError: the pin was not written; or it was, but the smallest operator cannot be built.
    """
    if not patches.is_dir():
        shutil.copytree(PATCHES, patches)
        say(f"pins are read from {patches} from now on, a copy of {PATCHES}; `graft clean` deletes it")
    steps, index = Steps(), request.index
    file = expanded(request.torch) if request.torch.endswith(".whl") else None
    with steps.step("ask for the wheels") as line:
        version, wheels = wheels_in(file) if file else wheels_of(request.torch, index, indexes(patches))
        line.note = f"{len(wheels)} of torch {version}"
    folder = patches / version.release
    layout = replace(request.layout, pin=version, natives=(SMALLEST,), pin_folder=folder)
    # One lock for all releases, since they share the file with the toolkits.
    with file_lock(layout.pin_build.parents[1] / "pin.lock", "another `make pin` is running here"):
        pin = replace(_completed(folder, version, wheels), machine=layout.machine)
        base = get_base(pin, layout, file, steps, index)
        toolkits, series = patches / TOOLKITS, folder / SERIES
        texts = {
            toolkits: with_toolkit(toolkits.read_text(encoding="utf-8"), base.cuda, index),
            series: series.read_text(encoding="utf-8") if series.is_file() else _NO_PATCHES,
            pin.path: text_of(pin, base),  # written last: with it, the pin exists
        }
        written = [path for path, text in texts.items() if write_if_changed(path, text)]
    say(_report(pin, base, yaml.safe_load(texts[toolkits]), written))
    run(Wheel(replace(layout, out=layout.pin_build / "smallest")), replace(request, wheel=None))
    for private, lack in missing_in(base):
        say(f"{lack}; {private.consequence}")
    if written:
        then = "; then commit patches/" if IS_CHECKOUT else ""
        say(f"the smallest operator can be built; next: make test PIN={version}{then}")


def wheels_in(path: Path) -> tuple[TorchVersion, dict[str, str]]:
    """Return the version of a wheel file, and its compatibility tag with its sha256."""
    version, _ = in_name_of(path, "TORCH")
    return version, {_tag(path.name): sha256_of_file(path)}


def wheels_of(torch: str, index: str, own: Mapping[str, str]) -> tuple[TorchVersion, dict[str, str]]:
    """Return the version that ``TORCH`` names, and the compatibility tag and sha256 of each of its wheels.

    If pip's indexes and ``index`` have none, ask PyTorch's ``own`` index for this local version.
    """
    try:
        version = TorchVersion(Version(torch))
    except InvalidVersion as error:
        raise UsageError(
            f"TORCH={torch}: neither a version nor a wheel file",
            todo="set TORCH to a version, such as TORCH=2.15.0 or TORCH=2.13.0+cpu, or to the path of a torch-*.whl",
        ) from error
    try:
        return version, _of_index(version, index)
    except UnavailableError:
        if version.local not in own:
            raise
        return version, _of_index(version, own[version.local])


def _of_index(version: str, index: str) -> dict[str, str]:
    found: list[Distribution] = []
    # One after another: if an index does not serve metadata, pip downloads each wheel to read it.
    for machine, python in product(ARCHITECTURES, PYTHONS):
        platforms = [f"--platform={name.format(machine)}" for name in _PLATFORMS]
        try:
            found += ask_pip(f"torch==={version}", index, f"--python-version={python}", "--no-deps", *platforms)
        except UnavailableError as error:
            missing = error
    if found:
        return {_tag(wheel.file): wheel.sha256 for wheel in found}
    missing.todo = missing.todo or "set TORCH to an existing version, or INDEX to an index that has it"
    raise missing


def _tag(file: str) -> str:
    """Return one compatibility tag of a wheel; a file name may contain several."""
    *_, tags = parse_wheel_filename(file)
    return min(map(str, tags))


def _completed(folder: Path, version: TorchVersion, wheels: Mapping[str, str]) -> Pin:
    """Return the pin in ``folder``, or a new one, with these wheels."""
    path = folder / "pin.yaml"
    new = Pin(path, version, GitSource("", ""), SourceSettings(), {}, indexes(folder.parent), {}, 0, "")
    pin = load_pin(folder) if path.is_file() else new
    hashes = pin.wheels.get(version, {})
    for tag, sha256 in wheels.items():
        if hashes.get(tag, sha256) != sha256:
            raise UsageError(
                f"{path}: {version}, {tag}: the file differs from the pinned one",
                cause=f"the pin has {hashes[tag]}, but the file has {sha256}",
                todo="check which file is the official wheel; if it is the new one, delete the pin's line first",
            )
    known = {**pin.wheels, version: dict(sorted({**hashes, **wheels}.items()))}
    return replace(pin, wheels=known, version=version)


def text_of(pin: Pin, base: Base) -> str:
    """Return the text of the pin's file. If the file exists, only its wheels are replaced."""
    standard = standard_of(base)
    if not pin.path.is_file():
        return with_wheels(new_pin(pin.version.release, base.commit, standard), pin)
    pairs = [(pin.source.commit, base.commit)] if isinstance(pin.source, GitSource) else []
    for said, is_so in [*pairs, (pin.standard, standard)]:
        if said != is_so:
            raise UsageError(
                f"{pin.path}: it has {said}, but torch {pin.version} has {is_so}",
                todo="check that all wheels of this pin are of one release, and fix the pin",
            )
    return with_wheels(pin.path.read_text(encoding="utf-8"), pin)


def standard_of(base: Base) -> str:
    """Return the C++ standard that PyTorch compiles extensions with, for example ``c++20``."""
    text = (base.tree / "torch/utils/cpp_extension.py").read_text(encoding="utf-8")
    # The examples there mention other standards, too.
    found = Counter(re.findall(r"-std=(c\+\+\d+)", text)).most_common(1)
    if not found:
        raise UsageError(f"{base.wheel.name} cannot be used as a base: it does not say its C++ standard")
    return str(found[0][0])


def new_pin(version: str, commit: str, standard: str) -> str:
    """Return the text of a new pin without its wheels."""
    if standard not in _GXX:
        raise UsageError(
            f"torch {version} is built with {standard}, but Graft knows no g++ for it",
            todo=f"add the oldest g++ that compiles it to _GXX in {Path(__file__).name}, beside {', '.join(_GXX)}",
        )
    return _NEW.format(version=version, commit=commit, gxx=_GXX[standard], standard=standard)


def with_wheels(text: str, pin: Pin) -> str:
    """Return ``text`` with the pin's wheels in place of its own, or appended if it has none. The rest is unchanged."""
    if _WHEELS in text and list(yaml.safe_load(text))[-1] != "wheels":
        raise UsageError(f"{pin.path}: `wheels:` is not its last section", todo="move it to the end")
    head = text.rpartition(_WHEELS)[0] if _WHEELS in text else f"{text.rstrip()}\n{_ABOVE_WHEELS}"
    lines = []
    for version, hashes in pin.wheels.items():
        lines += [f"  {version}:", *(f"    {tag}: {sha256}" for tag, sha256 in hashes.items())]
    return head + _WHEELS + "\n".join(lines) + "\n"


def with_toolkit(text: str, cuda: str, index: str) -> str:
    """Return ``text``, the file of toolkits, with the toolkit of CUDA ``cuda`` appended if it is new and pip has it."""
    is_new = cuda and cuda not in yaml.safe_load(text)
    found = {machine: find_packages(cuda, index, machine) for machine in ARCHITECTURES} if is_new else {}
    lines = [f'"{cuda}":']
    for machine, packages in found.items():
        if packages:
            lines += [f"  {machine}:", *(f"    {requirement}: {sha256}" for requirement, sha256 in packages.items())]
    return text.rstrip() + "\n" + "\n".join(lines) + "\n" if any(found.values()) else text


def find_packages(cuda: str, index: str, machine: str) -> dict[str, str]:
    """Return the packages of the toolkit of CUDA ``cuda``, as requirements with their hashes; empty if pip has no such
    compiler, as for CUDA 12, whose packages contain only parts of one.
    """
    compiler = [f"{name}=={cuda}.*" for name in COMPILER]
    try:
        found = ask_pip(f"cuda-toolkit[{','.join(_PARTS)}]=={cuda}.*", index, *platform_options(machine), *compiler)
    except UnavailableError:
        return {}
    packages = sorted((each for each in found if each.name != "cuda-toolkit"), key=lambda each: each.name)
    return {f"{each.name}=={each.version}": each.sha256 for each in packages}


def _report(pin: Pin, base: Base, toolkits: Mapping[str, object], written: Sequence[Path]) -> str:
    pythons = []
    for machine in ARCHITECTURES:
        has = [re.sub(r"cp3(\d+)-.*", r"3.\1", tag) for tag in pin.sha256 if tag.endswith(machine)]
        lacks = [python for python in PYTHONS if python not in has]
        pythons.append(f"{machine}: {' '.join(has) or 'none'}" + (f" (not {' '.join(lacks)})" if has and lacks else ""))
    devices = f"CPU, CUDA {base.cuda} for {' '.join(base.architectures)}" if base.cuda else "CPU"
    lines = [
        f"torch {pin.version}: {devices}; {standard_of(base)}; commit {base.commit}",
        f"  Pythons: {'; '.join(pythons)}",
        f"  written: {', '.join(map(str, written)) or 'nothing; the pin was complete'}",
    ]
    if base.cuda and base.cuda not in toolkits:
        lines.append(f"  pip has no toolkit of CUDA {base.cuda}: CUDA kernels need CUDA_HOME")
    return "\n".join(lines)
