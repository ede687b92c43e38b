"""``make check-source``: the part of a source build that depends on the native folder, without linking."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from ..common.console import Steps, say
from ..common.errors import FetchError, SourceError, ToolchainError
from ..common.layout import Layout
from ..common.lock import build_lock
from ..inputs.native import load_native
from .build import generate, load_input, prepare
from .configure import Configured
from .ninja import ninja
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
        objects = concerned(configured, parity.changed)
        with steps.step("compile") as line:
            ran = ninja(configured, jobs, line, objects)
            line.note = f"{count(len(objects), 'object')} with the operators, {count(ran, 'command')}"
    say(f"{layout.title}: compiles in PyTorch {given.pin.version}; {sum(steps.seconds.values()):.0f} s in all")


def concerned(configured: Configured, generated: Sequence[str]) -> list[str]:
    """Return the object files of the fork's own sources, and of generated sources.

    Args:
        configured: the configured tree.
        generated: the generated sources that contain the operators, by name in the tree.

    Raises:
        SourceError: the build compiles none of the fork's sources, so the check would be meaningless.
    """
    build = configured.tree / "build"
    own, found = [], []
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        name = Path(entry["file"]).relative_to(configured.tree).as_posix()
        # A vectorized source is copied for each CPU capability: build/aten/[...]/cpu/Kernel.cpp.AVX2.cpp.
        if re.sub(r"\.cpp\.\w+\.cpp$", ".cpp", name.removeprefix("build/")) in configured.sources:
            own.append(entry["output"])
        elif name in generated:
            found.append(entry["output"])
    if not own and any(name.endswith(".cpp") for name in configured.sources):
        raise SourceError(f"{build}: it compiles none of the fork's sources")
    return [*own, *found]
