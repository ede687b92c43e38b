"""What PyTorch has: read from the text of the base's files, since parsing everything would take seconds."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

import yaml
from torchgen.gen import parse_tags_yaml
from torchgen.model import BackendMetadata, DispatchKey, FunctionSchema, Location, NativeFunction, OperatorName

from ..inputs.entries import Loader, texts_of_entries
from .cplusplus import Definition, read_text
from .files import CPLUSPLUS
from .signatures import Signature

Kernels = dict[DispatchKey, dict[OperatorName, BackendMetadata]]

_PACKAGED = "torchgen/packaged"


class BaseOperators:
    """The operators and names of the base.

    Args:
        tree: the unpacked base.
    """

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self._functions = texts_of_entries(tree / _PACKAGED / "ATen/native/native_functions.yaml")
        heads = {name: text.partition("\n")[0] for name, text in self._functions.items()}
        self.schemas: dict[str, str] = {name: head.partition(": ")[2].strip() for name, head in heads.items()}
        self.base_names = {name.partition(".")[0] for name in self.schemas}
        self.tags: set[str] = parse_tags_yaml(str(tree / _PACKAGED / "ATen/native/tags.yaml"))
        self.derivatives = set(texts_of_entries(tree / _PACKAGED / "autograd/derivatives.yaml"))
        self._autograd = tree / "torch/include/torch/csrc/autograd"

    def schemas_like(self, base_name: str) -> list[FunctionSchema]:
        """Return the schemas of ``base_name``: all overloads, including in-place variants."""
        wanted = {base_name, f"{base_name}_"}
        return [
            FunctionSchema.parse(schema) for name, schema in self.schemas.items() if name.partition(".")[0] in wanted
        ]

    def functions_like(self, base_name: str) -> list[tuple[NativeFunction, Kernels]]:
        """Return the functions of ``base_name``, parsed by torchgen."""
        if base_name not in self.base_names:
            return []
        wanted = {f"{base_name}{suffix}" for suffix in ("", "_", "_copy", "_copy_")}
        texts = [text for name, text in self._functions.items() if name.partition(".")[0] in wanted]
        fields = [yaml.load(text, Loader)[0] for text in texts]
        return [NativeFunction.from_yaml(f, Location("native_functions.yaml", 0), self.tags, set()) for f in fields]

    @cached_property
    def formula_words(self) -> set[str]:
        """Identifiers in the headers that formulas are compiled with."""
        core = [self.tree / f"torch/include/ATen/core/{name}" for name in ("TensorBody.h", "TensorBase.h")]
        autograd = [self._autograd / name for name in ("FunctionsManual.h", "VariableTypeUtils.h", "saved_variable.h")]
        texts = [path.read_text(encoding="utf-8") for path in (*core, *autograd)]
        functions = self.base_names | {f"{name}_symint" for name in self.base_names}
        return functions.union(*(re.findall(r"[A-Za-z_]\w*", text) for text in texts))

    @cached_property
    def formula_functions(self) -> list[Definition]:
        """The functions that PyTorch provides for formulas, in addition to its operators."""
        path = self._autograd / "FunctionsManual.h"
        return read_text(path, path.read_text(encoding="utf-8")).declarations

    def says(self, word: str) -> bool:
        """Return whether a header of PyTorch contains ``word``, or pastes it together in a macro."""
        pasted = (prefix for prefix in self._pasting if word.startswith(prefix) and word != prefix)
        names = [word, *(word.removeprefix(prefix) for prefix in pasted)]
        return any(re.search(rb"\b%s\b" % name.encode(), self._headers) for name in names)

    @cached_property
    def _headers(self) -> bytes:
        headers = (path for path in (self.tree / "torch/include").rglob("*") if path.suffix in CPLUSPLUS)
        return b"\n".join(path.read_bytes() for path in headers)

    @cached_property
    def _pasting(self) -> set[str]:
        """The text before `##` in a macro, for example the `to` of `to##name`, which makes `toFloat`."""
        return {prefix.decode() for prefix in re.findall(rb"\b(\w+)##", self._headers)}

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

    def kernels_named(self, name: str) -> list[Signature]:
        """Return the signatures of at::native's functions called ``name``, as declared in PyTorch's headers."""
        declared = self._declarations.get(name, [])
        found = [d for line in declared for d in read_text(Path(f"{name}.h"), line).declarations]
        return [Signature(str(d), d.returns, d.parameters) for d in found]

    @cached_property
    def _declarations(self) -> dict[str, list[str]]:
        headers = (self.tree / "torch/include/ATen/ops").glob("*_native.h")
        found: dict[str, list[str]] = {}
        for line, name in re.findall(
            r"^(TORCH_API .*?(\w+)\(.*\);)$", "".join(h.read_text(encoding="utf-8") for h in headers), re.M
        ):
            found.setdefault(name, []).append(line)
        return found
