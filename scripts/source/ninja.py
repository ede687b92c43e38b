"""PyTorch's own compile commands, run by ninja in ``build/`` of the tree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..common.console import StepLine
from ..common.errors import CompileError
from ..common.process import follow
from ..compile import blame
from .configure import Configured
from .placing import NATIVE

# What CMake calls the runs of the tree's generators (cmake/Codegen.cmake, caffe2/CMakeLists.txt).
GENERATORS = ("ATEN_CPU_FILES_GEN_TARGET", "generate-torch-sources")

# Done, of how many, and the time that is left as ninja reckons it from earlier builds and from this one.
_STATUS = "[%f/%t, %W left] "
_IS_STATUS = re.compile(r"\[\d+/\d+, .*? left\] ")
_COMMAND = re.compile(r"^(/\S*|\w+=\S+|:) .* && |^\S*/(ccache|g\+\+|gcc|c\+\+|cc|python\S*|cmake) ")

# So many lines of compilers' messages are shown; the first ones matter.
_SHOWN = 60


def ninja(configured: Configured, jobs: int, line: StepLine, targets: Sequence[str] = ()) -> int:
    """Build ``targets``, or everything; return how many commands were run.

    What is done is kept if this is interrupted, and the next call goes on there.

    Args:
        configured: the tree.
        jobs: how many commands may run at once.
        line: shows the progress.
        targets: by their names in build.ninja.

    Raises:
        CompileError: with the first messages, naming the native folder's own files.
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
            messages(output, configured) or "ninja failed and printed nothing",
            todo="fix the source named above and build again; what did compile is kept",
        )
    return finished


def shortened(status: str) -> str:
    """A line of progress without the long names that CMake gives to generating commands."""
    progress, _, what = status.strip().partition("] ")
    return f"{progress}] {what.rsplit('/', 1)[-1] if 'Building' in what else what[:60]}"


def messages(output: Sequence[str], configured: Configured) -> str:
    """The messages of compilers and generators, without the commands that ninja repeats."""
    kept = [text for text in output if not text.startswith("ninja: ") and not _COMMAND.search(text)]
    text = "".join(kept[:_SHOWN]).strip()
    for name in configured.sources:
        if name.startswith(f"{NATIVE}/"):
            theirs = configured.native / name.removeprefix(f"{NATIVE}/")
            # As seen from build/, where compilers run, or by the copy for a CPU capability, which includes it.
            for path in (f"../{name}", str(configured.tree / name)):
                text = text.replace(f"{path}:", f"{theirs}:")
    return blame.of_compiler(text, configured.native)
