"""`make pin`: what it writes and does not change, and what it rejects. pip is faked, and the wheels are tiny."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from types import MappingProxyType

import pytest
import yaml
from asking import asked
from graft import pin
from graft.base import fetch
from graft.core import layout as layout_module
from graft.core import pip
from graft.core.errors import BuildError, GraftError, MissingError, UsageError
from graft.core.layout import REPOSITORY
from graft.core.pip import Distribution, UnavailableError
from graft.deliveries import Delivery
from graft.inputs.patches import load_series
from graft.inputs.pin import GitSource, load_pin
from graft.pin import make_pin, new_pin, with_toolkit, with_wheels
from helpers import Capture, Patch, compiled, make_installable, refused, write

COMMIT = "c" * 40
CP = f"cp{sys.version_info[0]}{sys.version_info[1]}"
OTHER = "cp310" if CP != "cp310" else "cp312"
LINUX = "manylinux_2_28_x86_64"
TAG, OTHER_TAG = f"{CP}-{CP}-{LINUX}", f"{OTHER}-{OTHER}-{LINUX}"
EXTENSIONS = "cflags = ['-std=c++20']\ncuda_flags = ['-std=c++20']\n'''such as -std=c++17'''\n"
HEAD = f"""\
# Ours.
version: 9.1.0
source:
  git:
    commit: {COMMIT}
build:
  packages: [libopenblas-dev]  # as Debian calls it
compiler:
  gxx: 11
  standard: c++20
# Above the wheels.
wheels:
"""
TOOLKIT = {
    "cuda-toolkit": "13.5.1",
    "nvidia-cuda-nvcc": "13.5.40",
    "nvidia-cublas": "14.2.0.1",
    "nvidia-cuda-crt": "13.5.38",
    "nvidia-nvvm": "13.5.40",
}
MISSING = "ERROR: Could not find a version that satisfies the requirement (from versions: 1.0)\n" + (
    "ERROR: No matching distribution found for torch\n"
)


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The smallest content of a base."""
    folder = tmp_path_factory.mktemp("libraries")
    found = {}
    for name in ("libtorch_cpu.so", "libtorch_python.so", "libc10.so"):
        library = compiled("int f() { return 1; }\n", folder / name, "-shared", "-Wl,--build-id=sha1")
        found[f"torch/lib/{name}"] = library.read_bytes()
    return found


class Pins:
    """A repository's pins, and a pip that knows these wheels and packages.

    Args:
        folder: the folder of everything.
        libraries: the libraries of each wheel.
    """

    def __init__(self, folder: Path, libraries: dict[str, bytes]) -> None:
        self.folder = folder
        self.patches = folder / "patches"
        self.patches.mkdir()
        (self.patches / "cuda-toolkits.yaml").write_text('# Packages.\n"13.0":\n  a==1: 0\n')
        self.libraries = libraries
        self.wheels: list[Path] = []
        self.packages = TOOLKIT
        self.asked: list[list[str]] = []
        self.only = ""  # the only index that has them; empty for every one

    def add_wheel(
        self,
        version: str,
        tag: str = TAG,
        *,
        cuda: str = "",
        commit: str = COMMIT,
        more: Mapping[str, str] | Mapping[str, bytes] = MappingProxyType({}),
    ) -> Path:
        path = self.folder / f"torch-{version}-{tag}.whl"
        said = f"__version__ = '{version}'\ncuda: Optional[str] = {repr(cuda) if cuda else None}\n"
        members: dict[str, str | bytes] = {
            **self.libraries,
            "torch/version.py": f"{said}git_version = '{commit}'\n",
            "torch/utils/cpp_extension.py": EXTENSIONS,
            **more,
        }
        self.wheels.append(make_installable(path, members))
        return path

    def add_pin(self, text: str) -> Path:
        folder = self.patches / str(yaml.safe_load(text)["version"])
        return write(folder, {"pin.yaml": text, "series": "# none\n"}) / "pin.yaml"

    def ask(self, requirement: str, index: str, *options: str) -> list[Distribution]:
        """Fake ``ask_pip``."""
        self.asked.append([requirement, index, *options])
        if requirement.startswith("cuda-toolkit"):
            found = [Distribution(name, version, f"{name}.whl", "d" * 64) for name, version in self.packages.items()]
        else:
            (python,) = (word.partition("=")[2] for word in options if word.startswith("--python-version"))
            paths = [path for path in self._meant(requirement, index) if f"-cp{python.replace('.', '')}-" in path.name]
            found = [Distribution("torch", "", path.name, sha256(path)) for path in paths]
        if not found:
            raise UnavailableError(f"pip finds no {requirement}", brief="not found")
        return found

    def download(self, folder: Path, _: str, wanted: Mapping[str, str], __: object, *options: str) -> None:
        """Fake ``pip_into``."""
        ((requirement, hash_),) = wanted.items()
        self.asked.append([requirement, *options])
        found = [path for path in self._meant(requirement, *options) if TAG in path.name]
        if not found:
            raise UnavailableError(f"pip finds no {requirement}", brief="not found")
        assert hash_ == sha256(found[0])
        shutil.copy(found[0], folder)

    def _meant(self, requirement: str, *indexes: str) -> list[Path]:
        if not any(each.endswith(self.only) for each in ("", *indexes)):
            return []
        return [path for path in self.wheels if path.name.startswith(f"torch-{requirement.partition('===')[2]}-")]

    def files(self) -> dict[str, tuple[str, int]]:
        """Return every file of the pins: its text and its time."""
        found = sorted(path for path in self.patches.rglob("*") if path.is_file())
        return {str(path.relative_to(self.patches)): (path.read_text(), path.stat().st_mtime_ns) for path in found}

    def run(self, torch: str | Path, index: str = "") -> None:
        make_pin(asked(torch=str(torch), index=index, jobs=1), self.patches)

    def refused(self, torch: str | Path, kind: type[GraftError], match: str) -> GraftError:
        """Return the error of a run, which must have written nothing."""
        before = self.files()
        error = refused(kind, self.run, torch, match=match)
        assert self.files() == before
        return error


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def pins(tmp_path: Path, libraries: dict[str, bytes], monkeypatch: Patch) -> Pins:
    made = Pins(tmp_path, libraries)
    monkeypatch.setattr(layout_module, "HOME", tmp_path / "build")
    monkeypatch.setattr(pin, "ask_pip", made.ask)
    monkeypatch.setattr(fetch, "pip_into", made.download)
    monkeypatch.setattr(pin, "run", lambda *_: None)
    return made


