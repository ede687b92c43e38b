"""The source tree of an extension: what its build says, and its build for the installed torch, to ask what that
registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.console import say
from ..core.files import lay_out_files
from ..core.keys import FILE as PROJECT
from ..core.layout import TorchVersion
from ..inputs.native import FUNCTIONS
from ..inputs.pyproject import read_toml, table_in
from ..options import INSTALLED, Request
from ..verbs import thin_files
from .builds import TheirBuild, as_settings, their_build

# Where the files lie that their build writes, below the adopted folder.
_WRITTEN = "written"

_TABLE = '[tool.graft]\nnative = "."\n'


@dataclass(frozen=True)
class Tree:
    """A source tree.

    Args:
        build: what its build says; None if the settings are written by hand.
        by_hand: the pyproject.toml with settings by hand.
        extensions: the names of the extensions, with the ends of their files.
        packages: the names of its Python packages.
    """

    build: TheirBuild | None
    by_hand: Path | None
    extensions: Mapping[str, str]
    packages: frozenset[str]

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules to import: the packages with extensions, and extensions that are in none."""
        tops = {name: name.partition(".")[0] for name in self.extensions}
        found = (top if top in self.packages else name for name, top in tops.items())
        return tuple(dict.fromkeys(found)) or tuple(sorted(self.packages))

    @property
    def libraries(self) -> list[str]:
        """Where the extensions lie beside torch, for programs without Python."""
        return [f"{name.replace('.', '/')}{suffix}" for name, suffix in self.extensions.items() if suffix]

    @property
    def written(self) -> dict[str, bytes]:
        """What their build writes, by path in the adopted folder."""
        return {f"{_WRITTEN}/{name}": content for name, content in self.build.written.items()} if self.build else {}

    def settings(self, folder: Path) -> str:
        """Return the settings of an adopted folder, behind its table ``[tool.graft]``."""
        return as_settings(self.build, folder, folder / _WRITTEN) if self.build else ""

    @contextmanager
    def built(self, request: Request) -> Iterator[Path]:
        """Build the extensions for the torch that ``request.python`` has. Yield the folder to import them from."""
        say("compile the extensions for the installed torch, to ask what they register")
        # Beside a folder with settings by hand: their paths are relative.
        beside = self.by_hand.parent.parent if self.by_hand else None
        with TemporaryDirectory(prefix="graft-adopt-", dir=beside) as top, TemporaryDirectory() as site:
            folder = Path(top).resolve()
            text = self.by_hand.read_text(encoding="utf-8") if self.by_hand else f"{_TABLE}\n{self.settings(folder)}"
            files = {PROJECT: text.encode(), str(FUNCTIONS): b"[]\n"}
            lay_out_files(folder, files | self.written)
            version = TorchVersion(INSTALLED)
            asking = replace(request, native=(folder,), pin=version)
            lay_out_files(Path(site), thin_files(asking, "graft_adopt_trial", [version])[0])
            yield Path(site)


def tree_of(folder: Path, source: str, python: str, *, is_by_hand: bool) -> Tree:
    """Return the source tree of an adopted folder. With ``is_by_hand``, settings in its pyproject.toml are the
    author's, and come first.
    """
    project = folder / PROJECT
    table = table_in(read_toml(project)) if project.is_file() else {}
    if is_by_hand and ("extensions" in table or "packages" in table):
        named = {each["name"]: each.get("suffix", "") for each in table.get("extensions", [])}
        return Tree(None, project, named, frozenset(table.get("packages", {})))
    build = their_build(folder / source, python)
    extensions = {each.name: each.suffix for each in build.extensions}
    return Tree(build, None, extensions, frozenset(build.packages))
