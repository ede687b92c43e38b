"""Sources of the new operators: registrations, dispatcher entry points, autograd, and what there is for CUDA; and
kernels that follow from an operator's entry: batching rules, so that ``torch.vmap`` needs no loop, and autocast.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from string import Template

import yaml
from torchgen.api.types import NativeSignature
from torchgen.context import native_function_manager
from torchgen.model import BaseTy, BaseType, DispatchKey, NativeFunction, OptionalType, SchemaKind
from torchgen.packaged.autograd.gen_autograd_functions import gen_autograd_functions_lib
from torchgen.packaged.autograd.gen_inplace_or_view_type import gen_inplace_or_view_type
from torchgen.packaged.autograd.gen_trace_type import gen_trace_type
from torchgen.packaged.autograd.gen_variable_type import gen_variable_type
from torchgen.packaged.autograd.gen_view_funcs import gen_view_funcs

from ..inputs.entries import Loader
from ..inputs.native import AUTOCAST, NativeFolders
from . import KERNELS, MISSING, upstream
from .operators import Part, Replaced
from .upstream import CUDA_KEYS, KEYS_BUT_CUDA, Output, SelectingFileManager
from .writing import is_writing, lacks_meta

FUNCTIONALIZATION = frozenset({"RegisterFunctionalization.cpp", "ViewMetaClasses.cpp"})

# The base's libraries contain these, and new operators add nothing to them.
_IN_THE_BASE = frozenset({"Functions.cpp", "TensorMethods.cpp", "ATenOpList.cpp"})


def generate_aten_sources(part: Part, out: Output) -> None:
    """Generate the registrations and the dispatcher entry points of the operators below ``out``."""
    templates = part.whole.templates
    new = {str(f.func.name) for f in part.functions}

    def is_source(name: str) -> bool:
        return name.endswith(".cpp") and name not in _IN_THE_BASE | FUNCTIONALIZATION

    def registers_new(line: str) -> bool:
        registration = re.match(r'\s*m\.impl\("([^"]+)"', line)
        return registration is None or registration[1] in new

    registrations = SelectingFileManager("ATen", templates, out=out, wanted=is_source)
    vectorized = SelectingFileManager("vectorized", templates, out=out, wanted=is_source)
    upstream.gen_source_files(part, registrations, vectorized, keys=KEYS_BUT_CUDA)
    # The generator for functionalization accepts no selector. A group may contain functions of the base, which are
    # registered already.
    functionalization = SelectingFileManager(
        "ATen", templates, out=out, wanted=FUNCTIONALIZATION.__contains__, keep_line=registers_new
    )
    upstream.gen_source_files(part, functionalization)


def generate_autograd_sources(part: Part, out: Output) -> None:
    """Generate the autograd nodes and kernels of the operators below ``out``."""
    whole, templates = part.whole, part.whole.autograd_templates
    target, yaml_files = str(out.folder / "autograd"), ("", whole.tags)  # the first is not read
    with upstream.autograd_writes(out, ".cpp"):
        gen_variable_type(target, *yaml_files, part.with_infos, templates, whole.derivatives.keys)
        gen_inplace_or_view_type(target, *yaml_files, part.with_infos, templates)
        gen_trace_type(target, part.functions, templates)
        gen_autograd_functions_lib(target, part.infos, templates)
        gen_view_funcs(target, part.with_infos, templates)


def generate_replaced(replaced: Replaced, how: str, out: Output) -> None:
    """Generate the registrations of kernels, for CUDA unless ``how`` says otherwise, and of derivative formulas, that
    replace those of operators of the base. Their schemas, and all else about them, are the base's.
    """
    kernels, formulas = replaced
    whole = kernels.whole
    files = {f"Register{key}.cpp" for key in KEYS_BUT_CUDA}
    manager = SelectingFileManager("ATen", whole.templates, out=out, wanted=files.__contains__)
    upstream.gen_source_files(kernels, manager, keys=KEYS_BUT_CUDA)
    _generate_decompositions(kernels, out, "ATen", is_replaced=True)
    if formulas.functions:
        target, templates = str(out.folder / "autograd"), whole.autograd_templates
        yaml_files, keys = ("", whole.tags), whole.derivatives.keys
        with upstream.autograd_writes(out, ".cpp"):
            gen_variable_type(target, *yaml_files, formulas.with_infos, templates, keys)
            gen_autograd_functions_lib(target, formulas.infos, templates)
    if how == KERNELS:
        generate_cuda(kernels, how, out, _SWITCHED)
    write_library(out, _SWITCHED)


# What replaces kernels of the base registers them so that they can be switched off and on.
_SWITCHED = '#include "graft_replaced.h"\n'


def write_library(out: Output, first: str = "") -> None:
    """Write ``library.cpp``, the translation unit that includes the generated sources, behind the text ``first``.

    Autograd comes first because it includes the most. Sources that forbid the header with all operators come last,
    because the others include it. Inner loops repeat declarations of ATen's headers, so they need a unit without those.
    """
    names = [name for name in out.names if name.suffix == ".cpp" and name.parent.name in ("ATen", "autograd")]
    together = sorted(
        (name for name in names if not name.name.startswith("UfuncCPU_")),
        key=lambda name: ("#define TORCH_ASSERT" in out.read(name), name.parent.name != "autograd", name),
    )
    out.write("library.cpp", first + "".join(f'#include "{name.as_posix()}"\n' for name in together))


def generate_cuda(part: Part, how: str, out: Output, first: str = "") -> None:
    """Generate registrations for CUDA, behind the text ``first``.

    ``KERNELS`` writes ``cuda.cpp``, the translation unit that registers the folder's kernels, and complete kernels in
    ``cuda`` if the folder has only inner loops (``ufunc_inner_loop``). ``MISSING`` writes a source for ``library.cpp``
    that registers an error for each kernel.
    """
    if how == KERNELS:
        names = ("UfuncCUDA_", *(f"Register{key}.cpp" for key in CUDA_KEYS))
        manager = SelectingFileManager("cuda", part.whole.templates, out=out, wanted=lambda n: n.startswith(names))
        upstream.gen_source_files(part, manager, keys=CUDA_KEYS)
        written = sorted(name.as_posix() for name in out.names if name.parent.name == "cuda" and name.suffix == ".cpp")
        if written:
            out.write("cuda.cpp", first + "".join(f'#include "{name}"\n' for name in written))
    elif how == MISSING:
        blocks: dict[tuple[DispatchKey, str], str] = {}
        for key in CUDA_KEYS:
            index = part.whole.backend_indices.get(key)
            for f in sorted(part.functions, key=lambda f: f.namespace):
                if index is not None and index.has_kernel(f):
                    line = f'  m.impl("{f.func.name}", missing());\n'
                    blocks[key, f.namespace] = blocks.get((key, f.namespace), "") + line
        if blocks:
            texts = [f"TORCH_LIBRARY_IMPL({space}, {key}, m) {{\n{text}}}\n" for (key, space), text in blocks.items()]
            out.write("ATen/RegisterMissingCUDA.cpp", _ERRORS.substitute(registrations="\n".join(texts)))


_ERRORS = Template("""\
// Generated by scripts/graft/codegen/sources.py.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace {
namespace missing_cuda {

void raise(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      op.schema().name(),
      ": its kernel for CUDA is not in this torch, since there was no CUDA toolkit when it was built, or CUDA_ARCHS ",
      "was set to none. Where pip can fetch the toolkit, or with CUDA_HOME set to one, run `make patch-and-build` ",
      "again");
}

