"""What tests of several folders share; it needs no torch."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files, given by their paths in ``folder``, which is returned."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    return folder


def git(tree: Path, *words: str) -> str:
    """What git prints in ``tree``, as somebody who may fetch from a folder."""
    who = ["-c", "user.name=Someone", "-c", "user.email=someone@example.com", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *who, *words], cwd=tree, stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout.strip()


def interruptible() -> None:
    """For ``preexec_fn`` of a process that is sent SIGINT: shells let jobs in the background ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@functools.cache
def processor_flags() -> frozenset[str]:
    """The features of this processor, as Linux names them."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return frozenset(next(line for line in lines if line.startswith("flags")).split())


def require_capability(capability: str) -> None:
    """Skip the test where the processor does not have what ATen's CPU capability needs."""
    if {"AVX2": "avx2", "AVX512": "avx512f"}.get(capability.upper(), "fpu") not in processor_flags():
        pytest.skip(f"this processor has no {capability.upper()}")


def of_the_base_wheel(variable: str) -> Path:
    """The path in ``variable``; skip the test where there is none."""
    if variable not in os.environ:
        pytest.skip("needs the official wheel that a graft is made from, and a source build has none")
    return Path(os.environ[variable]).resolve()
