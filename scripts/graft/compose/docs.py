"""Docstrings of the added operators in the form of PyTorch's own, appended to ``torch/_torch_docs.py`` and similar
files.

For operators of ``torch._C._fft`` etc., the public module adds name and docstring in one statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ..codegen.description import Bound

_FUNCTIONS = "torch/_torch_docs.py"
_METHODS = "torch/_tensor_docs.py"


def docstring(bound: Bound, folder: Path) -> str:
    """Return the docstring of ``bound``: its signatures, then the text of its file in the folder ``docs/``."""
    written = folder / f"{bound.name.removesuffix('_')}.rst"
    body = bound.reference
    if not body:
        body = _filled(written.read_text(encoding="utf-8"), bound.derived) if written.is_file() else bound.derived
    return f"{bound.signatures}\n\n{body.strip()}"


def _filled(text: str, derived: str) -> str:
    """Replace lines ``{name}`` in ``text`` by the schema's description of the argument, as PyTorch does."""
    told = {name: line for line, name in re.findall(r"^    ((\w+) \(.*)$", derived, re.M)}
    return re.sub(r"^(\s*)\{(\w+)\}\s*?$", lambda m: f"{m[1]}{told[m[2]]}" if m[2] in told else m[0], text, flags=re.M)


def docstring_texts(documented: Mapping[Bound, str]) -> dict[str, str]:
    """Return the code that sets docstrings and public names, by the file that it is appended to."""
    texts: dict[str, list[str]] = {}
    for bound, text in documented.items():
        doc = _literal(text)
        if bound.place.is_method:
            texts.setdefault(_METHODS, []).append(f'add_docstr_all("{bound.name}", {doc})\n')
        elif bound.place.name == "torch":
            texts.setdefault(_FUNCTIONS, []).append(f"add_docstr(torch.{bound.name}, {doc})\n")
        elif not bound.short.startswith("_"):
            file = _file_of(bound.public.rpartition(".")[0])
            texts.setdefault(file, [_import_of(bound)]).append(_public_function(bound, doc))
            if bound.place.name == "nn":
                stub = f"from torch._C._nn import {bound.name} as {bound.short}\n{_export(bound)}"
                texts.setdefault(f"{file}i", []).append(stub)
    return {name: "\n".join(parts) for name, parts in texts.items()}


def _file_of(module: str) -> str:
    path = module.replace(".", "/")
    return f"{path}.py" if module == "torch.nn.functional" else f"{path}/__init__.py"


def _import_of(bound: Bound) -> str:
    return f"from torch._C import _add_docstr, {bound.place.attribute}  # type: ignore[attr-defined]\n"


def _public_function(bound: Bound, doc: str) -> str:
    definition = f"{bound.short} = _add_docstr({bound.place.attribute}.{bound.name}, {doc})\n"
    return f"{definition}{_export(bound)}" if bound.place.has_all else definition


def _export(bound: Bound) -> str:
    return f'__all__ += ["{bound.short}"]\n'


def _literal(text: str) -> str:
    """Format a docstring as a Python literal."""
    is_plain = '"""' not in text and not text.endswith(("\\", '"'))
    return f'r"""\n{text}\n"""' if is_plain else repr(f"\n{text}\n")
