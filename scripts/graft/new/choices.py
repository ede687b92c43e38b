"""Choose the kernels, variants and tags of a new operator from its name and schema. Needs no torchgen."""

from __future__ import annotations

# Modules whose functions all have the module's name as a prefix in native_functions.yaml, and no others do.
_PREFIXED_MODULES = frozenset({"fft", "linalg", "special"})
# The lines of dispatch tables, by kind; {} is the name of the kernel.
_TABLES = {
    "plain": ["CompositeExplicitAutograd: {}"],
    "kernel": ["CPU: {}_cpu", "Meta: {}_meta"],
    "composite": ["CompositeImplicitAutograd: {}"],
    "pointwise": ["CPU: {}"],
}
_SUFFIXES = {"functional": "", "inplace": "_", "out": "_out"}


def file_of(name: str) -> str:
    """Return an operator's name with its overload, as the names of test files have it."""
    return name.replace(".", "_")


def camel(name: str) -> str:
    """Return an operator's name with its overload, as the names of kernel files have it."""
    return "".join(part[:1].upper() + part[1:] for part in file_of(name).split("_"))


def module_of(name: str) -> str:
    """Return the Python module of an operator; empty for ``torch`` itself."""
    prefix = name.partition(".")[0].partition("_")[0]
    return prefix if prefix in _PREFIXED_MODULES else ""


def entry_of(name: str, kind: str, *, has_self: bool, has_generator: bool) -> dict[str, str]:
    """Return the values that the entries of all variants share."""
    module = module_of(name)
    return {
        "module": module,
        "variants": "function, method" if has_self and not module else "function",
        "tags": "pointwise" if kind == "pointwise" else "nondeterministic_seeded" if has_generator else "",
    }


def kernel_of(name: str, kind: str, variant: str, *, has_symint: bool) -> tuple[str, list[str]]:
    """Return the name of a variant's kernel, and the lines of its dispatch table."""
    is_symint = has_symint and kind != "pointwise"
    # Without a dispatch table torchgen names the kernel, and omits the overload.
    base = name.partition(".")[0] if kind == "composite" else file_of(name)
    kernel = f"{base}{_SUFFIXES[variant]}{'_symint' if is_symint else ''}"
    has_table = {"composite": is_symint, "pointwise": variant == "out"}.get(kind, True)
    return kernel, [line.format(kernel) for line in _TABLES[kind] if has_table]
