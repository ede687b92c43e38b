"""Kernels that follow from an operator's entry: batching rules, so that ``torch.vmap`` needs no loop, and autocast.

Each is registered only if the folder did not register its own, which is known only after its initializers have run. In
a grafted library they run before those of generated code (scripts/graft/compile). In a source tree they run after, and
replace the derived ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from torchgen.api.types import NativeSignature
from torchgen.context import native_function_manager
from torchgen.model import BaseTy, BaseType, DispatchKey, NativeFunction, OptionalType, SchemaKind, Type

from ..inputs.entries import Loader
from ..inputs.native import AUTOCAST
from .operators import Operators
from .writer import TEMPLATES, Output, SelectingFileManager

_BLOCK = """\
TORCH_LIBRARY_IMPL(aten, {key}, m) {{
  // What the native folder registers itself comes first.
  const auto is_free = [](const char* name, const char* overload) {{
    const auto op = c10::Dispatcher::singleton().findOp({{std::string("aten::") + name, overload}});
    return !op || ({is_unset});
  }};
{registrations}
}}"""

_REGISTRATION = """\
  if (is_free("{name.name}", "{name.overload_name}")) {{
    {statement}
  }}"""


def registrations(key: str, statements: Sequence[tuple[NativeFunction, str]], *, or_key: str | None = None) -> str:
    """Return a C++ block that registers kernels for the dispatch key ``key``.

    Args:
        key: the dispatch key, in C++.
        statements: the statement that registers each operator's kernel with the library ``m``.
        or_key: another key; its kernel also prevents the registration.
    """
    keys = [each for each in (key, or_key) if each]
    is_unset = " && ".join(f"!op->hasKernelForDispatchKey(c10::DispatchKey::{each})" for each in keys)
    lines = "\n".join(_REGISTRATION.format(name=f.func.name, statement=statement) for f, statement in statements)
    return _BLOCK.format(key=key, is_unset=is_unset, registrations=lines)


_TENSOR = BaseType(BaseTy.Tensor)

# They are registered as decompositions: what a folder registers for FuncTorchBatched takes precedence, in any order. In
# a source tree their files are linked before LegacyBatchingRegistrations.cpp, like upstream's: PyTorch 2.6 ignores
# decompositions that are registered after the fallback (getRuntimeDispatchKeySet lacks their key).
_KEY = "FuncTorchBatchedDecomposition"
_COMPOSITES = "BatchRulesOfAddedComposites.cpp"
_POINTWISE = "BatchRulesOfAddedPointwise.cpp"
_EXPLICIT = "BatchRulesOfAddedExplicit.cpp"

_COMPOSITES_TEXT = """\
// Under vmap an operator that is composed of others is decomposed; upstream registers each by hand
// (aten/src/ATen/functorch/BatchRulesDecompositions.cpp).
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
{headers}
namespace at {{

{registrations}

}} // namespace at
"""

# Under vmap a kernel cannot read values, and each sample needs its own random numbers.
_TAGS_THAT_LOOP = {"nondeterministic_seeded", "data_dependent_output", "dynamic_output_shape"}


def generate_batching_rules(operators: Operators, out: Output) -> None:
    """Generate the rules."""
    _generate_decompositions(operators, out)
    pointwise = [f for f in operators.new_functions if is_batched_pointwise(f)]
    explicit = [f for f in operators.new_functions if is_batched_by_its_kernel(f, operators)]
    _generate_boxed(_POINTWISE, "pointwise_batching_rule", pointwise, out)
    _generate_boxed(_EXPLICIT, "explicit_batching_rule", explicit, out)


def is_batched_pointwise(f: NativeFunction) -> bool:
    """Return whether ``f`` is elementwise and takes and returns individual tensors."""
    takes = all(_is_tensor(a.type) for a in f.func.arguments.flat_all if a.type.is_tensor_like())
    returns = bool(f.func.returns) and all(r.type == _TENSOR for r in f.func.returns)
    is_of_kind = f.func.kind() in (SchemaKind.functional, SchemaKind.inplace)
    # Composite operators are decomposed instead.
    is_written = not f.has_composite_implicit_autograd_kernel and f.namespace == "aten"
    is_random = "nondeterministic_seeded" in f.tags
    return "pointwise" in f.tags and takes and returns and is_of_kind and is_written and not is_random


def is_batched_by_its_kernel(f: NativeFunction, operators: Operators) -> bool:
    """Return whether ``f`` has one kernel for every backend, which can only call other operators, and mutates no
    argument.

    An additional meta kernel does not matter, since it computes nothing.
    """
    keys = {key for key, index in operators.backend_indices.items() if index.has_kernel(f)} - {DispatchKey.Meta}
    arguments = f.func.arguments.flat_all
    takes = any(a.type.is_tensor_like() for a in arguments)
    writes = any(a.annotation is not None and a.annotation.is_write for a in arguments)
    is_random = any(a.type.is_base_ty_like(BaseTy.Generator) for a in arguments)
    return (
        keys == {DispatchKey.CompositeExplicitAutograd}
        and f.namespace == "aten"
        and takes
        and not writes
        and not is_random
        and not f.tags & _TAGS_THAT_LOOP
        and not is_batched_pointwise(f)
    )


def _is_tensor(type: Type) -> bool:
    return type == _TENSOR or (isinstance(type, OptionalType) and type.elem == _TENSOR)


def _generate_boxed(file: str, rule: str, functions: Sequence[NativeFunction], out: Output) -> None:
    """Generate ``file`` from its template, with registrations of ``rule`` for ``functions``."""
    if functions:
        statement = 'm.impl("{}", torch::CppFunction::makeFromBoxedFunction<&{}>());'
        text = _registrations([(f, statement.format(f.func.name, rule)) for f in functions])
        manager = SelectingFileManager(out.folder / "ATen", TEMPLATES, sink=out, wanted=lambda _: True)
        manager.write(file, lambda: {"registrations": text})


def _generate_decompositions(operators: Operators, out: Output) -> None:
    kernels = operators.backend_indices[DispatchKey.CompositeImplicitAutograd]
    headers, statements = set(), []
    for f in operators.new_functions:
        kernel = kernels.get_kernel(f)
        if kernel is None or f.namespace != "aten" or f.manual_kernel_registration:
            continue
        with native_function_manager(f):
            pointer = NativeSignature(f.func, symint=kernel.supports_symint()).ptr_type()
        headers.add(f"#include <ATen/ops/{f.root_name}_native.h>\n")
        function = f"{kernel.cpp_namespace}::{kernel.kernel}"
        statements.append((f, f'm.impl("{f.func.name}", static_cast<{pointer}>(::{function}));'))
    if statements:
        text = _COMPOSITES_TEXT.format(headers="".join(sorted(headers)), registrations=_registrations(statements))
        out(out.folder / "ATen" / _COMPOSITES, text)


def _registrations(statements: Sequence[tuple[NativeFunction, str]]) -> str:
    return registrations(_KEY, statements, or_key="FuncTorchBatched")


# Policies that upstream registers without an additional signature.
POLICIES = ("lower_precision_fp", "fp32", "fp32_set_opt_dtype", "promote")

# The dispatch keys that a policy is registered for, each with upstream's macro. `Autocast` is the key of CUDA.
_KEYS = {"AutocastCPU": "KERNEL_CPU", "Autocast": "KERNEL_CUDA"}

_SOURCE = """\
// Upstream's own policies are listed in ATen/autocast_mode.h and registered in ATen/autocast_mode.cpp.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace at::autocast {{
namespace {{

{registrations}

}} // namespace
}} // namespace at::autocast
"""


def generate_autocast(operators: Operators, policies: Mapping[str, str], out: Output) -> None:
    """Generate the registrations of ``policies``: for operators, those that ``torch.autocast`` casts arguments by."""
    listed = [(f, policies[str(f.func.name)]) for f in operators.new_functions if str(f.func.name) in policies]
    if listed:
        blocks = [
            registrations(key, [(f, f"{macro}({_macro_name(f)}, {policy})") for f, policy in listed])
            for key, macro in _KEYS.items()
        ]
        out(out.folder / "ATen/RegisterAutocast.cpp", _SOURCE.format(registrations="\n\n".join(blocks)))


def read_policies(natives: Sequence[Path]) -> dict[str, str]:
    """Return the policy of each operator, by name with overload, in the files ``autocast.yaml`` of native folders.

    They list operators by the names of upstream's policies: ``fp32: [my_loss]``.
    """
    texts = [(native / AUTOCAST).read_text(encoding="utf-8") for native in natives if (native / AUTOCAST).is_file()]
    lists = [pair for text in texts for pair in (yaml.load(text, Loader) or {}).items()]
    return {name: policy for policy, names in lists for name in names}


def _macro_name(f: NativeFunction) -> str:
    name = f.func.name
    return f"{name.name}, {name.overload_name}" if name.overload_name else str(name.name)
