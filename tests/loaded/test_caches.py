"""What torch remembers of operators: all caches that are emptied are there."""

from __future__ import annotations

from pathlib import Path

from sessions import Session

LACKING = """
import importlib
from graft.base import private_names
from graft.session.caches import _found

def empties(function):
    while function is not None:
        if hasattr(function, "cache_clear"):
            return True
        function = getattr(function, "__wrapped__", None)
    return False

found = {
    f"{module}.{name}": _found(importlib.import_module(module), name)
    for module, names in private_names.caches(torch.__version__).items() for name in names
}
"""


def test_all_caches_are_there(tmp_path: Path) -> None:
    """Also those of modules that the other tests do not import."""
    with Session(tmp_path) as session:
        session.run(LACKING)
        assert session.value("len(found)") > 30
        assert session.value("[name for name, each in found.items() if not empties(each)]") == []
