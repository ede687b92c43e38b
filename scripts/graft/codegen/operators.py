"""The operators, and which of them are new."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

from torchgen.api import cpp
from torchgen.api.autograd import (
    DifferentiabilityInfo,
    NativeFunctionWithDifferentiabilityInfo,
    match_differentiability_info,
)
from torchgen.gen import get_grouped_by_view_native_functions, get_grouped_native_functions, parse_tags_yaml
from torchgen.model import BackendIndex, DispatchKey, FunctionSchema, NativeFunction, NativeFunctionsViewGroup
from torchgen.packaged.autograd.gen_python_functions import should_generate_py_binding
from torchgen.packaged.autograd.load_derivatives import load_derivatives
from torchgen.selective_build.selector import SelectiveBuilder

from ..inputs.merge import Merged
from . import upstream
from .upstream import Grouped, Selection


@dataclass(frozen=True)
class YamlFiles:
    """The YAML files that torchgen reads."""

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


def qualified_name(f: NativeFunction) -> str:
    """Return ``namespace::name.overload`` of ``f``."""
    return f"{f.namespace}::{f.func.name}"


class Operators:
    """The merged operator set as torchgen parses it, and which part is new.

    Args:
        yaml: the merged files.
        lines: the map of the lines of native_functions.yaml. Operators of another file than the first, and what
            torchgen generates from these, are new. Without a map, all are.
    """

    def __init__(self, yaml: YamlFiles, lines: Merged | None = None) -> None:
        self.yaml = yaml
        self.whole = self
        parsed = upstream.parse(yaml.native_functions, yaml.tags, lines)
        self.valid_tags: set[str] = parse_tags_yaml(str(yaml.tags))
        self.functions: list[NativeFunction] = list(parsed.native_functions)
        self.backend_indices: dict[DispatchKey, BackendIndex] = parsed.backend_indices
        self.grouped: list[Grouped] = list(get_grouped_native_functions(self.functions))
        self.view_groups = [
            g for g in get_grouped_by_view_native_functions(self.functions) if isinstance(g, NativeFunctionsViewGroup)
        ]
        self._take([f for f in self.functions if lines is None or lines.is_added(f.loc.file)])

    def _take(self, new: list[NativeFunction]) -> None:
        self.new_functions = new
        self.new_root_names = frozenset(f.root_name for f in new)
        self._new_names = frozenset(qualified_name(f) for f in new)

    def part(self, roots: Collection[str]) -> Operators:
        """Return the same merged set with only these root names as new functions."""
        part = copy(self)
        part._take([f for f in self.new_functions if f.root_name in roots])
        return part

    def units(self) -> list[list[str]]:
        """Divide the new root names among translation units, in the order of the YAML.

        A unit parses the same headers however few operators it has: many small units are slow to build from nothing,
        and few large ones are slow to rebuild. The sizes are the binary digits of the number of names: 25 names make
        units of 16, 8 and 1. An operator added at the end of the YAML is compiled alone, or with the last few.
        """
        names = self._root_groups()
        units: list[list[str]] = []
        done = 0
        for digit in range(len(names).bit_length() - 1, -1, -1):
            if len(names) >> digit & 1:
                units.append([root for group in names[done : done + (1 << digit)] for root in group])
                done += 1 << digit
        return units

    def _root_groups(self) -> list[list[str]]:
        """Return the new root names in order. A view and its copy, which are generated together, form one group."""
        leader = {f.root_name: g.view.root_name for g in self.new_view_groups() for f in g.functions()}
        groups: dict[str, dict[str, None]] = {}
        for f in self.new_functions:
            groups.setdefault(leader.get(f.root_name, f.root_name), {})[f.root_name] = None
        return [list(group) for group in groups.values()]

    @cached_property
    def roots_by_name(self) -> dict[str, str]:
        """Return the root name for each name that C++ code calls an operator by."""
        names = {}
        for f in self.functions:
            names[f.func.name.unambiguous_name()] = f.root_name
            for is_faithful, is_symbolic in product((False, True), repeat=2):
                name = cpp.name(f.func, faithful_name_for_out_overloads=is_faithful, symint_overload=is_symbolic)
                names[name] = f.root_name
        return names

    def refuse_unsupported(self) -> None:
        """Reject new operators that need changes in PyTorch's own sources.

        Raises:
            ValueError: lists each of them with its place.
        """
        faults = [
            f"{f.loc.file}:{f.loc.line}: {f.func.name}: manual_cpp_binding needs a handwritten C++ function in "
            "PyTorch's sources, which a native folder cannot contain. Leave it out; the function is then generated"
            for f in self.new_functions
            if f.manual_cpp_binding
        ]
        if faults:
            raise ValueError("\n".join(faults))

    def is_new(self, f: NativeFunction) -> bool:
        """Return whether ``f`` is one of the new functions."""
        return qualified_name(f) in self._new_names

    @property
    def every(self) -> Selection:
        """All operators."""
        return Selection(self.functions, self.grouped, self.view_groups, self.backend_indices)

    @property
    def new(self) -> Selection:
        """The new operators. Groups may also contain old ones, which ``selector`` excludes."""
        return Selection(self.new_functions, self.new_grouped(), self.new_view_groups(), self.backend_indices)

    @cached_property
    def bindable(self) -> list[NativeFunction]:
        """Return the functions that get a Python binding (tools/autograd/gen_python_functions.py, gen)."""
        return [f for f in self.functions if should_generate_py_binding(f)]

    def new_grouped(self) -> list[Grouped]:
        """Return the groups with a new function."""
        return [
            g
            for g in self.grouped
            if any(self.is_new(f) for f in ([g] if isinstance(g, NativeFunction) else g.functions()))
        ]

    def new_view_groups(self) -> list[NativeFunctionsViewGroup]:
        """Return the view groups (view, view_copy, view_inplace) with a new function."""
        return [g for g in self.view_groups if any(self.is_new(f) for f in g.functions())]

    def selector(self) -> SelectiveBuilder:
        """torchgen's mechanism for generating only some operators, set to the new ones."""
        chosen = {
            "is_root_operator": True,
            "is_used_for_training": True,
            "include_all_overloads": False,
        }
        return SelectiveBuilder.from_yaml_dict(
            {"operators": {qualified_name(f): dict(chosen) for f in self.new_functions}}
        )


