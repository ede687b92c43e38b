"""Sources of the new operators: registrations, dispatcher entry points, autograd, and what there is for CUDA."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from string import Template

from torchgen.packaged.autograd.gen_autograd_functions import gen_autograd_functions_lib
from torchgen.packaged.autograd.gen_inplace_or_view_type import gen_inplace_or_view_type
from torchgen.packaged.autograd.gen_trace_type import gen_trace_type
from torchgen.packaged.autograd.gen_variable_type import gen_variable_type
from torchgen.packaged.autograd.gen_view_funcs import gen_view_funcs

from . import KERNELS, MISSING, upstream
from .operators import Derivatives, Operators
from .upstream import CUDA_KEYS, KEYS_BUT_CUDA
from .writer import TEMPLATES, Output, SelectingFileManager

FUNCTIONALIZATION = frozenset({"RegisterFunctionalization.cpp", "ViewMetaClasses.cpp"})

# These files repeat declarations of ATen's headers instead of including them, so they need a unit without those
# headers.
SEPARATE = "UfuncCPU_"

# The base's libraries contain these, and new operators add nothing to them.
_IN_THE_BASE = frozenset({"Functions.cpp", "TensorMethods.cpp", "ATenOpList.cpp"})


def generate_aten_sources(operators: Operators, *, packaged: Path, out: Output) -> None:
    """Generate the registrations and the dispatcher entry points of the new operators below ``out``."""
    templates = packaged / "ATen/templates"
    registrations = SelectingFileManager(
        out.folder / "ATen", templates, sink=out, wanted=_is_aten_source, own_templates=TEMPLATES
    )
    vectorized = SelectingFileManager(out.folder / "vectorized", templates, sink=out, wanted=_is_aten_source)
    upstream.gen_source_files(
        operators.new, registrations, vectorized, selector=operators.selector(), keys=KEYS_BUT_CUDA
    )
    # The generator for functionalization accepts no selector. A group may contain functions of the base, which are
    # registered already.
    functionalization = SelectingFileManager(
        out.folder / "ATen",
        templates,
        sink=out,
        wanted=FUNCTIONALIZATION.__contains__,
        keep_line=_registers_new(operators),
    )
    upstream.gen_source_files(operators.new, functionalization)


def _is_aten_source(filename: str) -> bool:
    return filename.endswith(".cpp") and filename not in _IN_THE_BASE | FUNCTIONALIZATION


def _registers_new(operators: Operators) -> Callable[[str], bool]:
    """Return a predicate that is false for lines that register a kernel for a function of the base."""
    new = {str(f.func.name) for f in operators.new_functions}

    def keep(line: str) -> bool:
        registration = re.match(r'\s*m\.impl\("([^"]+)"', line)
        return registration is None or registration[1] in new

    return keep


def generate_autograd_sources(
    operators: Operators, derivatives: Derivatives, *, packaged: Path, output: Output
) -> None:
    """Generate the autograd nodes and kernels of the new operators below ``output``."""
    templates = packaged / "autograd/templates"
    out = output.folder / "autograd"
    native_functions, tags = str(operators.yaml.native_functions), str(operators.yaml.tags)
    manager = partial(SelectingFileManager, sink=output, wanted=lambda name: name.endswith(".cpp"))
    with upstream.autograd_writes_with(manager):
        gen_variable_type(
            str(out), native_functions, tags, derivatives.new_functions, str(templates), derivatives.dispatch_keys
        )
        gen_inplace_or_view_type(str(out), native_functions, tags, derivatives.new_functions, str(templates))
        gen_trace_type(str(out), operators.new_functions, str(templates))
        gen_autograd_functions_lib(str(out), derivatives.new_infos, str(templates))
        gen_view_funcs(str(out), derivatives.new_functions, str(templates))


def write_library(out: Output) -> str:
    """Write ``library.cpp``, the translation unit that includes the generated sources. Return the text of all of them.

    Autograd comes first because it includes the most. Sources that forbid the header with all operators come last,
    because the others include it.
    """
    names = [name for name in out.names if name.suffix == ".cpp" and name.parent.name in ("ATen", "autograd")]
    texts = {name: (out.folder / name).read_text(encoding="utf-8") for name in names}
    together = sorted(
        (name for name in names if not name.name.startswith(SEPARATE)),
        key=lambda name: ("#define TORCH_ASSERT" in texts[name], name.parent.name != "autograd", name),
    )
    out(out.folder / "library.cpp", "".join(f'#include "{name.as_posix()}"\n' for name in together))
    return "\n".join(texts.values())


def generate_cuda(operators: Operators, how: str, *, packaged: Path, out: Output) -> None:
    """Generate registrations for CUDA.

    Args:
        operators: the operators; the new ones are registered.
        how: ``KERNELS`` writes ``cuda.cpp`` below ``out``, the translation unit that registers the folder's kernels,
            and complete kernels below ``cuda`` if the folder has only inner loops (``ufunc_inner_loop``). ``MISSING``
            writes a source for ``library.cpp`` that registers an error for each kernel.
        packaged: torchgen's YAML and templates.
        out: the folder of the unit.
    """
    if how == KERNELS:
        _generate_registrations(operators, packaged, out)
    elif how == MISSING:
        _generate_errors(operators, out)


def _generate_registrations(operators: Operators, packaged: Path, out: Output) -> None:
    names = {f"Register{key}.cpp" for key in CUDA_KEYS}
    manager = SelectingFileManager(
        out.folder / "cuda",
        packaged / "ATen/templates",
        sink=out,
        wanted=lambda name: name in names or name.startswith("UfuncCUDA_"),
        own_templates=TEMPLATES,
    )
    upstream.gen_source_files(operators.new, manager, selector=operators.selector(), keys=CUDA_KEYS)
    written = sorted(name.as_posix() for name in out.names if name.parent.name == "cuda" and name.suffix == ".cpp")
    if written:
        out(out.folder / "cuda.cpp", "".join(f'#include "{name}"\n' for name in written))


def _generate_errors(operators: Operators, out: Output) -> None:
    texts = []
    for key in CUDA_KEYS:
        index = operators.backend_indices.get(key)
        for namespace in sorted({f.namespace for f in operators.new_functions}):
            names = [
                str(f.func.name)
                for f in operators.new_functions
                if index is not None and f.namespace == namespace and index.has_kernel(f)
            ]
            if names:
                lines = "\n".join(f'  m.impl("{name}", missing());' for name in names)
                texts.append(f"TORCH_LIBRARY_IMPL({namespace}, {key}, m) {{\n{lines}\n}}\n")
    if texts:
        out(out.folder / "ATen/RegisterMissingCUDA.cpp", _ERRORS.substitute(registrations="\n".join(texts)))


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
