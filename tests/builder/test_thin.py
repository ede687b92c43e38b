"""Wheels: the content of a thin one, and writing a grafted one, checked with zipfile and hashes computed here."""

from __future__ import annotations

import base64
import csv
import hashlib
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
from helpers import Patch, beside, write
from packaging.requirements import Requirement
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
    with pytest.raises(UsageError, match=f"^NAME={name}: ") as caught:
        package_name(name, Path("/home/me/fine"))
    assert caught.value.todo.startswith("set NAME to ")
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


def test_wheel_has_the_operators_their_torch_and_the_entry_point(tmp_path: Path) -> None:
    path, tag = packed(tmp_path), f"{INTERPRETER}-{INTERPRETER}-manylinux_2_28_x86_64"
    assert path.name == f"my_ops-0.1+torch2.13.0.cpu-{tag}.whl"
    with ZipFile(path) as wheel:
        assert wheel.testzip() is None
        info = "my_ops-0.1+torch2.13.0.cpu.dist-info"
        members = {each.filename: each for each in wheel.infolist()}
        assert [name for name in members if not name.startswith(info)] == sorted(FILES)
        assert all(wheel.read(name) == content for name, content in FILES.items())
        assert all(each.external_attr >> 16 & 0o777 for each in members.values())
        assert members["my_ops/_C.so"].external_attr >> 16 & 0o111
        rows = [row[0] for row in csv.reader(io.StringIO(wheel.read(f"{info}/RECORD").decode()))]
        assert sorted(rows) == sorted(members)
        metadata, about = (message_from_bytes(wheel.read(f"{info}/{name}")) for name in ("METADATA", "WHEEL"))
        assert (metadata["Name"], metadata["Version"]) == ("my_ops", "0.1+torch2.13.0.cpu")
        assert metadata["Summary"] == "Operators: cut"
        requirement = Requirement(metadata["Requires-Dist"])
        versions = ("2.13.0+cpu", "2.13.0", "2.13.0+cu130", "2.13.1")
        assert requirement.name == "torch"
        assert [each for each in versions if each in requirement.specifier] == ["2.13.0+cpu"]
        assert wheel.read(f"{info}/entry_points.txt").strip() == b"[torch.backends]\nmy_ops = my_ops:autoload"
        assert (about["Root-Is-Purelib"], about["Tag"]) == ("false", tag)


def test_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: Patch) -> None:
    wheel = packed(tmp_path)
    before = wheel.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ZipFile, "writestr", full)
    with pytest.raises(BuildError, match="No space left on device"):
        packed(tmp_path, {"my_ops/other.py": b""})
    assert wheel.read_bytes() == before
    assert list(tmp_path.iterdir()) == [wheel]


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


def record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / BASE
    files = {
        "torch/__init__.py": b"import this\n" * 50,
        "torch/lib/libtorch.so": bytes(range(256)) * 40,
        "torch/a,b.txt": b"a comma\n",
        f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: torch\nVersion: 1.0+cpu\n\nVersion: in the text\n",
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-manylinux_2_28_x86_64\n\n",
    }
    record = "".join(record_line(f'"{name}"' if "," in name else name, content) for name, content in files.items())
    with ZipFile(path, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in {**files, f"{INFO}/RECORD": f"{record}{INFO}/RECORD,,\n".encode()}.items():
            archive.writestr(name, content)
            archive.infolist()[-1].external_attr = 0o100755 << 16 if name.endswith(".so") else 0o100644 << 16
    return path


def grafted(base: Path, out: Path, overlay: dict[str, bytes]) -> Path:
    return pack(base, overlay, version="1.0+cpu.graft.abc", platform="manylinux_2_35_x86_64", out=out)


OVERLAY = {"torch/__init__.py": b"import that\n", "torch/new.h": b"#pragma once\n"}


def test_every_member_is_right_and_recorded(base: Path, tmp_path: Path) -> None:
    wheel = grafted(base, tmp_path / "out", OVERLAY)
    assert wheel.name == "torch-1.0+cpu.graft.abc-cp311-cp311-manylinux_2_35_x86_64.whl"
    with ZipFile(wheel) as new, ZipFile(base) as old:
        assert new.testzip() is None
        assert {name: new.read(name) for name in OVERLAY} == OVERLAY
        # The compressed bytes of all others are copied.
        for name in ("torch/lib/libtorch.so", "torch/a,b.txt"):
            ours, theirs = new.getinfo(name), old.getinfo(name)
            for attribute in ("compress_size", "CRC", "external_attr", "date_time", "compress_type"):
                assert getattr(ours, attribute) == getattr(theirs, attribute)
        info = "torch-1.0+cpu.graft.abc.dist-info"
        assert new.namelist()[-1] == f"{info}/RECORD"
        rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(new.read(f"{info}/RECORD").decode()))}
        assert sorted(rows) == sorted(new.namelist())
        for name in new.namelist()[:-1]:
            assert ",".join([name, *rows[name]]) + "\n" == record_line(name, new.read(name))
        metadata = new.read(f"{info}/METADATA").decode()
        assert metadata.count("Version: 1.0+cpu.graft.abc\n") == 1
        assert metadata.endswith("Version: in the text\n")
        assert "Tag: cp311-cp311-manylinux_2_35_x86_64\n" in new.read(f"{info}/WHEEL").decode()
        assert not [name for name in new.namelist() if name.startswith(INFO + "/")]


def test_same_input_gives_the_same_grafted_wheel(base: Path, tmp_path: Path) -> None:
    first, second = (grafted(base, tmp_path / name, OVERLAY).read_bytes() for name in ("one", "two"))
    assert first == second


def test_failure_leaves_the_grafted_wheel_that_was_there(base: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    wheel = grafted(base, tmp_path / "out", OVERLAY)
    before = wheel.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(BuildError, match="No space left on device"):
        grafted(base, tmp_path / "out", {"torch/other.h": b""})
    assert wheel.read_bytes() == before
    assert list((tmp_path / "out").iterdir()) == [wheel]


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
    dated = tmp_path / "dated" / BASE
    dated.parent.mkdir()
    with ZipFile(base) as old, ZipFile(dated, "w", ZIP_DEFLATED) as archive:
        for day, info in enumerate(old.infolist(), 1):
            moved = ZipInfo(info.filename, (2001, 2, day, 4, 5, 6))
            moved.external_attr = info.external_attr
            archive.writestr(moved, old.read(info))
        archive.writestr(ZipInfo("torch/empty/", (2001, 1, 1, 0, 0, 0)), b"")
    last = (2001, 2, day, 4, 5, 6)
    changed = {"torch/lib/libtorch.so": b"another", "torch/new.h": b"", "torch/lib/new.so": b""}
    with ZipFile(grafted(dated, tmp_path, changed)) as new:
        found = {name: new.getinfo(name) for name in changed}
        record = new.read(new.namelist()[-1]).decode().splitlines()
        assert {info.date_time for info in found.values()} == {last}
        assert [info.external_attr >> 16 for info in found.values()] == [0o100755, 0o100644, 0o100755]
        assert "torch/empty/" in new.namelist()
    assert not [line for line in record if line.startswith("torch/empty/")]
    assert record[-1] == "torch-1.0+cpu.graft.abc.dist-info/RECORD,,"
