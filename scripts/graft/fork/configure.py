"""Run PyTorch's own configuration, if its inputs changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import CommandError, SourceError
from ..core.files import write_if_changed
from ..core.process import run
from ..inputs.pin import Pin

# Variables that affect how it is built, but not the result.
_NO_MATTER = ("MAX_JOBS", "PATH")


@dataclass(frozen=True)
class Configured:
    """A configured tree of the fork, in which ninja can run.

    Args:
        tree: its top folder.
        variables: environment variables for setup.py and ninja.
        sources: the files that the fork adds or changes, by name in the tree.
        native: the native folder.
    """

    tree: Path
    variables: Mapping[str, str]
    sources: Sequence[str]
    native: Path


def configure(tree: Path, pin: Pin, environment: Path, variables: Mapping[str, str], sources: Sequence[str]) -> bool:
    """Configure ``tree/build`` for ninja. Return whether CMake had to run.

    Args:
        tree: the source tree.
        pin: lists headers to generate with the system's flatc.
        environment: the virtual environment of the build.
        variables: environment variables for setup.py.
        sources: the fork's files, by name in the tree. CMake finds new files only when it runs.

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
    """Return a hash of the inputs of CMake."""
    chosen = {name: value for name, value in variables.items() if name not in _NO_MATTER}
    python = (environment / "ready").read_text(encoding="utf-8")
    cmake_files = run(["git", "ls-files", "-s", "*.cmake", "*CMakeLists.txt", "*.in"], cwd=tree).stdout
    parts = [json.dumps(chosen, sort_keys=True), python, cmake_files, *sorted(sources)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_flatbuffers_header(tree: Path, schema: str) -> None:
    """Generate a schema's header with the system's flatbuffers.

    The header in the tree comes from another version. The build searches its own folder first, so the tree's file is
    not changed.
    """
    folder = tree / "build" / Path(schema).parent
    aside = folder / ".made"
    aside.mkdir(parents=True, exist_ok=True)
    run(["flatc", "--cpp", "--gen-mutable", "--scoped-enums", "-o", aside, tree / schema])
    for header in aside.iterdir():
        write_if_changed(folder / header.name, header.read_bytes())
