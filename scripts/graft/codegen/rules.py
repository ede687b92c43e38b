"""Generate kernels from operators' entries: batching rules for ``torch.vmap``, with or without a loop, and autocast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import yaml

from ..inputs.entries import Loader
from ..inputs.native import AUTOCAST, NativeFolders
from . import torchgen
from .operators import Selection
from .output import Output
from .torchgen import (
    BaseTy,
    BaseType,
    DispatchKey,
    ListType,
    NativeFunction,
    OptionalType,
    SchemaKind,
    write_from_template,
)
from .writing import is_writing, lacks_meta

# Batching rules and autocast policies are registered only if the folder did not register its own, which is known only
# after its initializers have run. In a grafted library, these run before those of generated code
# (scripts/graft/compile). In a source tree they run later, and replace the derived rules.

_BLOCK = """\
TORCH_LIBRARY_IMPL(aten, {key}, m) {{
  // What the native folder registers itself comes first.
  const auto is_free = [&](const char* name, const char* overload) {{
#ifdef GRAFT_LOADED
    return m.is_free(name, overload, {{{keys}}});
#else
    const auto op = c10::Dispatcher::singleton().findOp({{std::string("aten::") + name, overload}});
    return !op || ({is_unset});
#endif
  }};
{registrations}
}}"""

_REGISTRATION = """\
  if (is_free("{name.name}", "{name.overload_name}")) {{
    {statement}
  }}"""


def registration_block(keys: Sequence[str], statements: Sequence[tuple[NativeFunction, str]]) -> str:
    """Return a C++ block that registers kernels for the first of the dispatch keys ``keys``, where none of
    them has one. Each of ``statements`` registers an operator's kernel with the library ``m``.
    """
    is_unset = " && ".join(f"!op->hasKernelForDispatchKey(c10::DispatchKey::{each})" for each in keys)
    lines = "\n".join(_REGISTRATION.format(name=f.func.name, statement=statement) for f, statement in statements)
    names = ", ".join(f"c10::DispatchKey::{each}" for each in keys)
    return _BLOCK.format(key=keys[0], keys=names, is_unset=is_unset, registrations=lines)


def replacement_block(keys: Sequence[str], statements: Sequence[tuple[NativeFunction, str]]) -> str:
    """Return a C++ block like that of ``registration_block``, which replaces existing kernels."""
    lines = "\n".join(f"  {statement}" for _, statement in statements)
    return f"TORCH_LIBRARY_IMPL(aten, {keys[0]}, m) {{\n{lines}\n}}"


# Rules are registered as decompositions: what a folder registers for FuncTorchBatched takes precedence, in any order.
# In a source tree their files are linked before LegacyBatchingRegistrations.cpp, like upstream's: PyTorch 2.6 ignores
# decompositions that are registered after the fallback (getRuntimeDispatchKeySet lacks their key).
_BATCHED = ("FuncTorchBatchedDecomposition", "FuncTorchBatched")

# Under vmap a kernel cannot read values, and each sample needs its own random numbers.
_TAGS_THAT_LOOP = {"nondeterministic_seeded", "data_dependent_output", "dynamic_output_shape"}

_TENSOR = BaseType(BaseTy.Tensor)

# The templates with the boxed rules.
_TEMPLATES = {
    "writing": "BatchRulesOfAddedWriting",
    "pointwise": "BatchRulesOfAddedPointwise",
    "explicit": "BatchRulesOfAddedLooping",
    "looping": "BatchRulesOfAddedLooping",
}


def generate_batching_rules(selection: Selection, out: Output, folder: str = "ATen") -> None:
    """Generate the rules in a folder below ``out``, and kernels of operators that write arguments."""
    generate_decompositions(selection, out, folder)
    statements: dict[str, list[tuple[NativeFunction, str]]] = {}
    for f in selection.functions:
        if f.namespace == "aten" and (kind := _rule_of(f, selection)):
            rule = f"torch::CppFunction::makeFromBoxedFunction<&{kind}_batching_rule>()"
            statements.setdefault(_TEMPLATES[kind], []).append((f, f'm.impl("{f.func.name}", {rule});'))
    for template, of_template in statements.items():
        text = registration_block(_BATCHED, of_template)
        write_from_template(out, f"{folder}/{template}.cpp", {"registrations": text})
    if texts := [*_kernels_of_writing(selection)]:
        write_from_template(out, f"{folder}/RegisterWriting.cpp", {"registrations": "\n\n".join(texts)})


def _kernels_of_writing(selection: Selection) -> Iterator[str]:
    """Yield the blocks that register kernels of operators that write arguments: for Meta, Conjugate and Negative."""
    writing = [f for f in selection.functions if is_writing(f) and f.namespace == "aten"]
    without_meta = [f for f in writing if lacks_meta(f, _keys_of(f, selection))]
    kernels = {key: f"materializes<c10::DispatchKey::{key}>" for key in ("Conjugate", "Negative")}
    for key, functions in {"Meta": without_meta, **dict.fromkeys(kernels, writing)}.items():
        kernel = f"torch::CppFunction::makeFromBoxedFunction<&{kernels.get(key, 'writes_nothing')}>()"
        if functions:
            yield registration_block([key], [(f, f'm.impl("{f.func.name}", {kernel});') for f in functions])


def _keys_of(f: NativeFunction, selection: Selection) -> set[DispatchKey]:
    return {key for key, index in selection.whole.backend_indices.items() if index.has_kernel(f)}


def _rule_of(f: NativeFunction, selection: Selection) -> str | None:
    """Return the boxed rule of ``f``; None for composite operators, and for those that PyTorch's own loop serves."""
    rules = {
        "writing": is_writing(f),
        "pointwise": is_batched_pointwise(f),
        "explicit": is_batched_by_its_kernel(f, selection),
        "looping": is_batched_in_a_loop(f),
    }
    return next((name for name, is_of_kind in rules.items() if is_of_kind), None)


