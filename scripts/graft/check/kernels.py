"""Check ``dispatch:`` and dispatch stubs against the definitions in the sources."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from ..codegen.torchgen import (
    ABSENT_DEVICES,
    Binding,
    NativeFunction,
    NativeFunctionsGroup,
    NativeSignature,
    SchemaKind,
    dispatch_keys,
    meta,
    native_function_manager,
    structured,
)
from ..cpp.functions import Definition, canonical
from ..cpp.registrations import registrations
from ..cpp.sources import Source, defined_stubs, read_text, replacing_sources
from ..inputs.entries import Place, kernels_of
from ..inputs.native import FUNCTIONS, NativeFolders
from . import Findings, line_of, nearest
from .base import BaseOperators
from .python_api import check_python_api
from .schemas import Function, root_of

# The types of ATen and C++ in signatures. Other types may be aliases of these.
_KNOWN_TYPES = re.compile(
    "const|unsigned|void|bool|int|int64_t|float|double|string|string_view|optional|tuple|vector|array|Tensor|Scalar|"
    "SymInt|Generator|Dimname|Storage|Stream|Layout|Device|ScalarType|MemoryFormat|ArrayRef|IListRef|List|"
    "OptionalArrayRef|[0-9]+"
)

# Python files, and blocks in C++, that register meta functions.
_WITH_SHAPES = ("_meta_registrations", "decompositions", "fake_impls")
_META_LIBRARY = re.compile(r"\bTORCH_LIBRARY_IMPL\(\s*aten\s*,\s*Meta\b")


@dataclass(frozen=True)
class Kernel:
    """A C++ function that an entry of native_functions.yaml requires.

    Args:
        namespace: for example ``at::native``.
        name: its name.
        declaration: torchgen's declaration.
        returns: the return type; empty if it is structured: defined with ``TORCH_IMPL_FUNC`` or ``TORCH_META_FUNC``.
        parameters: the parameter types.
        purpose: for messages, for example ``the kernel of foo.out for CPU``.
        place: the place of the entry.
        is_replacing: whether it replaces a kernel of PyTorch's operator.
        is_theirs: whether PyTorch's kernel has the same name.
        takes_sizes: whether it takes int64_t for a SymInt of the schema.
        header: ATen's header that declares it, in ``ATen/ops``.
        defaults: the positions of the parameters that have a default in that header.
    """

    namespace: str
    name: str
    declaration: str
    returns: str
    parameters: tuple[str, ...]
    purpose: str
    place: Place
    is_replacing: bool = False
    is_theirs: bool = False
    takes_sizes: bool = False
    header: str = ""
    defaults: tuple[int, ...] = ()

    def is_met_by(self, definition: Definition) -> bool:
        return definition.has_types(self.returns, self.parameters)


def wanted_kernels(functions: list[Function], base: BaseOperators, *, with_cuda: Container[Path]) -> list[Kernel]:
    """Return the kernels that the entries require; kernels for CUDA only in the folders ``with_cuda``."""
    natives = [f.native for f in functions]
    found: list[Kernel] = []
    for function in functions:
        if function.entry.is_replacing:
            found += _replacing(function, base, with_cuda)
            continue
        if "ufunc_inner_loop" in function.entry.fields or "view_copy" in function.native.tags:
            continue  # torchgen generates these
        group = _group_of(function.native, natives) if function.native.structured else None
        found += _registered(function, group, _absent(function, with_cuda))
        if group:
            found.append(_meta_function(function, group))
    return found


def _replacing(function: Function, base: BaseOperators, with_cuda: Container[Path]) -> Iterator[Kernel]:
    """Yield the kernels that replace PyTorch's. They may have the same names."""
    native, theirs = function.native, set(kernels_of(base.fields(function.entry.operator)).values())
    like = [f for f, _ in base.functions_like(root_of(function.entry.operator))]
    group = _group_of(native, like) if native.structured else None
    for kernel in _registered(function, group, _absent(function, with_cuda)):
        yield replace(kernel, is_replacing=True, is_theirs=kernel.name in theirs or not function.entry.kernels)


def _absent(function: Function, with_cuda: Container[Path]) -> tuple[str, ...]:
    return ABSENT_DEVICES if function.entry.file.parent in with_cuda else (*ABSENT_DEVICES, "CUDA")


