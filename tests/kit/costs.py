"""A pytest plugin that writes what each test file costs: wall seconds, and CPU seconds of the test processes with the
children that they waited for. ``--costs FILE`` names the file.
"""

from __future__ import annotations

import json
import resource
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

_PROPERTY = "cost"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=Path, help="write the seconds of each test file as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("costs"):
        config.pluginmanager.register(_Costs(config.getoption("costs"), config.rootpath))


class _Costs:
    """Measures in the processes that run tests. The one that pytest-xdist's workers report to adds up and writes."""

    def __init__(self, file: Path, root: Path) -> None:
        self._file, self._root = file, root
        self._last = _now()
        self._sums: dict[str, Counter[str]] = {}

    def pytest_collection_finish(self) -> None:
        self._last = _now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Any:
        report = yield
        (wall, cpu), self._last = self._last, _now()
        report.user_properties.append((_PROPERTY, (self._last[0] - wall, self._last[1] - cpu)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # pytest gives the reports of a test one list: the last property is that of this report.
        properties: Any = report.user_properties
        wall, cpu = [value for name, value in properties if name == _PROPERTY][-1]
        sums = self._sums.setdefault(report.nodeid.partition("::")[0], Counter())
        sums.update(tests=report.when == "call", wall=wall, cpu=cpu)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._sums and not hasattr(session.config, "workerinput"):
            rounded = {name: {key: round(value, 1) for key, value in sums.items()} for name, sums in self._sums.items()}
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps(rounded, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _now() -> tuple[float, float]:
    """Return the wall seconds and the CPU seconds so far."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return time.monotonic(), sum(each.ru_utime + each.ru_stime for each in used)
