"""What editors read: compile_commands.json for clangd, JSON Schemas for YAML and TOML. ``--editor`` links them into the
user's folder, or the checkout, where editors look for them. git ignores the links.
"""

from __future__ import annotations

from pathlib import Path

from ..compile.commands import FILE
from ..core.console import WARNING, say
from ..core.layout import PACKAGE, Layout
from ..core.process import run
from ..inputs.native import NativeFolder, load_native

# The schemas, which tests/kit/json_schemas.py writes, and the name of the link to them.
SCHEMAS = PACKAGE / "schemas"
LINK = ".graft"
LINKS = (FILE, LINK)


def schema_line(file: str) -> str:
    """Return the first line of a YAML file of a native folder, by which editors find its schema."""
    return f"# yaml-language-server: $schema={LINK}/{Path(file).stem}.json\n"


def tell_editors(layout: Layout, *, is_linked: bool) -> None:
    """Link the files of a build for editors if ``is_linked``; otherwise, print what to give clangd, unless an earlier
    build has linked it.
    """
    folders = [load_native(native) for native in layout.natives]
    commands = layout.commands / FILE
    links = dict.fromkeys((_root(folder) / FILE for folder in folders), commands)
    if is_linked:
        users = [folder for folder in folders if not folder.written_from]
        places = [place for folder in users for place in (folder.path, _root(folder))]
        for path, target in (links | {place / LINK: SCHEMAS for place in places}).items():
            _link(path, target)
    if commands.is_file() and not all(path.is_symlink() and path.readlink() == commands for path in links):
        say(f"for editors: clangd --compile-commands-dir={layout.commands}; ARGS=--editor links it where clangd looks")


def _root(folder: NativeFolder) -> Path:
    """Return the folder where editors look: the checkout, the folder of the settings, or the native folder."""
    return folder.written_from or (folder.settings.root if folder.settings.file else folder.path)


def _link(path: Path, target: Path) -> None:
    """Link a file unless there is one of another origin, and let git ignore the link."""
    if path.is_symlink() and path.readlink().name == target.name:  # of another build, or another Graft
        path.unlink()
    if path.is_symlink() or path.exists():
        say(f"{path}: it is there already, so {target} is not linked", WARNING)
        return
    path.symlink_to(target)
    found = run(["git", "-C", path.parent, "rev-parse", "--show-prefix", "--git-path", "info/exclude"], check=False)
    if found.returncode == 0:
        prefix, file = found.stdout.splitlines()
        exclude = path.parent / file
        before = exclude.read_text(encoding="utf-8") if exclude.is_file() else ""
        if (line := f"/{prefix}{path.name}") not in before.splitlines():
            exclude.parent.mkdir(parents=True, exist_ok=True)
            between = "\n" if before and not before.endswith("\n") else ""
            exclude.write_text(f"{before}{between}{line}\n", encoding="utf-8")