torch::CppFunction missing() {
  return torch::CppFunction::makeFromBoxedFunction<&raise>();
}

$registrations
} // namespace missing_cuda
} // namespace
""")

# Batching rules and autocast policies are registered only if the folder did not register its own, which is known only
# after its initializers have run. In a grafted library they run before those of generated code (scripts/graft/compile).
# In a source tree they run after, and replace the derived ones.

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


def registrations(keys: Sequence[str], statements: Sequence[tuple[NativeFunction, str]]) -> str:
    """Return a C++ block that registers kernels for the first of the dispatch keys ``keys``, where none of
    them has one. Each of ``statements`` registers an operator's kernel with the library ``m``.
    """
    is_unset = " && ".join(f"!op->hasKernelForDispatchKey(c10::DispatchKey::{each})" for each in keys)
    lines = "\n".join(_REGISTRATION.format(name=f.func.name, statement=statement) for f, statement in statements)
    return _BLOCK.format(key=keys[0], is_unset=is_unset, registrations=lines)


def replacements(keys: Sequence[str], statements: Sequence[tuple[NativeFunction, str]]) -> str:
    """Return a C++ block like that of ``registrations``, which replaces kernels that are there."""
    lines = "\n".join(f"  {statement}" for _, statement in statements)
    return f"TORCH_LIBRARY_IMPL(aten, {keys[0]}, m) {{\n{lines}\n}}"


# They are registered as decompositions: what a folder registers for FuncTorchBatched takes precedence, in any order. In
# a source tree their files are linked before LegacyBatchingRegistrations.cpp, like upstream's: PyTorch 2.6 ignores
# decompositions that are registered after the fallback (getRuntimeDispatchKeySet lacks their key).
_BATCHED = ("FuncTorchBatchedDecomposition", "FuncTorchBatched")

_COMPOSITES = """\
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

