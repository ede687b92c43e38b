"""A plugin of pytest: the kernels of native/cuda, compiled for the CPU, replace those for CPUs.

So the operators' own tests show whether the kernels are right, where there is no GPU: indices, barriers, dtypes, empty
inputs. What they do not show is what only a GPU does: threads at the same time, speed. Processes that
the tests start have the kernels for CPUs.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import load

HERE = Path(__file__).resolve().parent
LAUNCH = re.compile(r"(\w+(?:<[\w, ]+>)?)\s*<<<(.*?)>>>\(", re.S)


def as_cpp(text: str) -> str:
    """The text of a .cu file with launches of kernels as C++ has no syntax for them."""
    return LAUNCH.sub(r"emulation::Launch([](const auto&... x) { \1(x...); }, \2)(", text)


def pytest_configure() -> None:
    native, folder = Path(os.environ["GRAFT_NATIVE"]), Path(os.environ["GRAFT_EMULATED"])
    folder.mkdir(parents=True, exist_ok=True)
    sources = []
    for source in sorted(native.glob("cuda/*.cu")):
        target = folder / f"{source.stem}.cpp"
        text = as_cpp(source.read_text())
        if not target.is_file() or target.read_text() != text:
            target.write_text(text)
        sources.append(str(target))
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where ninja is
    flags = ["-O1", "-include", "cuda_emulation.h", "-Wno-unknown-pragmas", "-DAT_PER_OPERATOR_HEADERS"]
    flags.append(f"-DCOMPILED_FOR={torch.__version__}")  # with another wheel's headers all is compiled anew
    load(
        "emulated_cuda",
        sources,
        extra_cflags=flags,
        extra_include_paths=[str(HERE / "include")],
        build_directory=str(folder),
        is_python_module=False,
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if marker := item.get_closest_marker("unemulated"):
            item.add_marker(pytest.mark.skip(reason=marker.args[0]))
