"""Processor architectures, with everything in a build that depends on them."""

from __future__ import annotations

import functools
import json
import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .errors import CommandError, UsageError
from .keys import FILE
from .process import run


@dataclass(frozen=True)
class Architecture:
    """A processor architecture.

    Args:
        name: its name in the tags of wheels, and the first word of ``g++ -dumpmachine``.
        elf: its name in ELF files, as pyelftools has it.
        loader: the dynamic loader, which exports a function for thread-local variables.
        jump: assembly that jumps to the address in the variable ``{slot}``. It preserves the argument registers.
        definitions: macros for every source. They decide which members ``DispatchStub`` has, and how it is called.
        capabilities: the flags of each of ATen's CPU capabilities, from PyTorch's cmake/Codegen.cmake. DEFAULT comes
            first: of several copies of an inline function, the linker keeps the first, and that must run on every
            processor.
        cuda: its name in the folders of a CUDA toolkit.
        edited: the capability for sources that are being edited: fast code for a short compile time.
        needed: the processor features that ``edited`` needs (ATen/native/DispatchStub.cpp), by their names in Linux.
    """

    name: str
    elf: str
    loader: str
    jump: str
    definitions: tuple[str, ...]
    capabilities: Mapping[str, tuple[str, ...]]
    cuda: str
    edited: str = "DEFAULT"
    needed: frozenset[str] = field(default_factory=frozenset)

    def capability_for_edits(self) -> str:
        """Return ``edited`` if this machine's processor can run it, otherwise DEFAULT."""
        try:
            text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        except OSError:
            return "DEFAULT"
        features = set(text.partition("flags")[2].partition("\n")[0].split())
        return self.edited if features >= self.needed else "DEFAULT"


def _sve(bits: int) -> tuple[str, ...]:
    # PyTorch passes armv8-a, with which g++ 12 does not inline bfloat16 functions. Every SVE processor has armv8.2.
    flags = ("-O3", "-march=armv8.2-a+sve+bf16", f"-msve-vector-bits={bits}")
    return (*flags, "-D__ARM_FEATURE_BF16", "-DCPU_CAPABILITY_SVE")


ARCHITECTURES = {
    each.name: each
    for each in (
        Architecture(
            name="x86_64",
            elf="EM_X86_64",
            loader="ld-linux-x86-64.so.2",
            jump="endbr64\n  jmp *{slot}(%rip)",
            definitions=("HAVE_AVX2_CPU_DEFINITION", "HAVE_AVX512_CPU_DEFINITION"),
            capabilities={
                "DEFAULT": ("-O3",),
                "AVX2": (
                    "-O3",
                    "-mavx2",
                    "-mfma",
                    "-mf16c",
                    "-mno-avx256-split-unaligned-load",
                    "-mno-avx256-split-unaligned-store",
                ),
                "AVX512": ("-O3", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c"),
            },
            cuda="x86_64-linux",
            edited="AVX2",  # AVX512 takes 1.5 times as long to compile
            needed=frozenset({"avx2", "fma", "f16c"}),
        ),
        Architecture(
            name="aarch64",
            elf="EM_AARCH64",
            loader="ld-linux-aarch64.so.1",
            jump="hint #34\n  adrp x16, {slot}\n  ldr x16, [x16, #:lo12:{slot}]\n  br x16",
            definitions=(
                "AT_BUILD_ARM_VEC256_WITH_SLEEF",
                "HAVE_ARM_BF16_CPU_DEFINITION",
                "HAVE_SVE256_CPU_DEFINITION",
                "HAVE_SVE_CPU_DEFINITION",
            ),
            capabilities={"DEFAULT": ("-O3",), "SVE128": _sve(128), "SVE256": _sve(256)},
            cuda="sbsa-linux",
        ),
    )
}


def require_program(compiler: str) -> None:
    """Check that ``CXX`` names a program only.

    Raises:
        UsageError: it has flags, or a launcher.
    """
    first, _, rest = compiler.strip().partition(" ")
    if not rest or shutil.which(compiler):
        return
    if rest.lstrip().startswith("-"):
        raise UsageError(
            f"CXX={compiler}: this is a compiler with flags",
            todo=f"set CXX={first}, and write cxx-flags = {json.dumps(rest.split())} into [tool.graft] of {FILE}",
        )
    raise UsageError(f"CXX={compiler}: these are two programs", todo=f"set CXX={rest.split()[0]} and LAUNCHER={first}")


@functools.cache
def machine_of(compiler: str) -> str:
    """Return the name of the architecture that a compiler compiles for; this machine's if the compiler does not run
    (``find_toolchain`` reports that).
    """
    try:
        return run([compiler, "-dumpmachine"]).stdout.partition("-")[0].strip()
    except (CommandError, OSError):
        return platform.machine()


def architecture_of(compiler: str) -> Architecture:
    """Return the architecture that a compiler compiles for."""
    machine = machine_of(compiler)
    if machine not in ARCHITECTURES:
        raise UsageError(
            f"`{compiler}` compiles for {machine}, but only {' and '.join(ARCHITECTURES)} are supported",
            todo="set CXX to a g++ for one of these",
        )
    return ARCHITECTURES[machine]
