"""``make check-source``: the part of a source build that depends on the native folder, without linking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..core.console import Steps, say
from ..core.errors import FetchError, ToolchainError
from ..core.layout import Layout
from ..core.lock import build_lock
from ..inputs.native import load_native
from .build import generate, load_input, prepare
from .ninja import ninja, objects_of
from .parity import compare_with_graft
from .settings import affordable
from .tree import count, open_tree


@contextmanager
def if_possible(is_lenient: bool, what: str) -> Iterator[None]:
    """Run the body. If this machine lacks packages or the sources and ``is_lenient``, print that and go on.

    Args:
        is_lenient: whether the check may be left out.
        what: what is then not checked.
    """
    try:
        yield
    except (ToolchainError, FetchError) as error:
        if not is_lenient:
            raise
        say(f"NOT CHECKED: {what}, since\n{error}")


def check_source(layout: Layout, *, source: str | None, jobs: int) -> None:
    """Generate with the tree's own build, and compile the added operators with its own commands.

    Args:
        layout: the pin and the native folders.
        source: a checkout, or a place to clone from; None for the pin's.
        jobs: the maximum number of compilers to run at once, if memory allows.

    Raises:
        GraftError: one of the steps failed. Compiled objects are kept, also for a whole build.
    """
    given = load_input(layout)
    with build_lock(given.cache.folder), given.snapshot.translated():
        jobs = affordable(jobs)
        steps = Steps()
        configured = prepare(given, source, jobs, steps)
        with steps.step("generate") as line:
            line.note = generate(configured, jobs, line, incremental=True)
        with steps.step("compare with a graft") as line:
            tree = open_tree(configured.tree, given.pin)
            parity = compare_with_graft(tree, load_native(configured.native))
            line.note = f"{parity.alike} equal headers and definitions"
        objects = objects_of(configured, parity.changed)
        with steps.step("compile") as line:
            ran = ninja(configured, jobs, line, objects)
            line.note = f"{count(len(objects), 'object')} with the operators, {count(ran, 'command')}"
    say(f"{layout.title}: compiles in PyTorch {given.pin.version}; {sum(steps.seconds.values()):.0f} s in all")
