"""One line of progress for a build that takes long."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any


def ipython() -> Any:
    """Return the IPython shell that this process runs in, or None."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


class Line:
    """A line that appears when a build has taken some seconds. A notebook and a terminal replace it; elsewhere, it is
    printed when it appears and at the end.

    Args:
        shell: the IPython shell, or None.
        after: the number of seconds until it appears.
        note: what is said behind a line that cannot be replaced.
    """

    def __init__(self, shell: Any, after: float, note: str = "") -> None:
        self._shell = shell
        self._note = note
        self._appears = time.monotonic() + after
        self._lock = threading.Lock()  # lines come from other threads, too
        self._id = f"graft-{id(self)}-{self._appears}"
        self._is_shown = False

    @property
    def is_shown(self) -> bool:
        """Whether it has appeared."""
        return self._is_shown

    def update(self, text: str) -> None:
        """Show ``text``, unless it is too early, or the line is shown and cannot be replaced."""
        with self._lock:
            if time.monotonic() >= self._appears and (self._can_replace or not self._is_shown):
                self._show(text if self._can_replace else f"{text}{self._note}")

    def end(self, text: str) -> None:
        """Show ``text`` for good."""
        with self._lock:
            self._show(text)
            if self._is_terminal:
                print(file=sys.stderr)

    def print(self, text: str) -> None:
        """Print a text apart from the line."""
        with self._lock:
            if self._is_kernel:
                self._publish(text, {}, False)
            else:
                print(text, file=sys.stderr)

    @property
    def _is_kernel(self) -> bool:
        return hasattr(self._shell, "kernel")

    @property
    def _is_terminal(self) -> bool:
        return not self._is_kernel and sys.stderr.isatty()

    @property
    def _can_replace(self) -> bool:
        return self._is_kernel or self._is_terminal

    def _show(self, text: str) -> None:
        if self._is_kernel:
            self._publish(text, {"display_id": self._id}, self._is_shown)
        elif self._is_terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)
        self._is_shown = True

    def _publish(self, text: str, transient: dict[str, str], is_update: bool) -> None:
        self._shell.display_pub.publish({"text/plain": text}, transient=transient, update=is_update)
