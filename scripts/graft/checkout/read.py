"""Read the checkout SOURCE for a torch: write the native folder, and report what it lacks."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

from ..base.base import VERSION_FILE, of_version_file
from ..core.console import WARNING, say
from ..core.errors import UsageError
from ..core.files import build_lock, read_json, write_if_changed
from ..core.layout import HOME, expanded
from ..fork.tree import count, shortened
from ..options import ERROR, Request
from .answer import Answer, Question
from .base import Base, changed_upstream, find_base
from .derive import derive
from .live import Live
from .repository import Repository, open_repository
from .tests import command_of_tests
from .versions import WorkingTree


def read_checkout(request: Request, site: Path, *, is_whole: bool = True) -> Live:
    """Write what SOURCE changes as a native folder for the torch in ``site``. Without SOURCE, write nothing.

    Args:
        request: the request.
        site: the folder with ``torch``.
        is_whole: whether Python files of torch can be replaced as a whole.

    Raises:
        UsageError: SOURCE cannot be read; or, with GAPS=error, lists what cannot be built.
    """
    if not request.source:
        return Live(request)
    start = time.perf_counter()
    repository = open_repository(expanded(request.source))
    version = (site / VERSION_FILE).read_text(encoding="utf-8")
    git_version, name = (of_version_file(version, key) for key in ("git_version", "__version__"))
    base = find_base(repository, git_version, name, request.base)
    files = tuple(request.files.split())
    versions = WorkingTree(repository, base.commit)
    answer = derive(Question(versions, site, files, is_whole))
    both = _changed_upstream(repository, base, answer)
    folder = _folder(repository, git_version, is_whole=is_whole)
    with build_lock(folder.parent):
        answer.write(folder)
        _tell(folder.with_name("told.json"), base.said, answer, both)
    if request.gaps == ERROR and (answer.left or answer.refused):
        lines = [*answer.refused.values(), *(f"{place}: {why}" for place, why in answer.left.items())]
        raise UsageError(
            f"{repository.path} changes what is not built:\n{shortened(sorted(lines), 20)}",
            todo="set GAPS=operators to build the rest",
        )
    carried = count(len(answer.carried & versions.changed.keys()), "changed file")
    what = carried if answer.carried else "nothing that changes what is built"
    say(f"{repository.path}: {what} since {base.commit[:12]} ({time.perf_counter() - start:.1f} s to read)")
    built = replace(request, native=(folder, *request.native), source="")
    tests = command_of_tests(repository, base, request.python, answer.operators, folder.parent)
    is_empty = not (request.native or answer.files or answer.overlay)
    return Live(built, repository.path, tests, answer.refused, is_empty)


def _changed_upstream(repository: Repository, base: Base, answer: Answer) -> list[str]:
    """Return the folder's files that upstream changed, too, since the torch's commit; none if that is not known."""
    try:
        return changed_upstream(repository, base, answer.carried)
    except UsageError as error:
        base.said.append(f"what upstream changed since the installed torch is not known; `{error.todo}` makes it so")
        return []


def state_of(source: str) -> Hashable:
    """Return a value that differs if the files of the checkout SOURCE were edited."""
    try:
        return open_repository(expanded(source)).state()
    except UsageError as error:  # git is writing, perhaps; a build says what is wrong
        return str(error)


def _folder(repository: Repository, git_version: str, *, is_whole: bool) -> Path:
    """Return the native folder of a checkout, for a torch. Packages of thin wheels are named after it."""
    key = hashlib.sha256(f"{repository.path}\0{git_version}\0{is_whole}".encode()).hexdigest()[:12]
    return HOME / "checkouts" / key / f"{repository.path.name}_changes"


def _tell(file: Path, said: list[str], answer: Answer, both: list[str]) -> None:
    """Print messages, and the changes that are not built. If an earlier call printed the same, only count these."""
    lines = [*said, *answer.said]
    if both:
        lines.append(f"upstream changed these, too, since the installed torch, so they may not fit: {', '.join(both)}")
    left = sorted(f"{place}: {why}" for place, why in answer.left.items())
    told = {"said": lines, "left": left}
    before = read_json(file)
    write_if_changed(file, json.dumps(told, indent=1))
    for line in lines if lines != before.get("said") else ():
        say(line)
    if left and left != before.get("left"):
        say(f"not built:\n{shortened(left, 30)}", WARNING)
    elif left:
        say(f"not built, as listed before: {count(len(left), 'change')}")
