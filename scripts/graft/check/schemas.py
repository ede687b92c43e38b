"""Check a single entry of native_functions.yaml: whether torchgen parses it, and if not, where it fails."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from torchgen.model import (
    Argument,
    BackendMetadata,
    DispatchKey,
    FunctionSchema,
    Location,
    NativeFunction,
    OperatorName,
    Return,
    dispatch_keys,
)

from .base import BaseOperators
from .entries import Entry, Place
from .finding import Findings, nearest

# torchgen has no list of valid keys except for its code, which removes them from an entry one by one.
KEYS = frozenset(re.findall(r"""e\.pop\(\s*["'](\w+)["']""", inspect.getsource(NativeFunction.from_yaml))) - {
    "__line__"  # torchgen's loader adds it
}

# Remedies for torchgen's errors, by a part of the message.
_REMEDIES = (
    (r"alias keys?\b", "keep one of the Composite keys"),
    (r"manual_kernel_registration", "leave `dispatch` or `manual_kernel_registration` out"),
    (r"autogen", "write that line, or write the variants out"),
    (r"new operator that aliases its inputs", "add that entry, with the tag `view_copy`"),
    (r"could not find any other variants", "add the functional variant: the same schema without `out`"),
    (r"mutable", "mark each mutated argument with `(a!)`, and return it like in-place and out variants"),
    (r"structured", "put `structured: True` on the out variant, and `structured_delegate: <name>.out` on the others"),
    (r"\bout\b", "write the out arguments after the `*`, each as `Tensor(a!) out`, and return them in that order"),
)


@dataclass(frozen=True)
class Function:
    """A valid entry."""

    entry: Entry
    native: NativeFunction
    kernels: dict[DispatchKey, dict[OperatorName, BackendMetadata]]

    @property
    def schema(self) -> FunctionSchema:
        """Its schema."""
        return self.native.func


def has_known_keys(entry: Entry, findings: Findings) -> bool:
    for key in entry.fields:
        if key not in KEYS:
            findings.add(entry.place(key), f"torchgen does not know the key `{key}`", nearest(key, KEYS))
    if "func" not in entry.fields:
        place = (entry.file, entry.line, 0)
        findings.add(place, "an entry needs the key `func`", "write `- func: name(Tensor self) -> Tensor`")
    return all(key in KEYS for key in entry.fields) and "func" in entry.fields


def parse_entry(entry: Entry, base: BaseOperators, findings: Findings) -> Function | None:
    text = entry.fields["func"]
    try:
        FunctionSchema.parse(text)
    except Exception as error:  # torchgen raises AssertionError, ValueError or RuntimeError
        offset, what = _fault_in_schema(str(text), error)
        findings.add(entry.value("func", offset), what, remedy(what, "compare it with a schema of PyTorch's own file"))
        return None
    if not _dispatch_is_known(entry, findings) or not _tags_are_known(entry, base, findings):
        return None
    try:
        native, kernels = NativeFunction.from_yaml(
            dict(entry.fields), Location(str(entry.file), entry.line), base.tags, set()
        )
    except Exception as error:
        what = str(error) or type(error).__name__
        findings.add(_place_of(entry, what), what, remedy(what, "compare it with an entry of PyTorch's own file"))
        return None
    return Function(entry, native, kernels)


def _fault_in_schema(text: str, error: Exception) -> tuple[int, str]:
    """Return the place in ``text`` of the first part that torchgen cannot parse, and its message."""
    what = str(error) or f"not a schema: {text}"
    match = re.fullmatch(r"([^(]*)\((.*)\) -> (.*)", text)
    if not match:
        lacks = "a schema is `name(arguments) -> returns`"
        arrow = text.find("->")
        return max(arrow, 0), f"not a schema: {lacks}"
    for start, part in _parts(match[2], match.start(2)):
        if part in ("*", ""):
            continue
        try:
            Argument.parse(part)
        except Exception as fault:
            return start, f"torchgen cannot parse the argument `{part}`: {fault or type(fault).__name__}"
    returns = match[3]
    inner = returns[1:-1] if returns.startswith("(") and returns.endswith(")") else returns
    for start, part in _parts(inner, match.start(3) + (inner != returns)):
        try:
            Return.parse(part)
        except Exception as fault:
            return start, f"torchgen cannot parse the return `{part}`: {fault or type(fault).__name__}"
    return 0, what


def _parts(text: str, start: int) -> list[tuple[int, str]]:
    """Split a list at commas, like torchgen, and return each part with its place."""
    parts: list[tuple[int, str]] = []
    for part in re.split(r", (?![^\[(]*[\])])", text) if text else []:
        parts.append((text.find(part, parts[-1][0] - start + 1 if parts else 0) + start, part))
    return parts


def remedy(what: str, otherwise: str) -> str:
    """Return a remedy for torchgen's error ``what``."""
    return next((todo for pattern, todo in _REMEDIES if re.search(pattern, what)), otherwise)


def _place_of(entry: Entry, what: str) -> Place:
    """Return the key that torchgen's message mentions, by name or value, or else the schema."""
    named = [key for key in entry.fields if key != "func" and key.removesuffix("s") in what]
    quoted = [
        key for key, value in entry.fields.items() if re.search(rf"\bnot an? \w+: {re.escape(str(value))}$", what)
    ]
    keys = [*quoted, *named]
    return entry.place(keys[0]) if keys else entry.value("func")


def _dispatch_is_known(entry: Entry, findings: Findings) -> bool:
    dispatch = entry.fields.get("dispatch")
    if dispatch is None:
        return True
    if not isinstance(dispatch, dict):
        findings.add(
            entry.place("dispatch"), "`dispatch` is not a mapping", "write `Key: kernel` below it, one on each line"
        )
        return False
    known = True
    names = {str(key) for key in dispatch_keys}
    seen: set[str] = set()
    for key in dispatch:
        for part in str(key).split(","):
            if part.strip() in seen:
                known = False
                what = f"duplicate dispatch key `{part.strip()}`"
                findings.add(entry.place("dispatch"), what, "leave one out")
            seen.add(part.strip())
            if part.strip() not in names:
                known = False
                findings.add(
                    entry.place("dispatch"), f"there is no dispatch key `{part.strip()}`", nearest(part.strip(), names)
                )
    return known


def _tags_are_known(entry: Entry, base: BaseOperators, findings: Findings) -> bool:
    tags = entry.fields.get("tags", [])
    listed = tags if isinstance(tags, list) else [tags] if isinstance(tags, str) else []  # torchgen checks the rest
    unknown = [str(tag) for tag in listed if str(tag) not in base.tags]
    for tag in unknown:
        findings.add(entry.place("tags"), f"there is no tag `{tag}`", nearest(tag, base.tags))
    return not unknown