def _group_of(out: NativeFunction, functions: list[NativeFunction]) -> NativeFunctionsGroup | None:
    """Return the structured group of ``out``; None if it lacks a functional variant or torchgen rejects it."""
    wanted = out.func.signature()
    twins = [f for f in functions if f.func.kind() == SchemaKind.functional and f.func.signature() == wanted]
    try:
        return NativeFunctionsGroup(functional=twins[0], inplace=None, mutable=None, out=out) if twins else None
    except (AssertionError, RuntimeError):
        return None


def _registered(function: Function, group: NativeFunctionsGroup | None, absent: tuple[str, ...]) -> Iterator[Kernel]:
    seen = set()
    place = function.entry.place("dispatch" if "dispatch" in function.entry.fields else "func")
    for key, index in function.kernels.items():
        metadata = index.get(function.schema.name)
        if metadata is None or metadata in seen or str(key).endswith(absent):
            continue
        seen.add(metadata)  # one kernel may serve several keys
        namespace, name = metadata.cpp_namespace, metadata.kernel
        purpose = f"the kernel of {function.schema.name} for {key}"
        if not metadata.structured:
            with native_function_manager(function.native):
                native = NativeSignature(function.schema, symint=metadata.supports_symint())
                bindings = native.arguments()
                returns, parameters = native.returns_type().cpp_type(), tuple(b.type for b in bindings)
                defaults = tuple(i for i, b in enumerate(bindings) if b.default is not None)
                takes_sizes = function.schema.has_symint() and not metadata.supports_symint()
                declaration = native.defn(name=name)
                kernel = Kernel(namespace, name, declaration, returns, parameters, purpose, place)
                header = f"{function.native.root_name}_native.h"
                yield replace(kernel, takes_sizes=takes_sizes, header=header, defaults=defaults)
        elif group:
            with native_function_manager(group.out):
                bindings = structured.impl_arguments(group)
            yield _of_macro(f"TORCH_IMPL_FUNC({name})", bindings, namespace, name, purpose, place)


def _meta_function(function: Function, group: NativeFunctionsGroup) -> Kernel:
    name = group.functional.func.name
    macro = "TORCH_PRECOMPUTE_META_FUNC" if group.out.precomputed else "TORCH_META_FUNC"
    macro += f"2({name.name}, {name.overload_name})" if name.overload_name else f"({name})"
    with native_function_manager(group.functional):
        bindings = structured.meta_arguments(group)
    purpose = f"the meta function of {function.schema.name}"
    return _of_macro(macro, bindings, "at::meta", meta.name(group), purpose, function.entry.place("structured"))


def _of_macro(macro: str, bindings: list[Binding], namespace: str, name: str, purpose: str, place: Place) -> Kernel:
    declaration = f"{macro}({', '.join(binding.defn() for binding in bindings)})"
    return Kernel(namespace, name, declaration, "", tuple(binding.type for binding in bindings), purpose, place)


def check_kernels(
    kernels: list[Kernel],
    natives: NativeFolders,
    sources: list[Source],
    base: BaseOperators,
    findings: Findings,
    *,
    are_all: bool,
) -> None:
    """Check that each kernel is defined with its signature, and that no definition repeats one of PyTorch's.

    ``are_all`` says that there is no invalid entry, which may require more kernels.
    """
    definitions = [definition for source in sources for definition in source.definitions]
    by_name: dict[str, list[Definition]] = {}
    for definition in definitions:
        by_name.setdefault(_plain_name(definition), []).append(definition)
    wanted = {kernel.name for kernel in kernels}
    unnamed = [each for each in definitions if _plain_name(each) not in wanted and not each.is_local]
    for kernel in kernels:
        if kernel.is_theirs and not any(kernel.name in source.words for source in sources):
            what = f"no file of the folder defines {kernel.namespace}::{kernel.name}, so PyTorch's own remains"
            findings.warn("kernel-missing", kernel.place, what, f"define `{kernel.declaration}` in a .cpp file")
        elif kernel.is_theirs or not any(kernel.is_met_by(each) for each in base.kernels_named(kernel.name)):
            _check_kernel(kernel, by_name.get(kernel.name, []), unnamed, natives, sources, findings)
    replacing = replacing_sources(sources, {kernel.name for kernel in kernels if kernel.is_replacing})
    for definition in definitions:
        if definition.file not in replacing:
            _check_is_new(definition, base, findings)
    if are_all:
        _every_file_is_named(kernels, sources, natives.helpers, findings)
    _check_stubs(sources, replacing, findings)
    for source in sources:
        if source.is_vectorized:
            _is_defined_once(source, {kernel.name for kernel in kernels}, findings)
    for kernel in {kernel.name: kernel for kernel in kernels}.values():
        _check_definitions(kernel, by_name.get(kernel.name, []), sources, findings)
    _check_memory(kernels, sources, findings)
    _check_sizes(kernels, findings)
    check_python_api(sources, findings)
    _check_registrations(sources, base, findings)
    _check_stock(sources, natives, base, findings)


