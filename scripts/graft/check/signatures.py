"""The C++ signatures that torchgen expects of kernels, and whether a definition matches."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchgen.api import meta, structured
from torchgen.api.types import Binding, NativeSignature
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction, NativeFunctionsGroup, SchemaKind

# ATen's alternative names of types. The linker does not distinguish them.
_ALIASES = {
    "IntArrayRef": ("ArrayRef", "<", "int64_t", ">"),
    "SymIntArrayRef": ("ArrayRef", "<", "SymInt", ">"),
    "TensorList": ("ArrayRef", "<", "Tensor", ">"),
    "OptionalIntArrayRef": ("OptionalArrayRef", "<", "int64_t", ">"),
    "OptionalSymIntArrayRef": ("OptionalArrayRef", "<", "SymInt", ">"),
    "DimnameList": ("ArrayRef", "<", "Dimname", ">"),
    "ITensorListRef": ("IListRef", "<", "Tensor", ">"),
    "long": ("int64_t",),
}

# The types of ATen and C++ in signatures. Other types may be aliases of these.
_KNOWN = frozenset(
    {
        *("const", "unsigned", "void", "bool", "int", "long", "int64_t", "float", "double"),
        *("string", "string_view", "optional", "tuple", "vector", "array"),
        *("Tensor", "Scalar", "SymInt", "Generator", "Dimname", "Storage", "Stream", "Layout", "Device", "ScalarType"),
        *("MemoryFormat", "ArrayRef", "IListRef", "List", "OptionalArrayRef"),
    }
)

# Namespaces of kernels and their types, and keywords that do not change a type.
_SILENT = frozenset({"at", "c10", "std", "torch", "native", "class", "struct", "typename", "inline", "TORCH_API"})


@dataclass(frozen=True)
class Signature:
    """The C++ signature of a kernel.

    Args:
        declaration: the text of the declaration.
        returns: the return type.
        parameters: the parameter types.
        defaults: the indices of parameters for which the generated header has a default.
    """

    declaration: str
    returns: str
    parameters: tuple[str, ...]
    defaults: tuple[int, ...] = ()

    def is_met_by(self, returns: str, parameters: tuple[str, ...]) -> bool:
        """Return whether a function with these types is the required kernel."""
        same_return = "auto" in returns or not returns or canonical(returns) == canonical(self.returns)
        return same_return and [canonical(p) for p in parameters] == [canonical(p) for p in self.parameters]


def kernel_signature(function: NativeFunction, kernel: str, *, symint: bool) -> Signature:
    """Return the signature of a plain kernel."""
    with native_function_manager(function):
        native = NativeSignature(function.func, symint=symint)
        bindings = native.arguments()
        defaults = tuple(number for number, binding in enumerate(bindings) if binding.default is not None)
        types = tuple(binding.type for binding in bindings)
        return Signature(native.defn(name=kernel), native.returns_type().cpp_type(), types, defaults)


def impl_signature(group: NativeFunctionsGroup, kernel: str) -> Signature:
    """Return the signature of a structured kernel."""
    with native_function_manager(group.out):
        return _of_macro("TORCH_IMPL_FUNC", kernel, structured.impl_arguments(group))


def meta_signature(group: NativeFunctionsGroup) -> Signature:
    """Return the signature of a structured operator's meta function."""
    name = group.functional.func.name
    macro = "TORCH_PRECOMPUTE_META_FUNC" if group.out.precomputed else "TORCH_META_FUNC"
    if name.overload_name:
        macro += "2"
    named = f"{name.name}, {name.overload_name}" if name.overload_name else str(name)
    with native_function_manager(group.functional):
        return _of_macro(macro, named, structured.meta_arguments(group))


def meta_name(group: NativeFunctionsGroup) -> str:
    """Return torchgen's name of the meta function."""
    return meta.name(group)


def _of_macro(macro: str, name: str, bindings: list[Binding]) -> Signature:
    parameters = ", ".join(binding.defn() for binding in bindings)
    return Signature(f"{macro}({name})({parameters})", "", tuple(binding.type for binding in bindings))


def group_of(out: NativeFunction, functions: list[NativeFunction]) -> NativeFunctionsGroup | None:
    """Return the structured group of ``out``; None if it lacks a functional variant or torchgen rejects it."""
    wanted = out.func.signature()
    twins = [f for f in functions if f.func.kind() == SchemaKind.functional and f.func.signature() == wanted]
    try:
        return NativeFunctionsGroup(functional=twins[0], inplace=None, mutable=None, out=out) if twins else None
    except (AssertionError, RuntimeError):
        return None


def has_known_types(*cpp_types: str) -> bool:
    """Return whether the types consist of known types only, so that no alias is involved."""
    words = {word for cpp_type in cpp_types for word in re.findall(r"[A-Za-z_]\w*", canonical(cpp_type))}
    return words <= _KNOWN


def values_of(returns: str) -> int | None:
    """Return how many values a function with this return type returns: those of a ``std::tuple``, or one; None if
    unknown.
    """
    kept = canonical(returns)
    if not kept or not has_known_types(returns) or kept.startswith(("array<", "void")):
        return None
    return len(re.findall(r",(?![^<]*>.)", kept)) + 1 if kept.startswith("tuple<") else 1


def canonical(cpp_type: str) -> str:
    """Normalize ``cpp_type``: without namespaces, aliases and keywords that do not change it."""
    tokens = re.findall(r"\w+|[<>&*,\[\]()]|\.\.\.", re.sub(r"\[\[.*?\]\]", "", cpp_type))
    kept = [part for token in tokens if token not in _SILENT for part in _ALIASES.get(token, (token,))]
    kept = [token for token in kept if not re.fullmatch(r"C10_\w+", token)]
    text, rest = _canonical(kept)
    is_by_value = not text.endswith(("&", "*"))
    return (text.removeprefix("const ") if is_by_value else text) + "".join(rest)


def _canonical(tokens: list[str]) -> tuple[str, list[str]]:
    """Parse one type from ``tokens``. Return it with ``const`` in front, and the rest of the tokens."""
    is_const, words = False, ""
    while tokens and tokens[0] not in (">", ","):
        token, *tokens = tokens
        if token == "const":
            is_const = True
        elif token == "<":
            arguments = []
            while tokens and token != ">":
                argument, tokens = _canonical(tokens)
                arguments.append(argument)
                if tokens:
                    token, *tokens = tokens
            words += f"<{','.join(arguments)}>"
        else:
            words += token
    return ("const " if is_const else "") + words, tokens
