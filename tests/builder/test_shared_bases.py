"""Base wheels, and what is unpacked of them, are there once for all clones, and never half."""

from __future__ import annotations

import os
import stat
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from graft.base import fetch as fetching
from graft.base import find
from graft.base.base import Base
from graft.base.shared import bases, share_tree, share_wheel
from graft.core import layout as layout_module
from graft.core.console import Steps
from graft.core.files import delete
from graft.core.layout import Layout, TorchVersion
from graft.inputs.pin import pin_of
from helpers import write
from test_find import TAG, Sources, sources  # noqa: F401

VERSION = TorchVersion("9.1.0")


@pytest.fixture
def clone(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Base]:  # noqa: F811
    """Gets the base in a clone of this name. The wheel is given to the first clone; there is no index."""
    sources.pin(VERSION, {VERSION: {TAG: sources.wheel(VERSION, text="a module")}})
    monkeypatch.setattr(Base, "require_usable", lambda _: None)
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    def get(name: str) -> Base:
        given = sources.folder / f"torch-{VERSION}-{TAG}.whl" if name == "first" else None
        monkeypatch.setattr(layout_module, "HOME", sources.folder / name)
        layout = Layout(VERSION, (), Path(), pin_folder=sources.patches / VERSION)
        return fetching.get_base(pin_of(layout), layout, given, Steps())

    return get


def test_second_clone_downloads_and_unpacks_nothing(
    clone: Callable[[str], Base], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = clone("first")
    said = capsys.readouterr().err
    assert "already downloaded" not in said and "unpack it: 6 files" in said
    monkeypatch.setattr(fetching, "_extract", lambda *_: pytest.fail("it unpacks"))
    second = clone("second")
    said = capsys.readouterr().err
    assert "fetch the base wheel: already downloaded" in said and "unpack it: there already" in said
    assert first.tree != second.tree and first.tree.resolve() == second.tree.resolve()
    assert first.wheel != second.wheel and first.wheel.samefile(second.wheel)
    assert (second.tree / "torch/text.py").read_text() == "a module"
    (sha256,) = (path.name for path in bases().iterdir())
    assert {path.name for path in (bases() / sha256).iterdir()} == {"lock", "tree", first.wheel.name}


def test_search_for_a_torch_needs_no_pip_if_it_is_there(
    clone: Callable[[str], Base],
    sources: Sources,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    clone("first")
    monkeypatch.setattr(layout_module, "HOME", sources.folder / "second")
    find.find_pin(patches=sources.patches)
    assert "looking for torch 9.1.0: already downloaded\n" in capsys.readouterr().err


def test_no_file_there_can_be_written_to(clone: Callable[[str], Base]) -> None:
    base = clone("first")
    files = [path for path in base.tree.resolve().rglob("*") if path.is_file()]
    assert len(files) == 7
    for path in (base.wheel, *files):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o222, path


def test_what_fails_or_was_killed_is_not_taken_for_a_base(
    clone: Callable[[str], Base], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Base, "require_usable", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        clone("first")
    (folder,) = bases().iterdir()
    assert not (folder / "tree").exists()
    write(folder, {"tree.partial/torch/of_a_killed_build.py": "", "wheel.partial": ""})
    monkeypatch.setattr(Base, "require_usable", lambda _: None)
    tree = clone("first").tree
    assert (tree / "torch/text.py").is_file() and not (tree / "torch/of_a_killed_build.py").exists()


def as_user(act: Callable[[], object]) -> int:
    """Run ``act`` as a user whom permissions bind. Return 0 if it succeeded."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        act()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def test_owner_needs_no_more_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o777)
    for folder in (cache, *tmp_path.parents[:3], tmp_path):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):
            folder.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def act() -> None:
        write(cache, {"torch-1.whl": "a wheel"})
        share_wheel(cache / "torch-1.whl", "0")
        tree = share_tree("0", lambda partial: write(partial, {"torch/deep/a.py": ""}))
        with pytest.raises(PermissionError):
            (tree / "torch/deep/a.py").write_text("")
        delete(bases())
        assert not bases().exists()

    assert as_user(act) == 0


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"GRAFT_HOME": "~/mine"}, "{home}/mine/bases"),
        ({"XDG_CACHE_HOME": "/caches"}, "/caches/graft/bases"),
        ({"XDG_CACHE_HOME": "relative"}, "{home}/.cache/graft/bases"),
        ({}, "{home}/.cache/graft/bases"),
    ],
)
def test_place(variables: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GRAFT_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(bases()) == expected.format(home=tmp_path)