def _check_registrations(sources: list[Source], base: BaseOperators, findings: Findings) -> None:
    """Report a registration for an operator of PyTorch where an entry would do: entries are listed and tested."""
    keys = {str(key) for key in dispatch_keys}
    for source in sources:
        for each in registrations(source.code):
            name = next((name for name in each.names if name in base.schemas), "")
            if name and each.key in keys:
                what = f"{name} of PyTorch gets a kernel for {each.key} without an entry"
                kernel = each.kernel.rpartition("::")[2] or "<kernel>"
                todo = f"write `- func: {base.schemas[name]}` with `dispatch:` of `{each.key}: {kernel}` and "
                todo += "`replace: True` in native_functions.yaml, and the kernel in at::native, instead of this"
                findings.add("registration-without-entry", (source.path, each.line, 0), what, todo)


def _check_stock(sources: list[Source], natives: NativeFolders, base: BaseOperators, findings: Findings) -> None:
    """Check the calls to ``at::native::stock``, which has PyTorch's kernels of the operators that entries replace."""
    roots = sorted({root_of(entry.operator) for entry in natives.entries(FUNCTIONS, replacing=True)})
    headers = [base.tree / f"torch/include/ATen/ops/{root}_native.h" for root in roots]
    text = "\n".join(path.read_text(encoding="utf-8") for path in headers if path.is_file())
    known = set(re.findall(r"^(?:TORCH_API .*?|struct TORCH_API structured_)(\w+)(?:\(| :)", text, re.M))
    for source in sources:
        is_for_cuda = source.name.suffix in (".cu", ".cuh") or "cuda" in source.name.parts
        for line, name in source.stock_calls:
            if name == "of" and is_for_cuda:
                what = "`stock::of` has no kernels for CUDA"
                findings.add("stock-kernel", (source.path, line, 0), what, "copy PyTorch's kernel under another name")
            elif name not in known | {"of"}:
                what = f"`stock::{name}` is no kernel of PyTorch's for an operator that an entry replaces"
                todo = nearest(name, known, otherwise=f"write `at::native::{name}`")
                findings.add("stock-kernel", (source.path, line, 0), what, todo)


def check_meta(functions: list[Function], natives: NativeFolders, sources: list[Source], findings: Findings) -> None:
    """Check that torch.compile can infer the shapes of results, by a Meta kernel or a registration in Python or C++."""
    texts = [text for name in natives.python if name.stem in _WITH_SHAPES for text in natives.texts(name).values()]
    laid_over = (path for name, (_, path) in natives.overlay.items() if Path(name).stem in _WITH_SHAPES)
    texts += [path.read_text(encoding="utf-8", errors="replace") for path in laid_over]
    texts += [source.code for source in sources if _META_LIBRARY.search(source.code)]
    registered = "\n".join(texts)
    for function in functions:
        schema, native = function.schema, function.native
        keys = {str(key) for key, index in function.kernels.items() if index.get(schema.name)}
        is_alone = "CPU" in keys and not any(key == "Meta" or key.startswith("Composite") for key in keys)
        if not is_alone or native.structured or native.structured_delegate or function.entry.is_replacing:
            continue
        is_functional = schema.kind() == SchemaKind.functional and any(r.type.is_tensor_like() for r in schema.returns)
        if is_functional and not re.search(rf"\b{schema.name.name}\b", registered):
            what = f"{schema.name} has a kernel for CPU and none for Meta, which torch.compile and torch.export need"
            todo = "add `Meta: <kernel>`, or register a meta function in python/_meta_registrations.py"
            findings.warn("meta-missing", function.entry.place("dispatch"), what, todo)


