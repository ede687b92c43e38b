"""Run the same tests on the other deliveries: an environment with the official torch and operators added to it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from graft.base.tree import get_base
from graft.core.console import Steps, say, table
from graft.core.environments import Layer, install
from graft.core.errors import UsageError
from graft.core.layout import REPOSITORY, Layout
from graft.develop import develop
from graft.inputs.pin import load_pin
from graft.thin import thin_wheel

from .environments import (
    REQUIREMENTS,
    environment_in,
    folder_of,
    identity,
    in_test_environment,
    named,
    run_python,
    unpacked,
)
from .parts import Part, TestsFailed, run_parts
from .run import QUIET, TESTS, WHEEL, one_at_a_time, own_tests

DEVELOP, THIN = "develop", "thin-wheel"
DELIVERIES = (WHEEL, DEVELOP, THIN)

# A mark in the table of surfaces.
NO = "NO"


def test_delivered(
    layout: Layout, delivery: str, *, base_wheel: Path | None, jobs: int, extra: Sequence[str], chosen: Sequence[str]
) -> None:
    """Run the tests of the operators, and those for every folder, on a delivery that is not a wheel of torch.

    Raises:
        TestsFailed: lists the parts that failed.
    """
    parts = [Part("wheel", f"the operators as {delivery}", [TESTS / "wheel/any"]), *own_tests(layout)]
    parts = [part for part in parts if not chosen or part.kind in chosen]
    if not parts:
        raise UsageError(f"--parts {' '.join(chosen)}: DELIVERY={delivery} has no such tests", todo="leave --parts out")
    with (
        one_at_a_time(layout, f"test-{delivery}"),
        delivered(layout, delivery, base_wheel, jobs) as (python, variables),
    ):
        run_parts(python, parts, variables, extra, jobs=jobs)


def show_surfaces_of(
    layout: Layout, deliveries: Sequence[str], *, base_wheel: Path | None, jobs: int, extra: Sequence[str]
) -> None:
    """Print the surfaces of the operators for each delivery, and then compare the deliveries.

    Raises:
        TestsFailed: an operator lacks a surface.
    """
    failed, found = [], {}
    for delivery in deliveries:
        say(f"\n== surfaces of {layout.title} as {delivery}")
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "marks.json"
            command: list[str | Path] = ["-m", "tests.kit.surfaces", *extra, "--json", result]
            with ExitStack() as stack:
                if delivery == WHEEL:
                    code = in_test_environment(layout, command, QUIET)
                else:
                    python, variables = stack.enter_context(delivered(layout, delivery, base_wheel, jobs))
                    code = run_python(python, command, {**variables, **QUIET})
            failed += [delivery] if code else []
            found[delivery] = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else []
    if len(deliveries) > 1:
        print(f"\n{side_by_side(found)}")
    if failed:
        raise TestsFailed(
            f"an operator differs from PyTorch's own, in {', '.join(failed)}", todo="fix the differences in the table"
        )


def side_by_side(found: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """Format a row for each surface and a column for each delivery: ``yes``, or the operators that lack it.

    If torch crashed in a delivery, it has no marks.
    """
    titles = list(dict.fromkeys(title for marks in found.values() for title, _, _ in marks))
    lines = [("", *found)]
    for title in titles:
        lines.append((title, *(_cell(title, marks) for marks in found.values())))
    return table(lines)


def _cell(title: str, marks: Sequence[Sequence[str]]) -> str:
    of_title = [(name, mark) for each, name, mark in marks if each == title]
    missing = ", ".join(name for name, mark in of_title if mark == NO)
    return f"NO: {missing}" if missing else "yes" if of_title else "not measured"


@contextmanager
def delivered(
    layout: Layout, delivery: str, base_wheel: Path | None, jobs: int
) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Hold an environment with the operators. Yields its Python, and the tests' environment variables.

    Raises:
        UsageError: there is no such delivery.
    """
    if delivery not in DELIVERIES:
        raise UsageError(f"DELIVERY={delivery}: no such delivery", todo=f"set it to {' or '.join(DELIVERIES)}")
    base = get_base(load_pin(layout.patches, layout.pin), layout, base_wheel, Steps(total=2))
    folder = folder_of(f"test-{delivery}", layout)
    added: list[Layer] = []
    if delivery == THIN:
        out = replace(layout, out=REPOSITORY / f"build/thin/{layout.name}")
        made = thin_wheel(out, name="graft_tested", version="0.1", python="", base_wheel=base_wheel, jobs=jobs)
        wheel = made.wheel
        options = ("--force-reinstall", "--no-deps", wheel)
        added = [Layer(identity(wheel), lambda target: install(target, *options, what=wheel.name))]
    with (
        environment_in(folder, base.wheel, REQUIREMENTS, added) as python,
        unpacked(layout, "stock", base.wheel) as stock,
    ):
        if delivery == DEVELOP:
            develop(layout, str(python), jobs=jobs)
        variables = {"GRAFT_DELIVERY": delivery, "GRAFT_NATIVE": named(layout)}
        yield python, {**variables, "GRAFT_BASE": str(layout.base), "GRAFT_STOCK": str(stock)}
