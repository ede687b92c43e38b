"""The wheel of an incremental build has the same content as that of a whole build of the same folder.

`make test BUILD=source ARGS="--whole WHEEL"` names the latter.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from probe import offer_of


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return offer_of(Path(os.environ["GRAFT_WHOLE"]))


@pytest.fixture(scope="module")
def incremental() -> dict[str, Any]:
    offer = offer_of(None)
    assert offer["version"] == torch.__version__
    return offer


def test_the_surfaces_are_not_empty(whole: dict[str, Any]) -> None:
    assert len(whole["schemas"]) > 3000
    assert len(whole["dispatch tables"]) > 3000


def test_every_surface_is_the_same(whole: dict[str, Any], incremental: dict[str, Any]) -> None:
    assert whole.keys() == incremental.keys()
    for surface in whole.keys() - {"version"}:
        here, there = incremental[surface], whole[surface]
        different = {key for key in here.keys() | there.keys() if here.get(key) != there.get(key)}
        assert different - {"__version__"} == set(), surface
