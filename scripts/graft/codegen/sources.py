"""Sources of the new operators: registrations, dispatcher entry points, autograd."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from torchgen.gen import gen_source_files
from torchgen.model import DispatchKey, NativeFunction, NativeFunctionsViewGroup, dispatch_keys
from torchgen.packaged.autograd.gen_autograd_functions import gen_autograd_functions_lib
from torchgen.packaged.autograd.gen_inplace_or_view_type import gen_inplace_or_view_type
from torchgen.packaged.autograd.gen_trace_type import gen_trace_type
from torchgen.packaged.autograd.gen_variable_type import gen_variable_type
from torchgen.packaged.autograd.gen_view_funcs import gen_view_funcs
from torchgen.selective_build.selector import SelectiveBuilder

from .operators import FUNCTIONS_KEYS, Derivatives, Grouped, Operators, is_of, structured
from .places import ABSENT_DEVICES
from .writer import Output, SelectingFileManager, autograd_writes_with

TEMPLATES = Path(__file__).resolve().parent / "templates"

FUNCTIONALIZATION = frozenset({"RegisterFunctionalization.cpp", "ViewMetaClasses.cpp"})

# These files repeat declarations of ATen's headers instead of including them, so they need a unit without those
# headers.
SEPARATE = "UfuncCPU_"

# The base's libraries contain these, and new operators add nothing to them.
_IN_THE_BASE = frozenset({"Functions.cpp", "TensorMethods.cpp", "ATenOpList.cpp"})

# Registrations for a device without a library have nothing to call. Those for CUDA are written separately.
KEYS_BUT_CUDA = [key for key in dispatch_keys if not is_of(key, (*ABSENT_DEVICES, "CUDA"))]

# The dispatch keys of CUDA, dense and other.
CUDA_KEYS = [key for key in dispatch_keys if is_of(key, ("CUDA",))]


def generate_aten_sources(operators: Operators, *, packaged: Path, out: Output) -> None:
    """Generate the registrations and the dispatcher entry points of the new operators below ``out``."""
    templates = packaged / "ATen/templates"
    new = {
        "functions": operators.new_functions,
        "grouped": operators.new_grouped(),
        "view_groups": operators.new_view_groups(),
    }
    registrations = SelectingFileManager(
        out.folder / "ATen", templates, sink=out, wanted=_is_aten_source, own_templates=TEMPLATES
    )
    vectorized = SelectingFileManager(out.folder / "vectorized", templates, sink=out, wanted=_is_aten_source)
    run_gen_source_files(
        operators,
        registrations,
        vectorized,
        **new,
        selector=operators.selector(),
        dispatch_keys=KEYS_BUT_CUDA,
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
    run_gen_source_files(
        operators,
        functionalization,
        functionalization,
        **new,
        selector=SelectiveBuilder.get_nop_selector(),
        dispatch_keys=[],
    )


def _is_aten_source(filename: str) -> bool:
    return filename.endswith(".cpp") and filename not in _IN_THE_BASE | FUNCTIONALIZATION


def _registers_new(operators: Operators) -> Callable[[str], bool]:
    """Return a predicate that is false for lines that register a kernel for a function of the base."""
    new = {str(f.func.name) for f in operators.new_functions}

    def keep(line: str) -> bool:
        registration = re.match(r'\s*m\.impl\("([^"]+)"', line)
        return registration is None or registration[1] in new

    return keep


def run_gen_source_files(
    operators: Operators,
    manager: SelectingFileManager,
    vectorized: SelectingFileManager,
    *,
    functions: Sequence[NativeFunction],
    grouped: Sequence[Grouped],
    view_groups: Sequence[NativeFunctionsViewGroup],
    selector: SelectiveBuilder,
    dispatch_keys: Sequence[DispatchKey],
) -> None:
    """Run torchgen's ``gen_source_files`` (torchgen/gen.py). The file managers select the files.

    ``vectorized`` receives the files that are compiled once for each CPU capability.
    """
    gen_source_files(
        native_functions=functions,
        grouped_native_functions=grouped,
        structured_native_functions=structured(grouped),
        view_groups=view_groups,
        selector=selector,
        static_dispatch_idx=[],
        backend_indices=operators.backend_indices,
        aoti_fm=manager,
        core_fm=manager,
        cpu_vec_fm=vectorized,
        cpu_fm=manager,
        device_fms={"cuda": manager},
        dispatch_keys=dispatch_keys,
        functions_keys=FUNCTIONS_KEYS,
        rocm=False,
        force_schema_registration=False,
        per_operator_headers=True,
        skip_dispatcher_op_registration=False,
        update_aoti_c_shim=False,
        aoti_backends=set(),
        extend_aoti_c_shim=False,
    )


def generate_autograd_sources(
    operators: Operators, derivatives: Derivatives, *, packaged: Path, output: Output
) -> None:
    """Generate the autograd nodes and kernels of the new operators below ``output``."""
    templates = packaged / "autograd/templates"
    out = output.folder / "autograd"
    native_functions, tags = str(operators.yaml.native_functions), str(operators.yaml.tags)
    manager = partial(SelectingFileManager, sink=output, wanted=lambda name: name.endswith(".cpp"))
    with autograd_writes_with(manager):
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
