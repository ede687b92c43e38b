"""Parse entries of native_functions.yaml.

torchgen decides what is valid. This module adds a place and a remedy to its errors, and finds entries that it accepts
although a build would fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..codegen.operators import is_explicit_now, parse_replacing
from ..codegen.torchgen import (
    Argument,
    BaseOperatorName,
    BaseTy,
    BaseType,
    FunctionSchema,
    Kernels,
    ListType,
    Location,
    NativeFunction,
    OptionalType,
    Type,
    Variant,
    dispatch_keys,
    entry_keys,
)
from ..inputs.entries import RELEASES, REPLACE, Entry, Place, kernels_of
from ..inputs.settings import is_specifier
from . import Findings, nearest
from .base import BaseOperators
from .type_names import foreign
from .writing import REMEDIES_OF_WRITING

KEYS = entry_keys()

# torchgen's errors about one word: the code, a part of the message, and the words that torchgen knows.
_WORDS: tuple[tuple[str, str, Iterable[str]], ...] = (
    ("unknown-type", r"unrecognized type (.+)", [kind.name for kind in BaseTy]),
    ("schema-syntax", r"illegal argument '(.+)'", ()),
    ("unknown-dispatch-key", r"unknown dispatch key (\w+)", [str(key) for key in dispatch_keys]),
    ("unknown-value", r"illegal variant (\w+)", [variant.name for variant in Variant]),
)

# torchgen's other errors: the code, a part of the message, and the remedy.
_REMEDIES = (
    *REMEDIES_OF_WRITING,
    ("schema-syntax", r"Invalid function schema|not a str: \[", "a schema is `<name>(<arguments>) -> <returns>`"),
    ("schema-syntax", r"illegal argument '\(", "write an argument for each value; there are no tuples"),
    ("operator-name", r"_out suffix is reserved", "give it another name, or make it the overload `out` of an operator"),
    ("no-seeded-tag", r"nondeterministic_seeded tag missing", "add `tags: nondeterministic_seeded`"),
    (
        "schema-syntax",
        r"illegal argument|unrecognized type",
        "an argument is a type and a name, `int n`; write a space behind each comma",
    ),
    ("dispatch-form", r"dispatch is not a dict", "write `CPU: <kernel>` below it, one key on each line"),
    (
        "composite-keys",
        r"alias keys?\b|more than one of Composite",
        "keep one of the Composite keys; without `dispatch:`, it is CompositeImplicitAutograd",
    ),
    (
        "dispatch-form",
        r"dispatch entry|dispatch table",
        "leave `dispatch:` out; the kernel has the name of the operator",
    ),
    ("dispatch-form", r"must not have \w+ in dispatch", "leave that key out; the kernel is that of the out variant"),
    ("dispatch-form", r"manual_kernel_registration", "leave `dispatch` or `manual_kernel_registration` out"),
    ("structured-variants", r"is not marked as structured", "write `structured: True` there, or correct the name"),
    (
        "structured-variants",
        r"structured_delegate pointing to",
        "add that entry, with `structured: True`, or correct the name",
    ),
    ("same-arguments", r"Duplicate schema kind", "give it another name, or other arguments"),
    ("variant-missing", r"could not find any other variants", "add an entry for the functional variant"),
    ("variant-missing", r"autogen", "write that line, or write the variants out"),
    ("variant-missing", r"new operator that aliases its inputs", "add that entry, with the tag `view_copy`"),
    (
        "mutable-argument",
        r"mutable|Inplace op",
        "mark each mutated argument with `(a!)`, and return it like in-place and out variants",
    ),
    (
        "structured-variants",
        r"structured",
        "put `structured: True` on the out variant, and `structured_delegate: <name>.out` on the others",
    ),
    (
        "out-arguments",
        r"\bout\b",
        "write the out arguments after the `*`, each as `Tensor(a!) out`, and return them in that order",
    ),
)

# The key of an operator that is composed of others.
_COMPOSED = "CompositeImplicitAutograd"

# The name of an operator with its overload, which may start with a digit, since it follows the name in C++.
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)?", re.ASCII)

_NUMBER = r"-?(\d+(\.\d*)?(e-?\d+)?|inf)"

# The defaults of each type, and an example. The identifiers are those that torchgen can translate to C++.
_DEFAULTS = {
    BaseTy.int: (r"-?\d+|Mean", "3"),
    BaseTy.SymInt: (r"-?\d+", "3"),
    BaseTy.float: (_NUMBER, "0.5"),
    BaseTy.Scalar: (_NUMBER, "1"),
    BaseTy.bool: ("True|False", "False"),
    BaseTy.str: (r"\"([^\"\\]|\\.)*\"|'([^'\\]|\\.)*'", '"text"'),
    BaseTy.ScalarType: ("long", "long"),
    BaseTy.MemoryFormat: ("contiguous_format", "contiguous_format"),
}


@dataclass(frozen=True)
class Function:
    """A valid entry."""

    entry: Entry
    native: NativeFunction
    kernels: Kernels
    is_explicit_now: bool = False  # it gets kernels, and is composed of others in PyTorch

    @property
    def schema(self) -> FunctionSchema:
        """Its schema."""
        return self.native.func


def root_of(operator: str) -> str:
    """Return the name shared by all variants of an operator, including the copy variant of a view."""
    name = operator.partition(".")[0]
    try:
        return BaseOperatorName.parse(name).base.removesuffix("_copy")
    except Exception:  # not a name: reported elsewhere
        return name


def place_of_argument(name: str, entry: Entry) -> Place:
    """Return the place of the last argument called ``name`` in the schema; the schema's if there is none."""
    places = re.finditer(rf"[(,]\s*([^(),]*? {re.escape(name)})(?=[=,)])", str(entry.fields["func"]))
    return entry.value("func", max((place.start(1) for place in places), default=0))


