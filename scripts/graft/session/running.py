"""The torch of this process: its environment, and whether the files on disk are still those that run."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from ..base.installed import TREES, Environment
from ..core.errors import UsageError


def environment_of(torch: Any) -> Environment:
    """Return the environment of the running torch.

    Raises:
        UsageError: it is a grafted wheel, or its files were replaced since it was imported.
    """
    packages = Path(sysconfig.get_path("purelib"))
    folder = Path(torch.__file__).resolve().parent.parent
    site = _installed_beside(folder) if TREES in folder.parts else folder
    environment = Environment(sys.executable, packages, site)
    environment.require_official()
    _require_unchanged(torch, site)
    return environment


def _installed_beside(tree: Path) -> Path:
    """Return the folder of the torch that a tree of `make develop` extends."""
    paths = [Path(path) for path in sys.path if TREES not in Path(path).parts]
    found = next((path for path in paths if (path / "torch/version.py").is_file()), None)
    if found is None:
        raise UsageError(f"{tree}: the torch that it extends is no longer installed", todo="install it, and restart")
    return found.resolve()


def _require_unchanged(torch: Any, site: Path) -> None:
    """Check that the libraries on disk are those that this process has loaded."""
    library = site / "torch/lib/libtorch_cpu.so"
    text = (site / "torch/version.py").read_text(encoding="utf-8") if library.is_file() else ""
    is_same = repr(torch.version.git_version) in text and _inode(library) in _mapped_inodes(library.name)
    if not is_same:
        raise UsageError(
            f"{site}/torch: it was upgraded or removed since this process imported it", todo="restart the process"
        )


def is_sanitized() -> bool:
    """Return whether this process runs under AddressSanitizer."""
    return bool(_mapped_inodes("/libasan.so"))


def _inode(path: Path) -> int:
    return path.stat().st_ino


def _mapped_inodes(name: str) -> set[int]:
    lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    return {int(line.split()[4]) for line in lines if name in line}
