"""Write a thin wheel: operators for an installed torch (PEP 427; entry points of ``torch.backends``)."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from packaging.version import InvalidVersion, Version

from ..core.errors import UsageError
from ..core.layout import INTERPRETER
from .wheel import Member, Record, add_member, writing

# Names that are valid for Python and for wheels: pip allows no double underscore, and none at an end.
_NAME = re.compile("[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")

# Packages that are installed with torch.
_TAKEN = ("torch", "torchgen", "functorch")

_DATE = (1980, 1, 1, 0, 0, 0)  # the same input gives the same bytes


def package_name(name: str, folder: Path) -> str:
    """Return the name of the package: ``name``, or that of the native folder.

    Raises:
        UsageError: Python cannot import it, or pip cannot install it.
    """
    chosen = name or re.sub(r"[\W_]+", "_", folder.name)
    if not _NAME.fullmatch(chosen) or keyword.iskeyword(chosen) or chosen in _TAKEN:
        raise UsageError(
            f"NAME={chosen}: a thin wheel's package cannot have this name",
            todo="set NAME to a name that Python can import, such as my_ops",
        )
    return chosen


def thin_version(version: str, requires: str) -> str:
    """Return the version of a thin wheel, with its torch's version so that wheels for several can share a folder.

    Raises:
        UsageError: ``version`` is not a valid version.
    """
    try:
        parsed = Version(version)
    except InvalidVersion as error:
        raise UsageError(f"VERSION={version}: {error}", todo="set VERSION to one such as 1.2.0") from error
    if parsed.local:
        raise UsageError(
            f"VERSION={version}: the part after + is reserved for the version of torch", todo=f"set {parsed.public}"
        )
    return f"{parsed.public}+torch{requires.replace('+', '.')}"


def pack_thin(
    files: Mapping[str, bytes], *, name: str, version: str, requires: str, platform: str, out: Path, summary: str
) -> Path:
    """Write the wheel into ``out``. Return its path.

    Args:
        files: by path in the wheel.
        name: the name of its package.
        version: the version of the thin wheel.
        requires: the version of torch that it needs.
        platform: its platform tag.
        out: the output folder; created if it does not exist.
        summary: a description in one line.

    Raises:
        PackError: the wheel cannot be written.
    """
    tag = f"{INTERPRETER}-{INTERPRETER}-{platform}"
    target, info = out / f"{name}-{version}-{tag}.whl", f"{name}-{version}.dist-info"
    python = f"{INTERPRETER[2]}.{INTERPRETER[3:]}"
    metadata = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
        f"Requires-Python: =={python}.*\nRequires-Dist: torch=={requires}\n",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: graft\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "entry_points.txt": f"[torch.backends]\n{name} = {name}:autoload\n",
        "top_level.txt": f"{name}\n",
    }
    members = {**files, **{f"{info}/{each}": text.encode() for each, text in metadata.items()}}
    record = Record()
    with (
        writing(target, f".{target.name}.partial") as partial,
        ZipFile(partial, "w", ZIP_DEFLATED, compresslevel=6) as wheel,
    ):
        for path, content in sorted(members.items(), key=lambda item: (item[0].startswith(info), item[0])):
            add_member(wheel, Member(path, content=content), _DATE)
            record.add(path, content)
        record.rows.append((f"{info}/RECORD", "", ""))
        add_member(wheel, Member(f"{info}/RECORD", content=record.text()), _DATE)
    return target
