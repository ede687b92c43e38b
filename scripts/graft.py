"""The graft build, step by step."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .base.fetch import fetch
from .base.tree import Base, lay_out
from .check.run import check_native
from .common.console import StepLine, Steps, say
from .common.errors import OperatorError, UsageError, run_all
from .common.files import copy_tree_if_changed, sha256_of_file, write_atomically
from .common.layout import REPOSITORY, Layout
from .common.lock import build_lock
from .common.process import run
from .compile import blame
from .compile.link import link
from .compile.units import Objects, compile_all
from .compose.overlay import Overlay
from .compose.python_files import add_python
from .deliver.platform_tag import platform_tag
from .deliver.wheel import pack
from .inputs.merge import MergedFile, merge
from .inputs.native import NativeFolder, load_native, report_left_out
from .inputs.patches import Patch, load_series, patched
from .inputs.pin import load_pin
from .inputs.stamp import Built, codegen_stamp, load_built, save_built, stamp_of
from .inputs.toolchain import Toolchain, find_toolchain


@dataclass(frozen=True)
class Result:
    """What a build made.

    Args:
        wheel: the new wheel.
        seconds: how long each step took; empty if there was nothing to do.
    """

    wheel: Path
    seconds: dict[str, float]


def build(layout: Layout, *, base_wheel: Path | None, jobs: int) -> Result:
    """Bring the wheel for ``layout`` up to date.

    Args:
        layout: the pin, the native folder and where the wheel goes.
        base_wheel: the base as a file; None to let pip fetch it.
        jobs: how many compilers may run at once.

    Raises:
        GraftError: and nothing that was there before is changed.
    """
    native = load_native(layout.native)
    pin = load_pin(layout.patches)
    pin.require_wheel_for_cpus()
    series = load_series(layout.patches)
    toolchain = find_toolchain(pin)
    if layout.is_sanitized:
        toolchain = toolchain.sanitized()
    with build_lock(REPOSITORY / "build"):
        stamp = stamp_of(layout, native, toolchain)
        built = load_built(layout)
        if built and built.stamp == stamp and built.is_there():
            say(f"nothing changed: {built.wheel}")
            return Result(Path(built.wheel), {})

        version = f"{pin.wheel_version}.graft.{stamp[:10]}"
        steps = Steps(total=7)
        with steps.step("fetch the base wheel"):
            wheel = fetch(pin, layout.base, base_wheel)
        with steps.step("lay it out") as line:
            base = lay_out(wheel, layout.base / "tree", line)
        patched_files = check_all(layout, series, base)
        overlay = Overlay(layout.overlay, base.tree)
        with steps.step("apply patches and merge YAML") as line:
            for name, content in patched_files.items():
                overlay.write(name, content)
            merged = merge(native, overlay)
            install_headers(native, base, overlay)
            copy_tree_if_changed(native.path, layout.sources, native.files)
            overlay.write("torch/version.py", version_file(overlay.read("torch/version.py"), version))
            line.note = f"{len(series)} patches"
        report_left_out(native)
        with steps.step("generate") as line:
            generate(layout, native, merged, overlay, line)
            add_python(native, layout.generated, overlay)
            overlay.prune()
        with steps.step("compile") as line:
            objects = compile_all(layout, native, toolchain, jobs, line)
        with steps.step("link"):
            libraries = link_into(overlay, layout, base, toolchain, objects, version)
        with steps.step("pack"):
            platform = platform_tag(wheel, libraries)
            target = pack(wheel, overlay_content(overlay), version=version, platform=platform, out=layout.out)
        save_built(layout, Built.of(stamp, target))
    if built and built.wheel != str(target):
        Path(built.wheel).unlink(missing_ok=True)
    report(target, steps)
    return Result(target, steps.seconds)


def check(layout: Layout, *, base_wheel: Path | None) -> None:
    """Find the mistakes of the native folder, the pin and its patches without building anything.

    Raises:
        GraftError: naming every mistake. Without a sound pin there is no PyTorch to compare the rest with.
    """
    run_all(
        lambda: load_native(layout.native),
        lambda: load_pin(layout.patches).require_wheel_for_cpus(),
        lambda: load_series(layout.patches),
    )
    with build_lock(REPOSITORY / "build"):
        wheel = fetch(load_pin(layout.patches), layout.base, base_wheel)
        base = lay_out(wheel, layout.base / "tree", StepLine("lay out the base"))
        series = load_series(layout.patches)
        check_all(layout, series, base)
    say(f"{layout.native}: no mistakes found; {len(series)} patches")


def check_all(layout: Layout, series: list[Patch], base: Base) -> dict[str, bytes]:
    """Check the native folder and the patches against the base; return the files that the patches edit, patched.

    Raises:
        GraftError: naming every mistake.
    """
    _, files = run_all(
        lambda: check_native([layout.native], base.tree),
        lambda: patched(series, base.tree, layout.pin_build),
    )
    return dict(files)


def version_file(text: str, version: str) -> str:
    """torch/version.py with ``__version__`` set."""
    return re.sub(r"^__version__ = .*$", f"__version__ = '{version}'", text, count=1, flags=re.M)


def install_headers(native: NativeFolder, base: Base, overlay: Overlay) -> None:
    """Put the native folder's headers where PyTorch installs its own.

    Raises:
        UsageError: PyTorch has a header of the same name, which the base was compiled with.
    """
    for header in native.headers:
        name = f"torch/include/ATen/native/{header.as_posix()}"
        if (base.tree / name).is_file():
            raise UsageError(
                f"{native.path / header}: PyTorch has a header of this name, ATen/native/{header.as_posix()}",
                todo="give yours another name",
            )
        overlay.write(name, (native.path / header).read_bytes())


def generate(
    layout: Layout, native: NativeFolder, merged: Sequence[MergedFile], overlay: Overlay, line: StepLine
) -> None:
    """Run torchgen on the merged YAML, unless that was done for the same YAML.

    Raises:
        OperatorError: with torchgen's message, naming the native folder's file and line.
    """
    stamp = codegen_stamp(layout, native)
    stamp_file, manifest = layout.work / "generated.stamp", layout.generated / "overlay.txt"
    if stamp_file.is_file() and stamp_file.read_text() == stamp:
        line.note = "done already"
    else:
        stamp_file.unlink(missing_ok=True)
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "scripts.generate",
            "--base",
            overlay.base,
            "--overlay",
            overlay.folder,
            "--native",
            native.path,
        ]
        paths = os.pathsep.join([str(REPOSITORY), str(overlay.base)])
        done = run([*command, "--generated", layout.generated], env={"PYTHONPATH": paths}, check=False)
        if done.returncode != 0:
            raise OperatorError(blame.of_torchgen(done.stdout, merged, overlay.folder).strip())
        write_atomically(stamp_file, stamp)
    overlay.keep(manifest.read_text().splitlines())


def link_into(
    overlay: Overlay, layout: Layout, base: Base, toolchain: Toolchain, objects: Objects, version: str
) -> list[Path]:
    """Link the libraries and lay them into the overlay."""
    libraries = link(layout, base, toolchain, (objects.library, objects.extension), version)
    linked = layout.objects / "linked"
    for library in libraries:
        overlay.write(library.relative_to(linked).as_posix(), library.read_bytes())
    return libraries


def overlay_content(overlay: Overlay) -> dict[str, bytes]:
    """Every file of the overlay, by its path in the wheel."""
    return {name.as_posix(): (overlay.folder / name).read_bytes() for name in sorted(overlay.names)}


def report(wheel: Path, steps: Steps) -> None:
    """Say what was made."""
    size = wheel.stat().st_size
    say(f"{wheel}\n  {size:,} bytes, sha256 {sha256_of_file(wheel)}\n  {sum(steps.seconds.values()):.1f} s in all")
