"""The pin that each verb uses if PIN is not given, and the environments of tests: their size and their progress."""

from __future__ import annotations

import os
import venv
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from graft import cli, validation
from graft.core import environments, layout
from graft.core.cuda_settings import NO_KERNELS, CudaArchs, CudaSettings
from graft.core.errors import MissingError, RefusedError
from graft.core.layout import INTERPRETER, REPOSITORY, Layout, TorchVersion
from graft.deliver import built
from graft.deliver.built import Built, fingerprint_of, last_build, save_built
from graft.options import GRAFT, SOURCE, Request
from helpers import Capture, Patch, make_wheel, program
from packaging.version import Version
from test_installed import fake_torch

from tests.kit import __main__ as kit
from tests.kit import environments as testing

VERBS = (*cli.VERBS, *kit.VERBS)

# The release with a pinned wheel for CPUs.
DEFAULT = "2.13.0"
PINNED = sorted((path.parent.name for path in REPOSITORY.glob("patches/*/pin.yaml")), key=Version)


@pytest.fixture
def used(tmp_path: Path, monkeypatch: Patch) -> list[str]:
    """The pins that verbs ran with. Nothing was built yet, and pip finds 9.1.0."""
    pins: list[str] = []
    (tmp_path / "patches").symlink_to(REPOSITORY / "patches")
    (tmp_path / "native_functions.yaml").write_text("[]\n")
    monkeypatch.setattr(built, "HOME", tmp_path / "build")
    monkeypatch.setattr(layout, "HOME", tmp_path / "build")
    monkeypatch.setattr(validation, "find_pin", lambda archs, **_: (TorchVersion("9.1.0"), archs))

    def use(request: Request, _: object = None) -> None:
        pins.append(f"{request.pin} {request.cuda_archs}".strip())

    run = SimpleNamespace(**{verb.run.partition(":")[2]: use for verb in VERBS})
    monkeypatch.setattr(cli, "import_module", lambda _: run)
    return pins


# Of the notes, one after the other.
TIMES = count(1_000_000_000)


def record(tmp_path: Path, pin: str, build: str = GRAFT, cuda: str = "", interpreter: str = INTERPRETER) -> None:
    wheel = tmp_path / "torch.whl"
    wheel.touch()
    made = Layout(TorchVersion(pin), (tmp_path,), tmp_path / "dist", interpreter=interpreter)
    save_built(made, Built("stamp", wheel, fingerprint_of(wheel), cuda), build)
    (note,) = made.work.glob(f"built-{build}-*.json")
    os.utime(note, (0, next(TIMES)))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["build"], "9.1.0"),
        (["test"], "9.1.0"),
        (["build", "--pin", "2.14.1"], "2.14.1"),
        (["build", "--build", "source"], DEFAULT),
        (["export"], DEFAULT),
        (["check-source"], PINNED[0]),
        (["check-cuda"], DEFAULT),
        (["test-mutants", "--list"], ""),
        (["develop"], ""),
    ],
    ids=" ".join,
)
def test_default_of_each_verb(words: list[str], expected: str, used: list[str], tmp_path: Path) -> None:
    assert cli.main(VERBS, [*words, "--native", str(tmp_path)]) == 0
    assert used == [expected]


@pytest.mark.parametrize("verb", [["check"], ["new", "--schema", "f() -> ()"]], ids=["check", "new"])
def test_torch_that_is_there_is_not_fetched(
    verb: list[str], used: list[str], tmp_path: Path, monkeypatch: Patch
) -> None:
    """`check` and `new` take that of PYTHON, or of the active environment; PIN comes first."""
    venv.EnvBuilder(symlinks=True).create(tmp_path / "environment")
    python = tmp_path / "environment/bin/python"
    (packages,) = tmp_path.glob("environment/lib/python*/site-packages")

    def pin_of(*more: str) -> str:
        assert cli.main(VERBS, [*verb, "--native", str(tmp_path), "--python", str(python), *more]) == 0
        return used[-1]

    assert pin_of() == "9.1.0"
    fake_torch(packages, "2.14.1")
    assert pin_of() == "installed"
    assert pin_of("--pin", "2.13.0") == "2.13.0"
    (packages / "torch/_added_operators.py").touch()  # a grafted wheel is no base
    assert pin_of() == "9.1.0"
    monkeypatch.setenv("GRAFT_PYTHON", str(python))
    assert cli.main(VERBS, ["build", "--native", str(tmp_path)]) == 0
    assert used[-1] == "9.1.0"


