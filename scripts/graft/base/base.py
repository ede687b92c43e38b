"""The base: its properties, all read from the wheel itself, and its torchgen."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from ..core.architecture import ARCHITECTURES
from ..core.elf import ElfFile
from ..core.errors import UsageError
from ..core.layout import BYTECODE, TorchVersion
from ..core.process import python_path, run
from ..inputs.toolchain import Toolchain

VERSION_FILE = "torch/version.py"

# The libraries whose hidden functions can be bound.
ALWAYS_BOUND = ("libtorch_cpu.so", "libtorch_python.so", "libc10.so")
_BOUND_FOR_CUDA = ("libtorch_cuda.so", "libc10_cuda.so")

# The library with PyTorch's kernels.
_OPERATORS = "libtorch_cpu.so"

# A flag of every build of PyTorch. libtorch_cpu.so contains it in a text of all flags.
_FLAG_OF_ALL = b" -DUSE_PTHREADPOOL "

# Macros, each with a header that sources then include and that a wheel may lack.
_HEADERS_OF = {
    "USE_FBGEMM": "fbgemm/Fbgemm.h",
    "USE_PYTORCH_QNNPACK": "pytorch_qnnpack.h",
    "USE_XNNPACK": "xnnpack.h",
    "USE_KINETO": "kineto/libkineto.h",
}

# Why a torch without the GIL is refused.
NO_GIL = "a free-threaded Python, on which nobody has tested this yet"

# Libraries that only a torch for another device than CPU and CUDA has.
_OTHER_DEVICES = {"libtorch_hip.so": "ROCm", "libtorch_xpu.so": "XPU"}


@dataclass(frozen=True)
class Library:
    """A library of the base.

    Args:
        needed: the libraries that it loads.
        rpath: where it searches for them; empty if it has no such entry.
        rpath_flag: the linker flag for such an entry. DT_RPATH also applies to the libraries that it loads.
    """

    needed: tuple[str, ...]
    rpath: str
    rpath_flag: str


@dataclass(frozen=True)
class Base:
    """An unpacked PyTorch and its properties.

    Args:
        wheel: the wheel that it comes from, or the installed folder ``torch``.
        tree: the folder that holds ``torch`` and ``torchgen``.
    """

    wheel: Path
    tree: Path

    @property
    def platforms(self) -> list[str]:
        """The platform tags of its wheel, also if it is installed."""
        if self.wheel.suffix == ".whl":
            return [tag.platform for tag in parse_wheel_filename(self.wheel.name)[3]]
        texts = [path.read_text(encoding="utf-8") for path in self.wheel.parent.glob("torch-*.dist-info/WHEEL")]
        tags = [line.rpartition("-")[2] for text in texts for line in text.splitlines() if line.startswith("Tag: ")]
        return [platform for tag in tags for platform in tag.split(".")]

    @property
    def include(self) -> Path:
        """PyTorch's headers."""
        return self.tree / "torch/include"

    @property
    def libraries(self) -> Path:
        """PyTorch's libraries."""
        return self.tree / "torch/lib"

    def library(self, name: str) -> Library:
        """Return the properties of the library with this path below ``torch``."""
        entries = ElfFile(self.tree / "torch" / name).dynamic()
        rpath, runpath = entries.get("DT_RPATH", [""])[0], entries.get("DT_RUNPATH", [""])[0]
        kind = "--disable-new-dtags" if rpath else "--enable-new-dtags"
        return Library(tuple(entries.get("DT_NEEDED", [])), runpath or rpath, kind)

    @cached_property
    def machine(self) -> str:
        """The name of the architecture that it is for."""
        found = ElfFile(self.libraries / _OPERATORS).machine
        return next((each.name for each in ARCHITECTURES.values() if each.elf == found), found)

    @cached_property
    def capabilities(self) -> tuple[str, ...]:
        """The CPU capabilities that it has kernels for, each a member of the class ``at::native::DispatchStub``."""
        section = ElfFile(self.libraries / _OPERATORS).section(".dynstr")
        names = section.data() if section else b""
        member = r"\0_ZN2at6native12DispatchStubI[^\0]+E{}{}E\0"
        known = ARCHITECTURES[self.machine].capabilities
        return tuple(name for name in known if re.search(member.format(len(name), name).encode(), names))

    def fitted(self, toolchain: Toolchain) -> Toolchain:
        """Return the toolchain with the base's macros, and only the CPU capabilities that the base has kernels for."""
        require_machine(self.wheel, self.machine, toolchain.machine)
        both = tuple(name for name in toolchain.capabilities if name in self.capabilities)
        macros = tuple(name for name in self.macros if name not in self.lacking)
        return replace(toolchain, capabilities=both, macros=macros)

    @cached_property
    def macros(self) -> tuple[str, ...]:
        """The macros for options of PyTorch's build, such as ``USE_FBGEMM``, on which the code of sources depends.
        ``torch.__config__.show()`` prints them, too.
        """
        content = ElfFile(self.libraries / _OPERATORS).data
        if (at := content.find(_FLAG_OF_ALL)) < 0:
            return ()
        flags = content[content.rfind(b"\0", 0, at) + 1 : content.find(b"\0", at)]
        return tuple(sorted({*re.findall(r"-D(USE_\w+)", flags.decode(errors="replace"))}))

    @property
    def lacking(self) -> dict[str, str]:
        """The macros that cannot be defined, each with the header that sources would include and the base lacks."""
        headers = {name: _HEADERS_OF[name] for name in self.macros if name in _HEADERS_OF}
        return {name: header for name, header in headers.items() if not (self.include / header).is_file()}

    @property
    def extension(self) -> str:
        """The path of ``torch._C`` below ``torch``."""
        (path,) = (self.tree / "torch").glob("_C.*.so")
        return path.name

    @cached_property
    def version(self) -> TorchVersion:
        """``__version__``. Unlike the version of some wheels it includes the variant: ``2.14.1+cu130``."""
        return TorchVersion(self._of_version_file("__version__"))

    @cached_property
    def commit(self) -> str:
        """The commit that it was built from."""
        return self._of_version_file("git_version")

    @cached_property
    def cuda(self) -> str:
        """The CUDA version, for example ``13.0``; empty for a CPU build."""
        return self._of_version_file("cuda")

    @cached_property
    def architectures(self) -> tuple[str, ...]:
        """The GPU architectures of its kernels, for example ``90`` (``torch.cuda.get_arch_list``)."""
        return architectures_of((self.libraries / "libtorch_python.so").read_bytes()) if self.cuda else ()

    def _of_version_file(self, name: str) -> str:
        return of_version_file((self.tree / VERSION_FILE).read_text(encoding="utf-8"), name)

    def require_usable(self) -> None:
        """Check that operators can be linked to this base."""
        for name in (*ALWAYS_BOUND, *(name for name in _BOUND_FOR_CUDA if (self.libraries / name).is_file())):
            file = ElfFile(self.libraries / name)
            if not file.build_id:
                raise unusable(
                    self.wheel, f"its {name} has no build-id, which is needed to bind hidden functions safely"
                )
            if not file.section(".symtab"):
                raise unusable(self.wheel, f"its {name} is stripped, so hidden functions cannot be found")


