"""A checkout as SOURCE: what to build of it, and what to report after the build. Imports little."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..core.console import WARNING, say
from ..core.errors import GraftError, UsageError
from ..options import ALLOW, Request


class RefusedOperatorsError(GraftError):
    """The checkout changes operators in a way that no build can have. The others are built."""

    exit_code = 1


@dataclass(frozen=True)
class Live:
    """What to build of a checkout for one torch.

    Args:
        request: the request. The native folder written from the checkout comes before its other ones.
        tree: the checkout; None without SOURCE.
        tests: the command that runs PyTorch's own tests of what changed; empty if there are none.
        refused: why operators are left out, by operator.
        is_empty: whether there is nothing to build, neither of the checkout nor of native folders.
    """

    request: Request
    tree: Path | None = None
    tests: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    is_empty: bool = False

    def require_something(self) -> None:
        """Check that there is something to build."""
        if self.is_empty:
            raise UsageError(
                f"{self.tree}: nothing that changes what is built", todo="edit a file, or check out a branch"
            )

    def say_tests(self) -> None:
        """Print the command that runs PyTorch's own tests of what changed."""
        if self.tests:
            say(f"PyTorch's own tests of it: {self.tests}")
            say(f"  (in {self.tree}, `python -m`, `python -c` and pytest import the torch/ that is there)")

    def finish(self) -> None:
        """Raise ``RefusedOperatorsError`` if operators were left out; with GAPS=allow, only warn."""
        if self.refused and self.request.gaps != ALLOW:
            raise _refusal(self.refused)
        if self.refused:
            lines = "\n".join(sorted(self.refused.values()))
            say(f"left out, since GAPS=allow is set: {', '.join(sorted(self.refused))}\n{lines}", WARNING)


def _refusal(refused: Mapping[str, str]) -> RefusedOperatorsError:
    return RefusedOperatorsError(
        "\n".join(sorted(refused.values())),
        cause="PyTorch's binaries call an operator with the arguments that it had when they were built",
        todo="give the new schema an overload name of its own, or set GAPS=allow; the rest is built",
    )
