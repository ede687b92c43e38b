"""Batching rules that follow from an operator's entry: under ``torch.vmap`` it then needs no loop."""

from __future__ import annotations

from torchgen.api.types import NativeSignature
from torchgen.context import native_function_manager
from torchgen.model import BaseTy, BaseType, DispatchKey, NativeFunction, OptionalType, SchemaKind, Type

from .operators import Operators
from .sources import TEMPLATES
from .writer import Output, SelectingFileManager

_TENSOR = BaseType(BaseTy.Tensor)

# In a source tree this comes, as upstream's own, before LegacyBatchingRegistrations.cpp in the order of linking:
# PyTorch 2.6 looks past decompositions registered behind the fallback (getRuntimeDispatchKeySet lacks their key).
_DECOMPOSITIONS_FILE = "BatchRulesOfAddedComposites.cpp"

_DECOMPOSITIONS = """\
// Under vmap an operator that is composed of others is decomposed; upstream registers each by hand
// (aten/src/ATen/functorch/BatchRulesDecompositions.cpp).
#include <torch/library.h>
{headers}
namespace at {{
TORCH_LIBRARY_IMPL(aten, FuncTorchBatchedDecomposition, m) {{
{registrations}
}}
}} // namespace at
"""


def generate_batching_rules(operators: Operators, out: Output) -> None:
    """Generate the rules."""
    _generate_decompositions(operators, out)
    pointwise = [f for f in operators.new_functions if is_batched_pointwise(f)]
    if pointwise:
        names = [f'{{"{f.func.name.name}", "{f.func.name.overload_name}"}},' for f in pointwise]
        manager = SelectingFileManager(out.folder / "ATen", TEMPLATES, sink=out, wanted=lambda _: True)
        manager.write("RegisterBatchingRules.cpp", lambda: {"pointwise": names})


def is_batched_pointwise(f: NativeFunction) -> bool:
    """Whether ``f`` computes element by element and takes and returns its tensors one by one."""
    takes = all(_is_tensor(a.type) for a in f.func.arguments.flat_all if a.type.is_tensor_like())
    returns = bool(f.func.returns) and all(r.type == _TENSOR for r in f.func.returns)
    is_of_kind = f.func.kind() in (SchemaKind.functional, SchemaKind.inplace)
    # A composite operator is decomposed instead.
    is_written = not f.has_composite_implicit_autograd_kernel and f.namespace == "aten"
    is_random = "nondeterministic_seeded" in f.tags
    return "pointwise" in f.tags and takes and returns and is_of_kind and is_written and not is_random


def _is_tensor(type: Type) -> bool:
    return type == _TENSOR or (isinstance(type, OptionalType) and type.elem == _TENSOR)


def _generate_decompositions(operators: Operators, out: Output) -> None:
    kernels = operators.backend_indices[DispatchKey.CompositeImplicitAutograd]
    headers, registrations = set(), []
    for f in operators.new_functions:
        kernel = kernels.get_kernel(f)
        if kernel is None or f.namespace != "aten" or f.manual_kernel_registration:
            continue
        with native_function_manager(f):
            pointer = NativeSignature(f.func, symint=kernel.supports_symint()).ptr_type()
        headers.add(f"#include <ATen/ops/{f.root_name}_native.h>\n")
        function = f"{kernel.cpp_namespace}::{kernel.kernel}"
        registrations.append(f'  m.impl("{f.func.name}", static_cast<{pointer}>(::{function}));')
    if registrations:
        text = _DECOMPOSITIONS.format(headers="".join(sorted(headers)), registrations="\n".join(registrations))
        out(out.folder / "ATen" / _DECOMPOSITIONS_FILE, text)
