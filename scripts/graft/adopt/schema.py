"""Read schemas as the dispatcher prints them, and spell them as native_functions.yaml does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .brackets import split

# `Tensor(a!)[2]?`, as torchgen writes it. The dispatcher also accepts annotations after the brackets.
_TYPE = re.compile(
    r"(?P<base>[^()\[\]?]+)(?P<first>\([^()]*\))?(?P<lists>(?:\??\[\d*\])*)(?P<last>\([^()]*\))?(?P<mark>\??)"
)


@dataclass(frozen=True)
class Value:
    """An argument or a result.

    Args:
        base: its type without annotation, brackets and mark: ``Tensor`` in ``Tensor(a!)[]?``.
        lists: the brackets, with a ``?`` before those of a list of optional values.
        is_optional: whether it may be None.
        alias: its alias annotation, ``a`` or ``a!``; empty for none.
        name: its name; results may have none.
        default: its default, as schemas write it; empty for none.
        is_written_untold: whether it is written, but torchgen cannot read the annotation, which is left out.
    """

    base: str
    lists: str = ""
    is_optional: bool = False
    alias: str = ""
    name: str = ""
    default: str = ""
    is_written_untold: bool = False

    @property
    def is_written(self) -> bool:
        """Whether the schema says that the operator writes it."""
        return self.alias.endswith("!")

    @property
    def is_tensor(self) -> bool:
        """Whether it is one tensor, or None."""
        return self.base == "Tensor" and not self.lists

    def __str__(self) -> str:
        alias = f"({self.alias})" if self.alias else ""
        name = f" {self.name}" if self.name else ""
        default = f"={self.default}" if self.default else ""
        return f"{self.base}{alias}{self.lists}{'?' if self.is_optional else ''}{name}{default}"


@dataclass(frozen=True)
class Schema:
    """The schema of an operator."""

    name: str
    overload: str
    positional: tuple[Value, ...]
    keyword_only: tuple[Value, ...]
    results: tuple[Value, ...]

    @property
    def arguments(self) -> tuple[Value, ...]:
        """All arguments."""
        return (*self.positional, *self.keyword_only)

    @property
    def operator(self) -> str:
        """Its name with the overload."""
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def written(self) -> list[Value]:
        """The arguments that it writes."""
        return [each for each in self.arguments if each.is_written]

    def __str__(self) -> str:
        star = ["*"] if self.keyword_only else []
        arguments = ", ".join([*map(str, self.positional), *star, *map(str, self.keyword_only)])
        results = ", ".join(map(str, self.results))
        return f"{self.operator}({arguments}) -> {results if len(self.results) == 1 else f'({results})'}"


# The enumerators that torchgen knows, which the dispatcher prints as numbers.
_ENUMERATORS = {"ScalarType": {"4": "long"}, "MemoryFormat": {"0": "contiguous_format"}}
_WITHOUT_DEFAULTS = frozenset({*_ENUMERATORS, "Device", "Layout"})


class UnreadableError(Exception):
    """A schema that no entry can have. The message names the part that is not supported."""


def read_schema(printed: str) -> Schema:
    """Read a schema as the dispatcher prints it: ``ns::op.overload(Tensor x, *, int n=1) -> Tensor``.

    Raises:
        UnreadableError: it takes any number of arguments, or has a type or alias annotation that cannot be read.
    """
    name, _, rest = printed.partition("(")
    arguments, _, results = rest.rpartition(") -> ")
    if "..." in (*split(arguments), results):
        raise UnreadableError("`...`: any number of values")
    operator, _, overload = name.rpartition("::")[2].partition(".")
    # After `Tensor(a! -> b) x`, a result in alias set b is `x` itself, and gets the annotation `a!`.
    becomes = {after: before for before, after in re.findall(r"\(([\w$]+!?) -> (\w+)\)", arguments)}
    words = split(arguments)
    star = words.index("*") if "*" in words else len(words)
    is_one = not results.startswith("(")
    return Schema(
        operator,
        overload,
        tuple(map(_value, words[:star])),
        tuple(map(_value, words[star + 1 :])),
        tuple(_result_of(each, becomes) for each in ([results] if is_one else split(results[1:-1]))),
    )


def _result_of(text: str, becomes: Mapping[str, str]) -> Value:
    value = _value(text)
    return replace(value, alias=becomes.get(value.alias.rstrip("!"), value.alias))


def _value(text: str) -> Value:
    declared, _, default = text.partition("=")
    kind, _, name = declared.rpartition(" ")
    if not kind or re.fullmatch(r".*[\])?]", name):  # a result without a name
        kind, name = declared, ""
    # Move an annotation between `?` and brackets to the end of the brackets.
    found = _TYPE.fullmatch(re.sub(r"\?(\([^()]*\))(\[\d*\])", r"?\2\1", kind.strip()))
    if not found:
        raise UnreadableError(f"the type `{kind}`")
    # The dispatcher prints `Tensor!` with an alias set of its own, `($0! -> )`.
    alias, _, after = (found["first"] or found["last"] or "")[1:-1].partition(" -> ")
    if after == "*" and not alias.endswith("!"):  # any result may be a view of it
        alias = ""
    if alias.endswith("!") and not re.fullmatch(r"[\w$]+!", alias):
        raise UnreadableError(f"the alias sets `{alias}` of a written argument")
    return Value(found["base"], found["lists"], bool(found["mark"]), alias, name, default)


def spelled(schema: Schema) -> Schema:
    """Return a schema as torchgen prints it: one letter for each alias set, no annotation without an effect, no blanks
    in lists, no generated names of results.
    """
    letters: dict[str, str] = {}
    results = [_name_of_set(each) for each in schema.results]
    return replace(
        schema,
        positional=tuple(_argument(each, results, letters) for each in schema.positional),
        keyword_only=tuple(_argument(each, results, letters) for each in schema.keyword_only),
        results=tuple(_result(each, letters) for each in schema.results),
    )


def _name_of_set(value: Value) -> str:
    """Return the name of a tensor's alias set; empty if there is none, or more than one."""
    found = re.fullmatch(r"([\w$]+)!?", value.alias)
    return found[1] if found and value.base == "Tensor" else ""


