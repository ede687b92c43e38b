"""Attribute errors in generated code to entries of the native folder's YAML."""

from __future__ import annotations

import re
from pathlib import Path

from ..inputs.entries import Entry, read_entries
from ..inputs.native import DERIVATIVES


def of_compiler(output: str, native: Path) -> str:
    """Return the compiler's ``output`` with the names of the derivative formulas that did not compile."""
    functions = re.findall(r"^(?:generated|units)/\S+: In (?:member |static )*function '(.*)':$", output, re.M)
    blamed = filter(None, (formula_of(function, native) for function in functions))
    lines = [f"{e.file}:{e.line}: a formula of {e.operator} is not valid C++; the compiler says:" for e in blamed]
    return "\n".join([*dict.fromkeys(lines), output])


def formula_of(function: str, native: Path) -> Entry | None:
    """Return the entry of derivatives.yaml whose formulas the generated ``function`` contains, or None."""
    return next((entry for entry in read_entries(native / DERIVATIVES) if _compiles(function, entry.operator)), None)


def _compiles(function: str, operator: str) -> bool:
    """Return whether the generated ``function`` contains formulas of ``operator``."""
    name = re.search(
        r"::(\w+?)Backward\d*(?:_apply_functional|::apply\w*)?\(|VariableType::(?:\{anonymous\}::)?(\w+)\(", function
    )
    wanted = operator.replace(".", "_").replace("_", "").lower()
    return name is not None and (name[1] or name[2]).replace("_", "").lower() in (wanted, wanted + "out")
