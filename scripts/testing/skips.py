"""Skips are counted: tests/skips.yaml lists those that each part of the tests has, with their reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import yaml


@dataclass(frozen=True, order=True)
class Skip:
    """A test that was skipped, of a part of the tests, and why."""

    kind: str
    reason: str
    test: str

    def with_any_parameters(self) -> Skip:
        """As tests/skips.yaml names all tests of a function at once."""
        return replace(self, test=f"{self.test.partition('[')[0]}[*]")


@dataclass(frozen=True)
class Expected:
    """What tests/skips.yaml says.

    Args:
        pin: the release that it holds for.
        skips: those that happen everywhere.
        machine: patterns of the reasons that a machine may give.
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
    """The skips in what pytest wrote of a part of the tests as XML; none if it crashed."""
    if not results.read_bytes():
        return
    for case in ElementTree.parse(results).iter("testcase"):
        for skipped in case.iter("skipped"):
            file = re.search(r"(?:^|\.)test_(\w+)", case.get("classname", ""))
            # A file that is skipped as a whole stands there as the name of a test.
            name = case.get("name", "") if file else case.get("name", "").rpartition(".")[2]
            yield Skip(kind, skipped.get("message", ""), f"{file[1]}: {name}" if file else name)


def differences(expected: Expected, found: Mapping[str, list[Skip]], *, is_whole: bool) -> list[str]:
    """What is skipped and not expected, and if all tests ran, what is expected and not skipped.

    Args:
        expected: of all parts.
        found: by the kinds of parts that ran.
        is_whole: whether no tests were left out.
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