def test_new_pin_holds_all_wheels_and_what_is_found_in_one(pins: Pins, capsys: Capture) -> None:
    wheels = [pins.add_wheel("9.1.0+cpu", tag) for tag in (TAG, OTHER_TAG)]
    pins.run("9.1.0+cpu")
    made = load_pin(pins.patches / "9.1.0")
    assert made.sha256 == {TAG: sha256(wheels[0]), OTHER_TAG: sha256(wheels[1])}
    assert (made.version, made.gxx, made.standard) == ("9.1.0+cpu", 11, "c++20")
    assert (pins.patches / "9.1.0/pin.yaml").read_text().startswith(new_pin("9.1.0", COMMIT, "c++20"))
    assert load_series(pins.patches / "9.1.0") == []
    said = capsys.readouterr().err
    assert f"torch 9.1.0+cpu: CPU; c++20; commit {COMMIT}\n" in said
    assert "9.1.0/pin.yaml" in said and "9.1.0/series" in said and "cuda-toolkits.yaml" not in said
    assert "3.10" in said.partition("Pythons")[2].partition("\n")[0]
    assert said.endswith("next: make test PIN=9.1.0+cpu; then commit patches/\n")


def test_format_is_that_of_the_pins_there_are(monkeypatch: Patch) -> None:
    for path in sorted(REPOSITORY.glob("patches/*/pin.yaml")):
        if (known := load_pin(path.parent)).wheels:
            assert with_wheels(path.read_text(), known) == path.read_text()
    path = REPOSITORY / "patches/2.15.0/pin.yaml"
    known = load_pin(path.parent)
    assert isinstance(known.source, GitSource)
    assert with_wheels(new_pin("2.15.0", known.source.commit, "c++20"), known) == path.read_text()
    path = REPOSITORY / "patches/cuda-toolkits.yaml"
    monkeypatch.setattr(pin, "find_packages", lambda cuda, _, machine: known.toolkits[cuda][machine])
    head, mark, _ = path.read_text().partition('"13.2":\n')
    assert mark and with_toolkit(head, "13.2", "") == path.read_text()


def test_second_run_changes_nothing(pins: Pins, capsys: Capture) -> None:
    pins.add_wheel("9.1.0", cuda="13.5")
    pins.run("9.1.0")
    before = pins.files()
    pins.run("9.1.0")
    assert pins.files() == before
    assert "nothing; the pin was complete" in capsys.readouterr().err


def test_existing_pin_keeps_its_head_and_its_wheels(pins: Pins) -> None:
    path = pins.add_pin(f"{HEAD}  9.1.0+cpu:\n    {OTHER_TAG}: {'a' * 64}\n")
    cpu, cuda = pins.add_wheel("9.1.0+cpu"), pins.add_wheel("9.1.0", cuda="13.0")
    pins.run("9.1.0")
    pins.run(cpu)
    lines = ["  9.1.0+cpu:\n", *sorted([f"    {OTHER_TAG}: {'a' * 64}\n", f"    {TAG}: {sha256(cpu)}\n"])]
    lines += ["  9.1.0:\n", f"    {TAG}: {sha256(cuda)}\n"]
    assert path.read_text() == HEAD + "".join(lines)
    assert (path.parent / "series").read_text() == "# none\n"


