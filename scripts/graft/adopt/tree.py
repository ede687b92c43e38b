"""The source tree of an extension: the modules to import, and its build for the installed torch, to ask what that
registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.files import lay_out_files
from ..core.keys import FILE as PROJECT
from ..core.layout import TorchVersion
from ..inputs.native import FUNCTIONS
from ..options import INSTALLED, Request
from ..verbs import thin_files
from .builds import TheirBuild, as_settings

# Where the files lie that their build writes, below the adopted folder.
WRITTEN = "written"

_TABLE = '[tool.graft]\nnative = "."\n'


def modules_of(build: TheirBuild) -> tuple[str, ...]:
    """Return the modules to import: the packages with extensions, and extensions that are in none."""
    tops = {each.name: each.name.partition(".")[0] for each in build.extensions}
    return tuple(dict.fromkeys(top if top in build.packages else name for name, top in tops.items()))


def libraries_of(build: TheirBuild) -> list[str]:
    """Return where the extensions lie beside torch, for programs without Python."""
    return [f"{each.name.replace('.', '/')}{each.suffix}" for each in build.extensions if each.suffix]


def written_files(build: TheirBuild) -> dict[str, bytes]:
    """Return what their build writes, by path in the adopted folder."""
    return {f"{WRITTEN}/{name}": content for name, content in build.written.items()}


def settings_text(build: TheirBuild, folder: Path) -> str:
    """Return the settings of an adopted folder, behind its table ``[tool.graft]``."""
    return as_settings(build, folder, folder / WRITTEN)


@contextmanager
def built(build: TheirBuild, request: Request) -> Iterator[Path]:
    """Build the extensions for the torch that ``request.python`` has. Yield the folder to import them from."""
    with TemporaryDirectory(prefix="graft-adopt-") as top:
        folder, site = Path(top).resolve() / "native", Path(top).resolve() / "site"
        files = {PROJECT: f"{_TABLE}\n{settings_text(build, folder)}".encode(), str(FUNCTIONS): b"[]\n"}
        lay_out_files(folder, files | written_files(build))
        version = TorchVersion(INSTALLED)
        asking = replace(request, native=(folder,), pin=version)
        lay_out_files(site, thin_files(asking, "graft_adopt_trial", [version])[0])
        yield site
