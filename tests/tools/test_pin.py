"""Pins: what a pin file must hold, and which wheel it chooses."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from scripts.base.fetch import check_wheel, fetch, pinned_tag
from scripts.common.errors import FetchError, PinError
from scripts.common.layout import REPOSITORY
from scripts.inputs.pin import DebianSource, GitSource, load_pin

PINS = sorted(path.parent for path in REPOSITORY.glob("patches/*/pin.yaml"))
WITH_WHEEL = REPOSITORY / "patches/2.13.0"
SOURCE_ONLY = REPOSITORY / "patches/2.6.0"


@pytest.mark.parametrize("folder", PINS, ids=lambda folder: folder.name)
def test_every_pin_of_the_repository_loads(folder: Path) -> None:
    pin = load_pin(folder)
    assert pin.version == folder.name
    assert pin.requirement is None or pin.wheel_version.startswith(pin.version)
    assert bool(pin.sha256) == (pin.requirement is not None)
    assert all(len(sha256) == 64 for sha256 in pin.sha256.values())


@pytest.mark.parametrize("folder", PINS, ids=lambda folder: folder.name)
def test_every_pin_says_where_the_very_source_is(folder: Path) -> None:
    pin = load_pin(folder)
    if isinstance(pin.source, GitSource):
        assert pin.source.tag == f"v{pin.version}"
        assert len(pin.source.commit) == 40
    else:
        assert pin.source.version.startswith(pin.version)
        assert [name for name in pin.source.sha256 if name.endswith(".dsc")]
        assert all(len(sha256) == 64 for sha256 in pin.source.sha256.values())


def test_settings_are_variables_of_setup_py() -> None:
    settings = load_pin(SOURCE_ONLY).settings
    assert settings.variables["USE_SYSTEM_LIBS"] == "1"
    assert settings.variables["USE_CUDA"] == "0"
    assert "libsleef-dev" in settings.packages
    assert isinstance(load_pin(SOURCE_ONLY).source, DebianSource)


def test_pin_without_a_wheel_cannot_be_grafted_upon(tmp_path: Path) -> None:
    with pytest.raises(PinError, match=r"2\.6\.0/pin\.yaml: this pin names no wheel") as caught:
        fetch(load_pin(SOURCE_ONLY), tmp_path, None)
    assert "BUILD=source" in caught.value.todo


def test_unknown_pin_names_those_there_are() -> None:
    with pytest.raises(PinError, match=PINS[0].name):
        load_pin(REPOSITORY / "patches/0.0.0")


def test_missing_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "pin.yaml").write_text("version: 1.0\n")
    with pytest.raises(PinError, match=r"pin\.yaml: the key 'source' is missing"):
        load_pin(tmp_path)


def test_python_without_a_pinned_wheel_is_refused() -> None:
    with pytest.raises(FetchError, match="cp39-cp39-manylinux_2_28_x86_64"):
        pinned_tag(load_pin(WITH_WHEEL), ["cp39-cp39-manylinux_2_28_x86_64"])


def test_wheel_of_another_version_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "torch-1.0.0-cp311-cp311-linux_x86_64.whl"
    wheel.touch()
    with pytest.raises(FetchError, match=r"this is torch 1\.0\.0"):
        check_wheel(wheel, load_pin(WITH_WHEEL), "0" * 64)


def test_wheel_with_another_hash_is_refused_and_nothing_is_kept(tmp_path: Path) -> None:
    pin = load_pin(WITH_WHEEL)
    tag = next(iter(pin.sha256))
    wheel = tmp_path / f"torch-{pin.wheel_version}-{tag}.whl"
    wheel.write_text("not the wheel")
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    cache = tmp_path / "cache"
    with pytest.raises(FetchError, match=f"the sha256 is {found}, but the pin says {pin.sha256[tag]}"):
        fetch(pin, cache, wheel)
    assert wheel.read_text() == "not the wheel"
    assert not cache.exists()
