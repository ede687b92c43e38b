"""Wheels: the content of a thin one, and writing a grafted one, checked with zipfile and hashes computed here."""

from __future__ import annotations

import csv
import importlib
import io
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from email import message_from_bytes
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest
from graft.compose.package import module_of, star_importers
from graft.core.errors import BuildError, UsageError
from graft.core.layout import INTERPRETER
from graft.deliver.shipped import publish
from graft.deliver.thin import package_name, thin_version, write_wheel
from graft.deliver.wheel import pack
from graft.verbs import dependencies_of
from helpers import Patch, beside, refused, write
from packaging.version import Version

CASES = beside(__file__)

FILES = {"my_ops/_C.so": bytes(range(256)) * 9, "my_ops/a,b.py": b"", "my_ops/__init__.py": b"from . import _C\n"}


@pytest.mark.parametrize(
    ("name", "folder", "expected"),
    [
        *(("", "my_ops", "my_ops"), ("", "my-ops", "my_ops"), ("", "my--ops", "my_ops")),
        *(("", "my ops.v2", "my_ops_v2"), ("Ops2", "2d", "Ops2")),
    ],
)
def test_package_has_the_name_that_was_given_or_the_folder_s(name: str, folder: str, expected: str) -> None:
    assert package_name(name, Path("/home/me", folder)) == expected


@pytest.mark.parametrize(
    "name",
    [
        *("torch", "torchgen", "functorch", "os", "json", "numpy", "sympy", "typing_extensions"),
        *("my-ops", "2d", "class", "größe", "a.b", "_ops", "ops_", "my__ops"),
    ],
)
def test_name_that_python_or_pip_cannot_take_is_refused(name: str) -> None:
    error = refused(UsageError, package_name, name, Path("/home/me/fine"), match=f"^NAME={name}: ")
    assert error.todo.startswith("set NAME to ")
    with pytest.raises(UsageError, match=r"^NAME=2d: "):
        package_name("", Path("/home/me/2d"))


@pytest.mark.parametrize(
    ("version", "requires", "expected"),
    [
        ("1.2.0", ["2.13.0+cpu"], "1.2.0+torch2.13.0.cpu"),
        ("0.1", ["2.14.1"], "0.1+torch2.14.1"),
        ("1.0-rc1", ["2.13.0+cu130"], "1.0rc1+torch2.13.0.cu130"),
        ("1.0", ["2.13.0", "2.14.1"], "1.0"),  # package indexes take no local version
    ],
)
def test_version_tells_the_torch(version: str, requires: list[str], expected: str) -> None:
    assert thin_version(version, requires) == expected
    assert str(Version(expected)) == expected


@pytest.mark.parametrize("version", ["one", "", "1.0+cpu"])
def test_what_is_no_version_of_its_own_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match=r"^VERSION="):
        thin_version(version, ["2.13.0"])


def packed(out: Path, files: dict[str, bytes] = FILES) -> Path:
    version = thin_version("0.1", ["2.13.0+cpu"])
    project = {"project": {"name": "my_ops", "version": version, "description": "Operators: cut"}}
    how = {"package": "my_ops", "requires": ["torch==2.13.0+cpu"], "platform": "manylinux_2_28_x86_64"}
    return write_wheel(None, project, files, out=out, **how)


def test_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    backwards = dict(reversed(FILES.items()))
    first, second = (packed(tmp_path / str(number), files) for number, files in enumerate((FILES, backwards)))
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_wheel_has_the_operators_and_their_torch(tmp_path: Path) -> None:
    path, tag = packed(tmp_path), f"{INTERPRETER}-{INTERPRETER}-manylinux_2_28_x86_64"
    assert path.name == f"my_ops-0.1+torch2.13.0.cpu-{tag}.whl"
    with ZipFile(path) as wheel:
        info = "my_ops-0.1+torch2.13.0.cpu.dist-info"
        members = {each.filename: each for each in wheel.infolist()}
        assert [name for name in members if not name.startswith(info)] == sorted(FILES)
        assert all(wheel.read(name) == content for name, content in FILES.items())
        assert all(each.external_attr >> 16 & 0o777 for each in members.values())
        assert members["my_ops/_C.so"].external_attr >> 16 & 0o111
        rows = [row[0] for row in csv.reader(io.StringIO(wheel.read(f"{info}/RECORD").decode()))]
        assert sorted(rows) == sorted(members)
        metadata, about = (message_from_bytes(wheel.read(f"{info}/{name}")) for name in ("METADATA", "WHEEL"))
        assert (metadata["Version"], metadata["Summary"]) == ("0.1+torch2.13.0.cpu", "Operators: cut")
        assert metadata["Requires-Dist"] == "torch==2.13.0+cpu"
        assert (about["Root-Is-Purelib"], about["Tag"]) == ("false", tag)


