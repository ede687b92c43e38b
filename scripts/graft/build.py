"""Build and check: from a snapshot of the inputs to a wheel."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .core.console import Steps, say
from .core.errors import run_all
from .core.files import sha256_of_file
from .core.layout import Layout
from .core.lock import build_lock
from .deliver.built import Built, load_built, save_built
from .inputs.cuda_toolkit import request
from .inputs.snapshot import Snapshot, take_snapshot

if TYPE_CHECKING:
    from .base.base import Base
    from .stages import Graft


@dataclass(frozen=True)
class Result:
    """The result of a build.

    Args:
        wheel: the new wheel.
        seconds: how long each step took; empty if nothing had to be done.
    """

    wheel: Path
    seconds: dict[str, float]


def build(layout: Layout, *, base_wheel: Path | None, jobs: int) -> Result:
    """Bring the wheel for ``layout`` up to date.

    Args:
        layout: the pin, the native folders and where the wheel goes.
        base_wheel: path of the base wheel; None to download it with pip.
        jobs: the maximum number of compilers to run at once.

    Raises:
        GraftError: the build failed; existing files are unchanged.
    """
    snapshot = take_snapshot(layout)
    wanted = request()
    with build_lock(layout.work), snapshot.translated():
        built = load_built(layout)
        if built and built.stamp == snapshot.stamp and built.cuda in ("", wanted) and built.is_there():
            save_built(layout, built)  # which makes it the last build
            say(f"nothing changed: {built.wheel}\n{how_to_install(Path(built.wheel))}")
            return Result(Path(built.wheel), {})
        from .base.tree import get_base  # importing these takes as long as everything before them
        from .stages import Graft

        steps = Steps(total=7)
        base = get_base(snapshot.pin, layout, base_wheel, steps)
        graft = Graft(layout, snapshot, base, jobs, steps)
        target = pack_wheel(layout, snapshot, base, graft, steps)
        save_built(layout, Built.of(snapshot.stamp, target, graft.cuda.request))
    if built and built.wheel != str(target):
        Path(built.wheel).unlink(missing_ok=True)
    report(target, steps)
    return Result(target, steps.seconds)


def pack_wheel(layout: Layout, snapshot: Snapshot, base: Base, graft: Graft, steps: Steps) -> Path:
    """Build and write the wheel. Return its path."""
    from .compile.link import products
    from .compose.files import compose, describe_additions
    from .deliver.platform_tag import platform_tag
    from .deliver.wheel import pack, with_graft

    made = graft.make(products)
    with steps.step("compose"):
        note = {"delivery": "wheel", "base": base.version, "hash": made.hash_, "folders": {}}
        files = compose(base.tree, made, with_graft(base.version, made.hash_), note)
    with steps.step("pack"):
        platform = platform_tag(base.platforms, made.libraries.values())
        version = with_graft(snapshot.pin.wheel_version, made.hash_)
        notice = describe_additions(base.version, made.description)
        return pack(
            base.wheel, files, version=version, platform=platform, out=layout.out, notice=notice, owner=layout.name
        )


def check(layout: Layout, *, base_wheel: Path | None) -> None:
    """Find errors in the native folders, the pin and its patches without building anything.

    Raises:
        GraftError: lists every error. If the pin is invalid, the rest is not checked.
    """
    from .base.tree import get_base
    from .check.run import check_native
    from .compose.files import installed_headers
    from .compose.required import require_names
    from .inputs.patches import load_series, patched

    snapshot = take_snapshot(layout)
    with build_lock(layout.work), snapshot.translated():
        native = snapshot.lay_out()
        base = get_base(snapshot.pin, layout, base_wheel, Steps(total=2))
        series = load_series(snapshot.patches)
        run_all(
            lambda: check_native(snapshot, base.tree),
            lambda: patched(series, base.tree, layout.work),
            lambda: installed_headers(base.tree, native),
            lambda: require_names(base.tree),
        )
    say(f"{layout.title}: no errors found; {len(series)} patches")


def check_cuda(layout: Layout, *, base_wheel: Path | None, jobs: int) -> None:
    """Compile the CUDA sources of a build. Nothing is linked.

    Raises:
        GraftError: the compiler's messages, with paths in the native folder.
    """
    from .base.tree import get_base
    from .stages import Graft

    snapshot = take_snapshot(layout)
    with build_lock(layout.work), snapshot.translated():
        steps = Steps(total=4)
        base = get_base(snapshot.pin, layout, base_wheel, steps)
        nvcc = Graft(layout, snapshot, base, jobs, steps).check_cuda()
    targets = ", ".join(f"sm_{name}" for name in nvcc.architectures)
    say(f"{layout.title}: its CUDA sources compile for {targets} with PyTorch {snapshot.pin.version}")


def report(wheel: Path, steps: Steps) -> None:
    """Print what was built."""
    size = wheel.stat().st_size
    say(f"{wheel}\n  {size:,} bytes, sha256 {sha256_of_file(wheel)}\n  {sum(steps.seconds.values()):.1f} s in all")
    say(how_to_install(wheel))


def how_to_install(wheel: Path) -> str:
    """Return the command that installs this wheel. OUT may also hold wheels of other folders, so the path must be
    exact.
    """
    return f"  to install it: pip install {shlex.quote(str(wheel))}"
