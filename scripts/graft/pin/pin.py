"""``make pin``: from the version of a release to its pin, and a report."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..base.tree import get_base
from ..build import pack_wheel
from ..core.console import Steps, say
from ..core.errors import GraftError
from ..core.layout import REPOSITORY, Layout
from ..core.lock import build_lock, file_lock
from ..inputs.pin import load_pin
from ..inputs.snapshot import take_snapshot
from ..new.new_op import write_all
from ..stages import Graft
from .draft import Draft, newest
from .findings import Findings, look_at
from .release import find_release
from .report import Report

SMALLEST = Path(__file__).parent / "smallest"


def make_pin(torch: str, *, index: str, jobs: int, patches: Path = REPOSITORY / "patches") -> None:
    """Write the pin of a release, or what an existing one lacks, and report what is new.

    Args:
        torch: a version, or the path of a wheel file.
        index: an index for pip in addition to its configuration; may be empty.
        jobs: the maximum number of compilers to run at once.
        patches: the folder of all pins.

    Raises:
        GraftError: nothing is written, unless the smallest operator cannot be built: then the pin is.
    """
    steps = Steps()
    with steps.step("ask for the wheels") as line:
        release = find_release(torch, index, patches)
        line.note = f"{len(release.wheels)} of torch {release.version}"
    layout = Layout(release.version, (SMALLEST,), Path())
    layout.pin_build.mkdir(parents=True, exist_ok=True)
    with (
        # One lock for all releases, since they share the file with the toolkits.
        file_lock(layout.pin_build.parents[1] / "pin.lock", "another `make pin` is running here"),
        TemporaryDirectory(prefix="pin-", dir=layout.pin_build) as scratch,
    ):
        draft = Draft(patches, Path(scratch) / "patches", release)
        try:
            pin = draft.pin()
            base = get_base(pin, layout, release.file, steps, index)
            found = look_at(base, pin)
            draft.finish(pin, found)
            with steps.step("look for its toolkit and patches"):
                packages = draft.add_toolkit(pin, found.cuda, index) if found.cuda else 0
                tried = draft.add_series(base, Path(scratch))
        except GraftError as error:
            draft.translate(error)
            raise
        failure = try_smallest(replace(layout, out=Path(scratch), pins=draft.copy), jobs)
        other = look_at_other(newest(patches, release, is_same_kind=True), patches, index)
        changed = draft.changed()
        write_all(changed)
    say(Report(found, draft.is_new, packages, tried, list(changed), failure, other).text())
    if failure:
        draft.translate(failure)
        raise failure


def look_at_other(version: str, patches: Path, index: str) -> Findings | str | None:
    """Return the properties of another pin's base, or an error; None if there is no ``version``."""
    if not version:
        return None
    layout = Layout(version, (), Path(), pins=patches)
    say(f"to compare it with torch {version}:")
    try:
        pin = load_pin(layout.patches, version)
        return look_at(get_base(pin, layout, None, Steps(), index), pin)
    except GraftError as error:
        return error.what


def try_smallest(layout: Layout, jobs: int) -> GraftError | None:
    """Build the smallest operator. Return an error, if any. The result is deleted."""
    say("the smallest operator:")
    try:
        snapshot = take_snapshot(layout)
        with build_lock(layout.work), snapshot.translated():
            steps = Steps()
            base = get_base(snapshot.pin, layout, None, steps)
            pack_wheel(layout, snapshot, base, Graft(layout, snapshot, base, jobs, steps), steps)
    except GraftError as error:
        return error
    finally:
        shutil.rmtree(layout.work, ignore_errors=True)
    return None