def _check_sizes(kernels: list[Kernel], findings: Findings) -> None:
    """Warn of kernels that serve Meta and take int64_t for SymInt: torch.compile calls them with symbolic sizes."""
    with_meta = {kernel.purpose.removesuffix(" for Meta") for kernel in kernels if kernel.purpose.endswith(" for Meta")}
    for kernel in kernels:
        operator, _, key = kernel.purpose.rpartition(" for ")
        if kernel.takes_sizes and (key == "Meta" or (key == "CompositeExplicitAutograd" and operator not in with_meta)):
            what = f"{kernel.purpose} takes int64_t for SymInt, so torch.compile and torch.export fix its value"
            todo = f"call it `{kernel.name}_symint`, which takes c10::SymInt, or write `int` in the schema"
            findings.warn("meta-sizes", kernel.place, what, todo)


def _check_memory(kernels: list[Kernel], sources: list[Source], findings: Findings) -> None:
    """Warn of composite kernels that read memory: they also get tensors without memory if there is no Meta kernel."""
    with_meta = {kernel.purpose.removesuffix(" for Meta") for kernel in kernels if kernel.purpose.endswith(" for Meta")}
    found = [(kernel, *kernel.purpose.partition(" for Composite")[:2]) for kernel in kernels]
    composite = {kernel.name: kernel for kernel, what, is_composite in found if is_composite and what not in with_meta}
    for source in sources:
        lines = source.code.splitlines()
        definitions = sorted(source.definitions, key=lambda each: each.line)
        for definition, following in zip_longest(definitions, definitions[1:]):
            body = enumerate(lines[definition.line - 1 : following.line - 1 if following else None], definition.line)
            kernel, line = composite.get(definition.name), next((n for n, text in body if "data_ptr" in text), 0)
            if kernel and line and kernel.is_met_by(definition):
                what = f"{kernel.purpose} reads memory, but also gets the tensors of torch.compile, which have none"
                todo = f"write `CPU: {kernel.name}` instead, and a kernel for Meta"
                findings.warn("meta-memory", (source.path, line, 0), what, todo)


def _check_kernel(
    kernel: Kernel,
    definitions: list[Definition],
    unnamed: list[Definition],
    natives: NativeFolders,
    sources: list[Source],
    findings: Findings,
) -> None:
    """Check that one of ``definitions``, which have its name, is the kernel. No entry names those in ``unnamed``."""
    is_meta = kernel.namespace == "at::meta"
    named = [d for d in definitions if ("META_FUNC" in d.macro) == is_meta]
    reachable = [d for d in named if d.namespace == kernel.namespace and not d.is_local]
    if any(kernel.is_met_by(d) for d in reachable):
        return
    # Definitions made by macros cannot be seen here; the linker checks those.
    are_made = any(source.pastes_names for source in sources)
    is_unsure = are_made or any(kernel.name in source.words for source in sources)
    if not named and (unread := _unread_definition(kernel, natives)):
        what = f"`{unread}`, {kernel.purpose}, is in a folder that is not read"
        place = f"cuda/{unread.file.name}" if unread.file.suffix == ".cu" else f"{unread.file.stem}.cpp"
        todo = f"move it to {place}, or name it in `sources` of [tool.graft] in pyproject.toml"
        findings.add("kernel-missing", (unread.file, unread.line, 0), what, todo)
        return
    if not named:
        what = f"no file of the folder defines {kernel.namespace}::{kernel.name}, {kernel.purpose}"
        todo = f"define `{kernel.declaration}` in a .cpp file at the top, in cpu/ or in another folder of ATen's"
        if other := _of_another_name(kernel, unnamed):
            where = line_of(other.file, other.line, kernel.place[0])
            todo = f"`{_plain_name(other)}` in {where} has its signature: give both the same name"
        findings.add("kernel-missing", kernel.place, what, todo, is_warning=is_unsure)
        return
    definition, code, todo = (reachable or named)[0], "kernel-signature", f"write `{kernel.declaration}`"
    if kernel.takes_sizes and any("SymInt" in each for each in definition.parameters):
        todo += f", or call it `{kernel.name}_symint`, here and in `dispatch:`: such a kernel takes SymInt"
    what = f"`{definition}` is not {kernel.purpose}: the parameters or the return differ"
    is_warning = are_made or not _has_known_types(definition)
    is_structured = not kernel.returns
    if bool(definition.macro) != is_structured:
        form = "TORCH_IMPL_FUNC" if is_structured else "a plain function"
        what, is_warning = f"`{definition}` is not {kernel.purpose}, which must be {form}", are_made
    elif definition.is_local:
        why = "static, a template or in a namespace without name"
        code, what = "kernel-local", f"`{definition}`, {kernel.purpose}, is local to its file: {why}"
        todo, is_warning = "move it out: the registration is in another file", False
    elif definition.namespace != kernel.namespace:
        where = f"namespace `{definition.namespace}`" if definition.namespace else "no namespace"
        code, what = "kernel-namespace", f"`{definition}`, {kernel.purpose}, is defined in {where}"
        todo = _of_namespace(kernel, definition)
        is_warning = are_made or any(source.opens_namespaces for source in sources)
    findings.add(code, (definition.file, definition.line, 0), what, todo, is_warning=is_warning)


