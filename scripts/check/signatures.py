"""The C++ signatures that torchgen expects of kernels, and whether a written one is the same."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchgen.api import meta, structured
from torchgen.api.types import Binding, NativeSignature
from torchgen.context import native_function_manager
from torchgen.model import NativeFunction, NativeFunctionsGroup, SchemaKind

# ATen's names for one type. Which of them a kernel is written with makes no difference to the linker.
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

# The types of ATen's and of C++ that signatures are made of. Another one may be a name for one of these.
_KNOWN = frozenset(
    {
        *("const", "unsigned", "void", "bool", "int", "long", "int64_t", "float", "double"),
        *("string", "string_view", "optional", "tuple", "vector", "array"),
        *("Tensor", "Scalar", "SymInt", "Generator", "Dimname", "Storage", "Stream", "Layout", "Device", "ScalarType"),
        *("MemoryFormat", "ArrayRef", "IListRef", "List", "OptionalArrayRef"),
    }
)

# Namespaces that kernels are written in or take types from, and words that change no type.
_SILENT = frozenset({"at", "c10", "std", "torch", "native", "class", "struct", "typename", "inline", "TORCH_API"})


@dataclass(frozen=True)
class Signature:
    """What a kernel takes and gives, as C++.

    Args:
        declaration: how it is written.
        returns: the type.
        parameters: their types.
        defaults: the numbers of those that the generated header gives a default.
    """

    declaration: str
    returns: str
    parameters: tuple[str, ...]
    defaults: tuple[int, ...] = ()

    def is_met_by(self, returns: str, parameters: tuple[str, ...]) -> bool:
        """Whether a function with these types, as written, is the kernel that is asked for."""
        same_return = "auto" in returns or not returns or canonical(returns) == canonical(self.returns)
        return same_return and [canonical(p) for p in parameters] == [canonical(p) for p in self.parameters]


def kernel_signature(function: NativeFunction, kernel: str, *, symint: bool) -> Signature:
    """The signature of a plain kernel."""
    with native_function_manager(function):
        native = NativeSignature(function.func, symint=symint)
        bindings = native.arguments()
        defaults = tuple(number for number, binding in enumerate(bindings) if binding.default is not None)
        types = tuple(binding.type for binding in bindings)
        return Signature(native.defn(name=kernel), native.returns_type().cpp_type(), types, defaults)


def impl_signature(group: NativeFunctionsGroup, kernel: str) -> Signature:
    """The signature of a structured kernel."""
    with native_function_manager(group.out):
        return _of_macro("TORCH_IMPL_FUNC", kernel, structured.impl_arguments(group))


def meta_signature(group: NativeFunctionsGroup) -> Signature:
    """The signature of a structured operator's meta function."""
    name = group.functional.func.name
    macro = "TORCH_PRECOMPUTE_META_FUNC" if group.out.precomputed else "TORCH_META_FUNC"
    if name.overload_name:
        macro += "2"
    named = f"{name.name}, {name.overload_name}" if name.overload_name else str(name)
    with native_function_manager(group.functional):
        return _of_macro(macro, named, structured.meta_arguments(group))


def meta_name(group: NativeFunctionsGroup) -> str:
    """What torchgen calls the meta function."""
    return meta.name(group)


def _of_macro(macro: str, name: str, bindings: list[Binding]) -> Signature:
    parameters = ", ".join(binding.defn() for binding in bindings)
    return Signature(f"{macro}({name})({parameters})", "", tuple(binding.type for binding in bindings))


def group_of(out: NativeFunction, functions: list[NativeFunction]) -> NativeFunctionsGroup | None:
    """The structured group of ``out``; None where its functional form is missing or torchgen refuses the group."""
    wanted = out.func.signature()
    twins = [f for f in functions if f.func.kind() == SchemaKind.functional and f.func.signature() == wanted]
    try:
        return NativeFunctionsGroup(functional=twins[0], inplace=None, mutable=None, out=out) if twins else None
    except (AssertionError, RuntimeError):
        return None


def has_known_types(*cpp_types: str) -> bool:
    """Whether the types are made of those that everybody knows, so that they are what they seem."""
    words = {word for cpp_type in cpp_types for word in re.findall(r"[A-Za-z_]\w*", canonical(cpp_type))}
    return words <= _KNOWN


def values_of(returns: str) -> int | None:
    """How many values a function gives that returns a ``std::tuple``, or one; None if that cannot be told."""
    kept = canonical(returns)
    if not kept or not has_known_types(returns) or kept.startswith(("array<", "void")):
        return None
    return len(re.findall(r",(?![^<]*>.)", kept)) + 1 if kept.startswith("tuple<") else 1


def canonical(cpp_type: str) -> str:
    """``cpp_type`` written in one way: without namespaces, aliases and what changes no signature."""
    tokens = re.findall(r"\w+|[<>&*,\[\]()]|\.\.\.", re.sub(r"\[\[.*?\]\]", "", cpp_type))
    kept = [part for token in tokens if token not in _SILENT for part in _ALIASES.get(token, (token,))]
    kept = [token for token in kept if not re.fullmatch(r"C10_\w+", token)]
    text, rest = _canonical(kept)
    is_by_value = not text.endswith(("&", "*"))
    return (text.removeprefix("const ") if is_by_value else text) + "".join(rest)


def _canonical(tokens: list[str]) -> tuple[str, list[str]]:
    """One type of ``tokens``, with ``const`` in front, and what is left behind it."""
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