def test_module_of_a_file() -> None:
    for path in ("torch", "torch/nn", "torch/my__init__"):
        assert module_of(f"{path}.py") == module_of(f"{path}/__init__.py") == path.replace("/", ".")


MODULES = CASES["modules"]


@pytest.mark.parametrize(
    ("module", "importers"),
    [
        pytest.param("torch.functional", {"torch"}, id="direct"),
        pytest.param("torch.nn.modules.linear", {"torch.nn.modules", "torch.nn", "torch"}, id="through others"),
        pytest.param("torch.fft", {"torch._refs.linalg"}, id="relative to the folder above"),
        pytest.param("torch._refs", {"torch._refs.deeper"}, id="the package above"),
        pytest.param("torch._refs.deeper.one", {"torch._refs.deeper", "torch._refs.linalg"}, id="by two in two ways"),
        pytest.param("torch.about", {"torch.round", "torch.about"}, id="in a circle"),
        pytest.param("torch.distributed.c10d", {"torch.distributed"}, id="on a condition"),
        pytest.param("torch.nowhere", None, id="by none"),
    ],
)
def test_who_takes_all_names_is_found(tmp_path: Path, module: str, importers: set[str] | None) -> None:
    found = star_importers(write(tmp_path, MODULES), [module, "torch.nn"])
    assert found.pop("torch.nn") == ["torch"]
    assert {name: {*each} for name, each in found.items()} == ({module: importers} if importers else {})
    assert all(len(each) == len({*each}) for each in found.values())


SLOW = """import threads
first = 1
threads.is_half.set()
threads.may_end.wait(10)
second = 2
runs = []
"""