def _argument(value: Value, results: Sequence[str], letters: dict[str, str]) -> Value:
    name = _name_of_set(value)
    is_shared = name in results
    if not name or not (value.is_written or is_shared):
        return replace(value, alias="", default=_default(value))
    if value.lists.startswith("?") or (value.lists and value.is_optional):
        return replace(value, alias="", default=_default(value), is_written_untold=value.is_written)
    letter = letters.setdefault(name, chr(ord("a") + len(letters)))
    return replace(value, alias=f"{letter}{'!' if value.is_written else ''}", default=_default(value))


def _result(value: Value, letters: dict[str, str]) -> Value:
    letter = letters.get(_name_of_set(value), "")
    alias = f"{letter}{'!' if value.is_written else ''}" if letter else ""
    return replace(value, alias=alias, name="" if re.fullmatch(r"_\d+", value.name) else value.name)


def writing(schema: Schema, names: Iterable[str]) -> Schema:
    """Return a schema that also writes the arguments ``names``, each with an alias set of its own."""
    wanted, sets = set(names), {each.alias.rstrip("!") for each in schema.arguments if each.alias}
    letters = (letter for letter in map(chr, range(ord("a"), ord("z") + 1)) if letter not in sets)

    def one(value: Value) -> Value:
        is_new = value.name in wanted and not value.is_written
        return replace(value, alias=f"{next(letters)}!") if is_new else value

    return replace(
        schema, positional=tuple(map(one, schema.positional)), keyword_only=tuple(map(one, schema.keyword_only))
    )


def _default(value: Value) -> str:
    """Return a default as torchgen writes it: `[0,1]` for lists, one number for a list of known length with equal
    elements, `0` for an integer that C++ gave as `0.`.
    """
    default = value.default
    if value.base in _ENUMERATORS:
        return _ENUMERATORS[value.base].get(default, default)
    if value.base in ("int", "SymInt") and not value.lists:
        return re.sub(r"\.0*$", "", default)
    if not default.startswith("["):
        return default
    items = split(default[1:-1])
    if re.fullmatch(r"\[\d+\]", value.lists) and items and len({*items}) == 1:
        return items[0]
    return f"[{','.join(items)}]"


def with_spelt_defaults(schema: Schema) -> tuple[Schema, list[str]]:
    """Return a schema without the defaults that torchgen cannot read, and the names of the arguments that lose theirs.
    Positional arguments before such an argument lose theirs, too.
    """
    dropped: list[str] = []
    positional: list[Value] = []
    for value in reversed(schema.positional):
        is_free = value.default and not dropped and _is_spelt(value)
        dropped += [value.name] if value.default and not is_free else []
        positional.insert(0, value if is_free else replace(value, default=""))
    unspelt = [each.name for each in schema.keyword_only if each.default and not _is_spelt(each)]
    keyword_only = tuple(replace(each, default="") if each.name in unspelt else each for each in schema.keyword_only)
    return replace(schema, positional=tuple(positional), keyword_only=keyword_only), [*reversed(dropped), *unspelt]


def _is_spelt(value: Value) -> bool:
    """Return whether torchgen can read a default. It splits schemas at commas, and knows few enumerators."""
    if value.default in ("None", "long", "contiguous_format"):
        return True
    return value.base not in _WITHOUT_DEFAULTS and ", " not in value.default


def aliased_arguments(schema: Schema) -> Iterator[Value | None]:
    """Yield, for each result, the written argument that it returns; None for other results."""
    sets = {each.alias: each for each in schema.written}
    for result in schema.results:
        yield sets.get(result.alias) if result.is_written else None
