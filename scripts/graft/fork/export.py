"""``make export``: write the fork as patches that ``git am`` turns into the same commits."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

from ..core.console import say
from ..core.errors import SourceError
from ..core.files import write_if_changed
from .stack import Stack
from .tree import EMAIL, NAME, Tree, find_tree

# Options are explicit, so that git's settings do not matter.
_FORMAT = shlex.split("""
--zero-commit --full-index --binary --unified=3 --inter-hunk-context=0 --diff-algorithm=myers
--no-renames --no-stat --no-numbered --no-signature --no-cover-letter --no-attach --no-thread
--no-notes --no-base --no-color --no-ext-diff --no-textconv --no-relative --no-indent-heuristic
--src-prefix=a/ --dst-prefix=b/ --subject-prefix=PATCH --suffix=.patch --no-to --no-cc
--no-add-header --no-from
""")


def export(source: Path, out: Path) -> list[Path]:
    """Write the fork in ``source`` as patch files into ``out``. Earlier ones are replaced.

    Raises:
        SourceError: there is no fork, or the patches do not reproduce it.
    """
    tree = find_tree(source)
    head = tree.head() if tree and tree.has_commit() else ""
    base = tree.base_of(head) if tree and head else ""
    if tree is None or base == head:
        raise SourceError(
            f"{source}: no fork is checked out",
            cause="`make apply` was not run, or there are other commits on top",
            todo=f"make apply SOURCE={source}",
        )
    tree.refuse_changes()
    with tempfile.TemporaryDirectory(prefix="graft-") as name:
        scratch = Path(name)
        tree.git("format-patch", "--quiet", *_FORMAT, "-o", scratch / "mails", f"{base}..{head}")
        mails = sorted((scratch / "mails").iterdir())
        refuse_difference(tree, base, head, mails, scratch)
        written = [out / mail.name for mail in mails]
        for mail, target in zip(mails, written, strict=True):
            write_if_changed(target, mail.read_bytes())
    for path in out.glob("[0-9][0-9][0-9][0-9]-*.patch"):
        if path not in written and f"\nFrom: {NAME} <{EMAIL}>\n".encode() in path.read_bytes()[:1000]:
            path.unlink()
    say(
        f"{len(written)} patches in {out}; on {base} they give the same commits with\n"
        f"  git -c user.name={NAME} -c user.email={EMAIL} am --keep-cr --committer-date-is-author-date {out}/*.patch"
    )
    return written


def refuse_difference(tree: Tree, base: str, head: str, mails: list[Path], scratch: Path) -> None:
    """Raise SourceError unless applying ``mails`` to ``base`` gives ``head``."""
    stack = Stack(tree, base, scratch)
    for mail in mails:
        if message := stack.apply(mail):
            raise SourceError(f"{mail.name}: the written patch does not apply", cause=message)
    if stack.content() != tree.ask("rev-parse", f"{head}^{{tree}}"):
        raise SourceError(f"{tree.path}: the written patches do not reproduce the tree of {head}")
