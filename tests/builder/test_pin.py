"""Pins: what a pin file must contain, which wheel it chooses, and which wheels are rejected."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from graft.base.base import Base, refuse_unusable
from graft.base.fetch import check_wheel, fetch
from graft.base.find import usable_pins
from graft.core.console import StepLine
from graft.core.errors import MissingError, UsageError
from graft.core.layout import REPOSITORY, TorchVersion
from graft.inputs import pin as pin_module
from graft.inputs.pin import GitSource, Pin, known_pins, load_pin, pinned_file
from graft.pin import COMPILER
from helpers import Patch, compiled, make_wheel, refused
from packaging.tags import parse_tag

PATCHES = REPOSITORY / "patches"
PINS = sorted(path.parent for path in PATCHES.glob("*/pin.yaml"))
WITH_WHEEL = PATCHES / "2.13.0"
SOURCE_ONLY = PATCHES / "2.6.0"
TOOLKITS = load_pin(WITH_WHEEL).toolkits
SHA256 = re.compile("[0-9a-f]{64}")


@pytest.mark.parametrize("folder", PINS, ids=lambda folder: folder.name)
def test_every_pin_of_the_repository_is_of_one_release(folder: Path) -> None:
    pin = load_pin(folder)
    assert pin.version in (pin.wheels or {folder.name})
    assert {version.release for version in (pin.version, *pin.wheels)} == {folder.name}
    assert (pin.gxx, pin.standard) in {(9, "c++17"), (11, "c++20")}
    if isinstance(pin.source, GitSource):
        assert pin.source.tag == f"v{folder.name}"
        assert re.fullmatch(r"[0-9a-f]{40}", pin.source.commit)
    else:
        assert pin.source.version.startswith(folder.name)
        assert [name for name in pin.source.sha256 if name.endswith(".dsc")]
        assert all(SHA256.fullmatch(sha256) for sha256 in pin.source.sha256.values())


@pytest.mark.parametrize("version", [name for name in known_pins(PATCHES) if name != SOURCE_ONLY.name])
def test_every_pinned_wheel_has_a_tag_and_a_hash(version: TorchVersion) -> None:
    pin = load_pin(PATCHES / version.release, version)
    assert (pin.version, pin.requirement) == (version, f"torch==={version}")
    assert pin.sha256
    for tag, sha256 in pin.sha256.items():
        (parsed,) = parse_tag(tag)
        assert parsed.platform in ("manylinux_2_28_x86_64", "manylinux_2_28_aarch64")
        assert parsed.abi == parsed.interpreter
        assert SHA256.fullmatch(sha256)
    assert len(set(pin.sha256.values())) == len(pin.sha256)


@pytest.mark.parametrize("cuda", TOOLKITS)
def test_every_pinned_toolkit_is_of_one_version(cuda: str) -> None:
    assert set(TOOLKITS[cuda]) == {"x86_64", "aarch64"}
    for packages in TOOLKITS[cuda].values():
        versions = dict(requirement.split("==") for requirement in packages)
        assert all(versions[name].startswith(f"{cuda}.") for name in COMPILER)
        assert all(SHA256.fullmatch(sha256) for sha256 in packages.values())


def test_settings_are_variables_of_setup_py() -> None:
    settings = load_pin(SOURCE_ONLY).settings
    assert (settings.variables["USE_SYSTEM_LIBS"], settings.variables["USE_CUDA"]) == ("1", "0")
    assert "libsleef-dev" in settings.packages


def test_pin_without_a_wheel_cannot_be_grafted_upon(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"2\.6\.0/pin\.yaml: this pin has no wheel") as caught:
        fetch(load_pin(SOURCE_ONLY), tmp_path, None, StepLine("fetch"))
    assert "BUILD=source" in caught.value.todo


def test_unknown_pin_wheel_or_key_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"0\.0\.0/pin\.yaml: no such pin") as caught:
        load_pin(PATCHES / "0.0.0")
    assert caught.value.todo == f"set PIN to one of: {', '.join(known_pins(PATCHES))}"
    with pytest.raises(UsageError, match=r"2\.13\.0/pin\.yaml: it has no wheel of version 2\.13\.0\+cu130") as caught:
        load_pin(WITH_WHEEL, TorchVersion("2.13.0+cu130"))
    assert caught.value.cause == "it has 2.13.0+cpu, 2.13.0"
    assert "make pin TORCH=2.13.0+cu130" in caught.value.todo
    (tmp_path / "pin.yaml").write_text("version: 1.0\n")
    with pytest.raises(UsageError, match=r"pin\.yaml: the key 'source' is missing"):
        load_pin(tmp_path)


def of_python(monkeypatch: Patch, name: str, abi: str = "") -> None:
    """Pretend that this is another Python."""
    tags = parse_tag(f"{name}-{abi or name}-manylinux_2_28_x86_64")
    monkeypatch.setattr(pin_module, "sys_tags", lambda: iter(tags))


def not_fetched(pin: Pin, folder: Path, why: str) -> MissingError:
    """Return the error of a pin without a wheel for this Python."""
    return refused(MissingError, fetch, pin, folder, None, StepLine("fetch"), match=why)


def test_python_without_a_pinned_wheel_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    of_python(monkeypatch, "cp39")
    why = r"no wheel for this Python \(cp39-cp39-manylinux"
    error = not_fetched(load_pin(WITH_WHEEL, TorchVersion("2.13.0")), tmp_path, why)
    assert "it has cp310-cp310-manylinux_2_28_x86_64" in error.cause
    assert "PIN to" not in error.todo
    (tmp_path / "pin.yaml").write_text(
        "version: 1.0\nsource: {git: {commit: ''}}\ncompiler: {gxx: 9, standard: c++17}\n"
        "wheels: {1.0: {cp38-cp38-manylinux_2_28_x86_64: 0}, 1.0+x: {cp39-cp39-manylinux_2_28_x86_64: 0}}\n"
    )
    error = not_fetched(load_pin(tmp_path, TorchVersion("1.0")), tmp_path, why)
    assert "set PIN to a pin with a wheel for this Python (1.0+x), " in error.todo


def test_python_without_the_gil_is_refused_with_the_reason(tmp_path: Path, monkeypatch: Patch) -> None:
    of_python(monkeypatch, "cp314", "cp314t")
    why = r"for this Python \(cp314-cp314t-manylinux_2_28_x86_64, a free-threaded Python, on which nobody has tested"
    with pytest.raises(MissingError, match=why):
        usable_pins(PATCHES)
    not_fetched(load_pin(WITH_WHEEL, TorchVersion("2.13.0")), tmp_path, why)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_python_3_14_has_wheels(machine: str, monkeypatch: Patch) -> None:
    of_python(monkeypatch, "cp314")
    assert {"2.13.0", "2.14.1", "2.15.0"} <= {pin.version.release for pin in usable_pins(PATCHES, machine)}
    pin = load_pin(PATCHES / "2.15.0", TorchVersion("2.15.0"), machine=machine)
    assert pinned_file(pin)[0] == f"cp314-cp314-manylinux_2_28_{machine}"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("torch-1.0.0-cp311-cp311-linux_x86_64.whl", r"this is torch 1\.0\.0, but the pin is 2\.13\.0\+cpu"),
        ("torch-2.13.0+cpu-cp39-cp39-linux_x86_64.whl", "this wheel is not for this Python, cp"),
    ],
)
def test_wheel_of_another_version_or_python_is_refused(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UsageError, match=why):
        check_wheel(tmp_path / name, load_pin(WITH_WHEEL, TorchVersion("2.13.0+cpu")))


def test_wheel_with_another_hash_is_refused_and_nothing_is_kept(tmp_path: Path, monkeypatch: Patch) -> None:
    of_python(monkeypatch, "cp311")
    pin = load_pin(WITH_WHEEL)
    tag = next(iter(pin.sha256))
    wheel = tmp_path / f"torch-{pin.version}-{tag}.whl"
    wheel.write_text("not the wheel")
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    cache = tmp_path / "cache"
    with pytest.raises(UsageError, match=f"the sha256 is {found}, but the pin has {pin.sha256[tag]}"):
        fetch(pin, cache, wheel, StepLine("fetch"))
    assert wheel.read_text() == "not the wheel"
    assert not cache.exists()


CPU = "torch/lib/libtorch_cpu.so"


LINUX = "cp311-cp311-manylinux_2_28"


@pytest.mark.parametrize(
    ("kind", "members", "why"),
    [
        (f"{LINUX}_x86_64", [CPU, "torch/lib/libtorch_hip.so"], "ROCm"),
        (f"{LINUX}_x86_64", [CPU, "torch/lib/libtorch_xpu.so"], "XPU"),
        ("cp311-none-macosx_11_0_arm64", ["torch/lib/libtorch_cpu.dylib"], "macosx_11_0_arm64, but only Linux"),
        ("cp311-cp311-macosx_11_0_x86_64", [CPU], "it is for macosx_11_0_x86_64, but only Linux"),
        (f"{LINUX}_s390x", [CPU], "it is for manylinux_2_28_s390x, but only Linux on x86_64 and aarch64 is supported"),
        (f"{LINUX}_aarch64", [CPU], "it is for aarch64, but the C++ compiler compiles for x86_64"),
        ("cp313-cp313t-manylinux_2_28_x86_64", [CPU], "cp313t, a free-threaded Python"),
        (f"{LINUX}_x86_64", ["torch/__init__.py"], "it contains no torch/lib/libtorch_cpu.so"),
    ],
)
def test_wheel_of_a_kind_that_cannot_work_is_refused_in_one_line(
    kind: str, members: list[str], why: str, tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path / f"torch-2.13.0+cpu-{kind}.whl", dict.fromkeys(members, ""))
    with pytest.raises(UsageError, match=re.escape(why)) as caught:
        check_wheel(wheel, replace(load_pin(WITH_WHEEL), machine="x86_64"))
    assert caught.value.what.startswith(f"{wheel.name} cannot be used as a base: ")
    assert "\n" not in caught.value.what


def test_wheels_for_cpus_and_for_cuda_are_usable() -> None:
    for library in ("libtorch_python.so", "libtorch_cuda.so"):
        refuse_unusable(Path("torch-2.13.0-cp311-cp311-linux_x86_64.whl"), [CPU, f"torch/lib/{library}"], "x86_64")


@pytest.fixture
def base(tmp_path: Path) -> Callable[..., Base]:
    """Return a function that makes a base whose libraries are linked with additional flags."""

    def make(**flags: str) -> Base:
        for name in ("libtorch_cpu", "libtorch_python", "libc10"):
            more = flags.get(name, "").split()
            target = tmp_path / f"tree/torch/lib/{name}.so"
            compiled("int f() { return 1; }\n", target, "-shared", "-Wl,--build-id=sha1", *more)
        return Base(tmp_path / "torch-2.13.0-cp311-cp311-linux_x86_64.whl", tmp_path / "tree")

    return make


def test_base_must_have_build_ids_and_hidden_symbols(base: Callable[..., Base]) -> None:
    base().require_usable()
    for flags, why in (
        ({"libc10": "-Wl,--build-id=none"}, r"its libc10\.so has no build-id"),
        ({"libtorch_python": "-Wl,--strip-all"}, r"its libtorch_python\.so is stripped"),
    ):
        error = refused(UsageError, base(**flags).require_usable, match=why)
        assert "\n" not in error.what
