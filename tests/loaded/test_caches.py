"""What torch remembers of operators: all caches that are emptied are there, or nothing is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from sessions import Raised, Session

IMPORT = """
import importlib
from graft.session import caches
for module in caches._CACHES:
    importlib.import_module(module)
"""


def test_all_caches_are_there(tmp_path: Path) -> None:
    """Also those of modules that the other tests do not import."""
    with Session(tmp_path) as session:
        session.run(f"{IMPORT}caches.require()")
        session.run("torch.overrides._get_tensor_methods = print\ndel torch._prims.context.all_prims")
        with pytest.raises(Raised) as raised:
            session.run("caches.require()")
        assert "has no cache torch._prims.context.all_prims, torch.overrides._get_tensor_methods" in str(raised.value)