_TENSOR = BaseType(BaseTy.Tensor)


def generate_batching_rules(part: Part, out: Output, folder: str = "ATen") -> None:
    """Generate the rules in a folder below ``out``, and kernels for Meta of operators that only write arguments."""
    _generate_decompositions(part, out, folder)
    boxed = {
        "Pointwise": [f for f in part.functions if is_batched_pointwise(f)],
        "Explicit": [f for f in part.functions if is_batched_by_its_kernel(f, part)],
        "Writing": [f for f in part.functions if is_writing(f) and f.namespace == "aten"],
    }
    manager = SelectingFileManager(folder, "", out=out)
    for kind, functions in boxed.items():
        if functions:
            rule = f"torch::CppFunction::makeFromBoxedFunction<&{kind.lower()}_batching_rule>()"
            text = registrations(_BATCHED, [(f, f'm.impl("{f.func.name}", {rule});') for f in functions])
            manager.write(f"BatchRulesOfAdded{kind}.cpp", {"registrations": text}.copy)
    if without_meta := [f for f in part.functions if lacks_meta(f, _keys_of(f, part)) and f.namespace == "aten"]:
        kernel = "torch::CppFunction::makeFromBoxedFunction<&writes_nothing>()"
        text = registrations(["Meta"], [(f, f'm.impl("{f.func.name}", {kernel});') for f in without_meta])
        manager.write("RegisterMetaOfWriting.cpp", {"registrations": text}.copy)


def _keys_of(f: NativeFunction, part: Part) -> set[DispatchKey]:
    return {key for key, index in part.whole.backend_indices.items() if index.has_kernel(f)}


def is_batched_pointwise(f: NativeFunction) -> bool:
    """Return whether ``f`` is elementwise and takes and returns individual tensors."""
    tensors = (_TENSOR, OptionalType(_TENSOR))
    takes = all(a.type in tensors for a in f.func.arguments.flat_all if a.type.is_tensor_like())
    returns = bool(f.func.returns) and all(r.type == _TENSOR for r in f.func.returns)
    is_of_kind = f.func.kind() in (SchemaKind.functional, SchemaKind.inplace)
    # Composite operators are decomposed instead.
    is_written = not f.has_composite_implicit_autograd_kernel and f.namespace == "aten"
    is_random = "nondeterministic_seeded" in f.tags
    return "pointwise" in f.tags and takes and returns and is_of_kind and is_written and not is_random


