"""``make check-cuda``: compile the CUDA sources of a native folder; nothing is linked or run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..base.fetch import fetch
from ..base.torchgen import run_with_torchgen
from ..base.tree import is_needed_to_compile, lay_out
from ..common.console import StepLine, Steps, say
from ..common.errors import OperatorError, PinError
from ..common.layout import Layout
from ..common.lock import build_lock
from ..compile import blame
from ..compile.ninja import BASE_INCLUDES, Names, compile_units
from ..compile.units import Unit, lay_out_sources
from ..generate.merge import merge
from ..inputs.cuda_toolkit import Nvcc, lay_out_toolkit
from ..inputs.native import NativeFolder
from ..inputs.pin import Pin, load_pin
from ..inputs.snapshot import Snapshot, take_snapshot

_SOURCE_SUFFIXES = (".cu", ".cpp")

# Unlike a build, this compiles everything with the headers of the wheel that would be.
_INCLUDES = ("src", "generated/include", "generated/wheel/torch/include", "fixed", *BASE_INCLUDES)


def check_cuda(layout: Layout, *, base_wheel: Path | None, jobs: int, architectures: Sequence[str]) -> None:
    """Compile ``cuda/`` of the native folder, and its operators' registrations for CUDA.

    Args:
        layout: a pin of a CUDA wheel, and the native folder.
        base_wheel: that wheel as a file; None to let pip fetch it.
        jobs: how many compilers may run at once.
        architectures: of GPUs, such as ``90a``; none for those of the pin.

    Raises:
        GraftError: with the compiler's messages, which name the native folder's own files.
    """
    pin = load_cuda_pin(layout.patches)
    snapshot = take_snapshot(layout)
    host = snapshot.toolchain
    with build_lock(layout.work), snapshot.translated():
        native = snapshot.lay_out()
        steps = Steps(total=5)
        with steps.step("fetch the CUDA wheel"):
            wheel = fetch(pin, layout.base, base_wheel)
        with steps.step("lay it out") as line:
            base = lay_out(wheel, layout.base / "tree", line, is_needed_to_compile)
        with steps.step("fetch the CUDA toolkit") as line:
            toolkit = lay_out_toolkit(base, layout.pin_build / "cuda-toolkit", line)
        nvcc = Nvcc(toolkit, host, tuple(name.removeprefix("sm_") for name in architectures) or pin.architectures)
        nvcc.require_known_architectures()
        with steps.step("generate") as line:
            lay_out_sources(layout, native)
            generate(layout, snapshot, native, base.tree, line)
        with steps.step("compile") as line:
            names = Names(native.path, snapshot.translate)
            compile_units(layout, units(layout, native), nvcc, jobs, line, names, includes=_INCLUDES)
    targets = ", ".join(f"sm_{name}" for name in nvcc.architectures)
    say(f"{layout.title}: {len(native.cuda)} files of CUDA compile for {targets} with PyTorch {pin.version}")


def load_cuda_pin(folder: Path) -> Pin:
    """Read the pin of a CUDA wheel.

    Raises:
        PinError: there is none, or its wheel is for CPUs.
    """
    pin = load_pin(folder)
    if not pin.architectures:
        with_cuda = sorted(
            path.parent.name for path in folder.parent.glob("*/pin.yaml") if load_pin(path.parent).architectures
        )
        raise PinError(
            f"{pin.path}: this pin's wheel is for CPUs, and has no headers of CUDA to compile with",
            todo=f"set PIN to one of: {', '.join(with_cuda)}",
        )
    return pin


def generate(layout: Layout, snapshot: Snapshot, native: NativeFolder, tree: Path, line: StepLine) -> None:
    """Generate headers and the registrations for CUDA with the wheel's own torchgen.

    Raises:
        OperatorError: with torchgen's message, naming the native folder's file and line.
    """
    merged = merge(native, tree, layout.generated / "wheel")
    arguments: list[str | Path] = ["--base", tree, "--native", native.path, "--out", layout.generated, "--part", "cuda"]
    done = run_with_torchgen(tree, "scripts.generate", *arguments)
    if done.returncode != 0:
        raise OperatorError(snapshot.translate(blame.of_torchgen(done.stdout.strip(), merged)))
    line.note = f"{len(list((layout.generated / 'ATen').glob('*.cpp')))} sources"


def units(layout: Layout, native: NativeFolder) -> list[Unit]:
    """The sources in ``cuda/`` and the generated registrations, each with its object file."""
    sources, objects = (folder.relative_to(layout.work) for folder in (layout.sources, layout.objects))
    own = [name for name in native.cuda if name.suffix in _SOURCE_SUFFIXES]
    registrations = sorted(layout.generated.glob("ATen/Register*.cpp"))
    return [
        *(Unit(sources / name, objects / "native" / f"{name}.o") for name in own),
        *(Unit(source.relative_to(layout.work), objects / f"{source.stem}.o") for source in registrations),
    ]
