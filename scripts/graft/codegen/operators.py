"""The merged operators as torchgen parses them, which of them are new, and what torchgen's lists lack for these."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy, deepcopy
from dataclasses import replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

from torchgen import gen, native_function_generation
from torchgen.api import cpp
from torchgen.api.autograd import NativeFunctionWithDifferentiabilityInfo, match_differentiability_info
from torchgen.gen import get_grouped_by_view_native_functions, get_grouped_native_functions
from torchgen.model import (
    BackendIndex,
    BackendMetadata,
    DispatchKey,
    FunctionSchema,
    Location,
    NativeFunction,
    NativeFunctionsGroup,
    NativeFunctionsViewGroup,
    OperatorName,
)
from torchgen.packaged.autograd.gen_inplace_or_view_type import VIEW_FUNCTIONS
from torchgen.packaged.autograd.gen_python_functions import should_generate_py_binding
from torchgen.packaged.autograd.gen_variable_type import GRADIENT_IMPLEMENTED_FOR_COMPLEX
from torchgen.packaged.autograd.load_derivatives import add_view_copy_derivatives, create_differentiability_info
from torchgen.selective_build.selector import SelectiveBuilder
from torchgen.utils import context

from ..inputs.entries import Entry, fields_of, texts_of_entries
from ..inputs.native import DERIVATIVES, FUNCTIONS, NativeFolders
from .known import ABSENT_BACKENDS, Infos, Kernels, backend_index, known_operators
from .writing import texts_of_writing

Grouped: TypeAlias = NativeFunction | NativeFunctionsGroup


def qualified_name(f: NativeFunction) -> str:
    """Return ``namespace::name.overload`` of ``f``."""
    return f"{f.namespace}::{f.func.name}"


class Derivatives(NamedTuple):
    """The formulas by schema and dispatch key, the dispatch keys, and every function with its formulas."""

    infos: Infos
    keys: set[str]
    functions: list[NativeFunctionWithDifferentiabilityInfo]


class Operators:
    """PyTorch's operators and those of native folders as torchgen parses them.

    Args:
        base: the base's tree.
        entries: the entries of native_functions.yaml that add operators. They, and what torchgen generates from them,
            are new. If there is no list, all operators are new.
        formulas: the entries of derivatives.yaml that add formulas.
    """

    def __init__(self, base: Path, entries: Sequence[Entry] | None = None, formulas: Sequence[Entry] = ()) -> None:
        self.packaged = base / "torchgen/packaged"
        self.templates = self.packaged / "ATen/templates"
        self.autograd_templates = str(self.packaged / "autograd/templates")
        self.tags = str(self.packaged / "ATen/native/tags.yaml")
        self._formulas = formulas
        self._known = known_operators(base)
        self.functions, kernels = self._known.functions, self._known.kernels
        if entries:
            self.functions, kernels = self._with(entries)
        # Keys without kernels have an index, too.
        self.backend_indices: dict[DispatchKey, BackendIndex] = gen.parse_native_yaml_struct([], set()).backend_indices
        self.backend_indices.update({key: backend_index(key, index) for key, index in kernels.items()})
        self.grouped: list[Grouped] = list(get_grouped_native_functions(self.functions))
        self.view_groups = [
            g for g in get_grouped_by_view_native_functions(self.functions) if isinstance(g, NativeFunctionsViewGroup)
        ]
        theirs = set() if entries is None else {f.func.name for f in self._known.functions}
        self.every = Part(self, self.functions)
        self.new = Part(self, [f for f in self.functions if f.func.name not in theirs])

    def _with(self, entries: Sequence[Entry]) -> tuple[list[NativeFunction], Kernels]:
        """Return the functions and the kernels with those of ``entries`` (parse_native_yaml_struct in
        torchgen/gen.py).
        """
        functions, kernels = self._known.written
        every = defaultdict(dict, kernels)
        tags = gen.parse_tags_yaml(self.tags)
        for entry in entries:
            with context(lambda: f"in {entry.file}:{entry.line}:\n  {entry.schema}"):  # noqa: B023
                location = Location(str(entry.file), entry.line)
                fields = deepcopy(entry.fields)  # torchgen adds tags
                function, of_function = NativeFunction.from_yaml(fields, location, tags, set(ABSENT_BACKENDS))
            functions.append(function)
            BackendIndex.grow_index(every, of_function)
        gen.error_check_native_functions(functions)
        native_function_generation.add_generated_native_functions(functions, every)
        return functions, every

    def replaced_by(self, kernels: Sequence[Entry], formulas: Sequence[Entry]) -> Replaced:
        """Return the operators of the base whose kernels and derivative formulas these entries replace.

        Their ``whole`` has no other kernels, and the formulas of the merged set with the new ones.

        Raises:
            ValueError: PyTorch has one formula for an argument that an entry names and others.
        """
        whole = copy(self)
        parsed_entries = self._parsed(kernels)
        named: Kernels = {}
        for _, of_entry in parsed_entries:
            for key, of_key in of_entry.items():
                named.setdefault(key, {}).update(of_key)
        whole.backend_indices = copy(self.backend_indices)
        for key in {*whole.backend_indices, *named}:
            whole.backend_indices[key] = replace(whole.backend_indices[key], index=named.get(key, {}))
        names = {name for of_key in named.values() for name in of_key}
        # With a kernel of its own, what was composed of others needs a formula, or an error in backward.
        known = {f.func.name: f for f in self.functions}
        explicit = {f.func.name: f for f, _ in parsed_entries if is_explicit_now(f, known[f.func.name])}
        if explicit:
            whole.functions = [explicit.get(f.func.name, f) for f in self.functions]
            whole.grouped = list(get_grouped_native_functions(whole.functions))
        # In-place and functional variants of a structured operator run the kernel of its out variant.
        registered = [f for f in whole.functions if {f.func.name, f.structured_delegate} & names]
        differing: list[NativeFunction] = []
        if formulas or explicit:
            old = {f.func.func: f.info for f in self.derivatives.functions}
            whole.derivatives = whole._derivatives_with([*self._formulas, *formulas])
            found = whole.derivatives.functions
            differing = [f.func for f in found if f.info != old[f.func.func] or f.func.func.name in explicit]
        return Replaced(Part(whole, registered), Part(whole, differing))

    def _parsed(self, entries: Sequence[Entry]) -> list[tuple[NativeFunction, Kernels]]:
        """Parse entries that take the place of PyTorch's own."""
        texts = texts_of_entries(self.packaged / "ATen/native" / FUNCTIONS) if entries else {}
        tags = gen.parse_tags_yaml(self.tags)
        return [parse_replacing(entry, fields_of(texts[entry.operator]), tags) for entry in entries]

    def _derivatives_with(self, entries: Sequence[Entry]) -> Derivatives:
        """Return PyTorch's formulas with those of ``entries``, matched with the functions (``load_derivatives`` and
        ``gen_autograd`` in PyTorch's tools/autograd).
        """
        infos, keys = dict(self._known.infos), set(self._known.dispatch_keys)
        if entries:
            self._add(entries, infos, keys)
        # This adds the formulas that torchgen derives, of operators on lists of tensors, to `infos`.
        ordered = sorted(self.functions, key=lambda f: cpp.name(f.func))
        return Derivatives(infos, keys, list(match_differentiability_info(ordered, infos)))

    def _add(self, entries: Sequence[Entry], infos: Infos, keys: set[str]) -> None:
        """Add the formulas of ``entries``, and those that are derived from them for copies of views."""
        texts = texts_of_entries(self.packaged / "autograd" / DERIVATIVES)
        by_signature: dict[FunctionSchema, list[NativeFunction]] = defaultdict(list)
        for group in get_grouped_by_view_native_functions(self.functions):
            for f in [group] if isinstance(group, NativeFunction) else group.functions(include_copy=True):
                by_signature[f.func.signature()].append(f)
        by_schema = {str(f.func): f for f in self.functions}
        nodes = [info.op for of_keys in infos.values() for info in of_keys.values() if info.op]
        numbers = Counter(re.sub(r"\d+$", "", node) for node in nodes)
        for entry in entries:
            theirs = fields_of(texts[entry.operator]) if entry.operator in texts else {}
            fields = derivatives_fields(entry.in_place_of(theirs).fields)
            with context(lambda: f"in {entry.file}:{entry.line}:\n  {entry.schema}"):  # noqa: B023
                schema, of_keys = create_differentiability_info(fields, by_signature, by_schema, numbers, keys)
            # grad_fn keeps its name.
            before = {key: info.op for key, info in infos.get(schema, {}).items() if info.op}
            infos[schema] = {key: replace(info, op=before.get(key, info.op)) for key, info in of_keys.items()}
            for group in self.view_groups:
                if group.view.func == schema and group.view_copy and str(group.view_copy.func.name) not in texts:
                    infos.pop(group.view_copy.func, None)  # it is derived from that of the view
        add_view_copy_derivatives(infos, self.view_groups)

    def units(self) -> list[Part]:
        """Divide the new functions among translation units, in the order of the YAML.

        A unit parses the same headers however few operators it has: many small units are slow to build from nothing,
        and few large ones are slow to rebuild. The sizes are the binary digits of the number of root names, but the
        last two digits make one unit, as the headers take longer than three operators: 27 names make units of 16, 8
        and 3. An operator added at the end of the YAML is compiled with the last few.
        """
        # A view and its copy, which are generated together, count as one.
        leader = {f.root_name: g.view.root_name for g in self.new.view_groups for f in g.functions()}
        groups: dict[str, set[str]] = {}
        for f in self.new.functions:
            groups.setdefault(leader.get(f.root_name, f.root_name), set()).add(f.root_name)
        waiting = list(groups.values())
        units: list[Part] = []
        digits = [1 << digit for digit in range(len(groups).bit_length() - 1, 1, -1)]
        for size in filter(None, [*(len(groups) & digit for digit in digits), len(groups) & 3]):
            roots = set[str]().union(*waiting[:size])
            units.append(Part(self, [f for f in self.new.functions if f.root_name in roots]))
            del waiting[:size]
        return units

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

    @cached_property
    def bindable(self) -> list[NativeFunction]:
        """Return the functions that get a Python binding (tools/autograd/gen_python_functions.py, gen)."""
        return [f for f in self.functions if should_generate_py_binding(f)]

    @cached_property
    def derivatives(self) -> Derivatives:
        """The derivative formulas, matched with the functions."""
        return self._derivatives_with(self._formulas)