def _of_another_name(kernel: Kernel, unnamed: list[Definition]) -> Definition | None:
    """Return the function of ``unnamed`` that is the kernel but for its name: the only one, or one of a close name."""
    alike = {d.name: d for d in unnamed if d.namespace == kernel.namespace and kernel.is_met_by(d)}
    alike = {name: d for name, d in alike.items() if bool(d.macro) != bool(kernel.returns)}
    close = difflib.get_close_matches(kernel.name, alike, n=1) if len(alike) > 1 else [*alike]
    return alike[close[0]] if close else None


def _unread_definition(kernel: Kernel, natives: NativeFolders) -> Definition | None:
    """Return the definition of a kernel in the sources of its folder that no build reads."""
    (folder,) = (each for each in natives.folders if each.place(FUNCTIONS) == kernel.place[0])
    for name, place in folder.elsewhere.items():
        text = place.read_text(encoding="utf-8", errors="replace")
        if kernel.name in text:
            for definition in read_text(folder.path / name, text).definitions:
                if kernel.name == _plain_name(definition):
                    return definition
    return None


def _of_namespace(kernel: Kernel, definition: Definition) -> str:
    """Return the remedy for a kernel that is defined in another namespace than its entry's."""
    scope, _, last = definition.namespace.rpartition("::")
    if last == "native" and scope:
        written = definition.name if scope == "at" else f"{scope}::{definition.name}"
        return f"write `{written}` in `dispatch:`, or define it in `namespace {kernel.namespace}`"
    is_given = kernel.namespace not in ("at::native", "at::meta")
    why = ", since torchgen appends `::native` to the namespace in `dispatch:`" if is_given else ""
    other = "" if definition.macro else ", or write a function there that calls it"
    return f"define it in `namespace {kernel.namespace}`{why}{other}"


def _plain_name(definition: Definition) -> str:
    """Return ``name_overload`` for ``TORCH_META_FUNC2(name, overload)``."""
    return re.sub(r"\s*,\s*", "_", definition.name)


def _has_known_types(definition: Definition) -> bool:
    types = " ".join(canonical(each) for each in (definition.returns, *definition.parameters))
    return all(_KNOWN_TYPES.fullmatch(word) for word in re.findall(r"\w+", types))


def _check_is_new(definition: Definition, base: BaseOperators, findings: Findings) -> None:
    """Report a function with the name and signature of one of PyTorch's: the loader would choose one of the two."""
    if definition.is_local or definition.macro or definition.namespace != "at::native":
        return
    declared = base.kernels_named(definition.name)
    if any(definition.has_types(each.returns, each.parameters) for each in declared):
        what = f"PyTorch already has at::native::{definition.name} with this signature"
        todo = "choose another name, or add an entry with `replace: True` that names it"
        findings.add("kernel-exists", (definition.file, definition.line, 0), what, todo)


def _every_file_is_named(
    kernels: list[Kernel], sources: list[Source], others: Collection[Path], findings: Findings
) -> None:
    """Warn of a source that no entry names and no other file uses: it probably lacks its entry. Skip ``others``."""
    wanted = {kernel.name for kernel in kernels}
    files = Counter(word for source in sources for word in source.words)
    for source in sources:
        if not source.is_compiled or source.pastes_names or not source.definitions or source.name in others:
            continue
        if re.search(r"\b(TORCH_LIBRARY|REGISTER_)|_DISPATCH\b", source.code):
            continue
        defined = {_plain_name(d) for d in source.definitions}
        if not any(name in wanted or files[name] > (name in source.words) for name in defined):
            what = f"this file is not used: it defines {', '.join(sorted(defined))}"
            todo = "name its kernel in `dispatch:`, or delete it"
            findings.warn("unused-source", (source.path, source.definitions[0].line, 0), what, todo)


