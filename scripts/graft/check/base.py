"""PyTorch's operators as torchgen parses them, the text of their entries, and names in its Python files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ..base.callers import demangled, direct_callers
from ..codegen.base_operators import known_operators, known_tags
from ..codegen.operators import Operators
from ..codegen.torchgen import Kernels, NativeFunction
from ..cpp.functions import Definition
from ..cpp.includes import INCLUDE, reached
from ..cpp.sources import read_text
from ..inputs.entries import fields_of, read_entries, texts_of_entries
from ..inputs.helpers import HEADER, MANGLED, fixed_functions
from ..inputs.merge import PACKAGED
from ..inputs.native import DERIVATIVES, FUNCTIONS

# The header of the operators' methods, which also has some that are written by hand.
_METHODS = "ATen/core/TensorBody.h"
# A name behind a type and before a parenthesis.
_DECLARED = re.compile(r"(?:(?!\breturn\b)\b\w+\s+|[>&*]\s*)(\w+)\s*\(")
# The headers that declare operators begin with these.
_OF_OPERATORS = ("ATen/ops/", "ATen/RedispatchFunctions.h", "torch/csrc/autograd/generated/")


class BaseOperators:
    """The operators and names of the base.

    Args:
        tree: the unpacked base.
        declared: a native_functions.yaml with operators that are defined elsewhere. They count as the base's.
    """

    def __init__(self, tree: Path, declared: Path | None = None) -> None:
        self.tree = tree
        self._functions = texts_of_entries(tree / PACKAGED[FUNCTIONS] / FUNCTIONS)
        self._functions |= texts_of_entries(declared) if declared else {}
        entries = read_entries(declared) if declared else []
        self.declared = {entry.operator for entry in entries}
        self._declared = Operators(tree, (), declared=entries).declared.functions if entries else []
        heads = {name: text.partition("\n")[0] for name, text in self._functions.items()}
        self.schemas: dict[str, str] = {name: head.partition(": ")[2].strip() for name, head in heads.items()}
        self.base_names = {name.partition(".")[0] for name in self.schemas}
        self.tags = known_tags(tree)
        self._words: set[str] = set()
        self._pasted: set[str] = set()
        self.derivatives = texts_of_entries(tree / PACKAGED[DERIVATIVES] / DERIVATIVES)

    def fields(self, operator: str) -> dict[str, Any]:
        """Return the values of PyTorch's entry for an operator."""
        return fields_of(self._functions[operator])

    def formulas(self, operator: str) -> dict[str, Any]:
        """Return the values of PyTorch's entry in derivatives.yaml for an operator; empty if it has none."""
        return fields_of(self.derivatives[operator]) if operator in self.derivatives else {}

    def function(self, operator: str) -> NativeFunction:
        """Return an operator of PyTorch."""
        functions, _ = self._written
        return next(f for f in functions[operator.partition(".")[0]] if str(f.func.name) == operator)

    def functions_like(self, base_name: str) -> list[tuple[NativeFunction, Kernels]]:
        """Return the functions of ``base_name`` that the YAML has, in any variant, with the kernels of each."""
        functions, kernels = self._written
        wanted = [f"{base_name}{suffix}" for suffix in ("", "_", "_copy", "_copy_")]
        return [
            (f, {key: {f.func.name: of_key[f.func.name]} for key, of_key in kernels.items() if f.func.name in of_key})
            for name in wanted
            for f in functions.get(name, [])
        ]

    def kernels(self, operator: str) -> dict[str, str]:
        """Return the kernels of an operator by dispatch key, with those that torchgen generates (``ufunc_...``)."""
        like = self.functions_like(operator.partition(".")[0])
        pairs = [pair for f, kernels in like if str(f.func.name) == operator for pair in kernels.items()]
        return {str(key): kernel.kernel for key, of_key in pairs for kernel in of_key.values()}

    @cached_property
    def _written(self) -> tuple[dict[str, list[NativeFunction]], Kernels]:
        functions, kernels = known_operators(self.tree).written
        by_name: dict[str, list[NativeFunction]] = {}
        for f in (*functions, *self._declared):
            by_name.setdefault(str(f.func.name.name), []).append(f)
        return by_name, kernels

    @cached_property
    def torch_names(self) -> set[str]:
        """Names in ``torch`` that are not operators of ATen: modules, classes, types, Python functions."""
        torch = self.tree / "torch"
        names = {path.name for path in torch.iterdir() if (path / "__init__.py").is_file()}
        names |= {path.stem for path in torch.glob("*.py")}
        listed = re.search(r"^__all__ = \[(.*?)^\]", (torch / "__init__.py").read_text(encoding="utf-8"), re.M | re.S)
        names |= set(re.findall(r'"(\w+)"', listed[1])) if listed else set()
        return names - self.base_names

    @cached_property
    def tensor_names(self) -> set[str]:
        """Attributes of ``torch.Tensor`` that are not operators of ATen."""
        text = (self.tree / "torch/_tensor.py").read_text(encoding="utf-8")
        names = set(re.findall(r"^    (?:def )?([a-z_]\w*)(?:\(| =)", text, re.M))
        stub = (self.tree / "torch/_C/__init__.pyi").read_text(encoding="utf-8")
        body = re.search(r"^class TensorBase.*?:\n(.*?)(?=^\S)", stub, re.M | re.S)
        if body:
            names |= set(re.findall(r"^    (?:def )?(\w+)(?:\(|:)", body[1], re.M))
        return names - self.base_names

    def functions_named(self, base_name: str) -> list[NativeFunction]:
        """Return the functions of ``base_name``, without in-place variants but with those that torchgen generates."""
        return self._functions_by_name.get(base_name, [])

    @cached_property
    def _functions_by_name(self) -> dict[str, list[NativeFunction]]:
        found: dict[str, list[NativeFunction]] = {}
        for f in (*known_operators(self.tree).functions, *self._declared):
            found.setdefault(str(f.func.name.name), []).append(f)
        return found

    @cached_property
    def formula_functions(self) -> dict[str, list[Definition]]:
        """The functions that PyTorch provides for formulas in addition to its operators, by name."""
        path = self.tree / "torch/include" / HEADER
        found: dict[str, list[Definition]] = {}
        for declared in read_text(path, path.read_text(encoding="utf-8")).declarations:
            found.setdefault(declared.name, []).append(declared)
        return found

    @cached_property
    def fixed_formula_functions(self) -> set[str]:
        """The formula functions that are inline, or in the code that torchgen writes for every operator."""
        return fixed_functions(self.tree)

    def calling(self, names: Iterable[str]) -> list[str]:
        """Return PyTorch's entries in derivatives.yaml with a formula that calls one of the functions ``names``."""
        called = re.compile(rf"\b(?:{'|'.join(names)})\(")
        return [operator for operator, text in self.derivatives.items() if called.search(text)]

    def callers_of_helpers(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return the callers of these formula functions in PyTorch's library, by the function with its parameters."""
        library = self.tree / "torch/lib/libtorch_cpu.so"
        called = [f"{MANGLED}{len(name)}{name}{end}" for name in names for end in "EI"]
        found = direct_callers(library, called) if called and library.is_file() else {}
        plain = demangled({*found, *(caller for callers in found.values() for caller in callers)}) if found else {}
        return {plain[symbol]: [plain[caller] for caller in callers] for symbol, callers in found.items()}

    def has_word(self, word: str) -> bool:
        """Return whether a header for formulas contains this word, or a macro that pastes it together."""
        while word not in self._words and (left := next(self._headers, None)) is not None:
            self._words.update(re.findall(r"[A-Za-z_]\w*", left))
            self._pasted.update(re.findall(r"\b(\w+)##", left))
        starts = [start for start in self._pasted if word.startswith(start)]
        return word in self._words or any(word.removeprefix(start) in self._words for start in starts)

    @cached_property
    def _headers(self) -> Iterator[str]:
        return self._texts()

    @cached_property
    def written_functions(self) -> set[str]:
        """The functions and methods that headers for formulas declare, but for what torchgen generates."""
        generated = (self.tree / f"torch/include/{_METHODS}").read_text(encoding="utf-8")
        template = (self.tree / PACKAGED[FUNCTIONS]).parent / "templates" / Path(_METHODS).name
        texts = [template.read_text(encoding="utf-8"), *(text for text in self._texts() if text != generated)]
        return {name for text in texts for name in _DECLARED.findall(re.sub(r"//.*", "", text))}

    def _texts(self) -> Iterator[str]:
        """Yield the texts of headers, those for formulas first. Headers of operators are left out."""
        include = self.tree / "torch/include"
        templates = self.tree / PACKAGED[DERIVATIVES] / "templates"
        waiting = [include / HEADER, *(include / f"ATen/core/{name}.h" for name in ("TensorBody", "TensorBase"))]
        waiting += [templates / name for name in ("Functions.cpp", "VariableType.cpp")]

        @cache
        def text(path: Path) -> str:
            return path.read_text(encoding="utf-8", errors="replace")

        def included(path: Path) -> Iterator[Path]:
            for name in INCLUDE.findall(text(path)):
                places = (path.parent / name, include / name, include / "torch/csrc/api/include" / name)
                if not name.startswith(_OF_OPERATORS):
                    yield from [each for each in places if each.is_file()][:1]

        yield from map(text, reached(waiting, included))

    def kernels_named(self, name: str) -> list[Definition]:
        """Return the declarations of at::native's functions called ``name`` in PyTorch's headers."""
        declared = self._declarations.get(name, [])
        return [d for line in declared for d in read_text(Path(f"{name}.h"), line).declarations]

    @cached_property
    def _declarations(self) -> dict[str, list[str]]:
        headers = (self.tree / "torch/include/ATen/ops").glob("*_native.h")
        found: dict[str, list[str]] = {}
        for line, name in re.findall(
            r"^(TORCH_API .*?(\w+)\(.*\);)$", "".join(h.read_text(encoding="utf-8") for h in headers), re.M
        ):
            found.setdefault(name, []).append(line)
        return found
