"""``make check ARGS="--source --syntax"``: check that the folder's sources are valid C++ in a source tree, without
configuring or building it.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..compile.messages import named
from ..core.console import StepLine, Steps, say
from ..core.errors import BuildError, CommandError, MissingError
from ..core.files import delete
from ..core.layout import HOME, SOURCES
from ..core.process import UNTRANSLATED, run
from ..cpp.includes import PLACE, search_flags
from ..inputs.snapshot import Snapshot
from ..inputs.toolchain import Toolchain
from ..options import Request
from .apply import make_commits, series_for
from .cache import read_inputs
from .fetch import fetch_to_build
from .tree import count, open_tree

# Folders with headers, and with the generators of other headers.
FOLDERS = ("aten/src", "c10", "torch", "torchgen", "tools")
# ``_OWN`` contains the native folder, to tell messages about its files from those about the tree's. ``_INCLUDED`` are
# searched after it.
_OWN, _INCLUDED = "own", ("include", "build/aten/src", "aten/src", ".")

# A header that the tree includes, but does not contain; official wheels do.
_SLEEF = "sleef.h"

# Values of CMake's variables in headers, other than 0.
_CONFIGURED = {"AT_PARALLEL_OPENMP": "1"}

# The generators' commands of the tree's build, with the arguments that matter.
_ATEN, _AUTOGRAD = "build/aten/src/ATen", "torch/csrc/autograd/generated"
_GENERATE_ATEN = ["--source-path", "aten/src/ATen", "--per-operator-headers", "--generate", "headers", "sources"]
_GENERATE_AUTOGRAD = f"""
from tools.autograd.gen_autograd import gen_autograd, gen_autograd_python
from torchgen.selective_build.selector import SelectiveBuilder
yaml = [f"aten/src/ATen/native/{{name}}.yaml" for name in ("native_functions", "tags")]
gen_autograd(*yaml, "{_AUTOGRAD}", "tools/autograd", SelectiveBuilder.get_nop_selector())
gen_autograd_python(*yaml, "{_AUTOGRAD}", "tools/autograd")
"""


def check_syntax(request: Request) -> None:
    """Parse each source of the native folders, for each CPU capability, with the headers of the pin's source tree."""
    with read_inputs(request.layout) as (snapshot, cache), tempfile.TemporaryDirectory(prefix="graft-") as name:
        steps, scratch, folder = Steps(), Path(name), cache.folder / "syntax"
        with steps.step("fetch the sources") as line:
            path = fetch_to_build(snapshot.pin, cache, request.source, line)
        with steps.step("apply patches and operators"):
            tree = open_tree(path, snapshot.pin)
            stack = make_commits(tree, series_for(tree, snapshot), snapshot, scratch)
        with steps.step("generate headers"):
            delete(folder)
            stack.lay_out(FOLDERS, folder)
            run_generators(folder)
            configure_headers(folder, snapshot.toolchain)
        with steps.step("parse") as line:
            failed = parse(folder, snapshot, request.jobs, line)
    version = snapshot.pin.version.release
    if failed:
        raise BuildError(
            "\n".join(failed),
            cause=f"PyTorch {version} lacks it, or has it in another form",
            todo="use what all releases have, or ask for the release with TORCH_VERSION_MAJOR and TORCH_VERSION_MINOR "
            "(torch/version.h)",
        )
    say(f"{request.layout.title}: valid C++ in PyTorch {version}; {sum(steps.seconds.values()):.0f} s in all")


def run_generators(folder: Path) -> None:
    """Run the generators of the tree in ``folder`` like its build. Raise BuildError if they fail."""
    for name in (f"{_ATEN}/core", _AUTOGRAD):
        (folder / name).mkdir(parents=True, exist_ok=True)
    try:
        run([sys.executable, "-m", "torchgen.gen", *_GENERATE_ATEN, "--install_dir", _ATEN], cwd=folder)
        run([sys.executable, "-c", _GENERATE_AUTOGRAD], cwd=folder, env={"PYTHONPATH": str(folder)})
    except CommandError as error:
        raise BuildError(f"{folder}: the tree's generators fail", cause=error.cause) from error


def configure_headers(folder: Path, toolchain: Toolchain) -> None:
    """Write the headers that CMake makes from templates, with everything optional off. Copy sleef.h from an official
    wheel unless the system has it. Raise MissingError if neither does.
    """
    for template in folder.rglob("*.h.in"):
        text = re.sub(r"^#cmakedefine01 (\w+).*$", r"#define \1 0", template.read_text(encoding="utf-8"), flags=re.M)
        text = re.sub(r"^#cmakedefine\b.*\n", "", text, flags=re.M)
        text = re.sub(r"@(\w+)@", lambda match: _CONFIGURED.get(match[1], "0"), text)
        template.with_suffix("").write_text(text, encoding="utf-8")
    (folder / "include").mkdir()
    if run([toolchain.compiler, "-E", "-xc++", "-"], stdin=f"#include <{_SLEEF}>", check=False).returncode:
        headers = sorted(HOME.glob(f"*/*/base/tree/torch/include/{_SLEEF}"))
        if not headers:
            raise MissingError(
                f"{_SLEEF}: no such header, which sources in cpu/ include",
                todo="`apt-get install libsleef-dev`, or run `make patch-and-build` first, whose base has it",
            )
        shutil.copyfile(headers[0], folder / "include" / _SLEEF)


def parse(folder: Path, snapshot: Snapshot, jobs: int, line: StepLine) -> list[str]:
    """Parse the native folders' sources as the tree's build compiles them: those below ``cpu/`` once for each CPU
    capability. Return the first messages about each source that is not valid.
    """
    own = folder / _OWN / PLACE
    own.parent.mkdir(parents=True)
    natives, toolchain = snapshot.natives, snapshot.toolchain
    own.symlink_to(snapshot.work / SOURCES)
    each_capability = [toolchain.capability_flags(capability) for capability in toolchain.capabilities]
    units: list[tuple[Path, list[str]]] = [(name, []) for name in natives.sources]
    units += [(name, flags) for name in natives.vectorized for flags in each_capability]

    def messages(unit: tuple[Path, list[str]]) -> str:
        search = [*search_flags(folder / _OWN), *(f"-I{folder / name}" for name in _INCLUDED)]
        flags = [*toolchain.flags, *unit[1], *search]
        options = [*flags, "-w", "-fsyntax-only", "-fmax-errors=3"]
        done = run([toolchain.compiler, *options, own / unit[0]], env=UNTRANSLATED, check=False)
        line.update(unit[0].name)
        return named(done.stdout.strip(), natives, own) if done.returncode else ""

    failed = dict[Path, str]()
    with ThreadPoolExecutor(jobs) as pool:
        for (name, _), text in zip(units, pool.map(messages, units), strict=True):
            if text:
                failed.setdefault(name, text)
    line.note = count(len(units), "unit")
    return list(failed.values())
