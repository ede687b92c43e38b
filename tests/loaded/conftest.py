"""A session for each file, which all of its tests edit. The file's ``NATIVE`` has the name and the texts of its native
folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sessions import Folder, Session


@pytest.fixture(scope="module")
def where(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all sessions of a file."""
    return tmp_path_factory.mktemp(request.module.__name__)


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, where: Path) -> Folder:
    """The native folder."""
    name, texts = request.module.NATIVE
    return Folder(where / name, texts)


@pytest.fixture(scope="module")
def only(request: pytest.FixtureRequest, where: Path) -> Iterator[Session]:
    """The session, which ends well. It begins with the file's ``BEGINNING``."""
    with Session(where) as session:
        session.run(getattr(request.module, "BEGINNING", ""))
        yield session
        assert session.ended() == 0


@pytest.fixture
def session(request: pytest.FixtureRequest, only: Session, folder: Folder) -> Session:
    """The session with the first version loaded, after which it runs the file's ``LOADED``."""
    folder.restore()
    only.load(folder.path)
    only.run(f"folder = {str(folder.path)!r}")
    only.run(getattr(request.module, "LOADED", ""))
    only.said()
    return only
