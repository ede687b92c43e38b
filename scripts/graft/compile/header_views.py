"""Headers that list operators, as needed by one source: the base's plus the new operators that it uses.

A source that uses no new operator is compiled with the base's own headers. Adding an operator changes these headers in
the wheel, but recompiles only the sources that use it, and each object depends only on its own inputs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ..codegen import OPERATOR_HEADERS
from ..core.files import write_if_changed

# Headers with a function for each operator, their namespace, and the kind of fragments added there.
_OF_FUNCTIONS = (
    ("RedispatchFunctions", "at::redispatch", "redispatch"),
    ("VmapGeneratedPlumbing", "at::functorch", "plumbing"),
)

_WORD = re.compile(r"[A-Za-z_]\w*")


class Views:
    """The header views of one build: folders below ``folder`` with headers. They are made of those of ``base`` and of
    the generator's ``fragments``, a file with the parts of each new operator.
    """

    def __init__(self, base: Path, fragments: Path, folder: Path) -> None:
        self._base = base
        self._folder = folder
        self._fragments: dict[str, Any] = json.loads(fragments.read_text(encoding="utf-8"))
        self._roots = {name: root for root, each in self._fragments.items() for name in each["names"]}

    def is_new(self, operator: str) -> bool:
        """Return whether the native folder adds an operator, which is named with or without overload."""
        return operator.partition(".")[0] in self._fragments

    def of(self, text: str) -> Path | None:
        """Return the folder of headers that a source with this text must search before the base's, or None."""
        roots = sorted({self._roots[word] for word in _WORD.findall(text) if word in self._roots})
        if not roots:
            return None
        files = self._files(roots)
        digest = hashlib.sha256("\0".join([*files, *files.values()]).encode()).hexdigest()[:16]
        for name, content in files.items():
            write_if_changed(self._folder / digest / name, content)
        return self._folder / digest

    def _files(self, roots: list[str]) -> dict[str, str]:
        chosen = [self._fragments[root] for root in roots]
        files = {
            f"ATen/{name}.h": self._behind(name, "".join(f"#include <ATen/ops/{root}{suffix}.h>\n" for root in roots))
            for name, suffix in OPERATOR_HEADERS.items()
        }
        for name, namespace, kind in _OF_FUNCTIONS:
            functions = "\n".join(text for each in chosen for text in each[kind])
            files[f"ATen/{name}.h"] = self._behind(name, f"namespace {namespace} {{\n{functions}\n}}\n")
        if any(each["declarations"] for each in chosen):
            methods = [root for root, each in zip(roots, chosen, strict=True) if each["declarations"]]
            includes = "".join(f"#include <ATen/ops/{root}_ops.h>\n" for root in methods)
            files["ATen/MethodOperators.h"] = self._behind("MethodOperators", includes)
            files["ATen/core/TensorBody.h"] = self._tensor_body(chosen)
        return files

    def _behind(self, name: str, text: str) -> str:
        return f"#pragma once\n#include_next <ATen/{name}.h>\n{text}"

    def _tensor_body(self, chosen: Iterable[Mapping[str, list[str]]]) -> str:
        """Return the base's TensorBody.h with the methods of the selected operators."""
        text = (self._base / "torch/include/ATen/core/TensorBody.h").read_text(encoding="utf-8")
        for kind in ("declarations", "definitions"):
            addition = "".join(f"{method}\n" for each in chosen for method in each[kind])
            following = self._following[kind]
            head, found, tail = text.rpartition(following)
            assert found, f"TensorBody.h differs from its template after its {kind} of methods"
            text = f"{head}\n{addition}{following}{tail}"
        return text

    @cached_property
    def _following(self) -> dict[str, str]:
        """The text after the methods in TensorBody.h, from torchgen's template."""
        template = (self._base / "torchgen/packaged/ATen/templates/TensorBody.h").read_text(encoding="utf-8")
        return {
            kind: template.partition(f"${{tensor_method_{kind}}}")[2].partition("$")[0]
            for kind in ("declarations", "definitions")
        }