def check_releases(entry: Entry, findings: Findings) -> None:
    """Check that the releases of an entry, if it names some, are version specifiers as in requirements."""
    if entry.is_replacing and not is_specifier(entry.fields.get(RELEASES, "")):
        what = f"{entry.fields[RELEASES]} is no range of versions"
        todo = 'write `releases: "<2.15"` or `releases: ">=2.12,<2.14"`'
        findings.add("unknown-value", entry.value(RELEASES), what, todo)


def parse_entry(entry: Entry, base: BaseOperators, findings: Findings) -> Function | None:
    known = {*KEYS, RELEASES} if entry.is_replacing else KEYS
    unknown = [key for key in entry.fields if key not in known and (key, entry.fields[key]) != (REPLACE, True)]
    for key in unknown:
        todo = "write `replace: True`, or leave it out" if key == REPLACE else nearest(key, {*KEYS, REPLACE})
        todo = "write it only where `replace: True` is; all releases have new operators" if key == RELEASES else todo
        findings.add("unknown-key", entry.place(key), f"torchgen does not know the key `{key}`", todo)
    check_releases(entry, findings)
    if "func" not in entry.fields:
        todo = "write `- func: <name>(<arguments>) -> <returns>`"
        findings.add("key-missing", (entry.file, entry.line, 0), "an entry needs the key `func`", todo)
    dispatch = entry.fields.get("dispatch")
    parts = [part.strip() for key in dispatch for part in str(key).split(",")] if isinstance(dispatch, dict) else []
    repeated = {part for part in parts if parts.count(part) > 1}
    for key in repeated:
        what = f"duplicate dispatch key `{key}`"
        findings.add("dispatch-form", entry.place("dispatch"), what, "leave one out")
    if unknown or repeated or "func" not in entry.fields:
        return None
    if empty := re.search(r"(\w+)=(?=[,)])", entry.schema):
        place = entry.value("func", entry.written.find(f"{empty[1]}="))
        todo = "write a value behind `=`, or leave `=` out"
        findings.add("default-value", place, f"`{empty[1]}=` has no default", todo)
        return None
    others = [] if entry.is_replacing else [*foreign(entry.schema)]
    for kind, text, right in others:
        place = entry.word(entry.value("func"), text)
        findings.add("unknown-type", place, f"`{text}` is no {kind} of a schema", f"write `{right}`")
    if others:
        return None
    location = Location(str(entry.file), entry.line)
    if entry.is_replacing and not _differs_in_kernels_only(entry, base, findings):
        return None
    try:
        if entry.is_replacing:
            native, kernels = parse_replacing(entry, base.fields(entry.operator), base.tags)
        else:
            native, kernels = NativeFunction.from_yaml(dict(entry.fields), location, base.tags, set())
    except Exception as error:  # torchgen raises AssertionError, ValueError or RuntimeError
        what = str(error) or f"torchgen cannot parse this entry ({type(error).__name__})"
        code, todo = code_and_remedy(what, base)
        findings.add(code, _place_in(entry, what), what, todo)
        return None
    if native.namespace != "aten":
        what = f"native operators are in PyTorch's namespace aten, and not in `{native.namespace}`"
        findings.add("operator-name", entry.value("func"), what, f"write `{native.func}`")
        return None
    if not _NAME.fullmatch(str(native.func.name)):
        what = f"`{native.func.name}` is not a name of C++ and Python"
        findings.add("operator-name", entry.value("func"), what, "write letters, digits and `_`, or `name.overload`")
        return None
    are_written = [_check_default(argument, entry, findings) for argument in native.func.arguments.flat_all]
    are_written.append(_check_order(native.func.arguments.flat_positional, entry, findings))
    explicit = entry.is_replacing and is_explicit_now(native, base.function(entry.operator))
    if explicit and any(argument.annotation for argument in native.func.arguments.flat_all):
        what = f"{entry.operator} is composed of others, and its result is a view or written in place"
        todo = "replace the operators that it is composed of"
        findings.add("replaced-composite", entry.place("dispatch"), what, todo)
        return None
    return Function(entry, native, kernels, explicit) if all(are_written) else None


