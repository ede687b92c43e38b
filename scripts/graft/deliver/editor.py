"""What editors read: compile_commands.json for clangd, JSON Schemas for YAML and TOML. ``--editor`` links them into the
user's folder, or the checkout, where editors look for them. git ignores the links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..compile.commands import FILE
from ..core.console import WARNING, say
from ..core.errors import GraftError
from ..core.layout import PACKAGE, Layout
from ..core.places import LINKED, note_place
from ..core.process import run
from ..inputs.native import NativeFolder, load_native

# The schemas, which tests/kit/json_schemas.py writes, and the name of the link to them.
SCHEMAS = PACKAGE / "schemas"
LINK = ".graft"
LINKS = (FILE, LINK)
# What Graft's links lead to, in whichever clone or home: ``Layout.commands``, and ``SCHEMAS``.
_OURS = re.compile(rf"/.+/commands-[0-9a-f]{{12}}/{re.escape(FILE)}|/.+/graft/schemas")


def schema_line(file: str) -> str:
    """Return the first line of a YAML file of a native folder, by which editors find its schema."""
    return f"# yaml-language-server: $schema={LINK}/{Path(file).stem}.json\n"


def is_ours(path: Path) -> bool:
    """Return whether a path is a link that Graft made."""
    return path.is_symlink() and bool(_OURS.fullmatch(str(path.readlink())))


@contextmanager
def for_editors(layout: Layout, *, is_linked: bool, is_quiet: bool = False) -> Iterator[None]:
    """Link the files that the body writes for editors if ``is_linked``. Otherwise, unless ``is_quiet``, print what to
    give clangd, if no earlier build has linked it.

    If the body finds an error, the files that are there are linked, too: a schema may underline it.
    """
    try:
        yield
    except GraftError:
        if is_linked:
            with suppress(GraftError, OSError):  # the body's error matters more
                _link_all(layout)
        raise
    if is_linked:
        _link_all(layout)
    if not is_quiet:
        _tell(layout)


def _link_all(layout: Layout) -> None:
    folders = [load_native(native) for native in layout.natives]
    users = [folder for folder in folders if not folder.written_from]
    places = [place for folder in users for place in (folder.path, _root(folder))]
    for path, target in (_commands(layout, folders) | {place / LINK: SCHEMAS for place in places}).items():
        _link(path, target)


def _tell(layout: Layout) -> None:
    links = _commands(layout, map(load_native, layout.natives))
    if not all(path.is_symlink() and path.readlink() == commands for path, commands in links.items()):
        say(f"for editors: clangd --compile-commands-dir={layout.commands}; ARGS=--editor links it where clangd looks")


def _commands(layout: Layout, folders: Iterable[NativeFolder]) -> dict[Path, Path]:
    """Return the links to the compile commands, and what they lead to; none if no build has written them."""
    commands = layout.commands / FILE
    return {_root(folder) / FILE: commands for folder in folders} if commands.is_file() else {}


def _root(folder: NativeFolder) -> Path:
    """Return the folder where editors look: the checkout, the folder of the settings, or the native folder."""
    return folder.written_from or (folder.settings.root if folder.settings.file else folder.path)


def _link(path: Path, target: Path) -> None:
    """Link a file unless there is one that Graft did not make, and let git ignore the link."""
    if is_ours(path):  # of another build, or another Graft
        path.unlink()
    if path.is_symlink() or path.exists():
        say(f"{path}: it is there already, so {target} is not linked", WARNING)
        return
    path.symlink_to(target)
    note_place(LINKED, path)
    found = run(["git", "-C", path.parent, "rev-parse", "--show-prefix", "--git-path", "info/exclude"], check=False)
    if found.returncode == 0:
        prefix, file = found.stdout.splitlines()
        exclude = path.parent / file
        before = exclude.read_text(encoding="utf-8") if exclude.is_file() else ""
        if (line := f"/{prefix}{path.name}") not in before.splitlines():
            exclude.parent.mkdir(parents=True, exist_ok=True)
            between = "\n" if before and not before.endswith("\n") else ""
            exclude.write_text(f"{before}{between}{line}\n", encoding="utf-8")
