"""``make bench-build``: how long builds take, measured on a copy of this repository.

Of the shipped folder two operators are measured, a composed and a vectorized one, and then all, since the cost of a
build grows with the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..common.console import say
from ..common.errors import CommandError
from ..common.files import write_atomically
from ..common.layout import REPOSITORY, Layout
from ..common.process import run
from ..compile.blame import entries
from ..inputs.native import DERIVATIVES, FUNCTIONS

# An operator that uses what most do: a kernel, a method and a derivative formula.
_FUNCTIONS = """
- func: bench_scale(Tensor self, Scalar factor) -> Tensor
  variants: function, method
  dispatch:
    CompositeExplicitAutograd: bench_scale
"""
_DERIVATIVES = """
- name: bench_scale(Tensor self, Scalar factor) -> Tensor
  self: grad * factor
  result: auto_linear
"""
_KERNEL = """#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/bench_scale_native.h>

namespace at::native {

Tensor bench_scale(const Tensor& self, const Scalar& factor) {
  return self.mul(factor);
}

} // namespace at::native
"""


# What is measured of the shipped folder.
_MEASURED = ("gdh", "twice_plus", "twice_plus_", "twice_plus.out")
_MEASURED_FILES = ("Gdh.cpp", "TwicePlus.cpp", "TwicePlus.h", "cpu/TwicePlusKernel.cpp")


@dataclass(frozen=True)
class Case:
    """A measured build.

    Args:
        name: what was changed before it.
        limit: the most it may take on two cores, in seconds; 0 for none.
        seconds: how long the command took.
        steps: how long each step of the build took, in seconds.
    """

    name: str
    limit: float
    seconds: float
    steps: dict[str, float]


def bench_build(layout: Layout, *, base_wheel: Path | None, jobs: int, result: Path) -> None:
    """Time builds of a copy of this repository; print them and write them to ``result`` as JSON.

    "From nothing" makes the builder's virtual environment and fetches the wheel too.
    """
    copy = REPOSITORY / "build/bench"
    shutil.rmtree(copy, ignore_errors=True)
    for name in run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=REPOSITORY).stdout.split():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, copy / name)
    is_shipped = layout.native == REPOSITORY / "native"
    if is_shipped:
        _take_measured(layout.native, copy / "measured")
    else:
        shutil.copytree(layout.native, copy / "measured", dirs_exist_ok=True)
    variables = [f"PIN={layout.pin}", f"JOBS={jobs}", *([f"WHEEL={base_wheel.resolve()}"] if base_wheel else [])]

    changes: list[tuple[str, float, Callable[[Path], None]]] = [
        ("everything from nothing", 90, lambda _: None),
        ("nothing changed", 1, lambda _: None),
        ("one kernel file edited", 15, _edit_kernel),
        ("one operator added", 30, _add_operator),
    ]
    cases = []
    for name, limit, change in changes:
        change(copy / "measured")
        cases.append(_measure(name, limit, copy, [*variables, f"NATIVE={copy / 'measured'}"]))
    if is_shipped:
        cases.append(_measure("all shipped operators", 0, copy, variables))
    report = {"processors": os.cpu_count(), "jobs": jobs, "cases": [asdict(case) for case in cases]}
    write_atomically(result, json.dumps(report, indent=1) + "\n")
    say(f"written to {result}")


def _measure(name: str, limit: float, copy: Path, variables: list[str]) -> Case:
    timings = copy / "timings.json"
    timings.unlink(missing_ok=True)
    command = ["make", "patch-and-build", *variables, f"ARGS=--timings {timings}"]
    start = time.perf_counter()
    # Not this build's make: a sub-make would share its job slots.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        raise CommandError(f"`{' '.join(command)}` failed", cause=done.stderr[-4000:])
    case = Case(name, limit, seconds, json.loads(timings.read_text()))
    say(f"{name:26} {seconds:6.1f} s" + (f"   (at most {limit:g} s)" if limit else ""))
    for step, taken in case.steps.items():
        say(f"    {step:30} {taken:6.1f} s")
    return case


def _take_measured(native: Path, folder: Path) -> None:
    """Copy the measured operators of ``native`` into ``folder``, as a folder of their own."""
    for name in _MEASURED_FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(native / name, folder / name)
    for file in (FUNCTIONS, DERIVATIVES):
        chosen = [entry for entry in entries(native / file) if entry.name in _MEASURED]
        (folder / file).write_text("".join(f"{line}\n" for entry in chosen for line in entry.text))


def _edit_kernel(native: Path) -> None:
    """Change the first vectorized source, which is compiled three times, or else any source."""
    source = next(iter([*sorted(native.glob("cpu/*.cpp")), *sorted(native.glob("*.cpp"))]))
    source.write_text(f"{source.read_text()}\n// edited\n")


def _add_operator(native: Path) -> None:
    for name, text in (("native_functions.yaml", _FUNCTIONS), ("derivatives.yaml", _DERIVATIVES)):
        path = native / name
        path.write_text((path.read_text() if path.is_file() else "") + text)
    (native / "BenchScale.cpp").write_text(_KERNEL)
