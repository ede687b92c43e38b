"""Sources of the new operators: registrations, dispatcher entry points, autograd, and registrations for CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path

from . import KERNELS, MISSING, NODES, PARTS, formulas, torchgen
from .operators import Replacements, Selection
from .output import Drafts, Output
from .rules import generate_decompositions
from .torchgen import CUDA_KEYS, KEYS_BUT_CUDA, DispatchKey, SelectingFileManager

FUNCTIONALIZATION = frozenset({"RegisterFunctionalization.cpp", "ViewMetaClasses.cpp"})

# The base's libraries contain these, and new operators add nothing to them.
_IN_THE_BASE = frozenset({"Functions.cpp", "TensorMethods.cpp", "ATenOpList.cpp"})


def generate_aten_sources(selection: Selection, out: Output) -> None:
    """Generate the registrations and the dispatcher entry points of the operators below ``out``."""
    templates = selection.whole.templates
    new = {str(f.func.name) for f in selection.functions}

    def is_source(name: str) -> bool:
        return name.endswith(".cpp") and name not in _IN_THE_BASE | FUNCTIONALIZATION

    def registers_new(line: str) -> bool:
        registration = re.match(r'\s*m\.impl\("([^"]+)"', line)
        return registration is None or registration[1] in new

    registrations = SelectingFileManager("ATen", templates, out=out, wanted=is_source)
    vectorized = SelectingFileManager("vectorized", templates, out=out, wanted=is_source)
    torchgen.gen_source_files(selection.arguments, registrations, vectorized, keys=KEYS_BUT_CUDA)
    # The generator for functionalization accepts no selector. A group may contain functions of the base, which are
    # registered already.
    functionalization = SelectingFileManager(
        "ATen", templates, out=out, wanted=FUNCTIONALIZATION.__contains__, keep_line=registers_new
    )
    torchgen.gen_source_files(selection.arguments, functionalization)


def generate_autograd_sources(selection: Selection, out: Output, *, is_replaced: bool = False) -> None:
    """Generate the autograd nodes and kernels of the operators below ``out``; if ``is_replaced``, only the code that
    depends on derivative formulas.
    """
    target, templates = str(out.folder / "autograd"), selection.whole.autograd_templates
    yaml_files = "", ""  # torchgen does not read them here
    functions, keys, tangents = selection.with_infos, selection.whole.derivatives.keys, formulas.Tangents()
    drafts = Drafts(out.folder, formulas.is_divided)
    with torchgen.autograd_writes(drafts, ".cpp"):
        torchgen.gen_variable_type(target, *yaml_files, tangents.called(functions), templates, keys)
        torchgen.gen_autograd_functions_lib(target, selection.infos, templates)
        if not is_replaced:
            torchgen.gen_inplace_or_view_type(target, *yaml_files, functions, templates)
            torchgen.gen_trace_type(target, selection.functions, templates)
            torchgen.gen_view_funcs(target, functions, templates)
    formulas.divide(drafts, tangents)
    drafts.write_to(out)


# Autograd's code for more operators than this is a part of its own: the headers cost as much as five operators.
LARGE = 5


def generate_replaced(replaced: Replacements, how: str, out: Output) -> None:
    """Generate the registrations of kernels and derivative formulas that replace the base's. Schemas, and everything
    else about the operators, stay the base's. ``how`` is about CUDA, as in ``generate_cuda``.
    """
    kernels, formulas = replaced.kernels, replaced.formulas
    files = {f"Register{key}.cpp" for key in KEYS_BUT_CUDA}
    manager = SelectingFileManager("ATen", kernels.whole.templates, out=out, wanted=files.__contains__)
    torchgen.gen_source_files(kernels.arguments, manager, keys=KEYS_BUT_CUDA)
    generate_decompositions(kernels, out, "ATen", is_replaced=True)
    if formulas.functions:
        generate_autograd_sources(formulas, out, is_replaced=True)
    if how == KERNELS:
        generate_cuda(kernels, how, out, _SWITCHED)
    write_library(out, _SWITCHED)


# How a dispatcher entry point looks its operator up.
_HANDLE = re.compile(
    r"c10::Dispatcher::singleton\(\)\s*\.findSchemaOrThrow\((\w+)::name, \1::overload_name\)\s*\.typed<\1::schema>\(\)"
)


def generate_calls(declared: Selection, out: Output) -> None:
    """Generate the dispatcher entry points of operators that are defined elsewhere.

    They look the operator up at each call: it may be defined again, or with another schema, which is an error.
    """

    def is_source(name: str) -> bool:
        return Path(name).name.startswith("Operators")

    drafts = Drafts(out.folder, is_source)
    manager = SelectingFileManager("ATen", declared.whole.templates, out=drafts, wanted=is_source)
    torchgen.gen_source_files(declared.arguments, manager, keys=KEYS_BUT_CUDA)
    for name, text in drafts.texts.items():
        text = re.sub(r"\bstatic (?=auto op = create_)", "", text)
        out.write(name, _HANDLE.sub(r"graft::called<\1::schema>(\1::name, \1::overload_name)", text))


# Kernels that replace the base's are registered so that they can be switched off and on.
_SWITCHED = '#include "graft_replaced.h"\n'


_LOADED_NODES = f'#ifdef GRAFT_LOADED\n#include "{NODES}"\n#endif\n'


def write_library(out: Output, first: str = "", *, is_large: bool = False) -> None:
    """Write ``library.cpp``, the translation unit that includes the generated sources after the text ``first``, by
    its parts if it has formulas.

    Autograd's come first because they include the most. Sources that forbid the header with all operators come last,
    because the others include it. Inner loops repeat declarations of ATen's headers, so they need a unit without those.
    """
    found = [name for name in out.names if name.suffix == ".cpp" and name.parent.name in ("ATen", "autograd")]
    together = sorted(
        (name.as_posix() for name in found if not name.name.startswith("UfuncCPU_")),
        key=lambda name: (not of_autograd(name), "#define TORCH_ASSERT" in out.read(name), name),
    )
    last = _LOADED_NODES if formulas.NODES in together else ""
    if formulas.FORMULAS in together:
        parts: dict[str, list[str]] = {part: [] for part in PARTS}
        for name in together:
            is_apart = is_large and of_autograd(name)
            parts["formulas" if name == formulas.FORMULAS else "autograd" if is_apart else "operators"].append(name)
        for part, included in parts.items():
            if included:
                own = last if formulas.NODES in included else ""
                _write_unit(out, f"{part}.cpp", first if part != "formulas" else "", included, own)
        together, last = [f"{part}.cpp" for part, included in parts.items() if included], ""
    _write_unit(out, "library.cpp", first, together, last)


def of_autograd(name: str) -> bool:
    """Return whether a source has derivative formulas, or autograd's nodes and kernels."""
    return name in (formulas.FORMULAS, formulas.NODES, formulas.KERNELS)


