"""Get the pinned source tree: from a local checkout, from git, or from a Debian mirror."""

from __future__ import annotations

import hashlib
import os
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from ..core.console import StepLine, Steps
from ..core.errors import FetchError, GraftError
from ..core.files import build_lock, free_bytes
from ..core.layout import Layout
from ..core.process import run
from ..inputs.pin import GitSource, Pin, load_pin
from .copies import bring_copy
from .debian import fetch_package
from .tree import FUNCTIONS_YAML

# Space for the sources, the objects of a whole build and the wheel.
_NEEDED_BYTES = 8 * 1024**3


@dataclass(frozen=True)
class Cache:
    """What the source builds of one pin share, in ``folder``: a fresh clone of this repository must not start from
    nothing.
    """

    folder: Path

    @property
    def downloads(self) -> Path:
        """Downloaded files."""
        return self.folder / "downloads"

    @property
    def tree(self) -> Path:
        """The source tree."""
        return self.folder / "pytorch"

    def copy_of(self, checkout: Path) -> Path:
        """The copy of a user's checkout that is built."""
        return self.folder / f"pytorch-{hashlib.sha256(str(checkout).encode()).hexdigest()[:12]}"

    @property
    def environment(self) -> Path:
        """The virtual environment for building the tree."""
        return self.folder / f"environment-{sysconfig.get_config_var('SOABI')}"

    @property
    def ccache(self) -> Path:
        """Cached objects of the builds of every pin."""
        return self.folder.parent / "ccache"

    def require_space(self) -> None:
        """Raise FetchError unless there is space for a tree and its build."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if free_bytes(self.folder) < _NEEDED_BYTES:
            raise FetchError(
                f"{self.folder}: less than {_NEEDED_BYTES >> 30} GiB are free",
                todo="free some space, or set XDG_CACHE_HOME to a folder on another disk",
            )


def cache_of(pin: Pin) -> Cache:
    """Return the folders of ``pin``, below XDG_CACHE_HOME or ~/.cache."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return Cache((given if given.is_absolute() else Path.home() / ".cache") / "graft" / pin.path.parent.name)


def fetched(layout: Layout, source: str | None) -> Path:
    """Return the source tree for ``apply`` and ``export``: a checkout, or the pin's tree in the cache.

    Raises:
        GraftError: it does not exist and cannot be downloaded.
    """
    if checkout := checkout_of(source):
        return checkout
    pin = load_pin(layout.patches, layout.pin)
    cache = cache_of(pin)
    with build_lock(cache.folder), Steps().step("fetch the sources") as line:
        return fetch_tree(pin, cache, source, line)


def tree_of_build(layout: Layout, source: str | None) -> Path:
    """Return the tree of BUILD=source, as the last build left it."""
    cache, checkout = cache_of(load_pin(layout.patches, layout.pin)), checkout_of(source)
    return cache.copy_of(checkout) if checkout else cache.tree


def checkout_of(given: str | None) -> Path | None:
    """Return the checkout in ``given``, unless it is a place to download from."""
    folder = Path(given).expanduser().resolve() if given else None
    return folder if folder and (folder / FUNCTIONS_YAML).is_file() else None


def fetch_to_build(pin: Pin, cache: Cache, given: str | None, line: StepLine) -> Path:
    """Return a tree below ``cache`` to build in, like ``fetch_tree``. A user's checkout is copied.

    Raises:
        SourceError: the checkout is another release, or has uncommitted changes.
        FetchError: the tree is not available, or the disk is full.
    """
    tree = fetch_tree(pin, cache, given, line)
    if tree == cache.tree:
        return tree
    copy = cache.copy_of(tree)
    if not copy.is_dir():
        cache.require_space()
    bring_copy(tree, pin, copy)
    line.note = f"{copy} is a copy of {tree}"
    return copy


def fetch_tree(pin: Pin, cache: Cache, given: str | None, line: StepLine) -> Path:
    """Return the source tree. Download it into ``cache`` if it is not there.

    Args:
        pin: the pin. Whether a checkout matches it is checked by ``apply``.
        cache: the folder for trees.
        given: a checkout to use instead; or a place to download from, a git repository or a Debian mirror.
        line: shows if nothing was downloaded.

    Raises:
        FetchError: it is not available, is not the pinned one, or the disk is full.
    """
    checkout = checkout_of(given) or cache.tree
    if (checkout / FUNCTIONS_YAML).is_file():
        line.note = f"{checkout} is up to date"
        return checkout
    cache.require_space()
    # Left by an interrupted download. git continues it; unpacking starts again.
    partial = cache.tree.with_name(f"{cache.tree.name}.partial")
    if isinstance(pin.source, GitSource):
        clone(pin.source, partial, given or pin.source.repository)
    else:
        shutil.rmtree(partial, ignore_errors=True)
        fetch_package(pin.source, cache.downloads, partial, given)
    partial.rename(cache.tree)
    return cache.tree


def clone(source: GitSource, folder: Path, repository: str) -> None:
    """Clone the pinned commit with its submodules into ``folder``, which may contain an interrupted clone.

    Raises:
        FetchError: git failed, or the tag points to another commit than the pin.
    """
    folder.mkdir(exist_ok=True)
    # git must not ask for a password: nobody could answer.
    env = {"GIT_TERMINAL_PROMPT": "0", "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    for lock in folder.glob(".git/**/*.lock"):
        lock.unlink()  # left by a killed git: only one build runs at a time
    try:
        run(["git", "init", "--quiet"], cwd=folder, env=env)
        run(["git", "fetch", "--quiet", "--depth=1", repository, f"refs/tags/{source.tag}"], cwd=folder, env=env)
        found = run(["git", "rev-parse", "FETCH_HEAD^{commit}"], cwd=folder, env=env).stdout.strip()
        if found != source.commit:
            raise FetchError(
                f"{repository}: {source.tag} is commit {found}, but the pin has {source.commit}",
                cause="the tag was moved, or this is a different repository",
                todo="find the reason before you change the pin",
            )
        run(["git", "checkout", "--quiet", "--force", "--detach", found], cwd=folder, env=env)
        update = ["git", "submodule", "--quiet", "update", "--init", "--recursive", "--force", "--depth=1", "--jobs=8"]
        run(update, cwd=folder, env=env)
    except FetchError:
        raise
    except GraftError as error:
        raise FetchError(
            f"git could not fetch {source.tag} of {repository}",
            cause=error.cause or error.what,
            todo="check the network, or set SOURCE to a mirror or a local checkout; url.*.insteadOf in "
            "git's settings redirects submodules. The download continues where it stopped",
        ) from error
