"""A session for each file, in which all of its tests load variants of one folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clipped import LOAD, TEXTS, variant
from sessions import Folder, Session


@pytest.fixture(scope="module")
def where(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all sessions of a file."""
    return tmp_path_factory.mktemp(request.module.__name__)


@pytest.fixture(scope="module")
def only(request: pytest.FixtureRequest, where: Path) -> Iterator[Session]:
    """The session, which ends well. It begins with the file's ``BEGINNING``."""
    with Session(where) as session:
        session.run(LOAD + getattr(request.module, "BEGINNING", ""))
        yield session
        assert session.ended() == 0


@pytest.fixture
def session(request: pytest.FixtureRequest, only: Session) -> Session:
    """The session with the first variant loaded, after which it runs the file's ``LOADED``."""
    only.load(variant("first"))
    only.run(getattr(request.module, "LOADED", ""))
    only.said()
    return only


@pytest.fixture
def folder(where: Path) -> Folder:
    """A folder that is edited in place, at first like the first variant."""
    return Folder(where / "clipped", TEXTS)
