"""``make bench-peers``: an operator as text in a running process, by ``graft.load_inline`` and by PyTorch's
``load_inline``: the time of the first, of an edit, and of a call. The first of Graft's is drawn.

The Python of an environment with the official torch runs this. Each measurement has a process and cache folders of its
own. It prints JSON.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.utils import cpp_extension

from ..stopwatch import Stopwatch
from ..stopwatch import measured as timed
from ..timeline import timeline
from .peers import costs

_SCHEMA = "peers_plus(Tensor self, Tensor other) -> Tensor"
_FORMULA = f"- name: {_SCHEMA}\n  self: grad * 2\n  other: grad\n  result: auto_linear\n"
_KERNEL = "Tensor peers_plus(const Tensor& self, const Tensor& other) {{\n  return other.add(self, 2){};\n}}\n"
# The least that binds a function.
_HEADERS = "#include <ATen/core/Tensor.h>\n#include <torch/csrc/Exceptions.h>\n#include <torch/csrc/utils/pybind.h>\n"

# How often each way is measured.
_ROUNDS = 3

# The text behind the kernel's call, and what the kernel then gives for ones.
_FIRST, _EDIT = ("", 3), (".add(1)", 4)

_Function = Callable[[Tensor, Tensor], Tensor]


def by_graft(more: str) -> _Function:
    """Return the operator, with a derivative formula."""
    import graft

    return graft.load_inline(_SCHEMA, derivatives=_FORMULA, cpp=_KERNEL.format(more)).peers_plus


def by_torch(more: str, headers: str = "", **options: bool) -> _Function:
    """Return a function of an extension module. ATen's functions that it calls have derivatives."""
    source = f"{headers}using at::Tensor;\n{_KERNEL.format(more)}"
    module = cpp_extension.load_inline("peers_inline", source, functions=["peers_plus"], **options)
    return module.peers_plus


WAYS: dict[str, Callable[[str], _Function]] = {
    "graft": by_graft,
    "typed": by_torch,
    "pch": partial(by_torch, use_pch=True),
    "no headers": partial(by_torch, headers=_HEADERS, no_implicit_headers=True),
}


class _Steps(logging.Handler):
    """Receives what Graft says about a build: the seconds of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if step := re.search(r"(generate|compile and link|compose): .*?([\d.]+) s(?: \(|$)", record.getMessage()):
            self.seconds[step[1]] = float(step[2])


def measured(way: str, picture: str) -> dict[str, float]:
    """Measure in this process, which must not have built an operator before. Draw Graft's first build."""
    cpp_extension.remove_extension_h_precompiler_headers()  # they are in torch's own folder
    (logger := logging.getLogger("graft")).addHandler(steps := _Steps())
    logger.setLevel(logging.INFO)
    first, function = _timed(way, *_FIRST)
    if way == "graft":
        assert steps.seconds, "Graft's progress has other words"
        (log,) = Path(os.environ["GRAFT_HOME"]).glob("*/*/work-*/.ninja_log")
        Path(picture).write_text(timeline(log.read_text(encoding="utf-8"), steps.seconds, first.wall), encoding="utf-8")
    calls = costs(function)
    edit, _ = _timed(way, *_EDIT)
    cpp_extension.remove_extension_h_precompiler_headers()
    return {"first": first.wall, "first cpu": first.cpu, "edit": edit.wall, "edit cpu": edit.cpu, **calls}


def _timed(way: str, more: str, value: int) -> tuple[Stopwatch, _Function]:
    """Return the time until the function gives a value, and the function."""
    ones = torch.ones(1)
    with timed() as taken:
        function = WAYS[way](more)
        found = function(ones, ones).item()
    assert found == value, f"{way}: {found} instead of {value}"
    return taken, function


def _in_fresh_process(way: str, picture: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        caches = {"GRAFT_HOME": f"{folder}/graft", "TORCH_EXTENSIONS_DIR": f"{folder}/torch"}
        caches["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # ninja
        command = [sys.executable, "-m", __spec__.name, picture, way]
        done = subprocess.run(command, env={**os.environ, **caches}, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"{way}: {found}", flush=True)
    return found


def main(picture: str, way: str = "") -> None:
    """Measure all ways in turn, several times, or one in this process. Print the results; draw into ``picture``."""
    if way:
        print(json.dumps(measured(way, picture)))
        return
    rounds = [{way: _in_fresh_process(way, picture) for way in WAYS} for _ in range(_ROUNDS)]
    print(json.dumps({way: [each[way] for each in rounds] for way in WAYS}))


if __name__ == "__main__":
    main(*sys.argv[1:])
