"""Apply the patch series of a pin to files of the base wheel."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .errors import GraftError, PinError
from .overlay import Overlay
from .process import run

SERIES = "series"


@dataclass(frozen=True)
class Patch:
    """A patch file and the files it edits, as paths in the tree."""

    path: Path
    targets: tuple[str, ...]


def load_series(folder: Path) -> list[Patch]:
    """Read ``folder/series`` and the patches it names, in its order.

    A patch of another pin that fits this one, too, is named with its folder: ``../2.13.0/that.patch``.

    Raises:
        PinError: reports everything that is wrong: a patch that is named and missing, there and not named, named
            twice, without a header or without a change.
    """
    series = folder / SERIES
    if not series.is_file():
        raise PinError(f"{series}: no such file", todo="write the names of the patches into it, in order, one a line")
    faults: list[str] = []
    patches: list[Patch] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(series.read_text().splitlines(), 1):
        name = line.split("#", 1)[0].strip()
        if not name:
            continue
        where = f"{series}:{number}"
        if name in seen:
            faults.append(f"{where}: {name} is named in line {seen[name]} already")
        elif not (folder / name).is_file():
            faults.append(f"{where}: {name} is named, but there is no such file")
        else:
            text = (folder / name).read_text()
            targets = tuple(dict.fromkeys(re.findall(r"^\+\+\+ b/(\S+)", text, re.M)))
            if not text.startswith("Subject: "):
                faults.append(f"{folder / name}:1: no header; the first line must be `Subject: what it does`")
            if not targets:
                faults.append(f"{folder / name}: it changes no file")
            patches.append(Patch(Path(os.path.normpath(folder / name)), targets))
        seen.setdefault(name, number)
    faults += [
        f"{path}: it is not named in {series}" for path in sorted(folder.glob("*.patch")) if path.name not in seen
    ]
    if faults:
        raise PinError("\n".join(faults), todo="mend the series or the patches")
    return patches


def pin_files(folder: Path) -> list[Path]:
    """The pin file, the series and its patches, relative to ``folder``: all that a pin says.

    Raises:
        PinError: something is wrong with the series.
    """
    patches = [Path(os.path.relpath(patch.path, folder)) for patch in load_series(folder)]
    return [Path("pin.yaml"), Path(SERIES), *patches]


def apply_patches(patches: list[Patch], overlay: Overlay, scratch: Path) -> None:
    """Apply ``patches`` in order to the overlay's or the base's text of the files they edit.

    The files are patched in a folder of their own, so that a patch that fails leaves nothing behind.

    Raises:
        PinError: a patch does not apply.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    targets = sorted({target for patch in patches for target in patch.targets})
    with tempfile.TemporaryDirectory(prefix="patched-", dir=scratch) as name:
        folder = Path(name)
        for target in targets:
            if not (overlay.base / target).is_file():
                raise PinError(
                    f"{_patch_of(patches, target)}: it edits {target}, which the base wheel does not hold",
                    todo="a patch can edit the wheel's Python files only",
                )
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(overlay.base / target, folder / target)
        for patch in patches:
            _apply(patch, folder)
        for target in targets:
            overlay.write(target, (folder / target).read_bytes())


def _patch_of(patches: list[Patch], target: str) -> Path:
    return next(patch.path for patch in patches if target in patch.targets)


def _apply(patch: Patch, folder: Path) -> None:
    try:
        # Outside any repository, as git sees it: within one it would skip files that are not below the current folder.
        run(["git", "apply", "--verbose", patch.path], cwd=folder, env={"GIT_CEILING_DIRECTORIES": str(folder.parent)})
    except GraftError as error:
        raise PinError(
            f"{patch.path}: the patch does not apply",
            cause=error.cause,
            todo="make it anew against the pinned version of the files it edits",
        ) from error
