"""Write the new wheel: the base's members unchanged, new members compressed, RECORD and metadata rewritten."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from packaging.utils import parse_wheel_filename

from ..core.errors import PackError, remedy

# PKWARE APPNOTE 4.3.7: the fixed part of a local file header; it ends with the lengths of name and extra field.
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")


@dataclass
class Member:
    """A member of the new wheel: new content, or a copy of the base's member."""

    name: str
    content: bytes | None = None
    copied: ZipInfo | None = None
    mode: int = 0o644


@dataclass
class Record:
    """The lines of RECORD: path, hash, size (Binary distribution format, "The .dist-info/ directory")."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, name: str, content: bytes) -> None:
        """Add a file's hash and size."""
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.rows.append((name, f"sha256={digest}", str(len(content))))

    def text(self) -> bytes:
        """Return the content of RECORD."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(self.rows)
        return out.getvalue().encode()


def pack(
    base: Path,
    files: Mapping[str, bytes],
    *,
    version: str,
    platform: str,
    out: Path,
    notice: str = "",
    owner: str = "",
) -> Path:
    """Write the wheel into ``out``. Return its path.

    Args:
        base: the base wheel.
        files: content of the members that are new or differ, by path in the wheel.
        version: the new wheel's version.
        platform: its platform tag.
        out: the output folder; created if it does not exist.
        notice: what was added to the base, for its licenses; empty to add no file.
        owner: identifies who writes into ``out``; a later build of the same owner deletes what a killed one left.

    Raises:
        PackError: the wheel cannot be written, or one of ``files`` would replace metadata.
    """
    _, base_version, _, tags = parse_wheel_filename(base.name)
    old_info, new_info = f"torch-{base_version}.dist-info/", f"torch-{version}.dist-info/"
    interpreter, abi = sorted((tag.interpreter, tag.abi) for tag in tags)[0]
    tag = f"{interpreter}-{abi}-{platform}"
    target = out / f"torch-{version}-{tag}.whl"
    with writing(target, f".torch-{owner}.partial") as partial, ZipFile(base) as archive:
        renamed = {
            f"{old_info}METADATA": _metadata(archive.read(f"{old_info}METADATA").decode(), version),
            f"{old_info}WHEEL": _wheel_file(archive.read(f"{old_info}WHEEL").decode(), tag),
        }
        members = _members(archive, {**files, **renamed}, old_info, new_info)
        if notice:
            members.append(Member(f"{new_info}licenses/NOTICE.graft", content=notice.encode()))
        _write(archive, base, members, partial, new_info)
    return target


@contextmanager
def writing(target: Path, name: str) -> Iterator[Path]:
    """Yield a path beside ``target``, called ``name``, which is renamed to it when the body has written it.

    Raises:
        PackError: it cannot be written; ``target`` is unchanged.
    """
    partial = target.with_name(name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        partial.replace(target)
    except OSError as error:
        raise PackError(f"{target}: {error.strerror or error}", todo=remedy(error, target)) from error
    finally:
        partial.unlink(missing_ok=True)


def with_graft(version: str, hash_: str) -> str:
    """Return the version of a new wheel: the base's with a local version label (PEP 440), or a longer one."""
    return f"{version}{'.' if '+' in version else '+'}graft.{hash_}"


def _metadata(text: str, version: str) -> bytes:
    return re.sub(r"^Version: .*$", f"Version: {version}", text, count=1, flags=re.M).encode()


def _wheel_file(text: str, tag: str) -> bytes:
    return re.sub(r"^Tag: .*(\nTag: .*)*$", f"Tag: {tag}", text, count=1, flags=re.M).encode()


def _members(archive: ZipFile, changed: Mapping[str, bytes], old_info: str, new_info: str) -> list[Member]:
    """Return the new wheel's members except RECORD: the base's in their order, additions before the metadata."""
    left = dict(changed)
    files: list[Member] = []
    metadata: list[Member] = []
    for info in archive.infolist():
        is_metadata = info.filename.startswith(old_info)
        if info.filename == f"{old_info}RECORD":
            continue
        member = Member(info.filename, mode=(info.external_attr >> 16) & 0o777)
        if info.filename in left:
            member.content = left.pop(info.filename)
        else:
            member.copied = info
        if is_metadata:
            member.name = new_info + info.filename.removeprefix(old_info)
        (metadata if is_metadata else files).append(member)
    additions = [Member(name, content=left[name]) for name in sorted(left)]
    return [*files, *additions, *metadata]


def _write(archive: ZipFile, base: Path, members: Iterable[Member], target: Path, new_info: str) -> None:
    old_rows = _old_record(archive)
    date = max(info.date_time for info in archive.infolist())
    record = Record()
    with base.open("rb") as source, ZipFile(target, "w", ZIP_DEFLATED, compresslevel=6) as wheel:
        for member in members:
            if member.copied is not None:
                copy_member(source, member.copied, wheel, member.name)
                if not member.copied.is_dir():  # RECORD lists files
                    record.rows.append((member.name, *old_rows[member.copied.filename]))
            elif member.content is not None:
                add_member(wheel, member, date)
                record.add(member.name, member.content)
        name = f"{new_info}RECORD"
        record.rows.append((name, "", ""))
        add_member(wheel, Member(name, content=record.text()), date)


def _old_record(archive: ZipFile) -> dict[str, tuple[str, str]]:
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
    return {row[0]: (row[1], row[2]) for row in csv.reader(io.StringIO(archive.read(name).decode()))}


def add_member(wheel: ZipFile, member: Member, date: tuple[int, int, int, int, int, int]) -> None:
    info = ZipInfo(member.name, date)
    info.compress_type = ZIP_DEFLATED
    info.create_system = 3  # Unix: the upper half of external_attr is the mode
    info.external_attr = (0o100000 | member.mode) << 16
    wheel.writestr(info, member.content or b"")


def copy_member(source: BinaryIO, info: ZipInfo, wheel: ZipFile, name: str) -> None:
    """Copy a member's compressed bytes. zipfile itself would decompress and compress them again.

    Raises:
        PackError: the base was written with sizes after the data, which is not supported.
    """
    if info.flag_bits & 0x08:
        raise PackError(f"{info.filename}: the base wheel was written as a stream", todo="use an official wheel")
    source.seek(info.header_offset)
    *_, name_length, extra_length = _LOCAL_HEADER.unpack(source.read(_LOCAL_HEADER.size))
    source.seek(name_length + extra_length, io.SEEK_CUR)
    copied = ZipInfo(name, info.date_time)
    for attribute in ("compress_type", "create_system", "external_attr", "CRC", "compress_size", "file_size"):
        setattr(copied, attribute, getattr(info, attribute))
    out = wheel.fp
    assert out is not None
    copied.header_offset = out.tell()
    out.write(copied.FileHeader())
    _copy_bytes(source, out, info.compress_size)
    wheel.filelist.append(copied)
    wheel.NameToInfo[name] = copied
    wheel.start_dir = out.tell()


def _copy_bytes(source: BinaryIO, out: IO[bytes], count: int) -> None:
    while count:
        block = source.read(min(count, 1 << 22))
        if not block:
            raise PackError("the base wheel ends in the middle of a member", todo="delete it and build again")
        out.write(block)
        count -= len(block)