class Derivatives:
    """derivatives.yaml matched with the functions, as in ``gen_autograd``."""

    def __init__(self, operators: Operators) -> None:
        yaml = operators.yaml
        self.infos, self.dispatch_keys = load_derivatives(
            str(yaml.derivatives), str(yaml.native_functions), str(yaml.tags)
        )
        self._operators = operators

    @cached_property
    def functions(self) -> list[NativeFunctionWithDifferentiabilityInfo]:
        """Every function with its derivative formulas."""
        return self._match(self._operators.functions)

    @cached_property
    def new_functions(self) -> list[NativeFunctionWithDifferentiabilityInfo]:
        """The new functions with their derivative formulas."""
        return self._match(self._operators.new_functions)

    @cached_property
    def new_infos(self) -> dict[FunctionSchema, dict[str, DifferentiabilityInfo]]:
        """The derivative formulas of the new functions."""
        schemas = {f.func for f in self._operators.new_functions}
        return {
            schema: per_key
            for schema, per_key in self.infos.items()
            if schema in schemas or any(self._operators.is_new(info.func) for info in per_key.values())
        }

    def part(self, operators: Operators) -> Derivatives:
        """Return the formulas for some of the operators."""
        part = copy(self)
        part._operators = operators
        part.__dict__["new_functions"] = [f for f in self.new_functions if operators.is_new(f.func)]
        part.__dict__.pop("new_infos", None)
        return part

    def _match(self, functions: list[NativeFunction]) -> list[NativeFunctionWithDifferentiabilityInfo]:
        ordered = sorted(functions, key=lambda f: cpp.name(f.func))
        return list(match_differentiability_info(ordered, self.infos))
