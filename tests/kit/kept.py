"""Results of cases that take long, kept in a file: a run that was stopped goes on with the cases that have none.

A case is a mutant, a row of the matrix, a command that a README shows, or a command of the night. A result counts for
the sources that it was found with.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from graft.core.files import file_lock, read_json, write_atomically
from graft.core.layout import REPOSITORY
from graft.core.process import run

# The variable that lets results of other sources count.
OF_OTHERS = "GRAFT_RESULTS_OF_OTHER_SOURCES"

# Without the file that the night writes.
_SOURCES = (".", ":!tests/README.md")


class Kept:
    """The results in a file, which several processes may write, by the names of their cases.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _sources(self) -> str:
        return sources()

    def all(self) -> list[dict[str, Any]]:
        """Return all results, of these and of other sources."""
        return [each["result"] for each in read_json(self._path).values()]

    def is_of_these_sources(self) -> bool:
        """Return whether all results are of these sources."""
        return {each["sources"] for each in read_json(self._path).values()} <= {self._sources}

    def get(self, name: str) -> dict[str, Any] | None:
        """Return the result of a case; None if there is none of these sources, or of any if ``OF_OTHERS`` is set."""
        found = read_json(self._path).get(name)
        return found["result"] if found and (OF_OTHERS in os.environ or found["sources"] == self._sources) else None

    def put(self, name: str, result: Mapping[str, Any]) -> None:
        """Keep the result of a case."""
        with file_lock(self._path.with_suffix(".lock"), ""):
            results = {**read_json(self._path), name: {"sources": self._sources, "result": dict(result)}}
            write_atomically(self._path, json.dumps(results, indent=1) + "\n")

    def forget(self) -> None:
        """Delete all results."""
        with file_lock(self._path.with_suffix(".lock"), ""):
            self._path.unlink(missing_ok=True)


def sources() -> str:
    """Identify the contents of the checkout, as git does, whether they are committed or not."""
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": f"{folder}/index"}
        run(["git", "add", "--all", "--", *_SOURCES], cwd=REPOSITORY, env=index)
        return run(["git", "write-tree"], cwd=REPOSITORY, env=index).stdout.strip()


def commit() -> str:
    """Return a short name of the commit, and whether the working tree differs from it."""
    name = run(["git", "rev-parse", "--short=8", "HEAD"], cwd=REPOSITORY).stdout.strip()
    changed = run(["git", "status", "--porcelain", "--", *_SOURCES], cwd=REPOSITORY).stdout
    return f"{name} and changes" if changed else name
