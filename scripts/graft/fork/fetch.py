"""Get the pinned source tree: from a local checkout, from git, or from a Debian mirror. A checkout is only read; a copy
is built, since PyTorch's build writes into many folders of its tree.
"""

from __future__ import annotations

from pathlib import Path

from ..core.console import StepLine, Steps
from ..core.errors import CommandError, MissingError, UsageError
from ..core.files import build_lock, delete
from ..core.process import run
from ..inputs.pin import GitSource, Pin, load_pin
from ..options import Request
from .cache import Cache, cache_of
from .debian import fetch_package
from .tree import (
    FUNCTIONS_YAML,
    SourceTree,
    commit_folder,
    find_tree,
    make_repository,
    pinned_base,
    refuse_other_version,
)

# The user named the checkout, so git may trust it whoever owns it.
_UPLOAD_PACK = "git -c safe.directory='*' upload-pack"


def fetched(request: Request) -> Path:
    """Return the source tree for ``apply`` and ``export``: a checkout, or the pin's tree in the cache."""
    if checkout := checkout_of(request.source):
        return checkout
    pin = load_pin(request.layout.patches, request.pin)
    cache = cache_of(pin)
    with build_lock(cache.folder), Steps().step("fetch the sources") as line:
        return fetch_tree(pin, cache, request.source, line)


def tree_of_build(request: Request) -> Path:
    """Return the tree of BUILD=source, as the last build left it."""
    cache, checkout = cache_of(load_pin(request.layout.patches, request.pin)), checkout_of(request.source)
    return cache.copy_of(checkout) if checkout else cache.tree


def checkout_of(given: str) -> Path | None:
    """Return the checkout in ``given``, unless it is a place to download from."""
    folder = Path(given).expanduser().resolve()
    return folder if given and (folder / FUNCTIONS_YAML).is_file() else None


def fetch_to_build(pin: Pin, cache: Cache, given: str, line: StepLine) -> Path:
    """Return a tree below ``cache`` to build in, like ``fetch_tree``. A user's checkout is copied, without Graft's
    commits. In the copy, built files stay, and unchanged files keep their modification times.
    """
    checkout = fetch_tree(pin, cache, given, line)
    if checkout == cache.tree:
        return checkout
    folder = cache.copy_of(checkout)
    if not folder.is_dir():
        cache.require_space()
    theirs, copy = find_tree(checkout), make_repository(folder)
    if theirs and theirs.head():
        base = pinned_base(theirs, pin)
        theirs.refuse_changes()
    else:
        refuse_other_version(checkout, pin)
        index = {"GIT_INDEX_FILE": str(copy.git_dir / "graft-index")}
        base = commit_folder(SourceTree(checkout, copy.git_dir), pin, index)
    if not copy.head() or copy.base_of(copy.head()) != base:
        check_out(copy, base, checkout)
    line.note = f"{folder} is a copy of {checkout}"
    return folder


def fetch_tree(pin: Pin, cache: Cache, given: str, line: StepLine) -> Path:
    """Return the source tree. Download it into ``cache`` if it is not there.

    Args:
        pin: the pin. Whether a checkout matches it is checked by ``apply``.
        cache: the folder for trees.
        given: a checkout to use instead; or a place to download from, a git repository or a Debian mirror; or empty.
        line: shows that nothing was downloaded, if so.
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
        delete(partial)
        fetch_package(pin.source, cache.folder / "downloads", partial, given)
    partial.rename(cache.tree)
    return cache.tree


def clone(source: GitSource, folder: Path, repository: str) -> None:
    """Clone the pinned commit with its submodules into ``folder``, which may contain an interrupted clone."""
    make_repository(folder)
    # The user's settings apply, but git must not ask for a password: nobody could answer.
    env = {"GIT_TERMINAL_PROMPT": "0", "GIT_CEILING_DIRECTORIES": str(folder.parent)}

    def git(*arguments: str) -> str:
        try:
            return run(["git", *arguments], cwd=folder, env=env).stdout.strip()
        except CommandError as error:
            raise MissingError(
                f"git could not fetch {source.tag} of {repository}",
                cause=error.cause or error.what,
                todo="check the network, or set SOURCE to a mirror or a local checkout; url.*.insteadOf in "
                "git's settings redirects submodules. The download continues where it stopped",
            ) from error

    git("fetch", "--quiet", "--depth=1", repository, f"refs/tags/{source.tag}")
    if (found := git("rev-parse", "FETCH_HEAD^{commit}")) != source.commit:
        raise UsageError(
            f"{repository}: {source.tag} is commit {found}, but the pin has {source.commit}",
            cause="the tag was moved, or this is a different repository",
            todo="find the reason before you change the pin",
        )
    git("checkout", "--quiet", "--force", "--detach", found)
    git("submodule", "--quiet", "update", "--init", "--recursive", "--force", "--depth=1", "--jobs=8")


def check_out(copy: SourceTree, commit: str, checkout: Path) -> None:
    """Check out ``commit`` of the repository ``checkout`` with its submodules.

    HEAD is set last, so a repository with HEAD is complete.
    """
    if copy.git("cat-file", "-e", f"{commit}^{{commit}}", check=False).returncode != 0:
        fetch = ["fetch", "--quiet", "--no-tags", "--depth=1", f"--upload-pack={_UPLOAD_PACK}"]
        copy.git(*fetch, checkout, commit)
    for entry in copy.git("ls-tree", "-r", "-z", commit).stdout.split("\0"):
        if not entry.startswith("160000 commit "):
            continue
        wanted, name = entry.removeprefix("160000 commit ").split("\t")
        submodule = make_repository(copy.path / name)
        if submodule.head() == wanted:
            continue
        try:
            check_out(submodule, wanted, checkout / name)
        except CommandError as error:
            raise MissingError(
                f"{checkout / name}: this submodule is not at {wanted}, the commit that PyTorch names",
                cause=error.cause,
                todo=f"git -C {checkout} submodule update --init --recursive",
            ) from error
    copy.git("-c", "advice.detachedHead=false", "checkout", "--quiet", "--force", "--detach", commit)
