"""The merged operators as torchgen parses them, and which of them are new."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy, deepcopy
from dataclasses import replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ..inputs.entries import Entry, fields_of, texts_of_entries
from ..inputs.native import DERIVATIVES, FUNCTIONS
from . import torchgen
from .base_operators import known_operators, known_tags
from .torchgen import (
    DifferentiabilityInfo,
    DispatchKey,
    FunctionSchema,
    Infos,
    Kernels,
    NativeFunction,
    NativeFunctionsGroup,
    NativeFunctionsViewGroup,
    cpp,
)

Grouped: TypeAlias = NativeFunction | NativeFunctionsGroup


def qualified_name(f: NativeFunction) -> str:
    """Return ``namespace::name.overload`` of ``f``."""
    return f"{f.namespace}::{f.func.name}"


class Derivatives(NamedTuple):
    """The formulas by schema and dispatch key, the dispatch keys, and every function with its formulas."""

    infos: Infos
    keys: set[str]
    functions: list[torchgen.NativeFunctionWithDifferentiabilityInfo]


class Operators:
    """PyTorch's operators and those of native folders as torchgen parses them.

    Args:
        base: the base's tree.
        entries: the entries of native_functions.yaml that add operators. They, and what torchgen generates from them,
            are new. If None, all operators are new.
        formulas: the entries of derivatives.yaml that add formulas.
        declared: the entries of operators that are defined elsewhere. The new ones may call them.
    """

    def __init__(
        self,
        base: Path,
        entries: Sequence[Entry] | None = None,
        formulas: Sequence[Entry] = (),
        declared: Sequence[Entry] = (),
    ) -> None:
        self.packaged = base / "torchgen/packaged"
        self.templates = self.packaged / "ATen/templates"
        self.autograd_templates = str(self.packaged / "autograd/templates")
        self._tags = known_tags(base)
        self._formulas = formulas
        self._known = known_operators(base)
        self.functions, kernels = self._known.functions, self._known.kernels
        if entries or declared:
            self.functions, kernels = self._with([*declared, *(entries or ())])
        self.backend_indices = torchgen.backend_indices(kernels)
        self.grouped: list[Grouped] = list(torchgen.get_grouped_native_functions(self.functions))
        by_view = torchgen.get_grouped_by_view_native_functions(self.functions)
        self.view_groups = [group for group in by_view if isinstance(group, NativeFunctionsViewGroup)]
        theirs = set() if entries is None else {f.func.name for f in self._known.functions}
        self.every = Selection(self, self.functions)
        files = {str(entry.file) for entry in declared}
        self.declared = Selection(self, [f for f in self.functions if f.loc.file in files])
        theirs |= {f.func.name for f in self.declared.functions}
        self.new = Selection(self, [f for f in self.functions if f.func.name not in theirs])

    def _with(self, entries: Sequence[Entry]) -> tuple[list[NativeFunction], Kernels]:
        """Return the functions and the kernels with those of ``entries`` (parse_native_yaml_struct in
        torchgen/gen.py).
        """
        functions, kernels = self._known.written
        every = defaultdict(dict, kernels)
        for entry in entries:
            with _located(entry):
                location = torchgen.Location(str(entry.file), entry.line)
                fields = deepcopy(entry.fields)  # torchgen adds tags
                function, of_function = NativeFunction.from_yaml(fields, location, self._tags, torchgen.IGNORED_KEYS)
            functions.append(function)
            torchgen.BackendIndex.grow_index(every, of_function)
        torchgen.error_check_native_functions(functions)
        torchgen.add_generated_native_functions(functions, every)
        return functions, every

    def replaced_by(
        self, kernels: Sequence[Entry], formulas: Sequence[Entry], helpers: Collection[str] = ()
    ) -> Replacements:
        """Return the operators of the base whose kernels and derivative formulas these entries replace, and those with
        a formula that calls one of the functions ``helpers``.

        The ``whole`` of both selections has only these kernels, and all formulas, with these in place of PyTorch's.
        """
        whole = copy(self)
        parsed_entries = self._parsed(kernels)
        named: Kernels = {}
        for _, of_entry in parsed_entries:
            for key, of_key in of_entry.items():
                named.setdefault(key, {}).update(of_key)
        keys = [*self.backend_indices, *named]
        whole.backend_indices = torchgen.backend_indices({key: named.get(key, {}) for key in keys})
        names = {name for of_key in named.values() for name in of_key}
        # An operator that was composed of others and gets a kernel needs a formula, or an error in backward.
        known = {f.func.name: f for f in self.functions}
        explicit = {f.func.name: f for f, _ in parsed_entries if is_explicit_now(f, known[f.func.name])}
        if explicit:
            whole.functions = [explicit.get(f.func.name, f) for f in self.functions]
            whole.grouped = list(torchgen.get_grouped_native_functions(whole.functions))
        # In-place and functional variants of a structured operator run the kernel of its out variant.
        registered = [f for f in whole.functions if {f.func.name, f.structured_delegate} & names]
        differing: list[NativeFunction] = []
        calling: dict[str, None] = {}
        if formulas or explicit or helpers:
            old = {f.func.func: f.info for f in self.derivatives.functions}
            whole.derivatives = whole._derivatives_with([*self._formulas, *formulas])
            found = whole.derivatives.functions
            call = calls_of(helpers)
            calls = {str(f.func.func): of_f for f in found if f.func not in self.new and (of_f := call(f.info))}
            differing = [
                f.func
                for f in found
                if f.info != old[f.func.func] or f.func.func.name in explicit or str(f.func.func) in calls
            ]
            calling = dict.fromkeys(name for of_f in calls.values() for name in of_f)
        return Replacements(Selection(whole, registered), Selection(whole, differing), [*calling])

    def _parsed(self, entries: Sequence[Entry]) -> list[tuple[NativeFunction, Kernels]]:
        """Parse entries that replace PyTorch's own."""
        texts = texts_of_entries(self.packaged / "ATen/native" / FUNCTIONS) if entries else {}
        return [parse_replacing(entry, fields_of(texts[entry.operator]), self._tags) for entry in entries]

    def _derivatives_with(self, entries: Sequence[Entry]) -> Derivatives:
        """Return PyTorch's formulas with those of ``entries``, matched with the functions (``load_derivatives`` and
        ``gen_autograd`` in PyTorch's tools/autograd).
        """
        infos, keys = dict(self._known.infos), set(self._known.dispatch_keys)
        if entries:
            self._add(entries, infos, keys)
        # This adds the formulas that torchgen derives, of operators on lists of tensors, to `infos`.
        ordered = sorted(self.functions, key=lambda f: cpp.name(f.func))
        return Derivatives(infos, keys, list(torchgen.match_differentiability_info(ordered, infos)))

    def _add(self, entries: Sequence[Entry], infos: Infos, keys: set[str]) -> None:
        """Add the formulas of ``entries``, and those that are derived from them for copies of views."""
        texts = texts_of_entries(self.packaged / "autograd" / DERIVATIVES)
        by_signature: dict[FunctionSchema, list[NativeFunction]] = defaultdict(list)
        for group in torchgen.get_grouped_by_view_native_functions(self.functions):
            for f in [group] if isinstance(group, NativeFunction) else group.functions(include_copy=True):
                by_signature[f.func.signature()].append(f)
        by_schema = {str(f.func): f for f in self.functions}
        nodes = [info.op for of_keys in infos.values() for info in of_keys.values() if info.op]
        numbers = Counter(re.sub(r"\d+$", "", node) for node in nodes)
        for entry in entries:
            theirs = fields_of(texts[entry.operator]) if entry.operator in texts else {}
            fields = derivatives_fields(entry.in_place_of(theirs).fields)
            with _located(entry):
                schema, of_keys = torchgen.create_differentiability_info(fields, by_signature, by_schema, numbers, keys)
            # grad_fn keeps PyTorch's name.
            before = {key: info.op for key, info in infos.get(schema, {}).items() if info.op}
            infos[schema] = {key: replace(info, op=before.get(key, info.op)) for key, info in of_keys.items()}
            for group in self.view_groups:
                if group.view.func == schema and group.view_copy and str(group.view_copy.func.name) not in texts:
                    infos.pop(group.view_copy.func, None)  # it is derived from that of the view
        torchgen.add_view_copy_derivatives(infos, self.view_groups)

    def units(self) -> list[Selection]:
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
        units: list[Selection] = []
        digits = [1 << digit for digit in range(len(groups).bit_length() - 1, 1, -1)]
        for size in filter(None, [*(len(groups) & digit for digit in digits), len(groups) & 3]):
            roots = set[str]().union(*waiting[:size])
            units.append(Selection(self, [f for f in self.new.functions if f.root_name in roots]))
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
        return [f for f in self.functions if torchgen.should_generate_py_binding(f)]

    @cached_property
    def derivatives(self) -> Derivatives:
        """The derivative formulas, matched with the functions."""
        return self._derivatives_with(self._formulas)