def is_batched_by_its_kernel(f: NativeFunction, part: Part) -> bool:
    """Return whether ``f`` has one kernel for every backend, which can only call other operators, and mutates no
    argument.

    An additional meta kernel does not matter, since it computes nothing.
    """
    keys = _keys_of(f, part) - {DispatchKey.Meta}
    arguments = f.func.arguments.flat_all
    takes = any(a.type.is_tensor_like() for a in arguments)
    writes = any(a.annotation is not None and a.annotation.is_write for a in arguments)
    is_random = any(a.type.is_base_ty_like(BaseTy.Generator) for a in arguments)
    is_explicit = keys == {DispatchKey.CompositeExplicitAutograd} and f.namespace == "aten"
    loops = writes or is_random or f.tags & _TAGS_THAT_LOOP
    return is_explicit and takes and not loops and not is_batched_pointwise(f)


def _generate_decompositions(part: Part, out: Output, folder: str, *, is_replaced: bool = False) -> None:
    """Generate the rules of composite operators; if ``is_replaced``, in place of the base's."""
    kernels = part.whole.backend_indices[DispatchKey.CompositeImplicitAutograd]
    headers, statements = set(), []
    for f in part.functions:
        kernel = kernels.get_kernel(f)
        if kernel is None or f.namespace != "aten" or f.manual_kernel_registration:
            continue
        with native_function_manager(f):
            pointer = NativeSignature(f.func, symint=kernel.supports_symint()).ptr_type()
        headers.add(f"#include <ATen/ops/{f.root_name}_native.h>\n")
        function = f"{kernel.cpp_namespace}::{kernel.kernel}"
        statements.append((f, f'm.impl("{f.func.name}", static_cast<{pointer}>(::{function}));'))
    if statements:
        form = replacements if is_replaced else registrations
        text = _COMPOSITES.format(headers="".join(sorted(headers)), registrations=form(_BATCHED, statements))
        out.write(f"{folder}/BatchRulesOfAddedComposites.cpp", text)


# Policies that upstream registers without an additional signature.
POLICIES = ("lower_precision_fp", "fp32", "fp32_set_opt_dtype", "promote")

# The dispatch keys that a policy is registered for, each with upstream's macro. `Autocast` is the key of CUDA.
_AUTOCAST_KEYS = {"AutocastCPU": "KERNEL_CPU", "Autocast": "KERNEL_CUDA"}

_AUTOCAST = """\
// Upstream's own policies are listed in ATen/autocast_mode.h and registered in ATen/autocast_mode.cpp.
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace at::autocast {{
namespace {{

{registrations}

}} // namespace
}} // namespace at::autocast
"""


def generate_autocast(part: Part, policies: Mapping[str, str], out: Output, folder: str = "ATen") -> None:
    """Generate the registrations of ``policies``: for operators, those that ``torch.autocast`` casts arguments by."""
    listed = [
        (f, f"{str(f.func.name).replace('.', ', ')}, {policies[str(f.func.name)]}")
        for f in part.functions
        if str(f.func.name) in policies
    ]
    if listed:
        blocks = [
            registrations([key], [(f, f"{macro}({arguments})") for f, arguments in listed])
            for key, macro in _AUTOCAST_KEYS.items()
        ]
        out.write(f"{folder}/RegisterAutocast.cpp", _AUTOCAST.format(registrations="\n\n".join(blocks)))


def read_policies(natives: NativeFolders) -> dict[str, str]:
    """Return the policy of each operator, by name with overload, in the files ``autocast.yaml`` of native folders.

    They list operators by the names of upstream's policies: ``fp32: [my_loss]``.
    """
    lists = [pair for text in natives.texts(AUTOCAST).values() for pair in (yaml.load(text, Loader) or {}).items()]
    return {name: policy for policy, names in lists for name in names}
