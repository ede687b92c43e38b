"""``graft.load``, ``graft.load_inline``, ``graft.unload``, ``graft.loaded``."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from ..core.console import heard_by
from ..core.errors import UsageError
from ..core.layout import Layout, expanded
from ..options import OPTIONS, Request, request_of
from . import loads
from .around import outside, uncompiled
from .running import environment_of

_LOGGER = logging.getLogger("graft")


class Operators:
    """The operators of a load: ``ops.soft_clip(x)`` calls the code that is loaded now."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        import torch

        load = loads.state().loads.get(self._name)
        names = [each.partition("::") for each in load.note["operators"]] if load else []
        for space, _, operator in names:
            if operator.partition(".")[0] == name:
                return getattr(torch, name, None) or getattr(getattr(torch.ops, space), name)
        raise AttributeError(f"{self._name} has no operator {name}" if load else f"{self._name} is not loaded")

    def __dir__(self) -> list[str]:
        load = loads.state().loads.get(self._name)
        return sorted({each.partition("::")[2].partition(".")[0] for each in load.note["operators"]} if load else ())

    def __repr__(self) -> str:
        return f"<operators of {self._name}: {', '.join(dir(self))}>"

    def __enter__(self) -> Operators:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        unload(self._name)


@uncompiled
def load(folder: str | os.PathLike[str], *, name: str = "", verbose: bool = False) -> Operators:
    """Build the operators of a native folder and add them to the torch of this process; again after an edit.

    Args:
        folder: the native folder.
        name: the name of the load; by default that of the folder. The same name again replaces.
        verbose: whether to print the progress. Without it, it goes to the logger ``graft``.

    Raises:
        BuildError: the folder is wrong, with ``findings``. The process keeps what it had.
        GraftError: another reason, for example a missing compiler.
    """
    path = expanded(os.fspath(folder))
    chosen = name or path.name
    with outside("graft.load"), _listening(verbose), loads.state().lock:
        loads.use(chosen, _build(path, chosen))
    return Operators(chosen)


@uncompiled
def unload(name: str) -> None:
    """Take a load back: operators that it added are gone, and those that it replaced are as before."""
    with outside("graft.unload"):
        loads.unload(name)


def loaded() -> dict[str, Operators]:
    """Return what is loaded, by name."""
    return {name: Operators(name) for name in loads.state().loads}


def _build(folder: Path, name: str) -> Path:
    import torch

    from ..base.installed import layout_on
    from ..deliveries import Loaded, run

    environment = environment_of(torch)
    request = _request(folder)
    layout = layout_on(request.layout, environment)
    return run(Loaded(layout, environment, name), request).path


def _request(folder: Path) -> Request:
    given = {each.name: each.given(os.environ) for each in OPTIONS.values()}
    given |= {"pin": "installed", "native": f"'{folder}'"}
    if jobs := os.environ.get("MAX_JOBS"):
        given["jobs"] = jobs
    return request_of(given, {each: each for each in OPTIONS})


@contextmanager
def _listening(verbose: bool) -> Iterator[None]:
    """Print the progress of builds, or log it."""
    if verbose:
        yield
        return
    with heard_by(_LOGGER.info):
        yield
