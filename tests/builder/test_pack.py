"""Writing wheels, checked with zipfile, `wheel` and hashes computed here."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import shutil
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import pytest
from graft.core.errors import BuildError
from graft.deliver.wheel import pack
from helpers import Patch

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


def packed(base: Path, out: Path, overlay: dict[str, bytes]) -> Path:
    return pack(base, overlay, version="1.0+cpu.graft.abc", platform="manylinux_2_35_x86_64", out=out)


OVERLAY = {"torch/__init__.py": b"import that\n", "torch/new.h": b"#pragma once\n"}


def test_every_member_is_right_and_recorded(base: Path, tmp_path: Path) -> None:
    wheel = packed(base, tmp_path / "out", OVERLAY)
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


def test_same_input_gives_the_same_bytes(base: Path, tmp_path: Path) -> None:
    first, second = (packed(base, tmp_path / name, OVERLAY).read_bytes() for name in ("one", "two"))
    assert first == second


def test_failure_leaves_what_was_there(base: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    wheel = packed(base, tmp_path / "out", OVERLAY)
    before = wheel.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(BuildError, match="No space left on device"):
        packed(base, tmp_path / "out", {"torch/other.h": b""})
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
    with ZipFile(packed(dated, tmp_path, changed)) as new:
        found = {name: new.getinfo(name) for name in changed}
        record = new.read(new.namelist()[-1]).decode().splitlines()
        assert {info.date_time for info in found.values()} == {last}
        assert [info.external_attr >> 16 for info in found.values()] == [0o100755, 0o100644, 0o100755]
        assert "torch/empty/" in new.namelist()
    assert not [line for line in record if line.startswith("torch/empty/")]
    assert record[-1] == "torch-1.0+cpu.graft.abc.dist-info/RECORD,,"
