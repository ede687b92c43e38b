"""Check ``dispatch:`` against the kernels, as far as the text of the sources shows."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from torchgen.model import NativeFunctionsGroup, OperatorName

from ..codegen.description import ABSENT_DEVICES
from .base import BaseOperators
from .cplusplus import Definition, Source
from .entries import Entry, Place
from .finding import Findings
from .schemas import Function
from .signatures import (
    Signature,
    group_of,
    has_known_types,
    impl_signature,
    kernel_signature,
    meta_name,
    meta_signature,
)


@dataclass(frozen=True)
class Kernel:
    """A C++ function that an entry of native_functions.yaml requires.

    Args:
        namespace: for example ``at::native``.
        name: its name.
        root: the root name of the operator, which the generated headers are named after.
        signature: torchgen's declaration.
        purpose: for messages, for example ``the kernel of foo.out for CPU``.
        place: the place of the entry.
        is_structured: whether it is defined with ``TORCH_IMPL_FUNC`` or ``TORCH_META_FUNC``.
    """

    namespace: str
    name: str
    root: str
    signature: Signature
    purpose: str
    place: Place
    is_structured: bool


def wanted_kernels(
    functions: list[Function], unwritable: set[OperatorName], *, with_cuda: Container[Path]
) -> list[Kernel]:
    """Return the kernels that the entries require, including CUDA kernels if ``with_cuda``.

    Operators in ``unwritable``, whose declarations torchgen cannot write, are skipped.
    """
    natives = [f.native for f in functions]
    found: list[Kernel] = []
    for function in functions:
        group = group_of(function.native, natives) if function.native.structured else None
        if "ufunc_inner_loop" in function.entry.fields or "view_copy" in function.native.tags:
            continue  # torchgen generates these
        try:
            absent = ABSENT_DEVICES if function.entry.file.parent in with_cuda else (*ABSENT_DEVICES, "CUDA")
            found += _registered(function, group, absent)
        except ValueError:
            if function.schema.name not in unwritable:
                raise
            continue
        if group:
            purpose = f"the meta function of {function.schema.name}"
            place = function.entry.place("structured")
            found.append(
                Kernel(
                    "at::meta", meta_name(group), function.native.root_name, meta_signature(group), purpose, place, True
                )
            )
    return found


def _registered(function: Function, group: NativeFunctionsGroup | None, absent: tuple[str, ...]) -> Iterator[Kernel]:
    seen = set()
    root = function.native.root_name
    place = function.entry.place("dispatch" if "dispatch" in function.entry.fields else "func")
    for key, index in function.kernels.items():
        metadata = index.get(function.schema.name)
        if metadata is None or metadata in seen or str(key).endswith(absent):
            continue
        seen.add(metadata)  # one kernel may serve several keys
        purpose = f"the kernel of {function.schema.name} for {key}"
        if not metadata.structured:
            native = kernel_signature(function.native, metadata.kernel, symint=metadata.supports_symint())
            yield Kernel(metadata.cpp_namespace, metadata.kernel, root, native, purpose, place, False)
        elif group:
            signature = impl_signature(group, metadata.kernel)
            yield Kernel(metadata.cpp_namespace, metadata.kernel, root, signature, purpose, place, True)


def check_kernels(
    kernels: list[Kernel], unknown: list[Entry], sources: list[Source], base: BaseOperators, findings: Findings
) -> None:
    """Check that each kernel is defined with its signature, and that no definition repeats one of PyTorch's.

    Args:
        kernels: the required kernels.
        unknown: invalid entries, which may require more kernels.
        sources: the folder's sources.
        base: the base.
        findings: receives errors.
    """
    definitions = [definition for source in sources for definition in source.definitions]
    for kernel in kernels:
        if any(kernel.signature.is_met_by(s.returns, s.parameters) for s in base.kernels_named(kernel.name)):
            continue
        _check_kernel(kernel, definitions, sources, findings)
    for definition in definitions:
        _is_not_pytorch_s(definition, base, findings)
    if not unknown:
        _every_file_is_named(kernels, sources, findings)


def _check_kernel(kernel: Kernel, definitions: list[Definition], sources: list[Source], findings: Findings) -> None:
    named = [d for d in definitions if _plain_name(d) == kernel.name and _is_of_the_kind(d, kernel)]
    reachable = [d for d in named if d.namespace == kernel.namespace and not d.is_local]
    met = [d for d in reachable if kernel.signature.is_met_by(d.returns, d.parameters)]
    if met:
        _no_default_is_repeated(kernel, met[0], sources, findings)
        return
    # Definitions made by macros cannot be seen here; the linker checks those.
    are_made = any(source.pastes_names for source in sources)
    is_unsure = are_made or any(kernel.name in source.words for source in sources)
    todo = f"write `{kernel.signature.declaration}`"
    if not named:
        what = f"no file of the folder defines {kernel.namespace}::{kernel.name}, {kernel.purpose}"
        todo = f"define `{kernel.signature.declaration}` in a .cpp file"
        findings.add(kernel.place, what, todo, is_warning=is_unsure)
        return
    definition = (reachable or named)[0]
    place = (definition.file, definition.line, 0)
    if bool(definition.macro) != kernel.is_structured:
        kinds = ("structured", "a plain function") if kernel.is_structured else ("plain", "a structured kernel")
        what = f"{kernel.purpose} must be {kinds[0]}, but `{definition}` is {kinds[1]}"
        findings.add(place, what, todo, is_warning=are_made)
    elif reachable:
        what = f"`{definition}` is not {kernel.purpose}: the parameters or the return differ"
        is_known = has_known_types(definition.returns, *definition.parameters)
        findings.add(place, what, todo, is_warning=are_made or not is_known)
    elif definition.namespace != kernel.namespace:
        where = f"namespace `{definition.namespace}`" if definition.namespace else "no namespace"
        what = f"{kernel.name}, {kernel.purpose}, is defined in {where}"
        findings.add(place, what, f"define it in `namespace {kernel.namespace}`", is_warning=is_unsure)
    else:
        what = f"{kernel.name}, {kernel.purpose}, is local to its file: static, a template or in an anonymous namespace"
        findings.add(place, what, "move it out: the registration is in another file")


def _no_default_is_repeated(kernel: Kernel, definition: Definition, sources: list[Source], findings: Findings) -> None:
    """C++ allows a default argument once, and the generated header has it, if the file includes that."""
    if set(definition.defaults) & set(kernel.signature.defaults):
        code = next(source.code for source in sources if source.path == definition.file)
        is_included = re.search(rf"#\s*include\s*<ATen/(NativeFunctions|ops/{kernel.root}_native)\.h>", code)
        what = f"`{definition.name}` has a default argument, but the generated header already has it"
        todo = f"write `{kernel.signature.declaration}`"
        findings.add((definition.file, definition.line, 0), what, todo, is_warning=not is_included)


def _is_of_the_kind(definition: Definition, kernel: Kernel) -> bool:
    """Return whether ``definition`` is a meta function if one is required, or a kernel if not."""
    return ("META_FUNC" in definition.macro) == (kernel.namespace == "at::meta")


def _plain_name(definition: Definition) -> str:
    """Return ``name_overload`` for ``TORCH_META_FUNC2(name, overload)``."""
    return re.sub(r"\s*,\s*", "_", definition.name)


def _is_not_pytorch_s(definition: Definition, base: BaseOperators, findings: Findings) -> None:
    """With two functions of one name and signature, the loader would choose which one is called."""
    if definition.is_local or definition.macro or definition.namespace != "at::native":
        return
    if any(
        signature.is_met_by(definition.returns, definition.parameters)
        for signature in base.kernels_named(definition.name)
    ):
        what = f"PyTorch already has at::native::{definition.name} with this signature"
        findings.add((definition.file, definition.line, 0), what, "choose another name")


def _every_file_is_named(kernels: list[Kernel], sources: list[Source], findings: Findings) -> None:
    """A source that no entry names and no other file uses probably lacks its entry."""
    wanted = {kernel.name for kernel in kernels}
    for source in sources:
        if source.path.suffix not in (".cpp", ".cu") or source.pastes_names or not source.definitions:
            continue
        if re.search(r"\b(TORCH_LIBRARY|REGISTER_)|_DISPATCH\b", source.code):
            continue
        defined = {_plain_name(d) for d in source.definitions}
        others = set().union(*(other.words for other in sources if other is not source))
        if not defined & (wanted | others):
            what = f"this file is not used: it defines {', '.join(sorted(defined))}"
            todo = "name its kernel in `dispatch:`, or delete it"
            findings.add((source.path, source.definitions[0].line, 0), what, todo, is_warning=True)