@pytest.mark.parametrize("is_found_by_it", [False, True], ids=["before", "after"])
def test_module_that_another_thread_imports_is_extended_once_it_is_whole(
    is_found_by_it: bool, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The other thread begins before, or after, the operators' finder is there."""
    (tmp_path / "slow_module.py").write_text(SLOW)
    (tmp_path / "behind.py").write_text("runs.append(first + second)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    threads = SimpleNamespace(is_half=threading.Event(), may_end=threading.Event())
    monkeypatch.setitem(sys.modules, "threads", threads)
    note = {"folder": str(tmp_path), "behind": {"slow_module": "behind.py"}, "new": {}, "stars": {}}
    behind = publish.Behind(note, lambda name: str(tmp_path / name))
    if is_found_by_it:
        sys.meta_path.insert(0, behind)
    with ThreadPoolExecutor(2) as pool:
        module = pool.submit(importlib.import_module, "slow_module")
        assert threads.is_half.wait(10)
        if not is_found_by_it:
            sys.meta_path.insert(0, behind)
        extended = pool.submit(behind.run_loaded)
        wait([extended], timeout=0.2)  # it has to wait, or leave the module alone
        threads.may_end.set()
        extended.result()
        assert module.result().runs == [3]
    del sys.modules["slow_module"]


def test_what_projects_of_folders_require(tmp_path: Path) -> None:
    for name, needed in {"one": '["their>=2", "more"]', "two": '["their>=2"]'}.items():
        text = f'[project]\nname = "{name}"\ndependencies = {needed}\n[tool.graft]\nnative = "."\n'
        write(tmp_path / name, {"pyproject.toml": text})
    (tmp_path / "none").mkdir()
    assert dependencies_of([tmp_path / name for name in ("one", "two", "none")]) == ["their>=2", "more"]


BASE = "torch-1.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
INFO = "torch-1.0+cpu.dist-info"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A wheel whose members have a date each."""
    files = {
        "torch/__init__.py": b"import this\n" * 50,
        "torch/lib/libtorch.so": bytes(range(256)) * 40,
        "torch/a,b.txt": b"a comma\n",
        f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 1.0+cpu\n\nVersion: in the text\n",
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-manylinux_2_28_x86_64\n\n",
    }
    files |= {f"{INFO}/RECORD": "".join(f'"{name}",sha256=0,1\n' for name in files).encode(), "torch/empty/": b""}
    with ZipFile(tmp_path / BASE, "w", ZIP_DEFLATED) as archive:
        for day, (name, content) in enumerate(files.items(), 1):
            member = ZipInfo(name, (2001, 2, day, 4, 5, 6))
            member.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            archive.writestr(member, content)
    return tmp_path / BASE


def grafted(base: Path, out: Path, overlay: dict[str, bytes]) -> Path:
    return pack(base, overlay, version="1.0+cpu.graft.abc", platform="manylinux_2_35_x86_64", out=out)


OVERLAY = {"torch/__init__.py": b"import that\n", "torch/new.h": b"#pragma once\n"}


def test_next_wheel_replaces_what_a_killed_build_left(base: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", lambda *_: None)
        killed.setattr(Path, "unlink", lambda *_, **__: None)
        pack(base, OVERLAY, version="1.0+first", platform="linux_x86_64", out=out, owner="mine")
    assert len(list(out.iterdir())) == 1
    wheel = pack(base, OVERLAY, version="1.0+second", platform="linux_x86_64", out=out, owner="mine")
    assert list(out.iterdir()) == [wheel]


def test_no_planted_link_is_followed(base: Path, tmp_path: Path) -> None:
    """Others may write into the folder of a wheel: /tmp, for example."""
    out, theirs = tmp_path / "out", tmp_path / "theirs"
    out.mkdir()
    theirs.write_text("theirs")
    for name in (".torch-mine.partial", ".torch-mine-0.partial"):
        (out / name).symlink_to(theirs)
    pack(base, OVERLAY, version="1.0+first", platform="linux_x86_64", out=out, owner="mine")
    assert theirs.read_text() == "theirs"


def test_what_is_new_has_the_mode_of_the_old_and_the_last_date(base: Path, tmp_path: Path) -> None:
    """The metadata's text stays as it is, and what is recorded of other members."""
    changed = {"torch/lib/libtorch.so": b"another", "torch/new.h": b"", "torch/lib/new.so": b""}
    with ZipFile(grafted(base, tmp_path / "out", changed)) as new:
        found = {name: new.getinfo(name) for name in changed}
        record = new.read(new.namelist()[-1]).decode().splitlines()
        assert {info.date_time for info in found.values()} == {(2001, 2, 7, 4, 5, 6)}
        assert [info.external_attr >> 16 for info in found.values()] == [0o100755, 0o100644, 0o100755]
        assert "torch/empty/" in new.namelist()
        metadata = new.read("torch-1.0+cpu.graft.abc.dist-info/METADATA").decode()
    assert metadata.endswith("Version: 1.0+cpu.graft.abc\n\nVersion: in the text\n")
    assert not [line for line in record if line.startswith("torch/empty/")]
    assert '"torch/a,b.txt",sha256=0,1' in record
    assert record[-1] == "torch-1.0+cpu.graft.abc.dist-info/RECORD,,"


@pytest.mark.parametrize(("is_thin", "place", "name"), [(True, ZipFile, "writestr"), (False, shutil, "copyfileobj")])
def test_failure_leaves_what_was_there(
    is_thin: bool, place: object, name: str, base: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    def make(files: dict[str, bytes]) -> Path:
        return packed(tmp_path / "out", files) if is_thin else grafted(base, tmp_path / "out", files)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    wheel = make(FILES)
    before = wheel.read_bytes()
    monkeypatch.setattr(place, name, full)
    with pytest.raises(BuildError, match="No space left on device"):
        make({"my_ops/other.py": b""})
    assert wheel.read_bytes() == before
    assert list((tmp_path / "out").iterdir()) == [wheel]
