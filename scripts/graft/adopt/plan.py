"""Plan the entry of each operator: its schema, the call in its kernel, and the notes for the report."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .names import Names, is_method, told, with_own_arguments
from .overloads import ambiguous
from .patterns import is_named, of_name
from .schema import (
    Schema,
    UnreadableError,
    Value,
    aliased_arguments,
    read_schema,
    spelled,
    with_spelt_defaults,
    writing,
)

# The C++ types of results, by the type in the schema, for operators whose kernels have no C++ signature.
_RESULTS = {
    "Tensor": "at::Tensor",
    "Tensor?": "std::optional<at::Tensor>",
    "Tensor[]": "std::vector<at::Tensor>",
    "Scalar": "at::Scalar",
    "SymInt": "c10::SymInt",
    "bool": "bool",
    "float": "double",
    "int": "int64_t",
    "int[]": "std::vector<int64_t>",
    "float[]": "std::vector<double>",
    "str": "std::string",
}

# The tag that torchgen requires for names such as `random_walk`.
SEEDED = "nondeterministic_seeded"

# The dispatch keys of gradients.
DIFFERENTIABLE = {"Autograd", "AutogradCPU", "AutogradCUDA"}

# The dispatch keys of kernels that an operator can take over.
_OWNED = ("CPU", "CUDA", "CompositeExplicitAutograd", "Meta")

_NO_KERNEL = "no kernel on this machine"


@dataclass(frozen=True)
class Operator:
    """An operator of the extension, as the dispatcher reports it.

    Args:
        name: its name with the namespace.
        overload: its overload; empty for none.
        schema: its schema, as the dispatcher prints it.
        keys: the dispatch keys that have kernels.
        signature: the C++ signature of its kernels, with ``SymInt`` if one has it; empty if they have none.
        alias: its kind of alias analysis.
        in_python: the dispatch keys whose kernels are in Python.
        position: its position among the overloads of its name.
        formula: its derivative formula, if its backward is one call: the differentiable arguments, the operator that is
            called, and the arguments of the call.
    """

    name: str
    overload: str
    schema: str
    keys: tuple[str, ...]
    signature: str
    alias: str
    in_python: tuple[str, ...]
    position: int
    formula: tuple[tuple[str, ...], str, tuple[str, ...]] | None = None

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> Operator:
        """Return an operator from the facts that ``child.py`` writes."""
        # Calls pass SymInt where the schema has it, so prefer the signature with SymInt.
        symint = facts["symint_signature"]
        signature = symint if "SymInt" in facts["schema"] and "SymInt" in symint else facts["signature"]
        names = (facts["name"], facts["overload"], facts["schema"], tuple(facts["keys"]))
        formula = (tuple(found[0]), found[1], tuple(found[2])) if (found := facts.get("formula")) else None
        return cls(*names, signature, facts["alias"], tuple(facts["in_python"]), facts["position"], formula)

    @classmethod
    def unregistered(cls, full: str, schema: str) -> Operator:
        """Return the operator of a function that is not registered yet, since a line in adopt.toml is missing."""
        name, _, overload = full.partition(".")
        return cls(name, overload, f"{name.partition('::')[0]}::{schema}", (), "", "FROM_SCHEMA", (), 0)

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.name.partition("::")[0]

    @property
    def full(self) -> str:
        """Its name with the overload."""
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def kernels(self) -> str:
        """The dispatch keys that have kernels, as text for the report."""
        shown = [f"{key} in Python" if key in self.in_python else key for key in self.keys]
        if shown and not self.signature and not self.in_python:
            shown.append("stable ABI")  # kernels without a C++ signature: boxed ones
        return ", ".join(shown) or _NO_KERNEL


@dataclass(frozen=True)
class Adopted:
    """An operator, and the plan for its entry.

    Args:
        operator: the extension's operator.
        schema: the schema of its entry; None if it cannot have an entry.
        arguments: the names that the entry gives to the operator's arguments, in the operator's order.
        results: the C++ types of the operator's results, for kernels without a C++ signature.
        kept: the positions of the operator's results that its entry returns, too; None for all.
        is_method: whether it is a method, too.
        own: the dispatch keys whose kernels it takes over; none if its kernel calls the operator.
        is_seeded: whether it gets the tag of operators that draw random numbers.
        notes: the differences from the extension's operator.
        needs: the settings that the author must add: ``writes``, ``pure`` or ``fake``.
        refusal: why it cannot be an entry; empty if it can.
        todo: the remedy.
    """

    operator: Operator
    schema: Schema | None = None
    arguments: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    kept: tuple[int, ...] | None = None
    is_method: bool = False
    own: tuple[str, ...] = ()
    is_seeded: bool = False
    notes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    refusal: str = ""
    todo: str = ""

    @property
    def is_entry(self) -> bool:
        """Whether it becomes an entry."""
        is_registered = bool(self.operator.keys) or "writes" not in self.needs
        return self.schema is not None and not self.refusal and is_registered

    @property
    def has_kernel(self) -> bool:
        """Whether it can be called on this machine."""
        return bool({*self.operator.keys} - {"Meta"})


@dataclass
class Planner:
    """Plans the entries of operators.

    Args:
        operators: all operators of the extension.
        names: chooses names.
        methods: the operators whose first argument is renamed `self`; None for all.
        own: the operators that take over the extension's kernels.
        tensor_names: the names of Tensor's attributes.
        types: the names of torchgen's base types; the check refuses some lists of them.
        writes: the arguments that are written although the operator's schema does not say so, by operator.
        used: the argument names that torchgen's code already uses, by the operator's full name.
    """

    operators: Sequence[Operator]
    names: Names
    methods: Collection[str] | None
    own: Collection[str]
    tensor_names: Collection[str]
    types: Collection[str]
    writes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    used: dict[str, set[str]] = field(default_factory=dict)
    _functional: set[str] = field(default_factory=set)

    def plan(self) -> list[Adopted]:
        """Return the plan for each operator."""
        self._functional = {each.name for each in self.operators if "!" not in each.schema}
        return _with_ambiguous([self._adopted(operator) for operator in self.operators])

    def _adopted(self, operator: Operator) -> Adopted:
        try:
            theirs, unspelt = with_spelt_defaults(spelled(read_schema(operator.schema)))
            results = tuple(_RESULTS[_form(each)] for each in theirs.results)
            said = of_name(self.writes, theirs.name)
            theirs = writing(theirs, said or ())
        except UnreadableError as error:
            return Adopted(
                operator, refusal=f"no entry can have {error}", todo="write an operator without it, which calls it"
            )
        except KeyError as error:
            what = f"no entry can have a result of type {error.args[0]}"
            return Adopted(
                operator, refusal=what, todo="write an operator that returns tensors or numbers, and calls it"
            )
        if unknown := next((each for each in theirs.arguments if each.base not in self.types), None):
            return Adopted(
                operator,
                refusal=f"no entry can have an argument of type {unknown.base} (`{unknown.name}`)",
                todo="write an operator with tensors, numbers and strings instead, which calls it",
            )
        if theirs.name.startswith("__") and theirs.name.endswith("__"):
            what = f"{theirs.name} is a special name in Python"
            return Adopted(operator, refusal=what, todo="write an operator with another name, which calls it")
        schema, renamed = with_own_arguments(theirs, self.names, self.used.get(operator.full, ()))
        name = self.names.name(operator.namespace, theirs.name)
        notes = [*told(renamed), *(f"argument `{each}` has no default: torchgen cannot spell it" for each in unspelt)]
        schema, more = self._named(schema, operator)
        notes += more
        arguments = tuple(each.name for each in schema.arguments)
        schema, kept, more = self._written(schema, operator)
        notes += more
        schema = replace(schema, name=_renamed(schema.name, theirs.name, name))
        if schema.name != theirs.name and not self.names.namespace_first:
            notes.append(f"its name is {schema.name}")
        if any(each.is_optional for each in schema.results):
            schema = replace(schema, results=tuple(replace(each, is_optional=False) for each in schema.results))
        # An operator without results has another effect, such as a write. Graphs drop its calls if none is declared.
        is_silent = not theirs.results and not any(
            each.is_written or each.is_written_untold for each in theirs.arguments
        )
        needs = ("writes",) if is_silent and said is None else ()
        own, more = self._owned(schema, operator)
        method = is_method(schema, self.tensor_names)
        return Adopted(operator, schema, arguments, results, kept, method, own, notes=(*notes, *more), needs=needs)

    def _owned(self, schema: Schema, operator: Operator) -> tuple[tuple[str, ...], list[str]]:
        """Return the dispatch keys whose kernels the operator takes over, if ``own`` names it, and the notes."""
        if not is_named(operator.name.rpartition("::")[2], self.own):
            return (), []
        keys = tuple(key for key in operator.keys if key in _OWNED)
        if any(each.is_written or each.is_written_untold for each in schema.arguments):
            return (), ["not its own: it writes arguments"]
        if not {*keys} - {"Meta"}:
            return (), ["not its own: it has no kernel for a device here"]
        if sum(each.name == operator.name for each in self.operators) > 1:
            return (), ["not its own: it has overloads, which would share its formula"]
        has_gradient = bool({*operator.keys} & DIFFERENTIABLE)
        where = "in derivatives.yaml, its gradient"
        notes = [f"{where} is that of the extension: test it" if operator.formula else f"{where} is a TODO"]
        return keys, notes if has_gradient else []

    def _named(self, schema: Schema, operator: Operator) -> tuple[Schema, list[str]]:
        """Rename the first argument to `self` in in-place operators and ``methods``. Return the schema and notes."""
        first = schema.positional[:1]
        if _is_in_place(schema) and first[0].name != "self":
            return _with_self(schema), [f"argument `{first[0].name}` is `self`"]
        is_wished = self.methods is None or is_named(operator.name.rpartition("::")[2], self.methods)
        if not is_wished or not first or not first[0].is_tensor or first[0].is_optional or first[0].name == "self":
            return schema, []
        if any(each.name == "input" for each in schema.arguments[1:]):
            return schema, ["no method: another argument is `input`, as functions of Python call `self`"]
        return _with_self(schema), [f"argument `{first[0].name}` is `self`; torch.{schema.name} calls it `input`"]

    def _written(self, schema: Schema, operator: Operator) -> tuple[Schema, tuple[int, ...] | None, list[str]]:
        """Return a schema whose written arguments and results follow torchgen's rules, the positions of the results
        that stay, and the notes.
        """
        if not schema.written:
            return schema, None, []
        returned = [*aliased_arguments(schema)]
        if _is_in_place(schema):
            notes = [] if returned else ["it returns `self`"]
            return replace(schema, results=(Value("Tensor", alias=schema.written[0].alias),)), (), notes
        if schema.name.endswith("_"):
            schema, kept, notes = _without_written(replace(schema, name=schema.name.rstrip("_")), returned)
            return schema, kept, ["it is not in place", *notes]
        keywords = [each for each in schema.keyword_only if each.is_written]
        if keywords and keywords == schema.written:
            return self._out(schema, keywords, operator)
        if _is_out(schema) and operator.name in self._functional and len(returned) == len(schema.written):
            moved = schema.written
            positional = tuple(each for each in schema.positional if each not in moved)
            schema = replace(schema, positional=positional, keyword_only=(*schema.keyword_only, *moved))
            shown = " and ".join(f"`{each.name}`" for each in moved)
            schema, kept, notes = self._out(schema, moved, operator)
            return schema, kept, [f"{shown} can only be given by name", *notes]
        return _without_written(schema, returned)

    def _out(
        self, schema: Schema, written: Sequence[Value], operator: Operator
    ) -> tuple[Schema, tuple[int, ...] | None, list[str]]:
        if operator.name not in self._functional:  # torchgen requires the functional variant beside an out variant
            moved = (*schema.positional, *(replace(each, default="") for each in written))
            rest = tuple(each for each in schema.keyword_only if each not in written)
            notes = [f"`{each.name}` is a positional argument" for each in written]
            schema = replace(schema, positional=moved, keyword_only=rest)
            schema, kept, more = _without_written(schema, [*aliased_arguments(schema)])
            return schema, kept, notes + more
        names = [each.name for each in written]
        notes = [] if schema.results else ["it returns what it writes"]
        if names != ["out"]:
            notes.append(f"Python calls {' and '.join(f'`{name}`' for name in names)} `out`, as one tensor or a tuple")
        results = tuple(Value("Tensor", each.lists, alias=each.alias) for each in written)
        overload = schema.overload or "out"
        return replace(schema, overload=overload, results=results), (), notes


def _is_in_place(schema: Schema) -> bool:
    """Return whether an operator has an in-place name, writes only its first argument, and returns it or nothing."""
    first, returned = schema.positional[:1], [*aliased_arguments(schema)]
    is_named = schema.name.endswith("_") and not schema.name.endswith("__")
    return is_named and bool(first) and schema.written == [*first] and returned in ([], [*first])


def _is_out(schema: Schema) -> bool:
    """Return whether an operator that writes is an out variant, by its overload or the names of written arguments."""
    return schema.overload.split("_")[-1] == "out" or all(each.name.startswith("out") for each in schema.written)


def _with_ambiguous(plan: list[Adopted]) -> list[Adopted]:
    """Return the plan, with notes on overloads that accept the same call."""
    known = [(each.operator.position, each.schema) for each in plan if each.schema]
    notes = {
        f"{name}.{one}" if one else name: f"torch.ops tries {_shown(one)} before {_shown(other)} where both fit, "
        f"torch.{name} may not"
        for name, one, other in ambiguous(known)
    }
    return [
        replace(each, notes=(*each.notes, notes[each.schema.operator]))
        if each.schema and each.schema.operator in notes
        else each
        for each in plan
    ]


def _shown(overload: str) -> str:
    return f".{overload}" if overload else "the one without a name"


def _form(value: Value) -> str:
    mark = "?" if value.is_optional else ""
    return f"{value.base}{value.lists}{mark}"


def _renamed(name: str, theirs: str, chosen: str) -> str:
    """Return the chosen name, without its last underscore if ``name`` is no longer that of an in-place operator."""
    return chosen.rstrip("_") if theirs.endswith("_") and not name.endswith("_") else chosen


def _with_self(schema: Schema) -> Schema:
    first, *others = schema.positional
    return replace(schema, positional=(replace(first, name="self"), *others))


def _without_written(
    schema: Schema, returned: Sequence[Value | None]
) -> tuple[Schema, tuple[int, ...] | None, list[str]]:
    """Return a schema without results that are written arguments, the positions of the other results, and the notes."""
    if not any(returned):
        return schema, None, []
    kept = tuple(position for position, each in enumerate(returned) if each is None)
    names = " and ".join(f"`{each.name}`" for each in returned if each)
    return replace(schema, results=tuple(schema.results[i] for i in kept)), kept, [f"it does not return {names}"]
