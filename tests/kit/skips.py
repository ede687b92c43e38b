"""Compare skipped tests with tests/skips.yaml, which lists those of each part with their reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import yaml


@dataclass(frozen=True, order=True)
class Skip:
    """A skipped test, its part and the reason."""

    kind: str
    reason: str
    test: str

    def with_any_parameters(self) -> Skip:
        """In tests/skips.yaml a name stands for all tests of a function."""
        return replace(self, test=f"{self.test.partition('[')[0]}[*]")


@dataclass(frozen=True)
class Expected:
    """The content of tests/skips.yaml.

    Args:
        pin: the pin that it applies to.
        skips: the skips that happen on every machine.
        machine: patterns of reasons that depend on the machine.
    """

    pin: str
    skips: frozenset[Skip]
    machine: tuple[str, ...]


def load_expected(path: Path) -> Expected:
    """Read tests/skips.yaml."""
    text = yaml.safe_load(path.read_text(encoding="utf-8"))
    skips = [
        Skip(kind, reason, test)
        for kind, reasons in text["parts"].items()
        for reason, tests in reasons.items()
        for test in tests
    ]
    return Expected(text["pin"], frozenset(skips), tuple(text["machine"]))


def skips_in(results: Path, kind: str) -> Iterator[Skip]:
    """Yield the skips in pytest's XML results of a part; none if it crashed."""
    if not results.read_bytes():
        return
    for case in ElementTree.parse(results).iter("testcase"):
        for skipped in case.iter("skipped"):
            # Folders, too, may be called test_...: the file is the last one.
            files = re.findall(r"(?:^|\.)test_(\w+)", case.get("classname", ""))
            # A file that is skipped as a whole appears as the name of a test.
            name = case.get("name", "") if files else case.get("name", "").rpartition(".")[2]
            yield Skip(kind, skipped.get("message", ""), f"{files[-1]}: {name}" if files else name)


def differences(expected: Expected, found: Mapping[str, list[Skip]], *, is_whole: bool) -> list[str]:
    """Return the unexpected skips and, if all tests ran, those expected but missing.

    Args:
        expected: the expected skips of all parts.
        found: the skips of the parts that ran, by kind.
        is_whole: whether all tests ran.
    """
    skips = {skip for of_kind in found.values() for skip in of_kind}
    of_machine = {skip for skip in skips if any(re.match(pattern, skip.reason) for pattern in expected.machine)}
    wanted = {skip for skip in expected.skips if skip.kind in found}
    known = {skip for skip in skips if skip in wanted or skip.with_any_parameters() in wanted}
    lines = [
        f"{s.kind}: skipped, but not in tests/skips.yaml: {s.test}: {s.reason}" for s in skips - known - of_machine
    ]
    if is_whole:
        given = skips | {skip.with_any_parameters() for skip in skips}
        lines += [f"{s.kind}: in tests/skips.yaml, but not skipped: {s.test}: {s.reason}" for s in wanted - given]
    return sorted(lines)
