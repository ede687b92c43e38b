"""What can be wrong between ``dispatch:`` and the kernels, as far as the text of the sources tells."""

from __future__ import annotations

import re
from pathlib import Path

from torchgen.api.types import NativeSignature
from torchgen.context import native_function_manager
from torchgen.model import DispatchKey

from .base import BaseOperators
from .finding import Findings
from .functions import Function

# A wheel for CPUs has no registration for these, so nobody asks for the kernel.
_OTHER_DEVICES = ("CUDA", "MPS", "XPU", "HPU", "MTIA")

_SUFFIXES = (".cpp", ".h", ".hpp", ".cu", ".cuh")


def source_texts(native: Path) -> dict[Path, str]:
    """The sources of ``native``, without comments; line numbers stay."""
    files = [path for path in sorted(native.rglob("*")) if path.suffix in _SUFFIXES]
    return {path: without_comments(path.read_text(errors="replace")) for path in files}


def without_comments(text: str) -> str:
    """C++ without its comments, line breaks kept."""
    pattern = r'//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*")'
    return re.sub(pattern, lambda m: m[1] or "\n" * m[0].count("\n"), text, flags=re.S)


def check_kernels(functions: list[Function], texts: dict[Path, str], base: BaseOperators, findings: Findings) -> None:
    """Check that each kernel named in ``dispatch:`` is defined, and that each function defined is not PyTorch's."""
    everything = "\n".join(texts.values())
    for function in functions:
        for key, kernel, is_structured in wanted_kernels(function):
            short = kernel.rpartition("::")[2]
            defined = rf"TORCH_IMPL_FUNC\(\s*{short}\s*\)" if is_structured else rf"\b{short}\s*\("
            if re.search(defined, everything) or (not is_structured and short in base.native_kernels):
                continue
            if _may_be_made_by_a_macro(short, everything):
                continue
            place = function.entry.place("dispatch" if "dispatch" in function.entry.fields else "func")
            what = f"no file of the folder defines {kernel}, the kernel of {function.schema.name} for {key}"
            todo = f"define `{declaration(function, short, is_structured)}` in a .cpp file"
            findings.add(place, what, todo, is_warning=True)  # a macro may define it: the linker knows


def wanted_kernels(function: Function) -> list[tuple[DispatchKey, str, bool]]:
    """The kernels that an entry asks for: key, name with its namespace, and whether a structured one is meant."""
    found: list[tuple[DispatchKey, str, bool]] = []
    if "view_copy" in function.native.tags or "ufunc_inner_loop" in function.entry.fields:
        return found  # torchgen makes these
    for key, index in function.kernels.items():
        metadata = index.get(function.schema.name)
        if metadata and not str(key).endswith(_OTHER_DEVICES):
            found.append((key, f"{metadata.cpp_namespace}::{metadata.kernel}", metadata.structured))
    return found


def declaration(function: Function, kernel: str, is_structured: bool) -> str:
    """How the kernel is to be defined, as C++."""
    if is_structured:
        return f"TORCH_IMPL_FUNC({kernel})(...)"
    with native_function_manager(function.native):
        return NativeSignature(function.schema, symint="symint" in kernel).decl(name=kernel)


def _may_be_made_by_a_macro(name: str, text: str) -> bool:
    """Whether a macro of the folder pastes names together, so that its text does not tell what it defines."""
    return re.search(r"^\s*#\s*define\b[^\n]*(?:\\\n[^\n]*)*##", text, re.M) is not None
