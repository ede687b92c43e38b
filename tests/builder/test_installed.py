"""The torch installed in an environment: its properties, unsupported ones, and its fingerprint."""

from __future__ import annotations

import json
import os
import sysconfig
import venv
from pathlib import Path

import pytest
from graft.base import installed
from graft.base.installed import TREES, Environment, find_environment, find_site
from graft.core.errors import UsageError
from graft.core.layout import REPOSITORY, Layout, TorchVersion
from helpers import Capture, Patch, program, refused, write

KNOWN = [TorchVersion(name) for name in ("2.9.1+cpu", "2.9.1", "2.10.0+cu130")]


def fake_torch(site: Path, version: str) -> Path:
    """The files of an installed torch that are read."""
    extension = f"_C.{sysconfig.get_config_var('SOABI')}.so"
    names = ("lib/libtorch_cpu.so", "lib/libgomp.so.1", extension)
    return write(
        site / "torch", {**{name: name for name in names}, "version.py": f"__version__ = '{version}'\n"}
    ).parent


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment("python", tmp_path, fake_torch(tmp_path, "2.10.0+cu130"))


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of an empty environment."""
    venv.EnvBuilder(symlinks=True).create(tmp_path / "environment")
    return tmp_path / "environment/bin/python"


def packages_of(python: Path) -> Path:
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    return packages


@pytest.mark.parametrize(
    ("version", "patches"),
    [
        *(("2.10.0+cu130", "2.10.0"), ("2.10.0+cu128", "2.10.0"), ("2.9.1", "2.9.1")),
        *((untested, "2.10.0") for untested in ("2.8.0+cpu", "2.10.1", "2.11.0a0+git123")),
    ],
)
def test_release_has_its_patches_or_the_newest_with_a_warning(
    environment: Environment, version: str, patches: str, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setattr(installed, "known_pins", lambda _: KNOWN)
    fake_torch(environment.site, version)
    layout = installed.layout_on(Layout(TorchVersion("installed"), (Path("/mine"),), Path("/out")), environment)
    assert (layout.pin, layout.installed) == (version, environment.key)
    assert layout.patches == REPOSITORY / "patches" / patches
    is_known = version.partition("+")[0] == patches
    said = f"torch {version} is untested: the build uses what is known of {patches}, and stops where they differ"
    assert capsys.readouterr().err == ("" if is_known else f"{said}; tested are {', '.join(KNOWN)}\n")


def test_version_is_pip_s_if_pip_knows_it(environment: Environment) -> None:
    assert environment.version == "2.10.0+cu130"
    metadata = environment.site / "torch-2.10.0.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.10.0\n\nVersion: 3\n")
    assert environment.version == "2.10.0"


@pytest.mark.parametrize("name", ["torch/version.py", "torch/lib/libtorch_cpu.so", "torch/lib/libgomp.so.1"])
@pytest.mark.parametrize("change", ["size", "time"])
def test_another_size_or_time_is_another_torch(environment: Environment, name: str, change: str) -> None:
    key, state = environment.key, environment.state()
    assert environment.key == key
    path, before = environment.site / name, (environment.site / name).stat()
    if change == "size":
        path.write_text(f"{path.read_text()}.")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + (change == "time")))
    assert environment.key != key
    assert {each for each, value in environment.state().items() if value != state[each]} == {name}


def test_torch_in_another_folder_is_another_one(environment: Environment, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "torch").rename(tmp_path / "other/torch")
    moved = Environment("python", tmp_path, tmp_path / "other")
    (tmp_path / "torch").symlink_to(tmp_path / "other/torch")
    assert moved.state() == environment.state()
    assert moved.key != environment.key


def test_torch_is_found_past_what_make_develop_put_first(python: Path) -> None:
    packages = packages_of(python)
    assert find_site(str(python)) == (packages, None)
    tree = fake_torch(packages / TREES / "0123", "2.10.0+cpu")
    (packages / "first.pth").write_text(f"import sys; sys.path.insert(0, {str(tree)!r})\n")
    assert find_site(str(python))[1] is None
    fake_torch(packages, "2.10.0+cpu")
    assert find_site(str(python))[1] == packages
    assert find_environment(str(python)).site == packages


def test_environment_without_torch_is_refused(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = refused(UsageError, find_environment, str(python), match="no torch is installed there")
    assert str(packages_of(python)) in error.cause
    assert "PYTHONPATH" not in error.cause
    (tmp_path / "other/torch").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    error = refused(UsageError, find_environment, str(python))
    assert f"{tmp_path}/other/torch is on PYTHONPATH" in error.cause


@pytest.mark.parametrize("kind", ["missing", "another program", "folder", "not executable", "no program", "fails"])
def test_what_is_no_python_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "python"
    if kind == "folder":  # of an environment
        path.mkdir()
    elif kind != "missing":
        text = {"another program": "#!/bin/sh\necho hello\n", "fails": "#!/bin/sh\nexit 1\n"}.get(kind, "hello")
        path.write_text(text)
        path.chmod(0o644 if kind == "not executable" else 0o755)
    what = "this is a folder" if kind == "folder" else "it does not run as Python"
    error = refused(UsageError, find_site, str(path), match=f"PYTHON={path}: {what}")
    assert error.todo == "set PYTHON to the Python of an environment"


def test_program_of_an_environment_is_named(tmp_path: Path) -> None:
    path = program(write(tmp_path / "env", {"bin/x": ""}) / "bin/python", "")
    error = refused(UsageError, find_site, str(tmp_path / "env"), match="env: this is a folder")
    assert error.todo == f"did you mean {path}?"


def test_another_python_than_the_builder_s_is_refused(tmp_path: Path) -> None:
    found = json.dumps(["/packages", ["/packages"], "cpython-39-x86_64-linux-gnu"])
    path = program(tmp_path / "python", f"echo '{found}'")
    with pytest.raises(UsageError, match="it is for cpython-39-x86_64-linux-gnu, but the builder runs on "):
        find_site(str(path))


@pytest.mark.parametrize(
    ("version", "official"), [("2.10.0+cpu.graft.0123456789", "2.10.0+cpu"), ("2.10.0+graft.0123456789", "2.10.0")]
)
def test_torch_that_has_operators_already_is_refused(python: Path, version: str, official: str) -> None:
    packages = packages_of(python)
    fake_torch(packages, version)
    find_environment(str(python))
    (packages / "torch/_added_operators.py").touch()
    with pytest.raises(UsageError, match=f"^{packages}/torch: this torch is a grafted wheel already") as caught:
        find_environment(str(python))
    assert caught.value.todo.endswith(f": pip install --force-reinstall --no-deps 'torch=={official}'")