class Part:
    """Some of the operators, which torchgen generates for: all, the new ones, or those of a translation unit."""

    def __init__(self, whole: Operators, functions: Sequence[NativeFunction]) -> None:
        self.whole = whole
        self.functions = functions
        self.root_names = frozenset(f.root_name for f in functions)
        self._names = frozenset(map(qualified_name, functions))

    def __contains__(self, f: NativeFunction) -> bool:
        return qualified_name(f) in self._names

    @property
    def added(self) -> Part:
        """Those of the functions that the base does not have."""
        return Part(self.whole, [f for f in self.functions if f in self.whole.new])

    @property
    def overloads(self) -> list[NativeFunction]:
        """Every function of the merged set with the root name of one of these."""
        return [f for f in self.whole.functions if f.root_name in self.root_names]

    @property
    def grouped(self) -> list[Grouped]:
        """The groups with one of the functions. They may contain others, which ``selector`` excludes."""
        members = ((g, [g] if isinstance(g, NativeFunction) else g.functions()) for g in self.whole.grouped)
        return [g for g, functions in members if any(f in self for f in functions)]

    @property
    def view_groups(self) -> list[NativeFunctionsViewGroup]:
        """The view groups (view, view_copy, view_inplace) with one of the functions."""
        return [g for g in self.whole.view_groups if any(f in self for f in g.functions())]

    @property
    def selector(self) -> SelectiveBuilder:
        """torchgen's mechanism for generating only some operators, set to these."""
        chosen = {"is_root_operator": True, "is_used_for_training": True, "include_all_overloads": False}
        return SelectiveBuilder.from_yaml_dict({"operators": {name: dict(chosen) for name in sorted(self._names)}})

    @cached_property
    def infos(self) -> Infos:
        """The derivative formulas of the functions."""
        schemas = {f.func for f in self.functions}
        return {
            schema: per_key
            for schema, per_key in self.whole.derivatives.infos.items()
            if schema in schemas or any(info.func in self for info in per_key.values())
        }

    @cached_property
    def with_infos(self) -> list[NativeFunctionWithDifferentiabilityInfo]:
        """The functions with their derivative formulas."""
        return [f for f in self.whole.derivatives.functions if f.func in self]


