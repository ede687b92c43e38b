"""``make check-source``: the part of a source build that depends on the native folder, without linking."""

from __future__ import annotations

from ..common.console import Steps, say
from ..common.errors import FetchError, ToolchainError
from ..common.layout import Layout
from ..common.lock import build_lock
from ..inputs.native import load_native
from .build import generate, load_input, prepare
from .ninja import ninja, objects_of
from .parity import compare_with_graft
from .settings import affordable
from .tree import count, open_tree


def check_source_if_possible(layout: Layout, *, source: str | None, jobs: int) -> None:
    """Run ``check_source``. If this machine lacks packages or the sources, print that and skip it.

    Raises:
        GraftError: another error.
    """
    try:
        check_source(layout, source=source, jobs=jobs)
    except (ToolchainError, FetchError) as error:
        say(f"NOT CHECKED: whether {layout.title} compiles in the source tree of {layout.pin}, since\n{error}")


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
        steps = Steps(total=6)
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
