"""BASE: the commit that a working tree is compared with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from ..core.errors import UsageError
from ..fork.tree import count
from .repository import UPSTREAM, Repository

_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")

# The remotes that may have PyTorch's main, in order: origin is often a fork, whose main may be stale.
REMOTES = ("upstream", "origin")

# A day's nightly is PyTorch's main of about ten o'clock (UTC), and can be installed half a day later.
_AFTER_CUT, _UNTIL_THERE = timedelta(hours=14), timedelta(hours=22)
_NIGHTLIES = "https://download.pytorch.org/whl/nightly"


@dataclass
class Base:
    """The commit that a working tree is compared with.

    Args:
        commit: its id.
        wheel: the commit of main or of a release that the installed torch was built from; empty if the checkout lacks
            it, or the torch does not say.
        said: lines for the user, to be printed once.
    """

    commit: str
    wheel: str
    said: list[str] = field(default_factory=list)


def find_base(repository: Repository, git_version: str, version: str, asked: str = "") -> Base:
    """Return BASE: the commit that is asked for; else that of the installed torch if HEAD descends from it; else the
    merge base of HEAD and the default branch of ``upstream``, or else of ``origin``.

    Args:
        repository: the checkout.
        git_version: ``torch.version.git_version``.
        version: ``torch.__version__``.
        asked: a name of a commit that git knows; empty for none.

    Raises:
        UsageError: the commit is not there. Unless it was asked for, the error has the command that fetches it.
    """
    is_known = bool(_ID.fullmatch(git_version))
    commits = _wheel_commits(repository, git_version) if is_known else []
    wheel = next(iter(commits), "")
    if asked:
        return _asked(repository, asked, wheel)
    descended = next((commit for commit in commits if repository.is_ancestor(commit, "HEAD")), "")
    branch, merged = _merge_base(repository)
    if descended:
        base = Base(descended, descended)
        if later := _number(repository, descended, merged) if merged else 0:
            since = f"{count(later, 'commit')} of {branch} since the installed torch ({descended[:12]})"
            counts = "counts" if later == 1 else "count"
            base.said += [f"{since} {counts} as this checkout's, too", *_nightly(repository, merged, version)]
        return base
    if not merged:
        return _without_merge_base(repository, git_version if is_known else "", wheel)
    base = Base(merged, wheel)
    if wheel:
        base.said.append(_apart(repository, wheel, merged, f"compared with {merged[:12]} of {branch}"))
    else:
        why = f"its commit is not here; `{repository.fetch_line(git_version)}` fetches it"
        why = why if is_known else "it does not say which commit it was built from"
        since = "which files upstream changed, too, since the installed torch is not known"
        base.said.append(f"compared with {merged[:12]} of {branch}; {since}: {why}")
    base.said += _nightly(repository, merged, version)
    return base


def _asked(repository: Repository, name: str, wheel: str) -> Base:
    """Return the commit that the user names."""
    commit = repository.commit_of(name)
    if not commit:
        todo = (
            "name a commit, a branch or a tag of this checkout: BASE=HEAD~1 builds the last commit, and what is edited"
        )
        raise UsageError(f"BASE: {repository.path} has no commit {name}", todo=todo)
    there = f"compared with {commit[:12]}, as BASE={name} says"
    return Base(commit, wheel, [_apart(repository, wheel, commit, there) if wheel else there])


def changed_upstream(repository: Repository, base: Base, names: Iterable[str]) -> list[str]:
    """Return those of the files ``names`` that upstream changed, too: they differ between the installed torch's commit
    and BASE. Return none if the checkout lacks that commit.
    """
    if base.wheel in ("", base.commit):
        return []
    return sorted(repository.differing(base.wheel, base.commit).intersection(names))


def _wheel_commits(repository: Repository, git_version: str) -> list[str]:
    """Return the commits in the checkout that have the installed torch's sources. A nightly's own commit is not on
    main; its subject names the one that is.
    """
    if not repository.has(git_version):
        return []
    subject = repository.line("log", "--max-count=1", "--format=%s", git_version)
    named = re.search(rf"nightly release \(({_ID.pattern})\)", subject)
    return [*([named[1]] if named and repository.has(named[1]) else []), git_version]


def _merge_base(repository: Repository) -> tuple[str, str]:
    """Return the default branch of a remote and its merge base with HEAD; two empty strings if there is none."""
    for remote in REMOTES:
        for branch in ("HEAD", "main", "master"):
            if tip := repository.commit_of(f"refs/remotes/{remote}/{branch}"):
                if base := repository.merge_base(tip, "HEAD"):
                    return (remote if branch == "HEAD" else f"{remote}/{branch}"), base
                break  # the next ones are not the default branch
    return "", ""


def _without_merge_base(repository: Repository, git_version: str, wheel: str) -> Base:
    """Return the installed torch's commit as BASE, if a shallow clone has it. Otherwise raise UsageError."""
    if not repository.is_shallow():
        todo = _fetch_main(repository)
    elif wheel:
        said = (
            f"compared with the installed torch ({wheel[:12]}): this shallow clone does not tell what upstream changed "
            f"since, so that this counts, too. To tell it apart: {_fetch_main(repository)}"
        )
        return Base(wheel, wheel, [said])
    else:
        todo = repository.fetch_line(git_version) if git_version else _fetch_main(repository)
    raise UsageError(
        f"{repository.path}: the commit to compare with is not there",
        cause="a shallow clone, or one without the default branch of PyTorch as upstream or origin has it",
        todo=todo,
    )


def _fetch_main(repository: Repository) -> str:
    """Return the command that fetches PyTorch's main, with the history that a shallow clone lacks."""
    remote = repository.remote()
    name, source = (remote, remote) if remote in REMOTES else (REMOTES[0], UPSTREAM)
    return repository.fetch_line(f"main:refs/remotes/{name}/main", source, depth="--unshallow")


def _apart(repository: Repository, wheel: str, merged: str, there: str) -> str:
    """Return a line that says how many commits BASE is ahead of the installed torch, and how many behind."""
    if repository.is_shallow():
        return f"{there}; the installed torch is of {wheel[:12]}"
    ahead, behind = (_number(repository, *ends) for ends in ((wheel, merged), (merged, wheel)))
    return f"{there}: {count(ahead, 'commit')} ahead of the installed torch ({wheel[:12]}), {behind} behind"


def _number(repository: Repository, old: str, new: str) -> int:
    return int(repository.line("rev-list", "--count", f"{old}..{new}") or 0)


def _nightly(repository: Repository, commit: str, version: str) -> list[str]:
    """Return a line with the command that installs the first nightly after a commit, or the last one so far."""
    release = re.match(r"\d+\.\d+\.\d+", repository.line("cat-file", "blob", f"{commit}:version.txt"))
    written = datetime.fromtimestamp(int(repository.line("log", "--max-count=1", "--format=%ct", commit)), timezone.utc)
    first, last = written + _AFTER_CUT, datetime.now(timezone.utc) - _UNTIL_THERE
    name = f"dev{min(first, last):%Y%m%d}"
    if release is None or name in version:
        return []
    label = version.partition("+")[2]
    kind = label if re.fullmatch(r"cu\d+|rocm[\d.]+|xpu", label) else "cpu"
    line = f"pip install --pre torch=={release[0]}.{name} --index-url {_NIGHTLIES}/{kind}"
    return [f"the nightly nearest to it fits better: {line}"]
