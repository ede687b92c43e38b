"""``make test-matrix``: build and test each pin on each Python, and write a table."""

from __future__ import annotations

import datetime
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from graft.core.console import say
from graft.core.errors import GraftError, RefusedError
from graft.core.files import free_bytes, write_atomically
from graft.core.layout import REPOSITORY, Layout
from packaging.version import Version

from ..builds import conditions
from ..environments import base_wheel_of
from ..run import is_shipped
from .contents import contents
from .processes import Processes
from .results import Result, Results, counted, load, markdown, save
from .rows import Row, RowsFailed, rows_of_matrix
from .wheels import build_row, megabytes, options

# The results; a folder of logs is next to them.
_RESULTS = REPOSITORY / "build/test-matrix.json"

# Space for the environment of a CUDA wheel, its unpacked base, and the wheels and objects of a row.
_NEEDED_BYTES = 15 * 1024**3


def test_matrix(
    layout: Layout,
    pins: str,
    pythons: str,
    *,
    jobs: int,
    at_once: int,
    parts: Sequence[str],
    extra: Sequence[str],
    is_anew: bool,
    is_kept: bool,
    markdown_file: Path | None,
) -> None:
    """Build and test the native folders of ``layout`` on each pin and Python. Results are written after each row.

    A row is skipped if its wheel passed the same tests before.

    Args:
        layout: the native folders and the output folder.
        pins, pythons: separated by spaces; both empty for the default.
        jobs: the maximum number of compilers to run at once.
        at_once: the number of rows to run at once.
        parts: the parts of the tests, as in ``make test``.
        extra: arguments for pytest.
        is_anew: whether to test rows that passed before, too.
        is_kept: whether to keep the environments of the tests.
        markdown_file: an additional file for the table.

    Raises:
        RowsFailed: some rows failed.
        GraftError: a pin or Python was not found, or the disk is full; nothing was built.
    """
    rows = rows_of_matrix(pins, pythons)
    _require_space(at_once)
    results = load(_RESULTS)
    about = conditions(layout, jobs)
    matrix = _Matrix(
        layout, max(1, jobs // at_once), tuple(parts), tuple(extra), is_anew, is_kept, dict(results), about
    )
    done: list[Result] = []
    with ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(matrix.row, row) for row in rows]
        try:
            for future in as_completed(futures):
                done.append(result := future.result())
                results[result.key] = result
                save(_RESULTS, results)
                _write_table(layout, results, markdown_file)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            matrix.processes.stop()
            raise
    print(f"\n{_RESULTS.with_suffix('.md').read_text(encoding='utf-8')}", end="")
    if failed := [result for result in done if result.error]:
        names = ", ".join(f"{result.pin} on Python {result.python}" for result in failed)
        raise RowsFailed(
            f"{len(failed)} of {len(rows)} rows failed: {names}", todo=f"see the logs in {_RESULTS.with_suffix('')}/"
        )


@dataclass(frozen=True)
class _Matrix:
    """Builds and tests rows, in several threads."""

    layout: Layout
    jobs: int
    parts: tuple[str, ...]
    extra: tuple[str, ...]
    is_anew: bool
    is_kept: bool
    before: Results
    about: Mapping[str, Any]
    processes: Processes = field(default_factory=Processes)

    def row(self, row: Row) -> Result:
        """Build and test one row. Failures are part of the result."""
        log = _RESULTS.with_suffix("") / f"{row.pin}-{row.python.release}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        say(f"{row}: starts, log in {log}")
        machine = f"{self.about['cores']} cores of {self.about['processor']}"
        new = Result(self.layout.title, row.pin, row.python.release, self.parts, shlex.join(self.extra), "", machine)
        start = time.perf_counter()
        try:
            _require_space(1)
            with log.open("w", encoding="utf-8", buffering=1) as file:
                result = self._built_and_tested(row, new, file)
        except (GraftError, OSError) as error:
            known = error if isinstance(error, GraftError) else RefusedError.of(error)
            result = replace(new, error=known.what)
        result = replace(result, date=result.date or datetime.date.today().isoformat())
        size = f"; {result.wheel}, {megabytes(result.size)} MB" if result.wheel else ""
        tests = "".join(f"; {kind}: {tests}" for kind, tests in result.tests.items())
        end = f"failed: {result.error}" if result.error else "passed"
        say(f"{row}: {end}{size}{tests}; {time.perf_counter() - start:.0f} s")
        return result

    def _built_and_tested(self, row: Row, new: Result, log: IO[str]) -> Result:
        wheel = build_row(row, self.layout, self.jobs, self.processes, log.write)
        if wheel.path is None:
            return replace(new, error=wheel.error)
        before = self.before.get(new.key)
        is_same = before is not None and before.wheel == wheel.path.name
        is_tested = before is not None and before.extra == new.extra and set(before.parts) >= set(self.parts)
        if before and is_same and is_tested and not before.error and not self.is_anew:
            say(f"{row}: {before.wheel} passed on {before.date}; ARGS=--again tests it again")
            return before
        of_row = replace(self.layout, pin=row.pin, interpreter=row.python.interpreter)
        found = contents(wheel.path, base_wheel_of(of_row))
        seconds = wheel.seconds if wheel.is_new else before.build if before and is_same else None
        new = replace(new, wheel=wheel.path.name, build=seconds, **asdict(found))
        with tempfile.TemporaryDirectory(prefix="graft-") as folder:
            command = ["test", *options(row, self.layout, self.jobs), "--parts", *self.parts, "--junit", folder]
            command += [*([] if self.is_kept else ["--discard"]), *(["--", *self.extra] if self.extra else [])]
            done = self.processes.run(row.python.path, command, log.write)
            return replace(new, tests=counted(Path(folder)), error=done.error)


def _require_space(at_once: int) -> None:
    if free_bytes(REPOSITORY) < _NEEDED_BYTES * at_once:
        raise RefusedError(
            f"{REPOSITORY}: {free_bytes(REPOSITORY) >> 30} GiB are free, but a row may need {_NEEDED_BYTES >> 30}",
            todo="free some space, for example by deleting build/<pin> of unused pins"
            + (", or set AT_ONCE=1" if at_once > 1 else ""),
        )


def _write_table(layout: Layout, results: Results, more: Path | None) -> None:
    shown = [result for result in results.values() if result.native == layout.title]
    shown.sort(key=lambda each: (Version(each.pin), Version(each.python)))
    native = "`native/`" if is_shipped(layout) else layout.title
    title = f"`make test-matrix` of {native}"
    for path in (_RESULTS.with_suffix(".md"), more):
        if path:
            write_atomically(path, markdown(shown, title))
