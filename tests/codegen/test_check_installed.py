"""`check` and `new` for the torch of an environment: nothing is downloaded or unpacked, and the last line names it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from graft import verbs
from graft.base.base import Base
from graft.base.installed import Environment
from graft.core.layout import PACKAGES, PATCHES, Layout, TorchVersion
from graft.inputs.pin import load_pin
from graft.inputs.toolchain import find_toolchain
from snippets import write_shown_folder

SCHEMA = "soft_step(Tensor self, *, Scalar width=1) -> Tensor"


def test_macros_of_pytorchs_own_build() -> None:
    """What compiles a copy of PyTorch's sources takes their branches, of FBGEMM for instance."""
    folder = Path(os.environ["GRAFT_BASE_FOLDER"])
    (wheel,) = folder.glob("*.whl")
    base = Base(wheel, folder / "tree")
    code, env = "import torch; print(torch.__config__.show())", {"PYTHONPATH": os.environ["GRAFT_STOCK"]}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    shown = {*re.findall(r"-D(USE_\w+)", said)}
    assert {*base.macros} == shown >= {"USE_FBGEMM", "USE_PTHREADPOOL"}
    fitted = base.fitted(find_toolchain(load_pin(PATCHES / "2.13.0")))
    assert "USE_FBGEMM" in fitted.macros and "-DUSE_FBGEMM" in fitted.flags
    assert "USE_PYTORCH_QNNPACK" not in fitted.macros  # the wheel lacks pytorch_qnnpack.h


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment whose torch is the base's."""
    folder = tmp_path_factory.mktemp("environment")
    venv.EnvBuilder(symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in ("torch", "torchgen"):
        (packages / name).symlink_to(Path(os.environ["GRAFT_BASE_FOLDER"], "tree", name))
    return folder / "bin/python"


def graft(home: Path, *words: str | Path) -> str:
    """Run the builder with an empty cache, without any index. Return its messages."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GRAFT_", "PIP_"))}
    env |= {"GRAFT_HOME": str(home), "PIP_NO_INDEX": "1", "PYTHONPATH": str(PACKAGES)}
    command = [sys.executable, "-m", "graft", *map(str, words)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_torch_of_the_environment_is_the_base(python: Path, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "my_ops"
    write_shown_folder(folder)
    version = Path(os.environ["GRAFT_BASE_FOLDER"]).parents[1].name
    said = graft(home, "check", "--python", python, "--native", folder)
    assert "looking for torch" not in said and "fetch" not in said
    # A wheel for CUDA may be pinned by its release alone.
    expected = re.escape(f"{folder}: no errors found for torch {version}, which {python} has")
    assert re.match(expected.replace(",", r"(\+\w+)?,", 1), said.splitlines()[-1])
    assert "fetch" not in graft(home, "new", "--python", python, "--native", folder, "--schema", SCHEMA)
    assert not list(home.rglob("*.whl")) and not (home / "bases").exists()


@pytest.mark.parametrize(
    ("version", "has", "more"),
    [
        ("2.13.0+cpu", ", which python3 has", ""),
        ("2.14.1", ", which python3 has", "; a wheel is built for torch 2.13.0+cpu, for which `make check "),
        ("2.14.1", "", ""),  # a pin that was asked for
    ],
)
def test_last_line_names_the_torch_and_how_to_check_for_a_wheel(
    version: str, has: str, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Environment("python3", Path("/site"), Path("/site")) if has else None
    pin = TorchVersion("2.13.0+cpu")
    monkeypatch.setattr(verbs, "expected_pin", lambda _: pin if has else pytest.fail("it is asked for"))
    said = verbs.verdict(Layout(TorchVersion(version), (Path("/ops"),), Path("/ops")), environment)
    assert said == f"/ops: no errors found for torch {version}{has}{more}" + ("PIN=2.13.0+cpu` checks" if more else "")
