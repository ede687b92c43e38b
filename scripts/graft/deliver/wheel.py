"""Write a wheel of torch, whole or not at all: the official one with changed and new members."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import TypeAlias
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from packaging.utils import parse_wheel_filename

from ..base.base import Base
from ..compose.several import is_library
from ..core.console import say
from ..core.elf import ElfFile
from ..core.errors import BuildError
from ..core.system_errors import remedy
from ..inputs.libraries import manylinux_policies

_Date: TypeAlias = tuple[int, int, int, int, int, int]


class _WheelWriter:
    """Writes a wheel and its RECORD (Binary distribution format, "The .dist-info/ directory").

    Args:
        archive: receives the members.
        date: the date of new members. It is given, so that the same input gives the same bytes.
    """

    def __init__(self, archive: ZipFile, date: _Date) -> None:
        self._archive = archive
        self._date = date
        self._rows: list[tuple[str, ...]] = []

    def add(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Add a member, compressed."""
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record(name, f"sha256={digest}", str(len(content)))
        self._write(name, content, mode)

    def copy(self, base: ZipFile, member: ZipInfo, name: str) -> None:
        """Copy a member of another wheel without compressing it again, which would take long."""
        copied, compressed = ZipInfo(name, member.date_time), copy(member)
        for attribute in ("compress_type", "create_system", "external_attr", "CRC", "compress_size", "file_size"):
            setattr(copied, attribute, getattr(member, attribute))
        # Let zipfile read the compressed bytes as the content of a member that is not compressed.
        compressed.compress_type, compressed.file_size = ZIP_STORED, member.compress_size
        del compressed.CRC
        out = self._archive.fp
        assert out is not None
        copied.header_offset = out.tell()
        out.write(copied.FileHeader())
        with ZipFile.open(base, compressed) as content:
            shutil.copyfileobj(content, out, 1 << 22)
        self._archive.filelist.append(copied)
        self._archive.NameToInfo[name] = copied
        self._archive.start_dir = out.tell()

    def record(self, *row: str) -> None:
        """Add a line to RECORD: path, hash and size."""
        self._rows.append(row)

    def end(self, info: str) -> None:
        """Write RECORD into the folder ``info``."""
        self.record(f"{info}/RECORD", "", "")
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(self._rows)
        self._write(f"{info}/RECORD", out.getvalue().encode(), 0o644)

    def _write(self, name: str, content: bytes, mode: int) -> None:
        member = ZipInfo(name, self._date)
        member.compress_type = ZIP_DEFLATED
        member.create_system = 3  # Unix: the upper half of external_attr is the mode
        member.external_attr = (0o100000 | mode) << 16
        self._archive.writestr(member, content)


@contextmanager
def _writing(target: Path, owner: str) -> Iterator[ZipFile]:
    """Yield an archive beside ``target``, which is renamed to ``target`` when the body has ended. Delete the archives
    that killed builds of ``owner`` left.
    """
    # Other users may write into this folder, so they must not be able to guess the name.
    partial = target.with_name(f".torch-{owner}-{secrets.token_hex(8)}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f".torch-{owner}-*.partial"):
            left.unlink()
        with partial.open("xb") as file, ZipFile(file, "w", ZIP_DEFLATED, compresslevel=6) as archive:
            yield archive
        partial.replace(target)
    except OSError as error:
        raise BuildError(f"{target}: {error.strerror or error}", todo=remedy(error, target)) from error
    finally:
        partial.unlink(missing_ok=True)


def with_graft(version: str, hash_: str) -> str:
    """Return the version of a new wheel: the base's, with ``graft.<hash>`` in its local version label (PEP 440)."""
    return f"{version}{'.' if '+' in version else '+'}graft.{hash_}"


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
    """Write the wheel of torch into ``out``. Return its path.

    The base's members stay in their order. New members follow them, and then the metadata.

    Args:
        base: the base wheel.
        files: content of the members that are new or differ, by path in the wheel.
        version: the new wheel's version.
        platform: its platform tag.
        out: the output folder; created if it does not exist.
        notice: the text about the additions for the base's licenses; empty to add no file.
        owner: identifies who writes into ``out``. A later build of this owner deletes the file that a killed one left.
    """
    _, base_version, _, tags = parse_wheel_filename(base.name)
    old_info, info = f"torch-{base_version}.dist-info", f"torch-{version}.dist-info"
    interpreter, abi = sorted((tag.interpreter, tag.abi) for tag in tags)[0]
    tag = f"{interpreter}-{abi}-{platform}"
    target = out / f"torch-{version}-{tag}.whl"
    with _writing(target, owner) as new, ZipFile(base) as archive:
        there = {member.filename: member for member in archive.infolist()}
        wheel = _WheelWriter(new, max(member.date_time for member in there.values()))
        record, metadata, about = (
            archive.read(f"{old_info}/{name}").decode() for name in ("RECORD", "METADATA", "WHEEL")
        )
        rows = {row[0]: row for row in csv.reader(io.StringIO(record))}
        metadata = re.sub(r"^Version: .*$", f"Version: {version}", metadata, count=1, flags=re.M)
        about = re.sub(r"^Tag: .*(\nTag: .*)*$", f"Tag: {tag}", about, count=1, flags=re.M)
        own = {**files, f"{old_info}/METADATA": metadata.encode(), f"{old_info}/WHEEL": about.encode()}
        del there[f"{old_info}/RECORD"]
        last = [name for name in there if name.startswith(f"{old_info}/")]
        first = [name for name in there if name not in last]
        for name in [*first, *sorted(own.keys() - there.keys()), *last]:
            member = there.get(name)
            renamed = re.sub(rf"^{re.escape(old_info)}/", f"{info}/", name)
            if name in own:
                mode = (member.external_attr >> 16) & 0o777 if member else 0o755 if is_library(name) else 0o644
                wheel.add(renamed, own[name], mode)
            elif member:
                wheel.copy(archive, member, renamed)
                if not member.is_dir():  # RECORD lists only files
                    wheel.record(renamed, *rows[name][1:])
        if notice:
            wheel.add(f"{info}/licenses/NOTICE.graft", notice.encode())
        wheel.end(info)
    return target


def platform_tag(own: Base, libraries: Iterable[Path]) -> str:
    """Return the base's platform tag, or a newer one if ``libraries`` need newer symbols.

    The policies are auditwheel's. A manylinux tag limits the versions of symbols from glibc and libstdc++ (PEP 600).
    """
    policies = manylinux_policies(own.machine)
    needed = [ElfFile(library).needed_versions() for library in libraries]
    ours = policies.versioned_symbols_policy({str(i): set(versions) for i, versions in enumerate(needed) if versions})
    base = min((policy for policy in policies if policy.name in own.platforms), key=lambda policy: policy.priority)
    # Higher priorities are older platforms.
    if base.priority <= ours.priority:
        return str(base.name)
    newer = newer_symbols(needed, base.symbol_versions)
    say(f"      the wheel is for {ours.name}, since it needs newer symbols than {base.name} has: {newer}")
    return str(ours.name)


def newer_symbols(needed: Iterable[Mapping[str, set[str]]], known: Mapping[str, Iterable[str]]) -> str:
    """Return ``needed`` symbols with versions that their libraries in ``known`` lack: ``exp, log2 (GLIBC_2.29)``."""
    found: dict[str, set[str]] = {}
    for versions in needed:
        for version, symbols in versions.items():
            library, _, number = version.partition("_")
            if library in known and number not in known[library]:
                found.setdefault(version, set()).update(symbols)
    return "; ".join(f"{', '.join(sorted(symbols))} ({version})" for version, symbols in sorted(found.items()))
