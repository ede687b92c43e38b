"""Ask the dispatcher of an environment's torch what an extension registers, in a child process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..base.base import Base
from ..base.installed import Environment
from ..core.elf import ElfFile
from ..core.errors import CommandError, UsageError
from ..core.folders import PYTHON
from ..core.layout import Layout, store
from ..core.process import run
from ..core.wording import quoted
from ..inputs.pin import pin_of
from ..inputs.toolchain import find_toolchain
from .adopt_options import Asked

_HERE = Path(__file__).parent
_PROBE = _HERE / "templates/probe.cpp"


# Without this, `import torch` may load an extension, before ``child.py`` looks at the dispatcher.
ALONE = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def answer_of(
    program: str, request: Mapping[str, Any], python: str, paths: Sequence[Path] = ()
) -> tuple[dict[str, Any] | None, subprocess.CompletedProcess[str]]:
    """Run a program of this folder with the user's Python, with ``paths`` first on its import path. Return its answer,
    None if it wrote none, and the finished process.
    """
    env = ALONE | ({"PYTHONPATH": os.pathsep.join(map(str, paths))} if paths else {})
    with TemporaryDirectory(prefix="graft-adopt-") as top:
        asked, answer = Path(top, "request.json"), Path(top, "answer.json")
        asked.write_text(json.dumps(request), encoding="utf-8")
        done = run([python, _HERE / program, asked, answer], cwd=Path(top), env=env, check=False)
        return (json.loads(answer.read_text(encoding="utf-8")) if answer.is_file() else None), done


def ask(
    environment: Environment,
    base: Base,
    layout: Layout,
    asked: Asked,
    folder: Path,
    paths: Sequence[Path] = (),
    extensions: Sequence[str] = (),
) -> Mapping[str, Any]:
    """Import modules in a child process, then the ``extensions`` that they do not import. Return the answer of
    ``child.py``: the operators that they register. ``paths`` come first on the import path. The adopted ``folder`` may
    have fakes.

    Raises:
        UsageError: the modules cannot be imported.
    """
    modules = asked.modules
    request = {"modules": modules, "probe": str(_probe(base, layout)), "choices": asked.choices, "own": asked.own}
    request |= {"extensions": extensions, "python": str(folder / PYTHON)}
    found, done = answer_of("child.py", request, environment.python, paths)
    if found is None:
        raise UsageError(
            f"{' '.join(modules)}: the process that imported it ended with exit code {done.returncode}",
            cause=quoted(done.stdout.strip()[-2000:]) or "it printed nothing",
            todo=f"try `{environment.python} -c 'import {modules[0]}'`",
        )
    if error := found.get("error"):
        what = f"{' '.join(modules)}: {environment.python} cannot import it: {quoted(error)}"
        raise UsageError(what, todo=_remedy(found, modules[0], environment.python))
    return found


def _remedy(found: Mapping[str, Any], module: str, python: str) -> str:
    """Return the remedy for a failed import."""
    if meant := " or ".join(found["meant"]):
        return f"did you mean {meant}, the package of that distribution?"
    if missing := found["missing"]:
        top = module.partition(".")[0]
        own = "its name in Python is not always that of pip; a source tree is given by its folder"
        return f"install {missing}" if missing.partition(".")[0] != top else f"install it; {own}"
    if found["is_linked_otherwise"]:
        return "it was built for another torch: install it for this one, or adopt its source tree"
    return f"correct what it says: `{python} -c 'import {module}'` fails, too"


def _probe(base: Base, layout: Layout) -> Path:
    """Return the library that looks up operators' signatures. It is compiled once for each torch and toolchain."""
    toolchain = find_toolchain(pin_of(layout), layout.cxx)
    build = ElfFile(base.libraries / "libtorch_cpu.so").build_id
    parts = (_PROBE.read_text(encoding="utf-8"), toolchain.description, build)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    library = store() / f"probes/{key}.so"
    if library.is_file():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    flags = [flag for flag in toolchain.flags if not flag.startswith("-O")]
    linked = [f"-L{base.libraries}", "-ltorch_cpu", "-lc10"]
    with TemporaryDirectory(prefix=".probe-", dir=library.parent) as folder:
        made = Path(folder) / library.name
        command: list[str | Path] = [
            toolchain.compiler,
            *flags,
            "-O0",
            "-shared",
            f"-I{base.include}",
            _PROBE,
            "-o",
            made,
            *linked,
        ]
        try:
            run(command)
        except CommandError as error:
            error.todo = error.todo or "`graft adopt` compiles a file of its own with the headers of that torch"
            raise
        made.replace(library)
    return library
