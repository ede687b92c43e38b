"""``make test-matrix``: build and test each version of PIN on each of PYTHONS, and write a table.

Each is a session of noxfile.py, so ``nox -j`` runs several at once. The result of each is kept: an interrupted matrix
continues where it stopped.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from graft.base.base import VERSION_FILE, of_version_file
from graft.core.bugs import expected
from graft.core.console import say
from graft.core.errors import GraftError, RefusedError, UsageError
from graft.core.files import free_bytes, write_atomically
from graft.core.layout import HOME, REPOSITORY, Layout
from graft.given import in_make, request_of
from packaging.version import Version

from .environments import base_wheel_of
from .kept import Kept
from .markdown import markdown_table
from .processor import machine
from .rows import Row, chosen_rows, results_in, run_verb
from .testing import is_shipped

# The table; results and a folder of logs are beside it.
TABLE = HOME / "test-matrix.md"

# By default: each pin on one Python, and one pin on others.
_PYTHON = "3.11"
_PIN, _OTHER_PYTHONS = "2.14.1", "3.10 3.12 3.13"

# Space for the environment of a CUDA wheel, its unpacked base, and the wheels and objects of a row.
_NEEDED_BYTES = 15 * 1024**3

_HEAD = ("PyTorch", "Python", "CUDA", "wheel", "added", "tests")


@dataclass(frozen=True)
class RowResult:
    """The result of a row.

    Args:
        native: the native folders.
        pin, python: the row.
        parts: of the tests.
        extra: arguments for pytest.
        machine: the processor.
        log: the file with the output.
        date: when it was tested.
        wheel: its file name; empty if there is none.
        size: of the wheel, in bytes.
        added: compressed bytes of the members that the base lacks, or that differ from it, without metadata.
        cuda: the CUDA version of the base; empty for CPU.
        tests: the counts of each part.
        error: what failed; empty if nothing did.
    """

    native: str
    pin: str
    python: str
    parts: Sequence[str]
    extra: Sequence[str]
    machine: str
    log: str
    date: str
    wheel: str = ""
    size: int = 0
    added: int = 0
    cuda: str = ""
    tests: Sequence[str] = ()
    error: str = ""


def rows() -> dict[str, Row | GraftError]:
    """Return the rows of ``PIN`` and ``PYTHONS`` by name, by default the table's own; or why nothing can be built."""
    pins, pythons = in_make().get("pin", ("",))[0], os.environ.get("PYTHONS", "")
    try:
        if pins or pythons:
            found = chosen_rows(pins, pythons or _PYTHON)
        else:
            found = [*chosen_rows("", _PYTHON), *chosen_rows(_PIN, _OTHER_PYTHONS)]
    except GraftError as error:
        return {"nothing": error}
    return {str(row): row for row in found}


def test_row(row: Row | GraftError, arguments: Sequence[str]) -> tuple[RowResult, bool]:
    """Build and test one row, and write the table. A wheel that passed is not tested again with the same sources.

    Args:
        row: a row, or an error to raise.
        arguments: of ``make test-matrix``.

    Returns:
        its result, and whether it was tested.
    """
    options = _options(arguments)
    request = request_of(in_make())
    if isinstance(row, GraftError):
        raise row
    if request.wheel:
        raise UsageError(f"WHEEL={request.wheel}: each pin and Python has its own base wheel", todo="leave it out")
    layout = Layout(row.pin, request.native, request.layout.out, interpreter=row.python.abi)
    name, kept = f"{layout.name}/{row.pin}-{row.python.release}", Kept(TABLE.with_suffix(".json"))
    result = RowResult(
        layout.title,
        row.pin,
        row.python.release,
        options.parts,
        options.extra,
        machine(),
        str(TABLE.with_suffix("") / f"{name}.log"),
        datetime.date.today().isoformat(),
    )
    found = None if options.again else kept.get(name)
    before = RowResult(**found) if found else None
    try:
        result = _built_and_tested(row, layout, result, before, request.jobs)
    except (GraftError, OSError) as error:
        result = replace(result, error=expected(error).what)
    kept.put(name, asdict(result))
    results = [RowResult(**each) for each in kept.all() if each["native"] == layout.title]
    write_atomically(TABLE, markdown(results, "`native/`" if is_shipped(layout) else layout.title))
    return result, result != before


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-matrix ARGS=...")
    parser.add_argument("--parts", nargs="+", default=["operators", "wheel"], help="which tests (%(default)s)")
    parser.add_argument("--again", action="store_true", help="test wheels again that passed before")
    parser.add_argument("extra", nargs="*", help="arguments for pytest, after --")
    return parser.parse_args(arguments)


