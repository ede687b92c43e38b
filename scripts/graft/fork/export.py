"""``make export``: write the fork as patches that ``git am`` turns into the same commits."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path

from ..core.console import say
from ..core.errors import UsageError
from ..core.files import write_if_changed
from ..core.layout import DIST
from ..options import Request
from .fetch import fetched
from .tree import EMAIL, NAME, find_tree

# Options are explicit, so that git's settings do not matter.
_FORMAT = shlex.split("""
--zero-commit --full-index --binary --unified=3 --inter-hunk-context=0 --diff-algorithm=myers
--no-renames --no-stat --no-numbered --no-signature --no-cover-letter --no-attach --no-thread
--no-notes --no-base --no-color --no-ext-diff --no-textconv --no-relative --no-indent-heuristic
--src-prefix=a/ --dst-prefix=b/ --subject-prefix=PATCH --suffix=.patch --no-to --no-cc
--no-add-header --no-from
""")


def export_fetched(request: Request) -> None:
    """Write the fork in the checkout that is asked for, or in the pin's tree."""
    export(fetched(request), request.out or DIST / f"fork-{request.pin.release}")


def export(source: Path, out: Path) -> list[Path]:
    """Write the fork in ``source`` as patch files into ``out``. Earlier ones are replaced."""
    tree = find_tree(source)
    head = tree.head() if tree else ""
    base = tree.base_of(head) if tree and head else ""
    if tree is None or base == head:
        raise UsageError(
            f"{source}: no fork is checked out",
            cause="`make apply` was not run, or there are other commits on top",
            todo=f"make apply SOURCE={source}",
        )
    tree.refuse_changes()
    with tempfile.TemporaryDirectory(prefix="graft-") as scratch:
        tree.git("format-patch", "--quiet", *_FORMAT, "-o", scratch, f"{base}..{head}")
        mails = {out / mail.name: mail.read_bytes() for mail in sorted(Path(scratch).iterdir())}
    for target, mail in mails.items():
        write_if_changed(target, mail)
    for path in out.glob("[0-9][0-9][0-9][0-9]-*.patch"):
        if path not in mails and f"\nFrom: {NAME} <{EMAIL}>\n".encode() in path.read_bytes()[:1000]:
            path.unlink()
    say(
        f"{len(mails)} patches in {out}; on {base} they give the same commits with\n"
        f"  git -c user.name={NAME} -c user.email={EMAIL} am --keep-cr --committer-date-is-author-date {out}/*.patch"
    )
    return list(mails)
