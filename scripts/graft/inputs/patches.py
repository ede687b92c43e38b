"""Apply the patch series of a pin to files of the base wheel."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import UsageError
from ..core.process import UNTRANSLATED, run
from .pin import TOOLKITS

SERIES = "series"
# The list of added operators. A base that has it was built from the fork: its files contain the patches and appended
# texts already.
ADDED = "torch/_added_operators.py"


@dataclass(frozen=True)
class Patch:
    """A patch file.

    Args:
        path: the file.
        text: its text.
        targets: the files that it changes, as paths in the tree.
        is_for_debian: whether its header says ``For: Debian's sources``. It is not applied to other sources of the same
            release, which Debian has not changed.
    """

    path: Path
    text: str
    targets: tuple[str, ...]
    is_for_debian: bool = False


def load_series(folder: Path) -> list[Patch]:
    """Read ``folder/series`` and its patches, in order.

    A patch of another pin that also fits this one is listed with its folder: ``../2.13.0/that.patch``.

    Raises:
        UsageError: lists all errors: a patch that is listed but missing, exists but is not listed, is listed twice, or
            has no header or no change.
    """
    series = folder / SERIES
    if not series.is_file():
        raise UsageError(
            f"{series}: no such file", todo="write the names of the patches into it, in order, one on each line"
        )
    faults: list[str] = []
    patches: list[Patch] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(series.read_text(encoding="utf-8").splitlines(), 1):
        name = line.split("#", 1)[0].strip()
        if not name:
            continue
        where = f"{series}:{number}"
        if name in seen:
            faults.append(f"{where}: {name} is already listed in line {seen[name]}")
        elif not (folder / name).is_file():
            faults.append(f"{where}: {name} is listed, but does not exist")
        else:
            text = (folder / name).read_bytes().decode()
            targets = tuple(dict.fromkeys(re.findall(r"^\+\+\+ b/(\S+)", text, re.M)))
            if not text.startswith("Subject: "):
                faults.append(f"{folder / name}:1: no header; the first line must be `Subject: what it does`")
            if not targets:
                faults.append(f"{folder / name}: it changes no file")
            is_for_debian = "\nFor: Debian's sources\n" in text.partition("\n\n")[0] + "\n"
            patches.append(Patch(Path(os.path.normpath(folder / name)), text, targets, is_for_debian))
        seen.setdefault(name, number)
    faults += [f"{path}: not listed in {series}" for path in sorted(folder.glob("*.patch")) if path.name not in seen]
    if faults:
        raise UsageError("\n".join(faults), todo="fix the series or the patches")
    return patches


def pin_files(folder: Path) -> list[Path]:
    """Return the files of the pin in ``folder`` beside its patches: the pin file, the series and the CUDA toolkits."""
    toolkits = [path] if (path := folder.parent / TOOLKITS).is_file() else []
    return [folder / "pin.yaml", folder / SERIES, *toolkits]


def patched(patches: Iterable[Patch], base: Path, scratch: Path) -> dict[str, bytes]:
    """Return the files that ``patches`` change, by path in the tree, with the patches applied in order.

    Args:
        patches: a series.
        base: the tree, which is only read. If it was built from the fork, it contains the patches, and nothing is
            returned.
        scratch: the folder in which a temporary folder is created.

    Raises:
        UsageError: lists each patch that does not apply, with the hunk.
    """
    if (base / ADDED).is_file():
        return {}
    scratch.mkdir(parents=True, exist_ok=True)
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="patched-", dir=scratch) as name:
        folder = Path(name)
        for patch in patches:
            faults += _lay_out(patch, base, folder) or _apply(patch, folder)
        if faults:
            raise UsageError("\n".join(faults), todo="create the patch again for the pinned version of the file")
        targets = sorted({target for patch in patches for target in patch.targets})
        return {target: (folder / target).read_bytes() for target in targets}


def _lay_out(patch: Patch, base: Path, folder: Path) -> list[str]:
    """Copy the files that ``patch`` changes, unless they were copied already. Return error messages."""
    faults = []
    for target in patch.targets:
        if not (base / target).is_file():
            line = _line_of(patch, rf"\+\+\+ b/{re.escape(target)}")
            faults.append(f"{patch.path}:{line}: it changes {target}, which the base wheel does not contain")
        elif not (folder / target).is_file():
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(base / target, folder / target)
    return faults


def _apply(patch: Patch, folder: Path) -> list[str]:
    """Apply ``patch`` in ``folder``. Return error messages."""
    # git must not see a repository: inside one it skips files that are not below the current folder.
    env = {**UNTRANSLATED, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    done = run(["git", "apply", "--verbose"], cwd=folder, env=env, check=False, stdin=patch.text)
    if done.returncode == 0:
        return []
    hunks = re.findall(r"^error: patch failed: (.+):(\d+)$", done.stdout, re.M)
    corrupt = [f"{patch.path}:{line}: the patch is damaged here" for line in re.findall(r"at line (\d+)", done.stdout)]
    failed = [
        f"{patch.path}:{_line_of(patch, rf'@@ -{line}[, ]')}: this hunk does not apply to {target}:{line}"
        for target, line in hunks
    ]
    return failed or corrupt or [f"{patch.path}: the patch does not apply: {done.stdout.strip()}"]


def _line_of(patch: Patch, pattern: str) -> int:
    """Return the first line of ``patch`` that starts with ``pattern``."""
    return next((number for number, line in enumerate(patch.text.splitlines(), 1) if re.match(pattern, line)), 1)