class Replaced(NamedTuple):
    """The operators of the base with a kernel of a native folder, and those with a derivative formula of one."""

    kernels: Part
    formulas: Part


def parse_replacing(
    entry: Entry, theirs: Mapping[str, Any], tags: set[str]
) -> tuple[NativeFunction, dict[DispatchKey, dict[OperatorName, BackendMetadata]]]:
    """Parse an entry that takes the place of PyTorch's own, which has the values ``theirs``. Return the function, and
    the kernels that the entry names.
    """
    fields = deepcopy(entry.in_place_of(theirs).fields)  # torchgen adds tags
    composite = str(DispatchKey.CompositeImplicitAutograd)
    if entry.kernels and composite not in entry.kernels:
        fields["dispatch"].pop(composite, None)  # autograd no longer sees what it is composed of
    native, kernels = NativeFunction.from_yaml(fields, Location(str(entry.file), entry.line), tags, set())
    named = entry.kernels.keys() or {composite}
    return native, {key: of_key for key, of_key in kernels.items() if str(key) in named}


def is_explicit_now(ours: NativeFunction, theirs: NativeFunction) -> bool:
    """Return whether an operator that is composed of others in PyTorch gets kernels."""
    return theirs.has_composite_implicit_autograd_kernel and not ours.has_composite_implicit_autograd_kernel