def _differs_in_kernels_only(entry: Entry, base: BaseOperators, findings: Findings) -> bool:
    """Check that an entry with ``replace`` differs from PyTorch's own in its kernels only."""
    name, wanted = entry.operator, base.schemas.get(entry.operator)
    if wanted is None:
        todo = nearest(name, base.schemas) + ", or leave `replace` out to add an operator"
        findings.add("unknown-operator", entry.value("func"), f"PyTorch has no operator {name} to replace", todo)
        return False
    if entry.schema != wanted:
        what = f"the schema differs from PyTorch's: {entry.schema}"
        findings.add("schema-differs", entry.value("func"), what, f"write `{wanted}`")
        return False
    theirs = base.fields(name)
    before = len(findings.errors)
    for key, value in entry.fields.items():
        if key not in ("func", "dispatch", REPLACE, RELEASES) and _plain(value) != _plain(theirs.get(key)):
            what = f"`{key}` differs from PyTorch's entry for {name}, which "
            what += f"says {theirs[key]}" if key in theirs else "has no such key"
            todo = "leave it out; `replace` is for kernels, by dispatch key"
            findings.add("replaced-key", entry.place(key), what, todo)
    place = entry.place("dispatch" if entry.kernels else "func")
    delegate, composed = theirs.get("structured_delegate"), kernels_of(theirs).get(_COMPOSED)
    # Some operators with structured kernels have separate kernels for sparse or nested tensors.
    structured = entry.kernels.keys() - base.kernels(name).keys()
    if delegate and (structured or not entry.kernels) and structured <= base.kernels(delegate).keys():
        what = f"the kernel of {name} is that of {delegate}"
        findings.add("replaced-kernel", place, what, f"replace {delegate}; {name} follows it")
    elif composed and any("Composite" in key and kernel != composed for key, kernel in entry.kernels.items()):
        what = f"PyTorch's {name} is composed of other operators"
        alone = "" if base.kernels(name).keys() - {_COMPOSED} else "leave `dispatch:` out; "
        findings.add("replaced-composite", place, what, f"{alone}the kernel is called {composed}")
    elif not entry.kernels and base.kernels(name).keys() - {_COMPOSED}:
        listed = ", ".join(f"{key}: {kernel}" for key, kernel in base.kernels(name).items())
        what = f"it names no kernel, and PyTorch's {name} has several"
        todo = f"write `dispatch:` with those that the folder replaces, of {listed}"
        findings.add("replaced-kernel", place, what, todo)
    return len(findings.errors) == before


