"""A pytest plugin that replaces CPU kernels by those of native/cuda, compiled for the CPU.

The operators' own tests then check these kernels without a GPU: indices, barriers, dtypes, empty inputs. They cannot
check concurrent threads and speed. Processes that the tests start use the CPU kernels.
"""

from __future__ import annotations

import ctypes
import os
import random
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import load

HERE = Path(__file__).resolve().parent
LAUNCH = re.compile(r"(\w+(?:<[\w, ]+>)?)\s*<<<(.*?)>>>\(", re.S)


# The number of parameter sets of a test; `make test-nightly` uses all.
MOST_PARAMETERS = 8

# ATen's kernel for TensorIterator has no name of its own, so it is counted under that of its source.
ELEMENTWISE = re.compile(r"\bgpu_kernel(?:_with_scalars)?\(")


def kernels_of(source: Path) -> list[str]:
    """Return the kernels that a .cu file launches, as counted by ``launches``."""
    text = source.read_text()
    names = [match[1].partition("<")[0] for match in LAUNCH.finditer(text)]
    return names + [source.stem] * len(ELEMENTWISE.findall(text))


def as_cpp(source: Path) -> str:
    """Replace kernel launches in the text of a .cu file, for which C++ has no syntax, by counted calls."""

    def launch(match: re.Match[str]) -> str:
        name = match[1].partition("<")[0]
        return f'emulation::Launch("{name}", [](const auto&... x) {{ {match[1]}(x...); }}, {match[2]})('

    text = LAUNCH.sub(launch, source.read_text())
    return ELEMENTWISE.sub(rf'emulation::launches["{source.stem}"]++, \g<0>', text)


def launches(name: str) -> int:
    """Return how often a kernel was launched in this process."""
    library = ctypes.CDLL(str(Path(os.environ["GRAFT_EMULATED"]) / "emulated_cuda.so"))
    return int(library.emulated_launches(name.encode()))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile the kernels, unless no test is selected."""
    if not session.items:
        return
    folder = Path(os.environ["GRAFT_EMULATED"])
    native = Path(os.environ["GRAFT_NATIVE"])
    # Sources find headers of the folder at its place in PyTorch. A wheel for CPUs has none of those in cuda/.
    place = folder / "include/ATen/native"
    place.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # several processes run tests
        if place.is_symlink() and place.readlink() != native:
            place.unlink()
        place.symlink_to(native)
    sources = []
    for source in sorted(native.glob("cuda/*.cu")):
        target = folder / f"{source.stem}.cpp"
        text = as_cpp(source)
        if not target.is_file() or target.read_text() != text:
            target.write_text(text)
        sources.append(str(target))
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the folder of ninja
    flags = ["-O1", "-include", "cuda_emulation.h", "-Wno-unknown-pragmas", "-DAT_PER_OPERATOR_HEADERS"]
    flags.append(f"-DCOMPILED_FOR={torch.__version__}")  # another wheel's headers need a full rebuild
    load(
        "emulated_cuda",
        sources,
        extra_cflags=flags,
        extra_include_paths=[str(HERE / "include"), str(folder / "include")],
        build_directory=str(folder),
        is_python_module=False,
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that emulation cannot support, and parameters that only repeat others."""
    chosen = items if os.environ.get("GRAFT_EMULATED_ALL") else _some_parameters(items)
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen
    for item in items:
        if marker := item.get_closest_marker("unemulated"):
            item.add_marker(pytest.mark.skip(reason=marker.args[0]))


def _some_parameters(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return some parameter sets of each test, always the same: most kernels have one code path for all sizes.

    Skip tests of CPU capabilities, since their programs use the CPU kernels.
    """
    of_function: dict[str, list[pytest.Item]] = {}
    for item in items:
        of_function.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen: set[pytest.Item] = set()
    for name, all_of_it in of_function.items():
        if "capability" not in getattr(all_of_it[0], "fixturenames", ()):
            chosen.update(random.Random(name).sample(all_of_it, min(len(all_of_it), MOST_PARAMETERS)))
    return [item for item in items if item in chosen]
