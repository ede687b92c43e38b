"""The parts that each new operator adds to headers that list operators.

A kernel that calls no new operator is compiled with the base's own headers, so adding an operator does not recompile
it. Other kernels are compiled with headers that contain only the operators they call.
"""

from __future__ import annotations

import json
from typing import Any

from torchgen.gen import ComputeRedispatchFunction, ComputeTensorMethod
from torchgen.gen_vmap_plumbing import ComputeBatchRulePlumbing
from torchgen.model import NativeFunction
from torchgen.utils import Target

from . import FRAGMENTS
from .operators import Operators
from .writer import Output


def generate_fragments(operators: Operators, out: Output) -> None:
    """Write ``fragments.json``: for each new root name its C++ names and its parts of headers.

    ``names`` are the identifiers, ``declarations`` and ``definitions`` those of methods in TensorBody.h, and
    ``plumbing`` and ``redispatch`` the functions in VmapGeneratedPlumbing.h and RedispatchFunctions.h.
    """
    found: dict[str, dict[str, Any]] = {}
    by_root: dict[str, list[NativeFunction]] = {}
    for f in operators.functions:
        if f.root_name in operators.new_root_names:
            by_root.setdefault(f.root_name, []).append(f)
    declare = ComputeTensorMethod(target=Target.DECLARATION, static_dispatch_backend_indices=[])
    define = ComputeTensorMethod(target=Target.DEFINITION, static_dispatch_backend_indices=[])
    for root, functions in by_root.items():
        new = [f for f in functions if operators.is_new(f)]
        found[root] = {
            "names": sorted(name for name, of in operators.roots_by_name.items() if of == root),
            "declarations": [text for f in new if (text := declare(f))],
            "definitions": [text for f in new if (text := define(f))],
            "plumbing": [text for f in new if (text := ComputeBatchRulePlumbing()(f))],
            "redispatch": [text for f in new if (text := ComputeRedispatchFunction()(f))],
        }
    out(out.folder / FRAGMENTS, json.dumps(found, indent=1, sort_keys=True))
