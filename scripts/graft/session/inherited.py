"""Pass the loads of a process to its children, in a file in the cache folder that an environment variable names."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeAlias

from ..core.files import keep_last, write_atomically
from ..core.layout import HOME
from . import VARIABLE

# A load: its name, the folder of its build, the operators that others have taken over, whether it is a cell.
Inherited: TypeAlias = tuple[str, str, list[str], bool]

_FOLDER = HOME / "loads"
# The number of files kept. Each is named after its content.
_KEPT = 64


def name_to_children(loads: Iterable[Inherited], gone: Mapping[str, str]) -> None:
    """Let child processes that start from now on use these loads.

    Args:
        loads: the loads, in their order.
        gone: why operators that this process had are gone, by name, for error messages.
    """
    import torch

    every = [*loads]
    if not (every or gone):
        os.environ.pop(VARIABLE, None)
        return
    text = json.dumps({"torch": torch.version.git_version, "loads": every, "gone": dict(gone)})
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    with suppress(OSError):  # children then have no operators, and report it
        write_atomically(_FOLDER / name, text)
        keep_last(_FOLDER, _KEPT)
    os.environ[VARIABLE] = name
    if not (every or (_FOLDER / name).is_file()):
        del os.environ[VARIABLE]


def of_parent(name: str) -> tuple[list[Inherited], dict[str, str]]:
    """Return the loads of the parent process, and why operators that it had are gone; nothing if its torch is another.

    Raises:
        ValueError: there is no file of this name.
    """
    import torch

    path = _FOLDER / name
    if not (name.isalnum() and path.is_file()):
        raise ValueError(f"{_FOLDER} has no {name}; GRAFT_HOME differs, or it was deleted")
    given = json.loads(path.read_text(encoding="utf-8"))
    if given["torch"] != torch.version.git_version:
        return [], {}
    return given["loads"], given["gone"]
