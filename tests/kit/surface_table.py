"""``make surfaces``: a table of the surfaces of the operators for each delivery, and then one of the deliveries."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from graft.core.console import say, table
from graft.options import WHEEL, Request
from graft.verbs import build

from .parts import Outcome, Suite, TestsFailed, run_pytest
from .testing import TESTS, delivered

# Variables that disable logs of the profiler and the compilers, which tests call on purpose.
_QUIET = {"KINETO_LOG_LEVEL": "6", "TORCH_LOGS": "-all"}


def show_surfaces(request: Request, given: argparse.Namespace) -> None:
    """Print the tables."""
    failed, found = [], {}
    part = Suite("surfaces", "the surfaces, compared with PyTorch's own operators", [TESTS / "wheel/surfaces"])
    deliveries = request.delivery.split()
    if WHEEL in deliveries:
        build(request)
    for delivery in deliveries:
        say(f"\n== {request.layout.title} as {delivery}")
        with tempfile.TemporaryDirectory() as folder, delivered(request, delivery) as (python, variables):
            results = Path(folder) / "results.xml"
            outcome = run_pytest(python, part, {**variables, **_QUIET}, given.extra, results, request.jobs)
            found[delivery] = marks_in(results)
        failed += [delivery] if outcome is not Outcome.PASSED else []
        print(f"\n{side_by_side(found[delivery])}")
    if len(deliveries) > 1:
        print(f"\n{side_by_side({delivery: of_added(marks) for delivery, marks in found.items()})}")
    if failed:
        raise TestsFailed(
            f"an operator differs from PyTorch's own, in {', '.join(failed)}", todo="fix the differences above"
        )


def marks_in(results: Path) -> dict[str, dict[str, str]]:
    """Read pytest's XML results: the marks by operator and title; none if pytest crashed."""
    cells = []
    for case in ElementTree.parse(results).iter("testcase") if results.read_bytes() else ():
        known = {each.get("name"): each.get("value", "") for each in case.iter("property")}
        if "row" in known:
            is_red = case.find("failure") is not None or case.find("error") is not None
            skipped = case.find("skipped")
            mark = "NO" if is_red else "yes" if skipped is None else "NO" if "xfail" in skipped.get("type", "") else "-"
            cells.append((known["row"], known["column"], mark))
    found: dict[str, dict[str, str]] = {}
    for row, column, mark in sorted(cells, key=lambda cell: cell[0]):
        found.setdefault(column, {})[row.partition(" ")[2]] = mark
    return found


def side_by_side(columns: Mapping[str, Mapping[str, str]]) -> str:
    """Format a row for each surface, and a column for each operator or delivery."""
    titles = dict.fromkeys(title for column in columns.values() for title in column)
    rows = [(title, *(each.get(title, "not measured") for each in columns.values())) for title in titles]
    return table([("", *columns), *rows])


def of_added(marks: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return for each surface ``yes``, or the added operators that lack it."""
    added = {name: of_name for name, of_name in marks.items() if not name.startswith("torch.")}
    titles = dict.fromkeys(title for of_name in added.values() for title in of_name)
    missing = {title: ", ".join(name for name, each in added.items() if each.get(title) == "NO") for title in titles}
    return {title: f"NO: {names}" if names else "yes" for title, names in missing.items()}