def _built_and_tested(row: Row, layout: Layout, new: RowResult, before: RowResult | None, jobs: int) -> RowResult:
    jobs = max(1, jobs // int(os.environ.get("AT_ONCE") or 1))
    if free_bytes(REPOSITORY) < _NEEDED_BYTES:
        raise RefusedError(f"{free_bytes(REPOSITORY) >> 30} GiB are free, but a row may need {_NEEDED_BYTES >> 30}")
    Path(new.log).parent.mkdir(parents=True, exist_ok=True)
    say(f"{row}: log in {new.log}")
    with (
        Path(new.log).open("w", encoding="utf-8", buffering=1) as log,
        tempfile.TemporaryDirectory(prefix="graft-") as folder,
    ):
        report = Path(folder, "report.json")
        error, _ = run_verb(row, layout, jobs, ["graft", "build", "--report", report], log.write)
        if error:
            return replace(new, error=error)
        wheel = Path(json.loads(report.read_text(encoding="utf-8"))["path"])
        is_tested = before and before.extra == new.extra and set(before.parts) >= set(new.parts)
        if before and is_tested and before.wheel == wheel.name and not before.error:
            return before
        words: list[str | Path] = ["tests.kit", "test", "--parts", *new.parts]
        words += [] if os.environ.get("KEEP", "") not in ("", "0") else ["--discard"]
        words += ["--", *new.extra] if new.extra else []
        error, printed = run_verb(row, layout, jobs, words, log.write)
        described = contents(wheel, base_wheel_of(layout))
        return replace(new, wheel=wheel.name, **described, tests=results_in(printed), error=error)


def contents(wheel: Path, base: Path) -> dict[str, Any]:
    """Return the fields of a result that describe a wheel and its base."""
    with ZipFile(base) as archive:
        old = {(info.filename, info.CRC, info.file_size) for info in archive.infolist()}
    with ZipFile(wheel) as archive:
        members = [info for info in archive.infolist() if ".dist-info/" not in info.filename]
        others = [info for info in members if (info.filename, info.CRC, info.file_size) not in old]
        cuda = of_version_file(archive.read(VERSION_FILE).decode(), "cuda")
    return {"size": wheel.stat().st_size, "added": sum(info.compress_size for info in others), "cuda": cuda}


def markdown(results: Sequence[RowResult], native: str) -> str:
    """Format the results as a Markdown table, below the machines and the dates, above what the columns do not show."""
    shown = sorted(results, key=lambda each: (Version(each.pin), Version(each.python.rstrip("t"))))
    machines, dates = sorted({each.machine for each in shown}), sorted({each.date for each in shown})
    notes = []
    for each in shown:
        only = f"only `pytest {shlex.join(each.extra)}`" if each.extra else ""
        if note := "; ".join(filter(None, [only, each.error])):
            notes.append(f"\n{each.pin} on Python {each.python}: {note}\n")
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
    head = f"`make test-matrix` of {native}; {', '.join(machines)}; {when}:\n\n"
    return head + markdown_table([_HEAD, ["---"] * len(_HEAD), *map(_cells, shown)]) + "".join(notes)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB" if count >= 1e7 else f"{count / 1e6:.1f} MB"


def _cells(result: RowResult) -> tuple[str, ...]:
    if not result.wheel:
        return (result.pin, result.python, *[""] * 3, "failed")
    sizes = (_megabytes(result.size), _megabytes(result.added))
    return (result.pin, result.python, result.cuda, *sizes, "; ".join(result.tests))
