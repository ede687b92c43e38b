"""``make thin-wheel``: build the operators as a wheel of their own, for people who have torch installed."""

from __future__ import annotations

from pathlib import Path

from .base.installed import base_of, find_environment
from .base.tree import get_base
from .build import Result, report
from .compile.link import thin_products
from .compose.thin import compose_thin
from .core.console import Steps
from .core.layout import Layout
from .core.lock import build_lock
from .deliver.platform_tag import platform_tag
from .deliver.thin_wheel import pack_thin, package_name, thin_version
from .develop import installed
from .inputs.snapshot import take_snapshot
from .stages import Graft

# The value of PIN for the torch installed in PYTHON's environment.
INSTALLED = "installed"


def thin_wheel(layout: Layout, *, name: str, version: str, python: str, base_wheel: Path | None, jobs: int) -> Result:
    """Build a thin wheel.

    Args:
        layout: the pin, or ``installed``, the native folders and where the wheel goes.
        name: the name of its package; empty for the name of the native folder.
        version: the version of the thin wheel.
        python: the Python of the environment that has torch, if the pin is ``installed``.
        base_wheel: path of the base wheel; None to download it with pip.
        jobs: the maximum number of compilers to run at once.

    Raises:
        GraftError: the build failed; existing files are unchanged.
    """
    package = package_name(name, layout.native)
    thin_version(version, "0")
    environment = find_environment(python) if layout.pin == INSTALLED else None
    if environment:
        layout = installed(layout, environment)
    snapshot = take_snapshot(layout)
    with build_lock(layout.work), snapshot.translated():
        steps = Steps(total=5 if environment else 7)
        base = base_of(environment, layout.base) if environment else get_base(snapshot.pin, layout, base_wheel, steps)
        graft = Graft(layout, snapshot, base, jobs, steps)
        made = graft.make(lambda units, base, nvcc: thin_products(package, units, base, nvcc))
        requires = snapshot.pin.wheel_version
        names = sorted({bound.public for bound in made.description.bound if not bound.name.startswith("_")})
        with steps.step("compose"):
            files = compose_thin(base, made, package, requires)
        with steps.step("pack"):
            target = pack_thin(
                files,
                name=package,
                version=thin_version(version, requires),
                requires=requires,
                platform=platform_tag(base.platforms, made.libraries.values()),
                out=layout.out,
                summary=f"Operators for PyTorch {requires}: {', '.join(names)}",
            )
    report(target, steps)
    return Result(target, steps.seconds)
