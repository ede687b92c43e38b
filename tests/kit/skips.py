"""A plugin of pytest: the tests that were skipped must be those in tests/skips.yaml, which gives their reasons.

``--skips-of PART`` names the part of the tests that runs. With ``--all-of-it`` all its tests run, and an expected skip
that did not happen is reported, too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

EXPECTED = Path(__file__).parents[1] / "skips.yaml"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options above."""
    parser.addoption("--skips-of", metavar="PART", help="compare the skipped tests with those of PART in skips.yaml")
    parser.addoption("--all-of-it", action="store_true", help="the skips of skips.yaml must happen")
    parser.addoption("--skips-file", type=Path, default=EXPECTED, help="(default: %(default)s)")


def pytest_configure(config: pytest.Config) -> None:
    """Compare in the process that gets the reports of all others."""
    if config.getoption("skips_of") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skips(config))


class Skips:
    """The skips of one run, each a reason and a test: ``file: name``, without ``test_`` and ``.py``."""

    def __init__(self, config: pytest.Config) -> None:
        self.part = config.getoption("skips_of")
        self.is_whole = config.getoption("all_of_it")
        self.expected = yaml.safe_load(config.getoption("skips_file").read_text(encoding="utf-8"))
        self.found: set[tuple[str, str]] = set()
        self.lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that was skipped, or is expected to fail."""
        if report.skipped:
            file, *_, name = report.nodeid.split("::")
            reason = getattr(report, "wasxfail", "") or reason_of(report.longrepr)
            self.found.add((reason, f"{Path(file).stem.removeprefix('test_')}: {name}"))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that was skipped as a whole."""
        if report.skipped:
            self.found.add((reason_of(report.longrepr), Path(report.nodeid).stem))

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Any:
        """Fail the run if nothing else did."""
        if session.exitstatus == pytest.ExitCode.OK:
            self.lines = self._differences()
            if self.lines:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return (yield)

    def _differences(self) -> list[str]:
        """Return the unexpected skips and, if all tests ran, those expected but missing.

        In skips.yaml, ``name[*]`` is a test with any parameters. Skips for a reason of ``machine`` may happen or not.
        """
        of_part = (self.expected["parts"].get(self.part) or {}).items()
        wanted = {(reason, test) for reason, tests in of_part for test in tests}
        named = {each: {each, (each[0], f"{each[1].partition('[')[0]}[*]")} for each in self.found}
        lines = [
            f"skipped, but not in tests/skips.yaml: {test}: {reason}"
            for (reason, test), names in named.items()
            if not names & wanted and not any(re.match(pattern, reason) for pattern in self.expected["machine"])
        ]
        missing = wanted.difference(*named.values()) if self.is_whole else ()
        lines += [f"in tests/skips.yaml, but not skipped: {test}: {reason}" for reason, test in missing]
        return sorted(lines)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Report the differences."""
        for line in self.lines:
            terminalreporter.write_line(f"{self.part}: {line}", red=True)
        if self.lines:
            terminalreporter.write_line("next: make the tests run, or change tests/skips.yaml")


def reason_of(skipped: object) -> str:
    """Return the reason from a report: a path, a line and the message."""
    return str(skipped[2] if isinstance(skipped, tuple) else skipped).removeprefix("Skipped: ")