def _write_unit(out: Output, name: str, first: str, included: Iterable[str], last: str = "") -> None:
    out.write(name, first + "".join(f'#include "{each}"\n' for each in included) + last)


def generate_cuda(selection: Selection, how: str, out: Output, first: str = "") -> None:
    """Generate registrations for CUDA, after the text ``first``.

    ``KERNELS`` writes ``cuda.cpp``, the translation unit that registers the folder's kernels, and complete kernels in
    ``cuda`` if the folder has only inner loops (``ufunc_inner_loop``). ``MISSING`` writes a source for ``library.cpp``
    that registers an error for each kernel.
    """
    if how == KERNELS:
        names = ("UfuncCUDA_", *(f"Register{key}.cpp" for key in CUDA_KEYS))
        manager = SelectingFileManager("cuda", selection.whole.templates, out=out, wanted=lambda n: n.startswith(names))
        torchgen.gen_source_files(selection.arguments, manager, keys=CUDA_KEYS)
        written = sorted(name.as_posix() for name in out.names if name.parent.name == "cuda" and name.suffix == ".cpp")
        if written:
            out.write("cuda.cpp", first + "".join(f'#include "{name}"\n' for name in written))
    elif how == MISSING:
        _register_errors(selection, out)


def _register_errors(selection: Selection, out: Output) -> None:
    """Generate the registrations of an error for each kernel for CUDA."""
    blocks: dict[tuple[DispatchKey, str], str] = {}
    indices = [index for key in CUDA_KEYS if (index := selection.whole.backend_indices.get(key))]
    for index, f in product(indices, sorted(selection.functions, key=lambda f: f.namespace)):
        if index.has_kernel(f):
            block = index.dispatch_key, f.namespace
            blocks[block] = blocks.get(block, "") + f'  m.impl("{f.func.name}", missing());\n'
    texts = [f"TORCH_LIBRARY_IMPL({space}, {key}, m) {{\n{text}}}\n" for (key, space), text in blocks.items()]
    if texts:
        torchgen.write_from_template(out, "ATen/RegisterMissingCUDA.cpp", {"registrations": "\n".join(texts)})