def test_pin_of_a_source_tree_gets_wheels_behind_it(pins: Pins) -> None:
    text = HEAD.partition("# Above")[0].replace(
        f"git:\n    commit: {COMMIT}", "debian: {package: p, version: 1, sha256: {}}"
    )
    path = pins.add_pin(text)
    wheel = pins.add_wheel("9.1.0")
    pins.run("9.1.0")
    comment = "# The official wheels, by version, compatibility tag and sha256. Their version is what PIN names."
    assert path.read_text() == f"{text}{comment}\nwheels:\n  9.1.0:\n    {TAG}: {sha256(wheel)}\n"


def test_wheels_must_be_the_last_section(pins: Pins) -> None:
    pins.add_pin(HEAD.replace("# Above the wheels.\nwheels:", f"wheels:\n  9.1.0:\n    {TAG}: 0\nlater: {{}}\n"))
    pins.add_wheel("9.1.0+cpu")
    pins.refused("9.1.0+cpu", UsageError, r"pin\.yaml: `wheels:` is not its last section")


def test_another_file_than_the_pinned_one_is_refused(pins: Pins) -> None:
    path = pins.add_pin(f"{HEAD}  9.1.0:\n    {TAG}: {'a' * 64}\n")
    wheel = pins.add_wheel("9.1.0")
    error = pins.refused("9.1.0", UsageError, f"^{path}: 9.1.0, {TAG}: the file differs from the pinned one")
    assert error.cause == f"the pin has {'a' * 64}, but the file has {sha256(wheel)}"


def test_wheel_of_another_commit_is_refused(pins: Pins) -> None:
    pins.add_pin(f"{HEAD}  9.1.0+cpu:\n    {TAG}: {'a' * 64}\n")
    pins.add_wheel("9.1.0", commit="d" * 40)
    pins.refused("9.1.0", UsageError, f"it has {COMMIT}, but torch 9.1.0 has {'d' * 40}")


def test_toolkit_of_a_new_cuda_is_added(pins: Pins, capsys: Capture) -> None:
    pins.add_wheel("9.1.0", cuda="13.5")
    pins.run("9.1.0")
    names = ["nvidia-cublas==14.2.0.1", "nvidia-cuda-crt==13.5.38", "nvidia-cuda-nvcc==13.5.40", "nvidia-nvvm==13.5.40"]
    lines = "".join(f"    {name}: {'d' * 64}\n" for name in names)
    written = (pins.patches / "cuda-toolkits.yaml").read_text()
    assert written == '# Packages.\n"13.0":\n  a==1: 0\n"13.5":\n  x86_64:\n' + lines + "  aarch64:\n" + lines
    assert list(load_pin(pins.patches / "9.1.0").toolkits["13.5"]["aarch64"]) == names
    assert "cuda-toolkits.yaml" in capsys.readouterr().err
    own, other = (words for words in pins.asked if words[0].startswith("cuda-toolkit"))
    for words in (own, other):
        assert words[0].endswith("nvcc,cccl]==13.5.*")
        # pip must not choose the newest of each.
        assert {"nvidia-cuda-nvcc==13.5.*", "nvidia-cuda-crt==13.5.*", "nvidia-nvvm==13.5.*"} < set(words)
    assert "--platform=manylinux_2_28_aarch64" in other and not any("--platform" in word for word in own)


def test_cuda_whose_compiler_pip_does_not_have_is_reported(pins: Pins, capsys: Capture) -> None:
    pins.add_wheel("9.1.0", cuda="12.8")
    pins.packages = {}
    pins.run("9.1.0")
    assert "pip has no toolkit of CUDA 12.8: CUDA kernels need CUDA_HOME" in capsys.readouterr().err
    assert '"12.8"' not in (pins.patches / "cuda-toolkits.yaml").read_text()