def _is_defined_once(source: Source, wanted: set[str], findings: Findings) -> None:
    """Report functions that would be defined once for each CPU capability, which `make develop` does not detect."""
    for each in source.definitions:
        if not (each.is_local or each.is_inline or "CPU_CAPABILITY" in each.namespace):
            what = f"`{each}` would be defined once for each CPU capability, as all of this file is compiled"
            todo = "move it to a .cpp file outside of cpu/"
            todo += "" if _plain_name(each) in wanted else ", or write `static` before it if only this file calls it"
            what = f"{what}, which registers kernels for dispatch stubs"
            findings.add("defined-per-capability", (each.file, each.line, 0), what, todo)


def _check_definitions(kernel: Kernel, named: list[Definition], sources: list[Source], findings: Findings) -> None:
    """Check that one file defines a kernel, without the defaults that ATen's header has."""
    by_path = {source.path: source for source in sources}
    seen: dict[Path, Definition] = {}
    for each in named:
        source = by_path[each.file]
        is_unsure = each.is_local or each.is_inline or source.is_conditional(each.line)
        if each.namespace != kernel.namespace or not kernel.is_met_by(each) or is_unsure:
            continue
        is_declared = f"<ATen/ops/{kernel.header}>" in source.code or "<ATen/NativeFunctions.h>" in source.code
        if is_declared and set(each.defaults) & set(kernel.defaults):
            what = f"`{each}` repeats a default of its declaration in ATen/ops/{kernel.header}"
            findings.add("kernel-default", (each.file, each.line, 0), what, f"write `{kernel.declaration}`")
        if not source.is_compiled:
            continue
        if other := next((first for path, first in seen.items() if path != each.file), None):
            what = f"`{each}`, {kernel.purpose}, is also defined in {line_of(other.file, other.line, each.file)}"
            findings.add("duplicate-definition", (each.file, each.line, 0), what, "delete one of the two")
        seen.setdefault(each.file, each)


def _check_stubs(sources: list[Source], replacing: Container[Path], findings: Findings) -> None:
    """Check the kernels that are compiled for each CPU capability: the macros of ATen/native/DispatchStub.h.

    The sources ``replacing`` may be PyTorch's own, so they get no warnings about stubs.
    """
    macros = [(source, *each) for source in sources for each in source.stub_macros]
    defined = defined_stubs(sources)
    filled = {stub for _, _, macro, stub in macros if "REGISTER" in macro}
    for source, line, macro, stub in macros:
        code, what, todo, is_warning = "dispatch-stub", "", "", True
        if macro == "DECLARE_DISPATCH" and stub not in defined:
            what = f"the dispatch stub {stub} is declared, but no file defines it"
            todo = f"write `DEFINE_DISPATCH({stub});` in one .cpp file"
        elif macro == "DEFINE_DISPATCH" and stub not in filled:
            what = f"no file registers a kernel for the dispatch stub {stub}"
            todo = f"write `ALSO_REGISTER_AVX512_DISPATCH({stub}, &kernel)` in a file below cpu/"
        elif not re.fullmatch(r"(ALSO_REGISTER_\w+_|REGISTER_)DISPATCH", macro) or source.name.suffix != ".cpp":
            continue
        elif not source.is_vectorized:
            code, is_warning = "dispatch-stub-place", False
            what = f"{macro} works only in files that are compiled for each CPU capability"
            todo = f"move the kernel into cpu/{source.name.name}, or write `REGISTER_ALL_CPU_DISPATCH`"
        elif macro == "REGISTER_DISPATCH" and not source.is_explained(line, "AVX512"):
            code = "dispatch-stub-avx512"
            what = f"with REGISTER_DISPATCH, {stub} uses the AVX2 kernel on CPUs with AVX512"
            todo = f"write `ALSO_REGISTER_AVX512_DISPATCH({stub}, ...)`, or say in a comment above why not AVX512"
        if what and not (is_warning and source.path in replacing):
            findings.add(code, (source.path, line, 0), what, todo, is_warning=is_warning)