def _plain(value: object) -> object:
    """Return a value of an entry in a form that can be compared: words with commas become a sorted list."""
    return sorted(word.strip() for word in value.split(",")) if isinstance(value, str) else value


def _place_in(entry: Entry, what: str) -> Place:
    """Return the place of the text or key that torchgen's message mentions, or else of the schema."""
    schema = str(entry.fields["func"])
    words = [match[1] for _, pattern, _ in _WORDS if (match := re.search(pattern, what)) and match[1] in schema]
    others = [key for key in entry.fields if key != "func"]
    quoted = [key for key in others if re.search(rf"\bnot an? \w+: {re.escape(str(entry.fields[key]))}$", what)]
    keys = [*quoted, *(key for key in others if key.removesuffix("s") in what)]
    if words or not keys:
        return entry.value("func", schema.find(words[0]) if words else 0)
    return entry.place(keys[0])


def code_and_remedy(what: str, base: BaseOperators) -> tuple[str, str]:
    """Return the code of torchgen's error ``what``, and a remedy."""
    for code, pattern, known in (*_WORDS, ("unknown-value", r"illegal tag (\w+)", base.tags)):
        if known and (match := re.search(pattern, what)) and match[1].isidentifier():
            return code, nearest(match[1], known)
    otherwise = "invalid-entry", "compare it with an entry of PyTorch's own file"
    return next(((code, todo) for code, pattern, todo in _REMEDIES if re.search(pattern, what)), otherwise)


def _check_default(argument: Argument, entry: Entry, findings: Findings) -> bool:
    """Check that torchgen can translate the default of ``argument``, if it has one."""
    default, kind = argument.default, argument.type
    if default is None or _fits(default, kind):
        return True
    inner = kind
    while isinstance(inner, (OptionalType, ListType)):
        inner = inner.elem
    _, example = _DEFAULTS.get(inner.name, ("", "")) if isinstance(inner, BaseType) else ("", "")
    fitting = [f"write it as in `{each}`, or " for each in (example, f"[{example}]", "None") if _fits(each, kind)]
    todo = f"{''.join(fitting[:1])}leave it out"
    what = f"`{default}` is not a default for {kind}"
    findings.add("default-value", place_of_argument(argument.name, entry), what, todo)
    return False


def _check_order(positional: Sequence[Argument], entry: Entry, findings: Findings) -> bool:
    """Check that defaults are at the end, as the dispatcher's parser of schemas and Python require."""
    first: Argument | None = None
    for argument in positional:
        if argument.default is not None:
            first = first or argument
        elif first:
            what = f"`{argument.name}` has no default, and `{first.name}` before it has one"
            todo = f"move it: `{argument}, {first}`"
            findings.add("default-order", place_of_argument(argument.name, entry), what, todo)
            return False
    return True


def _fits(default: str, kind: Type) -> bool:
    if isinstance(kind, OptionalType):
        return default == "None" or _fits(default, kind.elem)
    if isinstance(kind, ListType):
        if not default.startswith("[") or not default.endswith("]"):
            return kind.size is not None and _fits(default, kind.elem)
        return all(_fits(part.strip(), kind.elem) for part in default[1:-1].split(",") if default != "[]")
    return isinstance(kind, BaseType) and re.fullmatch(_DEFAULTS.get(kind.name, ("(?!)",))[0], default) is not None