def test_wheel_names_its_pin(used: list[str], tmp_path: Path, capsys: Capture) -> None:
    wheel = tmp_path / "torch-9.0.0-cp39-cp39-linux_x86_64.whl"
    wheel.touch()
    assert cli.main(VERBS, ["build", "--native", str(tmp_path), "--wheel", str(wheel)]) == 2
    assert "patches/9.0.0/pin.yaml: no such pin" in capsys.readouterr().err
    assert used == []


def test_tests_take_the_last_build(used: list[str], tmp_path: Path, capsys: Capture) -> None:
    record(tmp_path, "2.14.1", cuda=CudaSettings(CudaArchs("80 90a"), "/opt/cuda").note)
    record(tmp_path, "2.15.0", interpreter="cp39")
    assert cli.main(VERBS, ["test", "--native", str(tmp_path)]) == 0
    assert "torch 2.14.1: that of the last build\n" in capsys.readouterr().err
    record(tmp_path, "2.14.1", cuda=CudaSettings(NO_KERNELS).note)
    assert cli.main(VERBS, ["test", "--native", str(tmp_path)]) == 0
    record(tmp_path, "2.13.0")
    assert cli.main(VERBS, ["test", "--native", str(tmp_path)]) == 0
    assert cli.main(VERBS, ["build", "--native", str(tmp_path)]) == 0
    assert used == ["2.14.1 80 90a", "2.14.1 none", "2.13.0", "9.1.0"]
    assert last_build((tmp_path,), SOURCE) is None
    record(tmp_path, "2.6.0", SOURCE)
    assert cli.main(VERBS, ["test", "--native", str(tmp_path), "--build", "source"]) == 0
    assert used[-1] == "2.6.0"


def wheel_of(folder: Path, requires: str) -> Path:
    metadata = f"Name: torch\nVersion: 9.1.0\n{requires}"
    members = {"torch/lib/libtorch_cpu.so": b"0" * 3000, "torch-9.1.0.dist-info/METADATA": metadata}
    return make_wheel(folder / "torch-9.1.0-py3-none-any.whl", members)


def test_space_is_looked_at_and_told(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr(testing, "free_bytes", lambda _: 2 * 1024**3)
    testing.require_space(tmp_path, wheel_of(tmp_path, "Requires-Dist: numpy\n"))
    assert capsys.readouterr().err == "  1.1 GB; 2 GB are free\n"
    with pytest.raises(RefusedError, match=r"2\.1 GB are free, but the environment of the tests takes 6\.4 GB"):
        testing.require_space(tmp_path, wheel_of(tmp_path, "Requires-Dist: nvidia-cudnn-cu13==9\n"))
    assert capsys.readouterr().err == "  6.4 GB, with NVIDIA's packages: 3 GB to download; 2 GB are free\n"


def test_what_is_installed_shows_what_is_downloaded(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    said: list[str] = []
    monkeypatch.setattr(environments.StepLine, "update", lambda _, text: said.append(text))
    downloading = "echo '  Downloading torch-9.1.0.whl (5 MB)'"
    program(tmp_path / "bin/python", f"echo 'Collecting torch'; {downloading}")
    environments.install(tmp_path, "torch", what="torch")
    assert said == ["Downloading torch-9.1.0.whl (5 MB)"]
    assert capsys.readouterr().err.startswith("  installing torch 0.")
    program(tmp_path / "bin/python", f"echo 'ERROR: no torch'; {downloading}; exit 1")
    with pytest.raises(MissingError, match="torch could not be installed: torch") as caught:
        environments.install(tmp_path, "torch", what="torch")
    assert caught.value.cause == "ERROR: no torch"
    assert "PIP_INDEX_URL" in caught.value.todo and "UV_DEFAULT_INDEX" in caught.value.todo
    # uv's index is pip's, too.
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setenv("UV_INDEX_URL", "https://example.org/simple")
    program(tmp_path / "bin/python", 'echo "Downloading from $PIP_INDEX_URL"')
    environments.install(tmp_path, "torch", what="torch")
    assert said[-1] == "Downloading from https://example.org/simple"
