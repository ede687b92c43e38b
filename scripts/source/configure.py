"""Run PyTorch's own configuration, where what it depends on has changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..common.errors import CommandError, SourceError
from ..common.files import write_if_changed
from ..common.process import run
from ..inputs.pin import Pin

# Of the variables, these say how to build and not what.
_NO_MATTER = ("MAX_JOBS", "PATH")


@dataclass(frozen=True)
class Configured:
    """A tree that is the fork, and in which ninja can run.

    Args:
        tree: its top folder.
        variables: of setup.py and ninja.
        sources: the files that the fork adds or changes, by their names in the tree.
        native: the native folder that some of them come from.
    """

    tree: Path
    variables: Mapping[str, str]
    sources: Sequence[str]
    native: Path


def configure(tree: Path, pin: Pin, environment: Path, variables: Mapping[str, str], sources: Sequence[str]) -> bool:
    """Bring ``tree/build`` to where ninja can go on; return whether CMake had to run.

    Args:
        tree: the source tree.
        pin: says what the system's flatc has to make anew.
        environment: the virtual environment of the build.
        variables: of setup.py.
        sources: the fork's files, by their names in the tree. CMake looks for files only while it runs.

    Raises:
        SourceError: CMake or flatc failed.
    """
    build = tree / "build"
    mark = build / "graft-configured"
    wanted = stamp(tree, environment, variables, sources)
    is_done = (build / "build.ninja").is_file() and mark.is_file() and mark.read_text(encoding="utf-8") == wanted
    try:
        if not is_done:
            again = ["--cmake"] if (build / "CMakeCache.txt").is_file() else []
            mark.unlink(missing_ok=True)
            run(["python", "setup.py", "build", "--cmake-only", *again], cwd=tree, env=variables)
            mark.write_text(wanted, encoding="utf-8")
        for schema in pin.settings.flatbuffers:
            make_flatbuffers_header(tree, schema)
    except CommandError as error:
        raise SourceError(
            f"{tree}: {error.what}", cause=error.cause, todo="fix it and run the same command again"
        ) from error
    return not is_done


def stamp(tree: Path, environment: Path, variables: Mapping[str, str], sources: Sequence[str]) -> str:
    """A hash of what CMake's result depends on."""
    chosen = {name: value for name, value in variables.items() if name not in _NO_MATTER}
    python = (environment / "ready").read_text(encoding="utf-8")
    cmake_files = run(["git", "ls-files", "-s", "*.cmake", "*CMakeLists.txt", "*.in"], cwd=tree).stdout
    parts = [json.dumps(chosen, sort_keys=True), python, cmake_files, *sorted(sources)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_flatbuffers_header(tree: Path, schema: str) -> None:
    """Make a schema's header fit the system's flatbuffers.

    The tree holds a header that another version made. The build looks for headers in its own folder first, so that
    one stays as it is.
    """
    folder = tree / "build" / Path(schema).parent
    aside = folder / ".made"
    aside.mkdir(parents=True, exist_ok=True)
    run(["flatc", "--cpp", "--gen-mutable", "--scoped-enums", "-o", aside, tree / schema])
    for header in aside.iterdir():
        write_if_changed(folder / header.name, header.read_bytes())
