"""Run the same tests on the other deliveries: an environment with the official torch and operators added to it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from graft.base.fetch import get_base
from graft.build import Thin, develop, run
from graft.core.console import Steps, say, table
from graft.core.environments import install
from graft.core.errors import UsageError
from graft.core.files import Layer
from graft.core.layout import REPOSITORY
from graft.inputs.pin import load_pin
from graft.options import DEVELOP, THIN, WHEEL, Request

from .environments import (
    REQUIREMENTS,
    TEST,
    environment_in,
    folder_of,
    identity,
    named,
    unpacked,
    wheel_environment,
    wheel_of,
)
from .parts import Outcome, Part, TestsFailed, run_parts, run_pytest
from .run import QUIET, TESTS, one_at_a_time, own_tests


def test_delivered(request: Request, extra: Sequence[str], chosen: Sequence[str]) -> None:
    """Run the tests of the operators, and those for every folder, on a delivery that is not a wheel of torch.

    Raises:
        TestsFailed: lists the parts that failed.
    """
    layout, delivery = request.layout, request.delivery
    parts = [Part("wheel", f"the operators as {delivery}", [TESTS / "wheel/any"]), *own_tests(layout)]
    parts = [part for part in parts if not chosen or part.kind in chosen]
    if not parts:
        raise UsageError(f"--parts {' '.join(chosen)}: DELIVERY={delivery} has no such tests", todo="leave --parts out")
    with (
        one_at_a_time(layout, f"test-{delivery}"),
        delivered(request, delivery) as (python, variables),
    ):
        run_parts(python, parts, variables, extra, jobs=request.jobs)


def show_surfaces(request: Request, extra: Sequence[str]) -> None:
    """Print a table of the surfaces of the operators for each delivery, and then compare the deliveries.

    Raises:
        TestsFailed: an operator lacks a surface that PyTorch's own have.
    """
    failed, found = [], {}
    part = Part("surfaces", "the surfaces, compared with PyTorch's own operators", [TESTS / "wheel/surfaces"])
    deliveries = request.delivery.split()
    for delivery in deliveries:
        say(f"\n== {request.layout.title} as {delivery}")
        with tempfile.TemporaryDirectory() as folder, _environment(request, delivery) as environment:
            results, (python, variables) = Path(folder) / "results.xml", environment
            outcome = run_pytest(python, part, {**variables, **QUIET}, extra, results, request.jobs)
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
    return table(
        [
            ("", *columns),
            *((title, *(each.get(title, "not measured") for each in columns.values())) for title in titles),
        ]
    )


def of_added(marks: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return for each surface ``yes``, or the added operators that lack it."""
    added = {name: of_name for name, of_name in marks.items() if not name.startswith("torch.")}
    titles = dict.fromkeys(title for of_name in added.values() for title in of_name)
    missing = {title: ", ".join(name for name, each in added.items() if each.get(title) == "NO") for title in titles}
    return {title: f"NO: {names}" if names else "yes" for title, names in missing.items()}


@contextmanager
def _environment(request: Request, delivery: str) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Hold an environment with the operators, in any delivery."""
    if delivery != WHEEL:
        with delivered(request, delivery) as environment:
            yield environment
        return
    layout = request.layout
    with wheel_environment(layout, TEST, Path(wheel_of(layout).wheel)) as python:
        yield python, {"GRAFT_NATIVE": named(layout)}


@contextmanager
def delivered(request: Request, delivery: str) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Hold an environment with the operators. Yields its Python, and the tests' environment variables."""
    layout = request.layout
    base = get_base(load_pin(layout.patches, layout.pin), layout, request.wheel, Steps())
    folder = folder_of(f"test-{delivery}", layout)
    added: list[Layer] = []
    if delivery == THIN:
        out = replace(layout, out=REPOSITORY / f"build/thin/{layout.name}")
        wheel = run(Thin(out, None, "graft_tested", "0.1"), request).path
        options = ("--force-reinstall", "--no-deps", wheel)
        added = [Layer(identity(wheel), lambda target: install(target, *options, what=wheel.name))]
    with (
        environment_in(folder, base.wheel, REQUIREMENTS, added) as python,
        unpacked(layout, "stock", base.wheel) as stock,
    ):
        if delivery == DEVELOP:
            develop(replace(request, python=str(python), watch=False))
        variables = {"GRAFT_DELIVERY": delivery, "GRAFT_NATIVE": named(layout)}
        yield python, {**variables, "GRAFT_BASE": str(layout.base), "GRAFT_STOCK": str(stock)}
