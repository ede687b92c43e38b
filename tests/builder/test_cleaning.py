"""What `graft clean` deletes: builds, what all builds share, or all that Graft wrote; and nothing of the user's."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
from asking import asked
from graft import cleaning
from graft.core.errors import UsageError
from graft.core.files import file_lock
from graft.core.layout import store
from graft.core.places import BUILDS, DEVELOPED, NATIVE, WHEEL, note_place
from helpers import Capture, Patch, started, write

BUILT = {"2.13.0+cpu/cp311/base/a": "ab", "environments/test-1/b": "c", "loads/a": ""}
SHARED = {"objects/key/a.o": "abc", "bases/1/torch-1.whl": "", "environments/builder-1/a": "", "symbols/a": ""}
OF_USERS = {"notes.txt": "", "2.13/mine": ""}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A folder of builds beside the store; both also have files that are not Graft's."""
    folder = write(tmp_path / "home", BUILT | OF_USERS)
    monkeypatch.setattr(cleaning, "HOME", folder)
    write(store(), SHARED | OF_USERS)
    note_place(BUILDS, folder)
    return folder


def clean(**options: bool) -> None:
    cleaning.clean(asked(), Namespace(**{"cache": False, "all": False, "yes": False, **options}))


def files(folder: Path) -> set[str]:
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return {name for name in found if not name.startswith("places/")}


def test_builds_alone(home: Path, capsys: Capture) -> None:
    (home / "symbols").symlink_to(home / "2.13")
    clean()
    assert files(home) == {*OF_USERS} and (home / "symbols").is_symlink()
    assert files(store()) == {*SHARED, *OF_USERS}
    assert f"deleted 0.0 GB in {home}" in capsys.readouterr().err
    clean()
    assert "nothing to do: " in capsys.readouterr().err


def test_what_all_builds_share(home: Path) -> None:
    clean(cache=True)
    assert files(home) == {*BUILT, *OF_USERS}
    assert files(store()) == {*OF_USERS}


@pytest.fixture
def developed(tmp_path: Path) -> Path:
    """Site-packages with a tree, a clone's builds, and what is the user's."""
    packages = write(tmp_path / "site-packages", {"torch_graft.pth": "", "torch.graft/1/graft.json": "{}"})
    note_place(DEVELOPED, packages)
    clone = write(tmp_path / "clone", {"scripts/environment.py": "", "build/faster/torch-1.whl": "", "dist/a.whl": ""})
    for kind, path in (
        (BUILDS, clone / "build"),
        (WHEEL, clone / "dist/a.whl"),
        (NATIVE, packages.parent),
        (WHEEL, clone / "gone.whl"),
    ):
        note_place(kind, path)
    return packages


def test_all_is_listed_first(home: Path, developed: Path, capsys: Capture) -> None:
    with pytest.raises(UsageError, match="nothing was deleted"):
        clean(all=True)
    said = capsys.readouterr().err
    clone = developed.parent / "clone"
    for path in (store() / "objects", home / "2.13.0+cpu", clone / "build"):
        assert f"GB  {path}\n" in said
    assert f"undevelop  {developed}\n" in said
    assert f"not deleted, of your wheels: {clone}/dist/a.whl\n" in said and "gone" not in said
    assert f"not deleted, of your native folders: {developed.parent}\n" in said
    assert files(home) == {*BUILT, *OF_USERS} and (developed / "torch_graft.pth").is_file()


def test_all_is_deleted_if_that_is_sure(home: Path, developed: Path) -> None:
    clean(all=True, yes=True)
    assert files(home) == files(store()) == {*OF_USERS}
    assert not [*developed.iterdir()]
    assert files(developed.parent / "clone") == {"scripts/environment.py", "dist/a.whl"}


def test_what_a_process_uses_stays_with_all_else(home: Path, tmp_path: Path) -> None:
    lock = store() / "environments/builder-1.lock"
    script = "import sys; from pathlib import Path; from graft.core.files import file_lock\n"
    script += "with file_lock(Path(sys.argv[1]), ''): print(flush=True); sys.stdin.read()"
    with started(script, lock) as other:
        assert other.stdout and other.stdout.readline()
        with pytest.raises(UsageError, match=f"{lock.parent}: another process {other.pid} uses what is there"):
            clean(cache=True)
        other.communicate()
    assert {*SHARED} < files(store())
    with file_lock(lock, ""):  # as this process holds that of its own environment
        clean(cache=True)
    assert files(store()) == {*OF_USERS}
