"""``make test-matrix``: build and test each of PINS on each of PYTHONS, and write a table.

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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

from graft.base.base import VERSION_FILE, architectures_of, of_version_file
from graft.compile.products import OPERATORS_FOR_CUDA
from graft.core.bugs import expected
from graft.core.console import say
from graft.core.cuda_settings import CudaArchs
from graft.core.errors import GraftError, RefusedError, UsageError
from graft.core.files import free_bytes, write_atomically
from graft.core.layout import HOME, REPOSITORY, Layout
from graft.options import OPTIONS, Request, request_of
from packaging.version import Version

from .environments import base_wheel_of
from .kept import Kept
from .processor import machine
from .rows import Row, chosen_rows, run_verb
from .testing import is_shipped

# The table; results and a folder of logs are beside it.
TABLE = HOME / "test-matrix.md"

# By default: each pin on one Python, and one pin on others.
_PYTHON = "3.11"
_PIN, _OTHER_PYTHONS = "2.14.1", "3.10 3.12 3.13"

# Space for the environment of a CUDA wheel, its unpacked base, and the wheels and objects of a row.
_NEEDED_BYTES = 15 * 1024**3

_HEAD = ("PyTorch", "Python", "CUDA", "architectures", "wheel", "added", "build", "operators' tests", "wheel's tests")


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
        architectures: the GPU architectures that the operators are built for; empty if they have no CUDA library.
        build: the seconds of its build; None if it was up to date.
        tests: the counts, by the kind of the part.
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
    architectures: str = ""
    build: float | None = None
    tests: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


def rows() -> dict[str, Row | GraftError]:
    """Return the rows of ``PINS`` and ``PYTHONS`` by name, by default the table's own; or why nothing can be built."""
    pins, pythons = (os.environ.get(name, "") for name in ("PINS", "PYTHONS"))
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
    request = request_of(
        {name: option.given_to_make(os.environ) for name, option in OPTIONS.items()},
        {name: each.word for name, each in OPTIONS.items()},
    )
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
    found, options.again = kept.get(name, of_others=True), options.again or not kept.get(name)
    before = RowResult(**found) if found else None
    try:
        result = _built_and_tested(row, layout, result, before, options, request)
    except (GraftError, OSError) as error:
        result = replace(result, error=expected(error).what)
    kept.put(name, asdict(result))
    results = [RowResult(**each) for each in kept.all() if each["native"] == layout.title]
    for target in filter(None, (TABLE, options.markdown)):
        write_atomically(target, markdown(results, "`native/`" if is_shipped(layout) else layout.title))
    return result, result != before


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make test-matrix ARGS=...")
    parser.add_argument("--parts", nargs="+", default=["operators", "wheel"], help="which tests (%(default)s)")
    parser.add_argument("--again", action="store_true", help="test wheels again that passed before")
    parser.add_argument("--markdown", type=Path, help="also write the table into this file, for a README")
    parser.add_argument("extra", nargs="*", help="arguments for pytest, after --")
    return parser.parse_args(arguments)