def is_batched_pointwise(f: NativeFunction) -> bool:
    """Return whether ``f`` is elementwise and takes and returns individual tensors."""
    tensors = (_TENSOR, OptionalType(_TENSOR))
    takes = all(a.type in tensors for a in f.func.arguments.flat_all if a.type.is_tensor_like())
    returns = bool(f.func.returns) and all(r.type == _TENSOR for r in f.func.returns)
    is_of_kind = f.func.kind() in (SchemaKind.functional, SchemaKind.inplace)
    is_composite = f.has_composite_implicit_autograd_kernel
    is_random = "nondeterministic_seeded" in f.tags
    return "pointwise" in f.tags and takes and returns and is_of_kind and not is_composite and not is_random


def is_batched_by_its_kernel(f: NativeFunction, selection: Selection) -> bool:
    """Return whether ``f`` has one kernel for every backend, which can only call other operators, and mutates no
    argument.

    An additional meta kernel does not matter, since it computes nothing.
    """
    keys = _keys_of(f, selection) - {DispatchKey.Meta}
    arguments = f.func.arguments.flat_all
    takes = any(a.type.is_tensor_like() for a in arguments)
    writes = any(a.annotation is not None and a.annotation.is_write for a in arguments)
    is_random = any(a.type.is_base_ty_like(BaseTy.Generator) for a in arguments)
    is_explicit = keys == {DispatchKey.CompositeExplicitAutograd}
    loops = writes or is_random or f.tags & _TAGS_THAT_LOOP
    return is_explicit and takes and not loops


def is_batched_in_a_loop(f: NativeFunction) -> bool:
    """Return whether PyTorch's loop refuses ``f`` only because of lists of tensors in its arguments or results."""
    takes = [a.type for a in f.func.arguments.flat_all if a.type.is_tensor_like()]
    returns = [r.type for r in f.func.returns]
    has_lists = any(each.is_list_like() for each in (*takes, *returns))
    can_stack = bool(returns) and all(each in (_TENSOR, ListType(_TENSOR, None)) for each in returns)
    is_of_kind = f.func.kind() in (SchemaKind.functional, SchemaKind.inplace) and not f.is_view_op
    is_composite = f.has_composite_implicit_autograd_kernel
    return bool(takes) and has_lists and can_stack and is_of_kind and not is_composite


def generate_decompositions(selection: Selection, out: Output, folder: str, *, is_replaced: bool = False) -> None:
    """Generate the rules of composite operators; if ``is_replaced``, in place of the base's."""
    kernels = selection.whole.backend_indices[DispatchKey.CompositeImplicitAutograd]
    headers, statements = set(), []
    for f in selection.functions:
        kernel = kernels.get_kernel(f)
        if kernel is None or f.namespace != "aten" or f.manual_kernel_registration:
            continue
        with torchgen.native_function_manager(f):
            pointer = torchgen.NativeSignature(f.func, symint=kernel.supports_symint()).ptr_type()
        headers.add(f"#include <ATen/ops/{f.root_name}_native.h>")
        function = f"{kernel.cpp_namespace}::{kernel.kernel}"
        statements.append((f, f'm.impl("{f.func.name}", static_cast<{pointer}>(::{function}));'))
    if statements:
        block = replacement_block if is_replaced else registration_block
        env = {"headers": sorted(headers), "registrations": block(_BATCHED, statements)}
        write_from_template(out, f"{folder}/BatchRulesOfAddedComposites.cpp", env)


# Policies that upstream registers without an additional signature.
POLICIES = ("lower_precision_fp", "fp32", "fp32_set_opt_dtype", "promote")

# The dispatch keys that a policy is registered for, each with upstream's macro. `Autocast` is the key of CUDA.
_AUTOCAST_KEYS = {"AutocastCPU": "KERNEL_CPU", "Autocast": "KERNEL_CUDA"}


def generate_autocast(selection: Selection, policies: Mapping[str, str], out: Output, folder: str = "ATen") -> None:
    """Generate the registrations of ``policies``, by which ``torch.autocast`` casts arguments of operators."""
    listed = [
        (f, f"{str(f.func.name).replace('.', ', ')}, {policies[str(f.func.name)]}")
        for f in selection.functions
        if str(f.func.name) in policies
    ]
    if listed:
        blocks = [
            registration_block([key], [(f, f"{macro}({arguments})") for f, arguments in listed])
            for key, macro in _AUTOCAST_KEYS.items()
        ]
        write_from_template(out, f"{folder}/RegisterAutocast.cpp", {"registrations": "\n\n".join(blocks)})


def read_policies(natives: NativeFolders) -> dict[str, str]:
    """Return the policy of each operator, by name with overload, in the files ``autocast.yaml`` of native folders.

    The files list operators by the names of upstream's policies: ``fp32: [my_loss]``.
    """
    lists = [pair for text in natives.texts(AUTOCAST).values() for pair in (yaml.load(text, Loader) or {}).items()]
    return {name: policy for policy, names in lists for name in names}
