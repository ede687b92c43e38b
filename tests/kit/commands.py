"""``make test-nightly ARGS=commands``: type every command that the pages show, one after another, into a fresh clone.

A user reads from the top: a file that a page shows is written where it is shown, and a command runs exactly as it is
written. ``GIVEN`` prepares what the pages of a folder take for granted, such as a checkout of PyTorch.
After a run that was stopped, the next goes on in the same clone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from graft.base.find import default_release, oldest_release
from graft.core.console import Steps, say, table
from graft.core.environments import ENVIRONMENTS
from graft.core.errors import GraftError
from graft.core.files import build_lock
from graft.core.layout import HOME, PATCHES, REPOSITORY, store
from graft.core.process import run
from graft.fork.cache import cache_of
from graft.fork.fetch import fetch_tree
from graft.inputs.pin import load_pin
from graft.options import Request

from ..shared.snippets import Snippet, documents, snippets_of
from .kept import Kept

# How long a command that runs until it is interrupted may run.
_WATCHED = 60

# What the step ``source`` runs.
_OF_SOURCE_BUILDS = ("BUILD=source", "+source")


@dataclass(frozen=True)
class Typed:
    """A command that was typed.

    Args:
        place: the snippet.
        command: its text.
        seconds: how long it took.
        code: its exit code.
        left: what it created, as paths in the clone and the home folder.
        is_right: whether it ended as its README says.
    """

    place: str
    command: str
    seconds: float
    code: int
    left: Sequence[str]
    is_right: bool


class Reader:
    """A user with a fresh clone, a home folder of its own and an active environment with the official torch.

    Args:
        folder: the folder for both.
        is_new: whether to make them, or go on with those that are there.
    """

    def __init__(self, folder: Path, *, is_new: bool = True) -> None:
        self.clone, self.home, self.log = folder / "graft", folder / "home", folder / "log"
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
            self.home.mkdir(parents=True)
            run(["git", "clone", "--quiet", REPOSITORY, self.clone])
        # The store is the reader's own, since commands delete it. Links to what it need not download or compile stay.
        ours = self.home / ".cache/graft"
        for theirs in store().iterdir() if is_new else ():
            if theirs.name not in ("places", ENVIRONMENTS):  # whose programs name their path
                ours.mkdir(parents=True, exist_ok=True)
                (ours / theirs.name).symlink_to(theirs)
        pip = os.environ.get("PIP_CACHE_DIR") or str(store().parent / "pip")
        left_out = ("MAKE", "MFLAGS", "GRAFT_", "PYTHON", "VIRTUAL_ENV", "ARGS", "PIN", "NATIVE", "OUT")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        self.variables = {
            **kept,
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "PIP_CACHE_DIR": pip,
            "PATH": f"{self.home / 'env/bin'}{os.pathsep}{kept['PATH']}",
        }

    def write(self, snippet: Snippet) -> None:
        """Write a file that a README shows, and those that it saves: its script may not be run."""
        for name, text in snippet.files.items():
            path = self.home / name.removeprefix("~/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def type(self, place: str, command: str) -> Typed:
        """Run a command, and say how it ended."""
        say(f"$ {command}")
        before, start = self._there(), time.monotonic()
        with self.log.open("ab") as log:
            log.write(f"\n$ {command}\n".encode())
            log.flush()
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.clone,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            is_endless = "WATCH=1" in command
            try:
                code = process.wait(_WATCHED if is_endless else None)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGINT)
                code = process.wait()
        seconds, left = time.monotonic() - start, sorted(self._there() - before)
        is_to_fail = is_endless or "# fails" in command
        done = Typed(place, command, seconds, code, left, is_right=(code != 0) == is_to_fail)
        say(f"  {'' if done.is_right else 'FAILED, '}{code} after {seconds:.0f} s")
        return done

    def _there(self) -> set[str]:
        """Return the files and folders up to two levels below the clone and the home folder."""
        return {
            f"{name}{path.relative_to(folder)}"
            for name, folder in (("", self.clone), ("~/", self.home))
            for pattern in ("[!.]*", "*/[!.]*")
            for path in folder.glob(pattern)
            if ".git" not in path.parts
        }


def commands_of(text: str) -> Iterator[str]:
    """Split a snippet into its commands: bash tells whether one is complete."""
    lines: list[str] = []
    for line in text.splitlines():
        lines.append(line)
        said = subprocess.run(["bash", "-n", "-c", "\n".join(lines)], capture_output=True, check=False)
        if said.returncode == 0:
            yield "\n".join(lines)
            lines = []


def type_commands(_: Request, given: argparse.Namespace) -> None:
    """Type the commands that contain a text, or all. Print a table."""
    snippets = [snippet for path in documents() for snippet in snippets_of(path)]
    typed = [(each, command) for each in snippets if each.is_typed for command in commands_of(each.text)]
    chosen = [(each, command) for each, command in typed if _is_chosen(each, command, given.chosen)]
    folder, kept = HOME / "commands", Kept(HOME / "commands.json")
    # Results are of this clone.
    is_new = not kept.is_of_these_sources() or not (folder / "graft").is_dir()
    if is_new:
        kept.forget()
    ended = _type(Reader(folder, is_new=is_new), snippets, chosen, kept)
    print(f"\n{table([('command', 'seconds', 'status', 'what it left'), *map(_row, ended)])}")
    wrong = [each for each in ended if not each.is_right]
    print(f"\n{len(ended)} commands: {len(ended) - len(wrong)} ended as they should")
    if wrong:
        raise GraftError(
            "\n".join(f"{each.place}: `{each.command}` ended with {each.code}" for each in wrong),
            todo=f"see {folder / 'log'}",
        )


def _is_chosen(snippet: Snippet, command: str, words: Sequence[str]) -> bool:
    if not words:
        return not any(text in command for text in _OF_SOURCE_BUILDS)
    return any(word in command or word in snippet.place for word in words)


def _type(
    reader: Reader, snippets: Sequence[Snippet], chosen: Sequence[tuple[Snippet, str]], kept: Kept
) -> list[Typed]:
    """Type the commands that have not ended as they should. What was prepared before, and files that a README shows
    above a command that was typed, stay as that left them.
    """
    typed: list[Typed] = []
    places = [snippet for snippet, command in chosen if kept.get(_name(snippet, command))]
    left = snippets.index(places[-1]) + 1 if places else 0
    for number, snippet in enumerate(snippets):
        if number >= left:
            reader.write(snippet)
        for command in (command for of, command in chosen if of is snippet):
            for name in ("", snippet.place.partition("/")[0]):
                if name in GIVEN and kept.get(f"given: {name}") is None:
                    GIVEN[name](reader)
                    kept.put(f"given: {name}", {})
            found = kept.get(_name(snippet, command))
            ended = Typed(**found) if found and found["is_right"] else reader.type(snippet.place, command)
            kept.put(_name(snippet, command), asdict(ended))
            typed.append(ended)
    return typed


def _name(snippet: Snippet, command: str) -> str:
    return f"{snippet.place}: {command}"


def _row(each: Typed) -> tuple[str, str, str, str]:
    first, *more = each.command.splitlines()
    status = "passed" if each.is_right else f"FAILED ({each.code})"
    left = ", ".join(each.left[:4]) + (f" and {len(each.left) - 4} more" if len(each.left) > 4 else "")
    return first.partition(" #")[0].rstrip() + (" ..." if more else ""), f"{each.seconds:.0f}", status, left


def _environment(reader: Reader) -> None:
    """``~/env``, an environment that is active: the official torch, and what READMEs run in it."""
    run([sys.executable, "-m", "venv", reader.home / "env"])
    wheels = sorted(HOME.glob("*/*/base/torch-*.whl"), key=lambda path: ("+cpu" in path.name, path.name))
    torch = wheels[-1] if wheels else f"torch=={default_release(PATCHES)}"
    packages = (torch, "numpy", "build", "pytest", "expecttest", "hypothesis", "setuptools")
    run([reader.home / "env/bin/pip", "install", "--quiet", "--disable-pip-version-check", *packages])


def _checkout(reader: Reader) -> None:
    """``~/pytorch``: the sources of the oldest release, with a branch ``my_fix``, and ``pull.diff`` in the clone. The
    working tree has the same edit.
    """
    tree = _sources(reader)
    kernel = tree / "aten/src/ATen/native/cpu/LerpKernel.cpp"
    text = kernel.read_text(encoding="utf-8")
    edited = text.replace("weight.abs() < Vectorized<scalar_t>(0.5)", "Vectorized<scalar_t>(0.5) > weight.abs()")
    assert edited != text

    def git(*words: str) -> str:
        return run(["git", "-c", "user.name=Someone", "-c", "user.email=someone@example.com", *words], cwd=tree).stdout

    git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    git("commit", "--quiet", "--message=PyTorch")
    git("update-ref", "refs/remotes/origin/main", "main")  # as in a clone
    git("checkout", "--quiet", "-b", "my_fix")
    kernel.write_text(edited, encoding="utf-8")
    git("commit", "--quiet", "--all", "--message=lerp")
    (reader.clone / "pull.diff").write_text(git("diff", "main", "my_fix"), encoding="utf-8")
    git("checkout", "--quiet", "main")
    kernel.write_text(edited, encoding="utf-8")


def _sources(reader: Reader) -> Path:
    """``~/pytorch``: the sources of the oldest release as a folder, as they came; and ``~/more_ops``."""
    pin = load_pin(PATCHES / oldest_release(PATCHES).release)
    cache, tree = cache_of(pin), reader.home / "pytorch"
    with build_lock(cache.folder), Steps().step("fetch the sources") as line:
        checkout = fetch_tree(pin, cache, "", line)
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir()
    # The cache's tree may have the fork checked out; its first commit is what came.
    first = run(["git", "-C", checkout, "rev-list", "--max-parents=0", "HEAD"]).stdout.split()
    if first:
        unpack = 'git -C "$0" archive "$1" | tar --extract --directory="$2"'
        run(["bash", "-o", "pipefail", "-c", unpack, checkout, first[0], tree])
    else:
        shutil.copytree(checkout, tree, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
    if (reader.home / "my_ops").is_dir():
        shutil.copytree(reader.home / "my_ops", reader.home / "more_ops", dirs_exist_ok=True)
    return tree


# What is prepared before the first command of all, and of the pages of a folder.
GIVEN: dict[str, Callable[[Reader], object]] = {
    "": _environment,
    "native": _checkout,
    "scripts": _sources,
}
