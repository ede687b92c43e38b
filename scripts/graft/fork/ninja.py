"""Run PyTorch's own compile commands with ninja in ``build/`` of the tree."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from ..compile import blame
from ..core.console import StepLine
from ..core.errors import CompileError, SourceError
from ..core.process import follow, run
from .configure import Configured
from .placing import NATIVE
from .tree import count

# The names of the tree's generators in CMake (cmake/Codegen.cmake, caffe2/CMakeLists.txt).
GENERATORS = ("ATEN_CPU_FILES_GEN_TARGET", "generate-torch-sources")

# Finished commands, their total number, and ninja's estimate of the remaining time.
_STATUS = "[%f/%t, %W left] "
_IS_STATUS = re.compile(r"\[\d+/\d+, .*? left\] ")
_COMMAND = re.compile(r"^(/\S*|\w+=\S+|:) .* && |^\S*/(ccache|g\+\+|gcc|c\+\+|cc|python\S*|cmake) ")

# Fewer objects than this do not show how long the others take.
_FEWEST = 50

# The number of lines of compilers' messages shown; the first ones matter most.
_SHOWN = 60


def ninja(configured: Configured, jobs: int, line: StepLine, targets: Sequence[str] = ()) -> int:
    """Build ``targets``, or everything. Return the number of commands run.

    After an interruption, the next call continues with what is left.

    Args:
        configured: the configured tree.
        jobs: the maximum number of commands to run at once.
        line: shows the progress.
        targets: names in build.ninja.

    Raises:
        CompileError: the first messages, with paths in the native folder.
    """
    output: list[str] = []
    finished = 0

    def read(text: str) -> None:
        nonlocal finished
        if _IS_STATUS.match(text):
            finished += 1
            line.update(shortened(text))
        else:
            output.append(text)

    command: list[str | Path] = ["ninja", "-C", configured.tree / "build", "-j", str(jobs), "-k", "0", *targets]
    if follow(command, read, env={**configured.variables, "NINJA_STATUS": _STATUS}) != 0:
        raise CompileError(
            messages(output, configured) or "ninja failed without a message",
            todo="fix the source named above and build again; compiled files are kept",
        )
    return finished


def objects_of(configured: Configured, generated: Sequence[str] = ()) -> list[str]:
    """Return the object files of the fork's own sources, and of generated sources.

    Args:
        configured: the configured tree.
        generated: generated sources, by name in the tree.

    Raises:
        SourceError: the build compiles none of the fork's sources.
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


def what_is_left(configured: Configured, jobs: int) -> str:
    """Return how many commands a build that was begun has left, and about how long they take; empty if it is new.

    The time is that of the objects compiled so far, whose log ninja keeps.
    """
    build = configured.tree / "build"
    log = (build / ".ninja_log").read_text(encoding="utf-8") if (build / ".ninja_log").is_file() else ""
    compiled = re.findall(r"^(\d+)\t(\d+)\t.*\.o\t", log, re.M)
    if len(compiled) < _FEWEST:
        return ""
    seconds = sum(int(end) - int(start) for start, end in compiled) / len(compiled) / 1000
    plan = run(["ninja", "-C", build, "-n"], env=configured.variables, check=False).stdout
    left = next((int(total) for total in re.findall(r"^\[1/(\d+)\]", plan, re.M)), 0)
    minutes = max(1, round(left * seconds / jobs / 60))
    return f"{count(left, 'command')} left, about {count(minutes, 'minute')}" if left else ""


def shortened(status: str) -> str:
    """Shorten a line of progress: CMake gives generating commands long names."""
    progress, _, what = status.strip().partition("] ")
    return f"{progress}] {what.rsplit('/', 1)[-1] if 'Building' in what else what[:60]}"


def messages(output: Sequence[str], configured: Configured) -> str:
    """Return the messages of compilers and generators without the commands that ninja repeats."""
    kept = [text for text in output if not text.startswith("ninja: ") and not _COMMAND.search(text)]
    text = "".join(kept[:_SHOWN]).strip()
    for name in configured.sources:
        if name.startswith(f"{NATIVE}/"):
            theirs = configured.native / name.removeprefix(f"{NATIVE}/")
            # As seen from build/, where compilers run, or in the copy for a CPU capability, which includes it.
            for path in (f"../{name}", str(configured.tree / name)):
                text = text.replace(f"{path}:", f"{theirs}:")
    return blame.of_compiler(text, configured.native)
