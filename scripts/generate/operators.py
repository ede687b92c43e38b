"""Which operators there are, and which of them are new."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from torchgen.api import cpp
from torchgen.api.autograd import NativeFunctionWithDifferentiabilityInfo, match_differentiability_info
from torchgen.gen import (
    get_grouped_by_view_native_functions,
    get_grouped_native_functions,
    parse_native_yaml,
    parse_tags_yaml,
)
from torchgen.model import (
    BackendIndex,
    DispatchKey,
    NativeFunction,
    NativeFunctionsGroup,
    NativeFunctionsViewGroup,
)
from torchgen.packaged.autograd.gen_python_functions import should_generate_py_binding
from torchgen.packaged.autograd.load_derivatives import load_derivatives
from torchgen.selective_build.selector import SelectiveBuilder


@dataclass(frozen=True)
class YamlFiles:
    """The YAML that torchgen reads."""

    native_functions: Path
    tags: Path
    derivatives: Path
    deprecated: Path

    @classmethod
    def below(cls, packaged: Path) -> YamlFiles:
        """The files of a ``torchgen/packaged`` folder."""
        return cls(
            packaged / "ATen/native/native_functions.yaml",
            packaged / "ATen/native/tags.yaml",
            packaged / "autograd/derivatives.yaml",
            packaged / "autograd/deprecated.yaml",
        )


# The device keys of a wheel without that device's library. torchgen's own command line leaves the same ones out
# (torchgen/gen.py, main).
ABSENT_BACKENDS = frozenset(
    {DispatchKey.MPS, DispatchKey.SparseMPS, DispatchKey.SparseCsrMPS, DispatchKey.XPU, DispatchKey.MTIA}
)


# The keys that get a <Key>Functions.h (torchgen/gen.py, main).
FUNCTIONS_KEYS = {
    DispatchKey.CPU,
    DispatchKey.CUDA,
    DispatchKey.CompositeImplicitAutograd,
    DispatchKey.CompositeImplicitAutogradNestedTensor,
    DispatchKey.CompositeExplicitAutograd,
    DispatchKey.CompositeExplicitAutogradNonFunctional,
    DispatchKey.Meta,
}


def qualified_name(f: NativeFunction) -> str:
    """``namespace::name.overload`` of ``f``."""
    return f"{f.namespace}::{f.func.name}"


Grouped: TypeAlias = NativeFunction | NativeFunctionsGroup


class Operators:
    """The merged operator set as torchgen sees it, and the part of it that is new.

    Args:
        yaml: the merged files.
        base_lines: how many lines of native_functions.yaml are the base's. What is defined behind them is new, and so
            is what torchgen generates from it.
    """

    def __init__(self, yaml: YamlFiles, base_lines: int) -> None:
        self.yaml = yaml
        self._base_lines = base_lines
        parsed = parse_native_yaml(str(yaml.native_functions), str(yaml.tags), set(ABSENT_BACKENDS))
        self.valid_tags: set[str] = parse_tags_yaml(str(yaml.tags))
        self.functions: list[NativeFunction] = list(parsed.native_functions)
        self.backend_indices: dict[DispatchKey, BackendIndex] = parsed.backend_indices
        self.grouped: list[Grouped] = list(get_grouped_native_functions(self.functions))
        self.view_groups = [
            g for g in get_grouped_by_view_native_functions(self.functions) if isinstance(g, NativeFunctionsViewGroup)
        ]
        self.new_functions = [f for f in self.functions if self.is_new(f)]
        self.new_root_names = frozenset(f.root_name for f in self.new_functions)

    def refuse_unsupported(self) -> None:
        """Refuse new operators that ask for what only an edit of PyTorch's own sources could give.

        Raises:
            ValueError: naming each of them, with its place.
        """
        faults = [
            f"{f.loc.file}:{f.loc.line}: {f.func.name}: manual_cpp_binding asks for a C++ function written by hand in "
            "PyTorch's sources, which a native folder cannot hold. Leave it out: the C++ function is generated then"
            for f in self.new_functions
            if f.manual_cpp_binding
        ]
        if faults:
            raise ValueError("\n".join(faults))

    def is_new(self, f: NativeFunction) -> bool:
        """Whether ``f`` is not in the base."""
        return f.loc.line > self._base_lines

    @cached_property
    def bindable(self) -> list[NativeFunction]:
        """The functions that get a Python binding (tools/autograd/gen_python_functions.py, gen)."""
        return [f for f in self.functions if should_generate_py_binding(f)]

    def new_grouped(self) -> list[Grouped]:
        """The groups that hold a new function. A group may hold old ones too: ``selector`` leaves those out."""
        return [
            g
            for g in self.grouped
            if any(self.is_new(f) for f in (g.functions() if isinstance(g, NativeFunctionsGroup) else [g]))
        ]

    def new_view_groups(self) -> list[NativeFunctionsViewGroup]:
        """The view groups (view, view_copy, view_inplace) that hold a new function."""
        return [g for g in self.view_groups if any(self.is_new(f) for f in g.functions())]

    def selector(self) -> SelectiveBuilder:
        """torchgen's own way to generate for some operators only, set to the new ones."""
        chosen = {
            "is_root_operator": True,
            "is_used_for_training": True,
            "include_all_overloads": False,
        }
        return SelectiveBuilder.from_yaml_dict(
            {"operators": {qualified_name(f): dict(chosen) for f in self.new_functions}}
        )


def structured(grouped: Sequence[Grouped]) -> list[NativeFunctionsGroup]:
    """The groups among ``grouped`` (functional, in-place and out variants of one operator)."""
    return [g for g in grouped if isinstance(g, NativeFunctionsGroup)]


class Derivatives:
    """derivatives.yaml matched with the functions, as ``gen_autograd`` does it."""

    def __init__(self, operators: Operators) -> None:
        yaml = operators.yaml
        self.infos, self.dispatch_keys = load_derivatives(
            str(yaml.derivatives), str(yaml.native_functions), str(yaml.tags)
        )
        functions = sorted(operators.functions, key=lambda f: cpp.name(f.func))
        self.functions: list[NativeFunctionWithDifferentiabilityInfo] = match_differentiability_info(
            functions, self.infos
        )
        self.new_functions = [f for f in self.functions if operators.is_new(f.func)]
        new_schemas = {f.func for f in operators.new_functions}
        self.new_infos = {
            schema: per_key
            for schema, per_key in self.infos.items()
            if schema in new_schemas or any(operators.is_new(info.func) for info in per_key.values())
        }
