"""Check that C++ sources do not use Python's API. Those of extensions do, but operators are compiled without it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..cpp.sources import Source
from . import Findings

_HEADERS = r'(?<=[<"])(?:Python\.h|pybind11/[\w/.]+|torch/python\.h|torch/csrc/utils/pybind\.h)(?=[>"])'

# Code that extensions contain, and the remedies.
_USES = {
    r"\bPYBIND11_MODULE\b|\bPyInit_\w+": "delete it: native_functions.yaml gives each operator its function in torch",
    r"\bpy::gil_scoped_release\b": "PyTorch releases the lock before it calls operators: delete it",
    rf"{_HEADERS}|\b(?:py|pybind11)::\w+": (
        "include <ATen/ATen.h>, or <torch/extension.h>, which has no Python here, and take tensors, numbers and lists "
        "as the schema says"
    ),
}


def check_python_api(sources: Iterable[Source], findings: Findings) -> None:
    """Report the first use in each source that no ``#if`` surrounds."""
    for source in sources:
        found = ((use, todo) for pattern, todo in _USES.items() for use in re.finditer(pattern, source.code))
        for use, todo in sorted(found, key=lambda each: each[0].start()):
            line = source.code.count("\n", 0, use.start()) + 1
            if source.is_compiled and not source.is_conditional(line):
                what = f"{use[0]}: operators are compiled without Python"
                findings.add("python-api", (source.path, line, 0), what, todo)
                break