def derivatives_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an entry of derivatives.yaml by dispatch key, as torchgen does (load_derivatives)."""
    own = deepcopy(dict(fields))
    if "dispatch" in own:
        return own
    about_all: dict[str, Any] = {key: own.pop(key) for key in ("name", "output_differentiability") if key in own}
    return {**about_all, "dispatch": {"Default": own}}


# torchgen has lists of operators' names, which upstream edits by hand. For native folders they are derived from the
# YAML: a graft extends them in the generating process; a source tree gets texts appended to torchgen's files.


def missing_names(natives: NativeFolders) -> dict[str, str]:
    """Return the text to append to each of torchgen's files, so that its lists have the names in ``natives``.

    An operator is listed with correct gradients for complex tensors if it has a formula: upstream verifies those of its
    list with complex inputs, as gradcheck does here.
    """
    functions, derivatives = (natives.entries(file, replacing=False) for file in (FUNCTIONS, DERIVATIVES))
    views: dict[str, str] = {}
    for entry, schema in ((entry, parsed(entry.schema)) for entry in functions):
        viewed = viewed_argument(schema) if schema else None
        if schema and viewed and not is_composite_implicit(entry) and str(schema.name.name) not in VIEW_FUNCTIONS:
            views.setdefault(str(schema.name.name), viewed)
    names = {entry.operator.partition(".")[0] for entry in derivatives}
    # torchgen derives the formula of the copy that functionalization uses in place of a view.
    names |= {f"{name}_copy" for name in names if name in views}
    lists = {
        "torchgen/native_function_generation.py": (
            "FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT.extend([\n{names}])\n",
            [f'"{name}"' for name in without_out(entry.schema for entry in functions)],
        ),
        "torchgen/packaged/autograd/gen_inplace_or_view_type.py": (
            "_ADDED_VIEWS = {{\n{names}}}\n"
            "for _views in (VIEW_FUNCTIONS, ALL_VIEW_FUNCTIONS, RETURNS_VIEWS_OF_INPUT):\n"
            "    _views.update(_ADDED_VIEWS)\n",
            [f'"{name}": "{viewed}"' for name, viewed in views.items()],
        ),
        "torchgen/packaged/autograd/gen_variable_type.py": (
            "GRADIENT_IMPLEMENTED_FOR_COMPLEX.update([\n{names}])\n",
            [f'"{name}"' for name in sorted(names - GRADIENT_IMPLEMENTED_FOR_COMPLEX)],
        ),
    }
    texts = {
        file: text.format(names="".join(f"    {name},\n" for name in listed))
        for file, (text, listed) in lists.items()
        if listed
    }
    explicit = [each for each in functions if not is_composite_implicit(each)]
    pairs = [(schema, "autogen" in each.fields) for each in explicit if (schema := parsed(each.schema))]
    of_writing = texts_of_writing(pairs)
    return {file: texts.get(file, "") + of_writing.get(file, "") for file in {**of_writing, **texts}}


def without_out(schemas: Iterable[str]) -> list[str]:
    """Return the operators that return no tensor, and so have no out= variant, and that torchgen does not list."""
    listed = native_function_generation.FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT
    return [
        str(schema.name)
        for schema in map(parsed, schemas)
        if schema and not any(r.type.is_tensor_like() for r in schema.returns) and str(schema.name) not in listed
    ]


def groups_accept(schemas: Iterable[str]) -> AbstractContextManager[Any]:
    """While the body runs, torchgen's grouping accepts new operators that return no tensor."""
    name = "FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT"
    listed = getattr(native_function_generation, name)
    return patch.object(native_function_generation, name, [*listed, *without_out(schemas)])


def parsed(schema: str) -> FunctionSchema | None:
    """Parse a schema, which may have a namespace. Return None if it is invalid, which torchgen reports later."""
    first, _, rest = schema.partition("::")
    try:
        return FunctionSchema.parse(rest or first)
    except Exception:
        return None


def is_composite_implicit(entry: Entry) -> bool:
    """Return whether the operator is composed of others."""
    return not entry.kernels or "CompositeImplicitAutograd" in entry.kernels


def viewed_argument(schema: FunctionSchema) -> str | None:
    """Return the argument that the result is a view of, from the alias annotations: ``Tensor(a) self -> Tensor(a)``."""
    for result in schema.returns:
        annotation = result.annotation
        if annotation is None or annotation.is_write:
            continue
        for argument in schema.arguments.flat_all:
            theirs = argument.annotation
            if theirs is not None and not theirs.is_write and set(theirs.alias_set) & set(annotation.alias_set):
                return argument.name
    return None
