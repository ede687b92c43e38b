"""The content of a thin wheel: name, version, files; and which modules import names from those it extends."""

from __future__ import annotations

import csv
import importlib
import io
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from email import message_from_bytes
from pathlib import Path
from types import SimpleNamespace
from zipfile import ZipFile

import pytest
from graft.compose.package import module_of, star_importers
from graft.core.errors import BuildError, UsageError
from graft.core.layout import INTERPRETER
from graft.deliver.shipped import publish
from graft.deliver.thin import package_name, thin_version, write_wheel
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