class Selection:
    """Some of the operators, which torchgen generates for: all, the new ones, or those of a translation unit."""

    def __init__(self, whole: Operators, functions: Sequence[NativeFunction]) -> None:
        self.whole = whole
        self.functions = functions
        self.root_names = frozenset(f.root_name for f in functions)
        self._names = frozenset(map(qualified_name, functions))

    def __contains__(self, f: NativeFunction) -> bool:
        return qualified_name(f) in self._names

    @property
    def added(self) -> Selection:
        """The functions that the base does not have."""
        return Selection(self.whole, [f for f in self.functions if f in self.whole.new])

    @property
    def overloads(self) -> list[NativeFunction]:
        """Every function of the merged set with the root name of one of these."""
        return [f for f in self.whole.functions if f.root_name in self.root_names]

    @property
    def grouped(self) -> list[Grouped]:
        """The groups with one of the functions. They may contain others, which are not generated."""
        members = ((g, [g] if isinstance(g, NativeFunction) else g.functions()) for g in self.whole.grouped)
        return [g for g, functions in members if any(f in self for f in functions)]

    @property
    def view_groups(self) -> list[NativeFunctionsViewGroup]:
        """The view groups (view, view_copy, view_inplace) with one of the functions."""
        return [g for g in self.whole.view_groups if any(f in self for f in g.functions())]

    @property
    def arguments(self) -> torchgen.Arguments:
        """The arguments of torchgen's generators for ATen, for the functions."""
        groups, indices = (self.grouped, self.view_groups), self.whole.backend_indices
        return torchgen.Arguments(self.whole.templates, self.functions, *groups, indices, self._names)

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
    def with_infos(self) -> list[torchgen.NativeFunctionWithDifferentiabilityInfo]:
        """The functions with their derivative formulas."""
        return [f for f in self.whole.derivatives.functions if f.func in self]