def _built_and_tested(
    row: Row, layout: Layout, new: RowResult, before: RowResult | None, options: argparse.Namespace, request: Request
) -> RowResult:
    jobs = max(1, request.jobs // int(os.environ.get("AT_ONCE") or 1))
    if free_bytes(REPOSITORY) < _NEEDED_BYTES:
        raise RefusedError(f"{free_bytes(REPOSITORY) >> 30} GiB are free, but a row may need {_NEEDED_BYTES >> 30}")
    Path(new.log).parent.mkdir(parents=True, exist_ok=True)
    say(f"{row}: log in {new.log}")
    with (
        Path(new.log).open("w", encoding="utf-8", buffering=1) as log,
        tempfile.TemporaryDirectory(prefix="graft-") as name,
    ):
        folder, report = Path(name), Path(name, "report.json")
        built = run_verb(row, layout, jobs, ["graft", "build", "--report", report], log.write)
        if built.error:
            return replace(new, error=built.error)
        made = json.loads(report.read_text(encoding="utf-8"))
        wheel = Path(made["path"])
        is_same = before is not None and before.wheel == wheel.name
        is_tested = before is not None and before.extra == new.extra and set(before.parts) >= set(new.parts)
        if before and is_same and is_tested and not (before.error or options.again):
            return before
        seconds = built.seconds if made["seconds"] else before.build if before and is_same else None
        new = replace(new, wheel=wheel.name, build=seconds, **contents(wheel, base_wheel_of(layout)))
        words: list[str | Path] = ["tests.kit", "test", "--parts", *new.parts, "--junit", folder]
        words += [] if os.environ.get("KEEP", "") not in ("", "0") else ["--discard"]
        words += ["--", *new.extra] if new.extra else []
        done = run_verb(row, layout, jobs, words, log.write)
        return replace(new, tests=counted(folder), error=done.error)


def contents(wheel: Path, base: Path) -> dict[str, Any]:
    """Return the fields of a result that describe a wheel and its base."""
    with ZipFile(base) as archive:
        old = {(info.filename, info.CRC, info.file_size) for info in archive.infolist()}
    with ZipFile(wheel) as archive:
        members = [info for info in archive.infolist() if ".dist-info/" not in info.filename]
        others = [info for info in members if (info.filename, info.CRC, info.file_size) not in old]
        cuda = of_version_file(archive.read(VERSION_FILE).decode(), "cuda")
        names: Sequence[str] = ()
        if OPERATORS_FOR_CUDA in archive.namelist():
            names = CudaArchs(os.environ.get("CUDA_ARCHS", "")).names or architectures_of(
                archive.read("torch/lib/libtorch_python.so")
            )
    return {
        "size": wheel.stat().st_size,
        "added": sum(info.compress_size for info in others),
        "cuda": cuda,
        "architectures": " ".join(f"sm_{name}" for name in names),
    }


def counted(folder: Path) -> dict[str, str]:
    """Read pytest's results in ``folder``, by the kind of the part: ``2-operators.xml``.

    If pytest crashed, the file is empty or incomplete.
    """
    found: dict[str, str] = {}
    for kind in dict.fromkeys(path.stem.partition("-")[2] for path in sorted(folder.glob("*-*.xml"))):
        counts, crashed = dict.fromkeys(("tests", "failures", "errors", "skipped", "time"), 0.0), ""
        for path in folder.glob(f"*-{kind}.xml"):
            try:
                suites = list(ElementTree.parse(path).iter("testsuite"))
            except ElementTree.ParseError:
                suites, crashed = [], "crashed; "
            counts = {key: value + sum(float(each.get(key, 0)) for each in suites) for key, value in counts.items()}
        failed = counts["failures"] + counts["errors"]
        said = {"failed": failed, "passed": counts["tests"] - failed - counts["skipped"], "skipped": counts["skipped"]}
        texts = [f"{count:.0f} {name}" for name, count in said.items() if count or name == "passed"]
        found[kind] = f"{crashed}{', '.join(texts)}, {counts['time']:.0f} s"
    return found


def markdown(results: Sequence[RowResult], native: str) -> str:
    """Format the results as a Markdown table, below the machines and the dates, above what the columns do not show."""
    shown = sorted(results, key=lambda each: (Version(each.pin), Version(each.python.rstrip("t"))))
    machines, dates = sorted({each.machine for each in shown}), sorted({each.date for each in shown})
    lines = [_HEAD, *(_cells(result) for result in shown)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    texts = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    texts.insert(1, " | ".join("-" * width for width in widths))
    notes = []
    for each in shown:
        only = f"only `pytest {shlex.join(each.extra)}`" if each.extra else ""
        if note := "; ".join(filter(None, [only, each.error])):
            notes.append(f"\n{each.pin} on Python {each.python}: {note}")
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
    head = f"`make test-matrix` of {native}; {', '.join(machines)}; {when}:\n"
    return "\n".join([head, *(f"| {text} |" for text in texts), *notes]) + "\n"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.0f} MB" if count >= 1e7 else f"{count / 1e6:.1f} MB"


def _cells(result: RowResult) -> tuple[str, ...]:
    if not result.wheel:
        return (result.pin, result.python, *[""] * 4, "failed", "", "")
    return (
        *(result.pin, result.python, result.cuda, (result.architectures or "none") if result.cuda else ""),
        *(_megabytes(result.size), _megabytes(result.added)),
        "" if result.build is None else f"{result.build:.0f} s",
        *(result.tests.get(kind, "") for kind in ("operators", "wheel")),
    )
