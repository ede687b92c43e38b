"""A wheel with libraries of different builds raises an error instead of calling wrong addresses."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import alter_build_id

PACKAGE = Path(torch.__file__).parent

pytestmark = [
    pytest.mark.skipif("graft" not in torch.__version__, reason="torch has no library of Graft and the official ones"),
    pytest.mark.unsanitized("no operator is called"),
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the installed torch, made of links, in which a test replaces one library at a time."""
    root = tmp_path_factory.mktemp("mixed")
    shutil.copytree(PACKAGE, root / "torch", copy_function=os.symlink, ignore=shutil.ignore_patterns("include", "test"))
    for path in [*root.glob("torch/lib/*.so*"), *root.glob("torch/_C.*.so")]:
        target = path.resolve()
        path.unlink()
        os.link(target, path)  # $ORIGIN must be this folder
    return root


def import_torch(root: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run([sys.executable, "-c", "import torch"], env=env, capture_output=True, text=True, check=False)


def test_unmixed_torch_loads(mixed: Path) -> None:
    assert import_torch(mixed).returncode == 0


@pytest.mark.parametrize("name", ["libtorch_python.so", "libtorch_cpu.so", "libc10.so"])
def test_library_with_another_build_id_is_refused(mixed: Path, name: str) -> None:
    path = mixed / "torch/lib" / name
    alter_build_id(path)
    try:
        done = import_torch(mixed)
    finally:
        path.unlink()
        os.link(PACKAGE / "lib" / name, path)
    assert done.returncode == 1
    assert f"this torch was grafted onto a {name} with build-id" in done.stderr
    assert str(path) in done.stderr
    assert "install the wheel again" in done.stderr
    assert ("ImportError" in done.stderr) == (name == "libtorch_python.so")