class Replacements(NamedTuple):
    """The operators of the base whose kernels native folders replace, and those whose derivative formulas change.

    ``calling`` has the names of operators whose formulas are PyTorch's, but call a function of a native folder.
    """

    kernels: Selection
    formulas: Selection
    calling: Sequence[str] = ()


def calls_of(helpers: Collection[str]) -> Callable[[Mapping[str, DifferentiabilityInfo] | None], list[str]]:
    """Return a function that takes an operator's formulas by dispatch key, and lists the operators whose formulas call
    one of ``helpers``.
    """
    if not helpers:
        return lambda _: []
    called = re.compile(rf"\b(?:{'|'.join(sorted(helpers))})\s*\(")

    def calls(infos: Mapping[str, DifferentiabilityInfo] | None) -> list[str]:
        return [str(info.func.func.name) for info in (infos or {}).values() if any(map(called.search, _texts(info)))]

    return calls


def _texts(info: DifferentiabilityInfo) -> Iterator[str]:
    """Yield the code that autograd runs for one operator: formulas, and what is saved for them."""
    for derivative in info.derivatives:
        yield derivative.formula
        yield from (each.expr for each in (*derivative.saved_inputs, *derivative.saved_outputs))
    yield from (each.formula for each in info.forward_derivatives)


def _located(entry: Entry) -> AbstractContextManager[None]:
    """Put the place of an entry before errors that torchgen raises about it."""
    located: AbstractContextManager[None]
    located = torchgen.context(lambda: f"in {entry.file}:{entry.line}:\n  {entry.schema}")
    return located


def parse_replacing(entry: Entry, theirs: Mapping[str, Any], tags: set[str]) -> tuple[NativeFunction, Kernels]:
    """Parse an entry that replaces PyTorch's own, which has the values ``theirs``. Return the function, and the kernels
    that the entry names.
    """
    fields = deepcopy(entry.in_place_of(theirs).fields)  # torchgen adds tags
    composite = str(DispatchKey.CompositeImplicitAutograd)
    if entry.kernels and composite not in entry.kernels:
        fields["dispatch"].pop(composite, None)  # autograd no longer sees the operators that it calls
    native, kernels = NativeFunction.from_yaml(fields, torchgen.Location(str(entry.file), entry.line), tags, set())
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