def architectures_of(library: bytes) -> tuple[str, ...]:
    """Return the GPU architectures that libtorch_python.so names."""
    found = re.search(rb"\0((?:(?:sm|compute)_\d+[af]? ?)+)\0", library)
    return tuple(re.findall(r"sm_(\w+)", found[1].decode())) if found else ()


def of_version_file(text: str, name: str) -> str:
    """Return the value of ``name`` in the text of ``VERSION_FILE``; empty if it is None."""
    found = re.search(rf"^{name}\b[^=\n]*= '(.*)'$", text, re.M)
    return found[1] if found else ""


def name_of_python(tag: Tag) -> str:
    """Return the tag of a Python's wheels, with the reason if none of them is supported."""
    return f"{tag}, {NO_GIL}" if tag.abi.endswith("t") else str(tag)


def refuse_unusable(wheel: Path, names: list[str], machine: str) -> None:
    """Check from a wheel's name and the names of its members that it is supported, and for this ``machine``."""
    *_, abi, platform = wheel.stem.split("-")
    own = next((name for name in ARCHITECTURES if platform.endswith(f"_{name}")), "")
    if "linux" not in platform or not own:
        raise unusable(wheel, f"it is for {platform}, but only Linux on {' and '.join(ARCHITECTURES)} is supported")
    require_machine(wheel, own, machine)
    if abi.endswith("t"):
        raise unusable(wheel, f"it is for {abi}, {NO_GIL}")
    refuse_other_devices(wheel, [Path(name).name for name in names if name.startswith("torch/lib/")])


def require_machine(where: Path, own: str, compiled: str) -> None:
    """Check that a torch is for the architecture that the compiler compiles for."""
    if own != compiled:
        error = unusable(where, f"it is for {own}, but the C++ compiler compiles for {compiled}")
        error.todo = f"set CXX to a g++ for {own}, such as {own}-linux-gnu-g++, or use a torch for {compiled}"
        raise error


def refuse_other_devices(where: Path, libraries: Iterable[str]) -> None:
    """Check from the names of its libraries that a torch is for CPU or CUDA."""
    found = set(libraries)
    for library, device in _OTHER_DEVICES.items():
        if library in found:
            raise unusable(where, f"it is for {device}, but only CPU and CUDA are supported")
    if "libtorch_cpu.so" not in found:
        raise unusable(where, "it contains no torch/lib/libtorch_cpu.so")


def unusable(where: Path, why: str) -> UsageError:
    """Return the error for a wheel, or an installed torch, that is not supported."""
    name = where.name if where.suffix == ".whl" else where
    return UsageError(f"{name} cannot be used as a base: {why}", todo="use an official wheel for CPU or CUDA")


def torchgen_command(tree: Path, module: str, *arguments: str | Path) -> tuple[list[str | Path], dict[str, str]]:
    """Return the command ``python -m module arguments`` of a process that imports the torchgen in ``tree``, and the
    environment variables that it needs. ``module`` is one of the builder. Run the command outside of the user's working
    directory, which Python searches first: it may be a checkout of PyTorch with another torchgen.
    """
    env = {"PYTHONPATH": python_path(tree), "PYTHONUTF8": "1"}
    # Write no bytecode beside the sources, which may be an installed torch's.
    env["PYTHONPYCACHEPREFIX"] = os.environ.get("PYTHONPYCACHEPREFIX") or str(BYTECODE)
    return [sys.executable, "-m", module, *arguments], env


def run_with_torchgen(
    tree: Path, module: str, *arguments: str | Path, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command of ``torchgen_command`` in ``cwd``, by default ``tree``. Return its result, whatever the exit
    code.
    """
    command, env = torchgen_command(tree, module, *arguments)
    return run(command, cwd=cwd or tree, env=env, check=False)