def test_smallest_operator_is_built_upon_the_pin_that_was_written(
    pins: Pins, monkeypatch: Patch, capsys: Capture
) -> None:
    def build(delivery: Delivery, _: object) -> None:
        layout = delivery.layout
        assert layout.native == pin.SMALLEST
        assert layout.patches == pins.patches / "9.1.0"
        assert load_pin(layout.patches, layout.pin).version == "9.1.0" and load_series(layout.patches) == []
        raise BuildError("GraftSmallest.cpp:3: error: no")

    monkeypatch.setattr(pin, "run", build)
    pins.add_wheel("9.1.0")
    with pytest.raises(BuildError, match=r"GraftSmallest\.cpp:3: error: no"):
        pins.run("9.1.0")
    said = capsys.readouterr().err
    assert "9.1.0/pin.yaml" in said and "next: " not in said


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("torch/lib/libtorch_hip.so", "", "it is for ROCm, but only CPU and CUDA are supported"),
        ("torch/utils/cpp_extension.py", "'-sycl-std=2020'\n", "does not say its C"),
        ("torch/utils/cpp_extension.py", "'-std=c++26'\n", r"built with c\+\+26, but Graft knows no g\+\+ for it"),
    ],
)
def test_wheel_that_cannot_be_built_upon_is_refused_in_one_line(name: str, text: str, why: str, pins: Pins) -> None:
    wheel = pins.add_wheel("9.1.0", more={name: text})
    for torch in (wheel, "9.1.0"):
        assert "\n" not in pins.refused(torch, UsageError, why).what


def test_what_is_no_wheel_of_torch_is_refused(pins: Pins) -> None:
    pins.refused("", UsageError, "TORCH=: neither a version nor a wheel file")
    pins.refused("newest", UsageError, "TORCH=newest: neither a version nor a wheel file")
    pins.refused(pins.folder / "torch-1-py3-none-any.whl", UsageError, "TORCH=.*: no such file")
    for name, why in (
        ("vision-1-py3-none-any.whl", "this is vision, not torch"),
        ("a.whl", "not the file name of a wheel"),
    ):
        (pins.folder / name).touch()
        pins.refused(pins.folder / name, UsageError, why)
    broken = pins.folder / f"torch-9.1.0-{TAG}.whl"
    broken.touch()
    pins.refused(broken, UsageError, "it is not a zip file|the sha256 is")


def test_index_is_asked_for_wheels_and_toolkit(pins: Pins) -> None:
    pins.add_wheel("9.1.0", cuda="13.5")
    pins.run("9.1.0", index="https://mine/simple")
    assert len(pins.asked) == 13  # five Pythons on two architectures, the wheel, two toolkits
    assert all(any(word.endswith("https://mine/simple") for word in words) for words in pins.asked)


def test_wheels_for_cpus_may_be_in_the_index_of_pytorch_only(pins: Pins) -> None:
    wheel = pins.add_wheel("9.1.0+cpu")
    pins.only = "https://own"
    pins.refused("9.1.0+cpu", MissingError, r"pip finds no torch===9\.1\.0\+cpu")
    (pins.patches / "indexes.yaml").write_text("cpu: https://own\n")
    pins.run("9.1.0+cpu")
    assert load_pin(pins.patches / "9.1.0").wheels == {"9.1.0+cpu": {TAG: sha256(wheel)}}


@pytest.mark.parametrize(
    ("output", "what", "why", "todo"),
    [
        (MISSING, "pip finds no torch===9.1.0", "(from versions: 1.0)", "set TORCH to an existing version"),
        ("no such option: --report", "pip could not look up", "no such option: --report", ""),
    ],
)
def test_failures_of_pip_say_what_to_do(
    output: str, what: str, why: str, todo: str, pins: Pins, monkeypatch: Patch
) -> None:
    """Those that concern other verbs, too, are in test_find.py."""
    monkeypatch.setattr(pin, "ask_pip", pip.ask_pip)
    monkeypatch.setattr(pip, "run", lambda *_, **__: CompletedProcess([], 1, output))
    error = pins.refused("9.1.0", MissingError, what)
    assert why in error.cause
    assert todo in error.todo


def test_pip_itself_understands_the_question(tmp_path: Path, libraries: dict[str, bytes], monkeypatch: Patch) -> None:
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(tmp_path)), ("CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(f"PIP_{name}", value)
    wheel = Pins(tmp_path, libraries).add_wheel("9.1.0+cpu", "cp312-cp312-linux_x86_64")
    options = ("--no-deps", "--python-version=3.12", "--platform=manylinux_2_28_x86_64", "--platform=linux_x86_64")
    (found,) = pip.ask_pip("torch===9.1.0+cpu", "", *options)
    assert found == pip.Distribution("torch", "9.1.0+cpu", wheel.name, sha256(wheel))
    for requirement in ("torch===9.1.0", "torch===9.2.0"):
        with pytest.raises(pip.UnavailableError, match=f"pip finds no {requirement}"):
            pip.ask_pip(requirement, "", *options)
    (tmp_path / "constraints.txt").write_text("torch<9\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "constraints.txt"))
    with pytest.raises(MissingError, match=r"forbids torch===9\.1\.0\+cpu: it allows <9"):
        pip.ask_pip("torch===9.1.0+cpu", "", *options)
