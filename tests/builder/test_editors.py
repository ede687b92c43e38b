"""What editors read: the compile commands, and links in the user's folders: which are made, when, and which stay."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from asking import asked
from builds import GXX
from graft import cleaning, verbs
from graft.checkout.live import Live
from graft.compile.commands import write_commands
from graft.compile.nvcc import Nvcc
from graft.compile.units import Unit
from graft.core.errors import UsageError
from graft.core.layout import SOURCES, Layout
from graft.core.places import LINKED, places
from graft.deliver.editor import SCHEMAS, for_editors
from graft.inputs.native import load_natives
from helpers import Capture, Patch, write

COMMANDS = "compile_commands.json"


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: Patch) -> Layout:
    """A folder, with the compile commands of a build."""
    monkeypatch.setattr(Layout, "pin_build", tmp_path / "home")
    made = replace(asked().layout, natives=(write(tmp_path / "my_ops", {"native_functions.yaml": ""}),))
    write(made.commands, {COMMANDS: "[]"})
    return made


@pytest.fixture
def link(layout: Layout) -> Callable[[], None]:
    """Link the files, as after a check."""

    def link() -> None:
        with for_editors(layout, is_linked=True):
            pass

    return link


@pytest.mark.parametrize("has_thrust", [True, False])
def test_cuda_sources_find_thrust_where_nvcc_does(layout: Layout, has_thrust: bool) -> None:
    """As in CUDA 13, whose headers of Thrust are not in `include`."""
    write(layout.native, {"A.cpp": "", "cuda/A.cu": ""})
    toolkit = layout.pin_build / "cuda"
    (toolkit / ("include/cccl" if has_thrust else "include/thrust")).mkdir(parents=True)
    units = [Unit(SOURCES / name, Path(f"{name}.o")) for name in ("A.cpp", "cuda/A.cu")]
    compilers = (GXX, Nvcc(toolkit, GXX, ("90",)))
    write_commands(layout, load_natives(layout.natives), zip(units, compilers, strict=True), GXX)
    entries = json.loads((layout.commands / COMMANDS).read_text())
    has_it = [f"-isystem{toolkit}/include/cccl" in each["arguments"] for each in entries]
    assert [Path(each["file"]).name for each in entries] == ["A.cpp", "A.cu"] and has_it == [False, has_thrust]


@pytest.mark.parametrize(
    "target", [f"build/{COMMANDS}", f"/elsewhere/{COMMANDS}", "/a/commands-mine/compile_commands.json"]
)
def test_links_of_users_stay(layout: Layout, link: Callable[[], None], target: str, capsys: Capture) -> None:
    """Also one whose build folder was deleted, and a folder of schemas."""
    (layout.native / COMMANDS).symlink_to(target)
    (layout.native / ".graft").symlink_to("../schemas")
    link()
    assert str((layout.native / COMMANDS).readlink()) == target
    assert str((layout.native / ".graft").readlink()) == "../schemas"
    said = capsys.readouterr().err
    assert f"{layout.native / COMMANDS}: it is there already" in said and "--compile-commands-dir=" in said
    assert places(LINKED) == []


def test_own_links_of_another_build_are_replaced(layout: Layout, link: Callable[[], None]) -> None:
    (layout.native / COMMANDS).symlink_to(f"/deleted/2.12.0/cp311/commands-0123456789ab/{COMMANDS}")
    (layout.native / ".graft").symlink_to("/deleted/site-packages/graft/schemas")
    for _ in range(2):
        link()
        assert (layout.native / COMMANDS).readlink() == layout.commands / COMMANDS
        assert (layout.native / ".graft").readlink() == SCHEMAS


def test_check_that_finds_errors_links_what_is_there(layout: Layout, monkeypatch: Patch) -> None:
    def fail(_: Layout) -> None:
        raise UsageError("an error")

    monkeypatch.setattr(verbs, "layout_of", lambda _: (layout, None))
    monkeypatch.setattr(verbs, "of_checkout", lambda *_: Live(asked(native=layout.natives)))
    monkeypatch.setattr(verbs, "take_snapshot", fail)
    own = Namespace(are_files_listed=False, cuda=False, editor=False, format="text")

    def links() -> set[str]:
        with pytest.raises(UsageError, match="an error"):
            verbs.check(asked(), own)
        return {path.name for path in layout.native.iterdir() if path.is_symlink()}

    assert links() == set()
    own.editor = True
    (layout.commands / COMMANDS).unlink()
    assert links() == {".graft"}
    write(layout.commands, {COMMANDS: "[]"})
    assert links() == {".graft", COMMANDS}
    layout.native.rename(layout.native.with_name("gone"))
    with pytest.raises(UsageError, match="an error"):
        verbs.check(asked(), own)


def test_clean_all_removes_own_links(
    layout: Layout, link: Callable[[], None], tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """Also those that lead nowhere, but none that the user has made since."""
    monkeypatch.setattr(cleaning, "HOME", tmp_path / "home")
    link()
    (layout.commands / COMMANDS).unlink()
    other = layout.native / ".graft"
    other.unlink()
    other.symlink_to("mine")
    cleaning.clean(asked(), Namespace(cache=False, all=True, yes=True))
    said = capsys.readouterr().err
    assert f"link for editors  {layout.native / COMMANDS}\n" in said and str(other) not in said
    assert {path.name for path in layout.native.iterdir()} == {"native_functions.yaml", ".graft"}
