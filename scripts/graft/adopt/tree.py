"""The source tree of an extension: its build settings, and a trial build for the installed torch that shows which
operators it registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.console import say
from ..core.errors import UsageError
from ..core.extra_flags import OF_THIS_PROCESSOR, host_flags
from ..core.files import lay_out_files
from ..core.keys import FILE as PROJECT
from ..core.layout import TorchVersion
from ..deliveries import Trial
from ..inputs.native import FUNCTIONS
from ..inputs.pyproject import listed, read_toml, table_in
from ..options import INSTALLED, Request
from ..verbs import thin_files
from .builds import TheirBuild, as_settings, their_build
from .dispatcher import answer_of

# The folder below the adopted folder with the files that the extension's build writes.
_WRITTEN = "written"

_TABLE = '[tool.graft]\nnative = "."\n'


@dataclass(frozen=True)
class Tree:
    """A source tree.

    Args:
        build: its build settings; None if they are written by hand.
        by_hand: the pyproject.toml with settings that are written by hand; None if there is none.
        extensions: the suffixes of the extensions' files, by the extension's name.
        packages: the folders of its Python packages, by name.
    """

    build: TheirBuild | None
    by_hand: Path | None
    extensions: Mapping[str, str]
    packages: Mapping[str, tuple[Path, ...]]

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules to import: the packages with extensions, and extensions that are in none."""
        tops = {name: name.partition(".")[0] for name in self.extensions}
        found = (top if top in self.packages else name for name, top in tops.items())
        return tuple(dict.fromkeys(found)) or tuple(sorted(self.packages))

    @property
    def libraries(self) -> list[str]:
        """The paths of the extensions' files beside torch, for programs without Python."""
        return [f"{name.replace('.', '/')}{suffix}" for name, suffix in self.extensions.items() if suffix]

    @property
    def written(self) -> dict[str, bytes]:
        """The files that the extensions' build writes, by path in the adopted folder."""
        return {f"{_WRITTEN}/{name}": content for name, content in self.build.written.items()} if self.build else {}

    @property
    def requires(self) -> tuple[str, ...]:
        """The distributions that the packages need, as requirements of pip."""
        return self.build.requires if self.build else ()

    @property
    def processor_flags(self) -> list[str]:
        """The flags that compile the extensions for the processor of this machine."""
        flags = [
            flag
            for each in (self.build.extensions if self.build else ())
            for flag in (*each.cxx_flags, *each.nvcc_flags)
        ]
        return [each for each in dict.fromkeys(flags) if any(map(OF_THIS_PROCESSOR.fullmatch, host_flags(each)))]

    def settings(self, folder: Path) -> str:
        """Return the build settings as TOML that follows the table ``[tool.graft]``; empty if the author wrote them."""
        return as_settings(self.build, folder, folder / _WRITTEN) if self.build else ""

    @contextmanager
    def built(self, request: Request) -> Iterator[Path]:
        """Build the extensions for the torch that ``request.python`` has. Yield the folder to import them from."""
        say("compile the extensions for the installed torch, to ask what they register")
        # The paths in settings by hand are relative, so this folder lies beside the author's.
        beside = self.by_hand.parent.parent if self.by_hand else None
        with TemporaryDirectory(prefix="graft-adopt-", dir=beside) as top, TemporaryDirectory() as site:
            folder = Path(top).resolve()
            text = self.by_hand.read_text(encoding="utf-8") if self.by_hand else f"{_TABLE}\n{self.settings(folder)}"
            files = {PROJECT: text.encode(), str(FUNCTIONS): b"[]\n"}
            lay_out_files(folder, files | self.written)
            version = TorchVersion(INSTALLED)
            asking = replace(request, native=(folder,), pin=version)
            lay_out_files(Path(site), thin_files(asking, "graft_adopt_trial", [version], form=Trial)[0])
            yield Path(site)

    def require_imports(self, modules: Sequence[str], python: str) -> None:
        """Check that the modules that the packages import are installed, before the extensions are compiled.

        Raises:
            UsageError: a module is not installed; the message names the first.
        """
        packages = {name: [*map(str, places)] for name, places in self.packages.items()}
        request = {"modules": modules, "packages": packages, "extensions": [*self.extensions]}
        found, _ = answer_of("imports_child.py", request, python)
        if found:
            what = f"{found['place']}: it imports {found['module']}, which {python} does not have"
            raise UsageError(what, todo="install it; nothing was compiled")


def tree_of(folder: Path, source: str, python: str, *, is_by_hand: bool) -> Tree:
    """Return the source tree of an adopted folder. With ``is_by_hand``, settings in its pyproject.toml are the
    author's, and replace those of the build.
    """
    project = folder / PROJECT
    table = table_in(read_toml(project)) if project.is_file() else {}
    if is_by_hand and ("extensions" in table or "packages" in table):
        named = {each["name"]: each.get("suffix", "") for each in table.get("extensions", [])}
        places = {name: listed(each) for name, each in table.get("packages", {}).items()}
        packages = {name: tuple(project.parent / each for each in every) for name, every in places.items()}
        return Tree(None, project, named, packages)
    build = their_build(folder / source, python)
    extensions = {each.name: each.suffix for each in build.extensions}
    return Tree(build, None, extensions, {name: (path,) for name, path in build.packages.items()})
