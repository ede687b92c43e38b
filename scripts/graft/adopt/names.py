"""Choose names for adopted operators and their arguments where the extension's names cannot be used."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace

from .schema import Schema, Value

# Names of operators that say nothing outside of their namespace.
_GENERIC = frozenset(
    {"apply", "backward", "bwd", "call", "clear", "close", "compute", "create", "cuda_version", "destroy", "dispose"}
    | {"exec", "execute"}
    | {"finalize", "forward", "free", "fwd", "get", "init", "initialize", "launch", "load", "main", "new", "op", "open"}
    | {"process", "release", "reset", "run", "set", "setup", "shutdown", "start", "step", "stop", "sync", "test"}
    | {"update", "version"}
)

# torchgen makes no Python function for names with these parts (SKIP_PYTHON_BINDINGS). The values replace them.
_INSTEAD = {"_forward": "_fwd", "_backward": "_bwd"}
_PARTS = re.compile(rf"({'|'.join(_INSTEAD)})(?=$|_)")
# Endings with a meaning in torchgen, for out variants and factories. The values replace them.
_ENDINGS = {"_out": "_into", "_like": "_alike"}
_ENDING = re.compile(rf"({'|'.join(_ENDINGS)})$")
# The prefix of other factories' names.
_FACTORY = "new_"

# Namespaces that do not name their package, such as `_C` and `ops`; and the prefix of names such as `_C_cache_ops`.
_WITHOUT_PACKAGE = re.compile(r"_*(c|cpp|ops?|ext|extension|impl|lib|native|kernels?|cpu|cuda)_*", re.I)
_BEGINNING = re.compile(r"^_C(?=_)")

# Names of arguments that Graft's code in the kernel uses, or that torchgen reserves for factories.
_USED = frozenset({"op", "self_", "ks", "out_", "requires_grad"})


@dataclass
class Names:
    """Chooses the names of operators.

    Args:
        package: the extension's package, in place of namespaces that do not name it.
        namespace_first: whether all names begin with the namespace.
        is_taken: whether torch already has a name.
        is_bound: whether torchgen makes a Python function of this name.
        is_word: whether a name is a keyword of Python or C++.
        given: the names that the author chose, by the operator's own name.
    """

    package: str
    namespace_first: bool
    is_taken: Callable[[str], bool]
    is_bound: Callable[[str], bool]
    is_word: Callable[[str], bool]
    given: Mapping[str, str] = field(default_factory=dict)
    _chosen: dict[tuple[str, str], str] = field(default_factory=dict)

    def name(self, namespace: str, op: str) -> str:
        """Return the name of ``namespace::op``, the same for all its overloads."""
        if (namespace, op) not in self._chosen:
            self._chosen[namespace, op] = self.given.get(op) or self._choose(namespace, op)
        return self._chosen[namespace, op]

    def _choose(self, namespace: str, op: str) -> str:
        name = _ENDING.sub(lambda hit: _ENDINGS[hit[0]], op)
        if not self.is_bound(name):
            name = _PARTS.sub(lambda hit: _INSTEAD[hit[0]], name)
        namespace = self.package if _WITHOUT_PACKAGE.fullmatch(namespace) else _BEGINNING.sub(self.package, namespace)
        longer = f"{namespace.strip('_')}_{name.lstrip('_')}"
        longer = f"_{longer}" if name.startswith("_") else longer
        if not self.is_bound(longer):  # `forward` itself is bound, and a name that ends with `_forward` is not
            longer = _PARTS.sub(lambda hit: _INSTEAD[hit[0]], longer)
        says_nothing = name.strip("_") in _GENERIC or len(name.strip("_")) < 3
        is_refused = name.startswith(_FACTORY) or not self.is_bound(name)
        if self.namespace_first or says_nothing or is_refused or self._is_used(name):
            name = longer
        while self._is_used(name):
            name = f"{longer}_{2 + sum(each.startswith(longer) for each in self._chosen.values())}"
            longer = f"{longer}_"
        return name

    def _is_used(self, name: str) -> bool:
        return self.is_taken(name) or keyword.iskeyword(name) or name in self._chosen.values()


def with_own_arguments(schema: Schema, names: Names, used: Container[str] = ()) -> tuple[Schema, dict[str, str]]:
    """Return a schema whose arguments have unique names that Python and C++ allow and that are not ``used``, and the
    new name of each renamed argument, by the old one.
    """
    renamed, seen = {}, set[str]()

    def one(value: Value) -> Value:
        name = value.name or "value"
        has_self = schema.positional[:1] and schema.positional[0].name == "self"
        while names.is_word(name) or name in _USED or name in used or name in seen or (name == "input" and has_self):
            name += "_"
        seen.add(name)
        if name != value.name:
            renamed[value.name] = name
        return replace(value, name=name)

    positional, keyword_only = tuple(map(one, schema.positional)), tuple(map(one, schema.keyword_only))
    return replace(schema, positional=positional, keyword_only=keyword_only), renamed


def told(renamed: dict[str, str]) -> Iterable[str]:
    """Yield a note on each renamed argument."""
    return (f"argument `{old}` is `{new}`" for old, new in renamed.items())


def is_method(schema: Schema, taken: Container[str]) -> bool:
    """Return whether an operator becomes a method: ``self`` is its first argument, a tensor, and its name is free."""
    first = schema.positional[:1]
    is_self = bool(first) and first[0].name == "self" and first[0].is_tensor and not first[0].is_optional
    return is_self and schema.name not in taken
