"""Write an adopted folder, and record what adopt wrote there. The author's files are not replaced."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.files import read_json, write_atomically
from ..core.folders import ADOPTED
from ..core.keys import FILE as PROJECT
from ..inputs.native import DERIVATIVES
from ..new.skeleton import write_all
from .adopt_options import FILE

# The files that adopt creates if they are missing. Then they are the author's.
AUTHORS = (PROJECT, str(DERIVATIVES), FILE)


def record_of(folder: Path) -> dict[str, Any]:
    """Return the record of what adopt wrote into a folder. Refuse a folder with other files or edited files."""
    record = read_json(folder / ADOPTED)
    there = folder.iterdir() if folder.is_dir() and not record else ()
    if foreign := sorted(path.name for path in there if path.name not in (PROJECT, FILE)):
        raise UsageError(
            f"{folder}: this folder has files of its own, such as {foreign[0]}",
            todo="set NATIVE to a new folder; builds take several",
        )
    edited = [name for name, hash_ in record.get("files", {}).items() if _is_other(folder / name, hash_)]
    if edited:
        raise UsageError(
            "\n".join(f"{folder / name}: it was edited since `graft adopt` wrote it" for name in edited),
            todo="move the edits into another native folder, or delete the file; builds take several folders",
        )
    return record


def _is_other(file: Path, hash_: str) -> bool:
    return file.is_file() and hash_of(file.read_bytes()) != hash_


def hash_of(content: bytes) -> str:
    """Return the sha256 of a content as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def write(
    folder: Path,
    texts: Mapping[str, str],
    written: Mapping[str, bytes],
    facts: Mapping[str, Any],
    before: Mapping[str, Any],
) -> None:
    """Write the files of an adopted folder, and delete those that only an earlier run wrote.

    Args:
        folder: the folder.
        texts: the files, by path. Files of ``AUTHORS`` that exist are kept, except for adopt.toml.
        written: the files that the extension's build writes, by path.
        facts: the facts that a later run compares.
        before: the record of the earlier run.
    """
    texts = {name: text for name, text in texts.items() if name == FILE or not _is_authors(folder, name)}
    hashes = {name: hash_of(text.encode()) for name, text in texts.items() if name not in AUTHORS}
    hashes |= {name: hash_of(content) for name, content in written.items()}
    known = before.get("files", {})
    if foreign := [folder / name for name in hashes if name not in known and (folder / name).exists()]:
        raise UsageError("\n".join(f"{file}: it is not adopt's" for file in foreign), todo="set NATIVE to a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, content)
    write_all(folder, {**texts, ADOPTED: json.dumps({"files": hashes, **facts}, indent=1)})
    for name in {*known} - {*hashes}:
        (folder / name).unlink(missing_ok=True)


def changed_files(
    folder: Path, texts: Mapping[str, str], written: Mapping[str, bytes], before: Mapping[str, Any]
) -> list[str]:
    """Return the files that ``write`` would change or delete, with the same arguments."""
    contents = {name: text.encode() for name, text in texts.items() if name == FILE or not _is_authors(folder, name)}
    contents |= written
    gone = {name: b"" for name in before.get("files", {}) if name not in contents and (folder / name).exists()}
    return [name for name, content in {**contents, **gone}.items() if _content(folder / name) != content]


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _is_authors(folder: Path, name: str) -> bool:
    return name in AUTHORS and (folder / name).exists()


def facts_of(operators: Sequence[Mapping[str, Any]], settings: str) -> dict[str, Any]:
    """Return the facts that a later run compares: the operators, and a hash of the source tree's settings."""
    keys = ("function", "entry", "schema", "signature", "arguments", "kept")
    return {
        "settings": hash_of(settings.encode()),
        "operators": {each["full"]: {key: each[key] for key in keys} for each in operators},
    }
