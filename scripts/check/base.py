"""What PyTorch has already: read from the base's text, since parsing all of it would take seconds."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from torchgen.gen import parse_tags_yaml
from torchgen.model import FunctionSchema

_PACKAGED = "torchgen/packaged"


class BaseOperators:
    """The operators and names of the base wheel.

    Args:
        tree: the laid-out base.
    """

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        functions = (tree / _PACKAGED / "ATen/native/native_functions.yaml").read_text()
        schemas = re.findall(r"^- func: (.+?)\s*$", functions, re.M)
        self.schemas: dict[str, str] = {schema.partition("(")[0]: schema for schema in schemas}
        self.base_names = {name.partition(".")[0] for name in self.schemas}
        self.tags: set[str] = parse_tags_yaml(str(tree / _PACKAGED / "ATen/native/tags.yaml"))
        derivatives = (tree / _PACKAGED / "autograd/derivatives.yaml").read_text()
        self.derivatives = set(re.findall(r"^- name: (\w+(?:\.\w+)?)\(", derivatives, re.M))
        self._formulas = derivatives

    def schemas_like(self, base_name: str) -> list[FunctionSchema]:
        """The schemas of ``base_name``: all its overloads, in-place variants included."""
        wanted = {base_name, f"{base_name}_"}
        return [
            FunctionSchema.parse(schema) for name, schema in self.schemas.items() if name.partition(".")[0] in wanted
        ]

    @cached_property
    def formula_words(self) -> set[str]:
        """Every identifier that PyTorch's own formulas, and what they are compiled with, know of."""
        include = self.tree / "torch/include"
        headers = ("FunctionsManual.h", "VariableTypeUtils.h", "saved_variable.h")
        texts = [self._formulas, *((include / "torch/csrc/autograd" / name).read_text() for name in headers)]
        texts += [(include / f"ATen/core/{name}").read_text() for name in ("TensorBody.h", "TensorBase.h")]
        functions = self.base_names | {f"{name}_symint" for name in self.base_names}
        return functions.union(*(re.findall(r"[A-Za-z_]\w*", text) for text in texts))

    @cached_property
    def torch_names(self) -> set[str]:
        """The names of ``torch`` that no operator of ATen stands behind: modules, classes, types, Python functions."""
        torch = self.tree / "torch"
        names = {path.name for path in torch.iterdir() if (path / "__init__.py").is_file()}
        names |= {path.stem for path in torch.glob("*.py")}
        listed = re.search(r"^__all__ = \[(.*?)^\]", (torch / "__init__.py").read_text(), re.M | re.S)
        names |= set(re.findall(r'"(\w+)"', listed[1])) if listed else set()
        return names - self.base_names

    @cached_property
    def tensor_names(self) -> set[str]:
        """The attributes of ``torch.Tensor`` that no operator of ATen stands behind."""
        text = (self.tree / "torch/_tensor.py").read_text()
        names = set(re.findall(r"^    (?:def )?([a-z_]\w*)(?:\(| =)", text, re.M))
        stub = (self.tree / "torch/_C/__init__.pyi").read_text()
        body = re.search(r"^class TensorBase.*?:\n(.*?)(?=^\S)", stub, re.M | re.S)
        if body:
            names |= set(re.findall(r"^    (?:def )?(\w+)(?:\(|:)", body[1], re.M))
        return names - self.base_names

    @cached_property
    def native_kernels(self) -> set[str]:
        """The functions of at::native that PyTorch's headers declare."""
        text = "".join(path.read_text() for path in (self.tree / "torch/include/ATen/ops").glob("*_native.h"))
        return set(re.findall(r"^TORCH_API .*?(\w+)\(", text, re.M))
