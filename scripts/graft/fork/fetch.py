"""Get the pinned source tree: from a local checkout, from git, or from a Debian mirror."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..core.console import StepLine
from ..core.errors import FetchError, GraftError
from ..core.files import free_bytes
from ..core.process import run
from ..inputs.pin import GitSource, Pin
from .cache import Cache
from .copies import bring_copy
from .debian import fetch_package
from .tree import FUNCTIONS_YAML

# Space for the sources, the objects of a whole build and the wheel.
_NEEDED_BYTES = 8 * 1024**3


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
    require_space(cache)
    # Left by an interrupted download. git continues it; unpacking starts again.
    partial = cache.tree.with_name(f"{cache.tree.name}.partial")
    if isinstance(pin.source, GitSource):
        clone(pin.source, partial, given or pin.source.repository)
    else:
        shutil.rmtree(partial, ignore_errors=True)
        fetch_package(pin.source, cache.downloads, partial, given)
    partial.rename(cache.tree)
    return cache.tree


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
        require_space(cache)
    bring_copy(tree, pin, copy)
    line.note = f"{copy} is a copy of {tree}"
    return copy


def require_space(cache: Cache) -> None:
    """Check that there is space for a tree and its build.

    Raises:
        FetchError: there is not.
    """
    cache.folder.mkdir(parents=True, exist_ok=True)
    if free_bytes(cache.folder) < _NEEDED_BYTES:
        raise FetchError(
            f"{cache.folder}: less than {_NEEDED_BYTES >> 30} GiB are free",
            todo="free some space, or set XDG_CACHE_HOME to a folder on another disk",
        )


def clone(source: GitSource, folder: Path, repository: str) -> None:
    """Clone the pinned commit with its submodules into ``folder``, which may contain an interrupted clone.

    PyTorch's setup.py requires every submodule.

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
