"""Use the torch installed in an environment as the base. Nothing is downloaded, and its files are never changed."""

from __future__ import annotations

import hashlib
import json
import os
import sysconfig
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from pathlib import Path

from packaging.version import Version

from ..core.console import say
from ..core.errors import CommandError, UsageError
from ..core.layout import PATCHES, Layout, TorchVersion, expanded
from ..core.process import run
from ..inputs.patches import ADDED
from ..inputs.pin import known_pins
from ..options import INSTALLED, Request
from .base import NO_GIL, Base, refuse_other_devices, unusable

# The folder of trees in the environment's site-packages. No module can have this name.
TREES = "torch.graft"

# The packages of a base.
PACKAGES = ("torch", "torchgen")

# Run by the environment's Python. It skips the folders that `make develop` added to the path.
_LOOK = f"""
import json, os, sys, sysconfig
paths = [path for path in sys.path if {TREES!r} not in path.split(os.sep)]
found = [path for path in paths if os.path.isfile(os.path.join(path, "torch", "version.py"))]
print(json.dumps([sysconfig.get_path("purelib"), found[:1], sysconfig.get_config_var("SOABI") or ""]))
"""


@dataclass(frozen=True)
class Environment:
    """A Python environment and the torch in it.

    Args:
        python: its interpreter.
        packages: its site-packages, where `make develop` installs.
        site: the folder that holds ``torch``.
    """

    python: str
    packages: Path
    site: Path

    @property
    def version(self) -> TorchVersion:
        """The version that pip reports for this torch, or ``__version__`` if pip did not install it."""
        found = [each.version for each in distributions(name="torch", path=[str(self.site)])]
        return TorchVersion(found[0]) if found else Base(self.site / "torch", self.site).version

    def require_official(self) -> None:
        """Check that its torch is not a grafted wheel.

        Raises:
            UsageError: it is a grafted wheel.
        """
        if (self.site / ADDED).is_file():
            # 2.13.0+cpu for 2.13.0+cpu.graft.<hash>.
            official = self.version.partition("graft.")[0].rstrip("+.")
            raise UsageError(
                f"{self.site}/torch: this torch is a grafted wheel already",
                todo=f"install the official wheel: pip install --force-reinstall --no-deps 'torch=={official}'",
            )

    def state(self) -> dict[str, list[int]]:
        """Return the size and time of its libraries, by path in ``site``. They change when torch is replaced."""
        files = [self.site / "torch/version.py", *sorted(self.site.glob("torch/lib/*.so*"))]
        files += sorted(self.site.glob("torch/_C.*.so"))
        statuses = {file.relative_to(self.site).as_posix(): file.stat() for file in files}
        return {name: [status.st_size, status.st_mtime_ns] for name, status in statuses.items()}

    @property
    def key(self) -> str:
        """An identifier of the base: it differs for another folder, or another torch in it."""
        text = json.dumps([str(self.site), self.state()])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def content(self) -> str:
        """An identifier of the files that a tree links to: it also differs if a Python file was edited."""
        files = sorted(file for package in PACKAGES for file in (self.site / package).rglob("*.py"))
        statuses = [(str(file), status.st_size, status.st_mtime_ns) for file in files for status in [file.stat()]]
        return hashlib.sha256(json.dumps([self.key, statuses]).encode()).hexdigest()[:12]


def find_site(python: str) -> tuple[Path, Path | None]:
    """Return the site-packages of a Python, and the folder that contains its torch, or None."""
    if (folder := expanded(python)).is_dir():
        there = next((each for name in ("python", "python3") if (each := folder / "bin" / name).is_file()), None)
        todo = f"did you mean {there}?" if there else "set PYTHON to the Python of an environment"
        raise UsageError(f"PYTHON={python}: this is a folder", todo=todo)
    try:
        packages, found, abi = json.loads(run([python, "-I", "-c", _LOOK]).stdout.splitlines()[-1])
    except (CommandError, OSError, ValueError, TypeError, IndexError) as error:
        raise UsageError(
            f"PYTHON={python}: it does not run as Python", todo="set PYTHON to the Python of an environment"
        ) from error
    ours = sysconfig.get_config_var("SOABI")
    if abi != ours:
        raise UsageError(f"--python {python}: it is for {abi}, but the builder runs on {ours}", todo="run it with make")
    return Path(packages), Path(found[0]) if found else None


def find_environment(python: str) -> Environment:
    """Return the environment of a Python that has torch.

    Raises:
        UsageError: it has no torch, or a grafted wheel.
    """
    packages, site = find_site(python)
    if site is None:
        raise UsageError(
            f"PYTHON={python}: no torch is installed there",
            cause=f"its site-packages is {packages}{_on_pythonpath()}",
            todo="set PYTHON to the Python of an environment that has torch, or install torch",
        )
    # Absolute, for commands that run in another folder.
    environment = Environment(str(Path.cwd() / python) if os.sep in python else python, packages, site)
    environment.require_official()
    return environment


def _on_pythonpath() -> str:
    """Return a text for an error about a torch on PYTHONPATH; empty if there is none."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found = next((path for path in paths if path and (Path(path) / "torch").is_dir()), "")
    return f"; {found}/torch is on PYTHONPATH, which other programs of that Python do not read" if found else ""


def layout_on(layout: Layout, environment: Environment) -> Layout:
    """Return the folders of a build on an installed torch. Warn if its version is untested."""
    version = environment.version
    known = known_pins(PATCHES)
    release = version.release
    if release not in (each.release for each in known):
        release = max((each.release for each in known), key=Version)
        said = f"torch {version} is untested: the build uses what is known of {release}, and stops where they differ"
        say(f"{said}; tested are {', '.join(known)}")
    return replace(layout, pin=version, installed=environment.key, pin_folder=PATCHES / release)


def layout_of(request: Request) -> tuple[Layout, Environment | None]:
    """Return the folders of a build, and the environment whose torch is its base if the pin is ``INSTALLED``."""
    environment = find_environment(request.python) if request.pin == INSTALLED else None
    return (layout_on(request.layout, environment) if environment else request.layout), environment


def base_of(environment: Environment, folder: Path) -> Base:
    """Return the base installed in ``environment``, with links to its packages in ``folder``, which a build uses."""
    torch = environment.site / "torch"
    tree = folder / "tree"
    tree.mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        link, target = tree / name, environment.site / name
        if not target.is_dir():
            raise unusable(torch, f"its {name} is missing")
        if not link.is_symlink() or link.readlink() != target:
            link.unlink(missing_ok=True)
            link.symlink_to(target)
    base = Base(torch, tree)
    mark = folder / "usable"
    if not mark.is_file():
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            raise unusable(torch, f"it is for {NO_GIL}")
        refuse_other_devices(torch, [path.name for path in base.libraries.iterdir()])
        base.require_usable()
        mark.touch()
    return base
