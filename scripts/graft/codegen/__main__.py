"""Run torchgen on one merged operator set. ``python -m graft.codegen`` generates what a source tree needs."""

from __future__ import annotations

import argparse
import gc
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ..core.bugs import expected
from ..core.errors import BuildError
from ..core.files import build_lock
from ..inputs.entries import Entry, read_entries
from ..inputs.helpers import HEADER, Helpers, helpers_of
from ..inputs.merge import merge_with_base
from ..inputs.native import DERIVATIVES, FUNCTIONS, NativeFolders, saved_natives
from ..inputs.sources import registered_in
from . import DECLARED, DESCRIPTION, NO_CUDA, REPLACED, SOURCES_ARE_THERE, headers, rules, sources
from .bindings import generate_bindings
from .describe import describe
from .lists import missing_names
from .operators import Operators, Replacements, Selection
from .output import Output
from .torchgen import extend_modules


def main() -> int:
    """Generate for a source tree. ``python -m graft.check`` generates for a wheel."""
    parser = argparse.ArgumentParser(prog="python -m graft.codegen", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the unpacked base")
    parser.add_argument("--natives", type=saved_natives, required=True, help="a file that a snapshot writes")
    parser.add_argument("--out", type=Path, required=True, help="receives the output")
    parser.add_argument("--verbose", action="store_true", help="show a traceback on errors")
    options = parser.parse_args()
    gc.disable()  # the process ends soon, so nothing needs to be freed
    return reported(partial(generate_python, options.base, options.natives, options.out), options)


def reported(run: Callable[[], None], options: argparse.Namespace) -> int:
    """Run a generator, and print its error, with the place in the native folders. Return the exit code."""
    natives: NativeFolders = options.natives
    try:
        # A process left by a killed build must end first.
        with build_lock(options.out):
            run()
    except Exception as error:  # torchgen raises AssertionError, ValueError or KeyError
        if options.verbose:
            traceback.print_exc()
        message = explained(str(error), natives)
        is_of_user = isinstance(error, OSError) or names_file(message, natives)
        shown = BuildError(message) if is_of_user else expected(error)
        print(shown)
        return shown.exit_code
    return 0


def names_file(message: str, natives: NativeFolders) -> bool:
    """Return whether a message names a file of the user."""
    return any(str(folder.place(name)) in message for folder in natives.folders for name in folder.files)


def explained(message: str, natives: NativeFolders) -> str:
    """Return torchgen's ``message``. If it names no file, put the places of the entries that it quotes before it."""
    if names_file(message, natives):
        return message
    every = [entry for file in (FUNCTIONS, DERIVATIVES) for entry in natives.entries(file)]
    entries = [entry for entry in every if entry.schema in message]
    return "\n".join([*(f"{each.file}:{each.line}: {each.schema}" for each in entries), message])


def generate(
    base: Path,
    natives: NativeFolders,
    out: Path,
    cuda: str = NO_CUDA,
    judge: Callable[[Operators, Output], None] = lambda *_: None,
    *,
    has_lists: bool = True,
) -> None:
    """Generate everything that a delivery needs, below ``out``:

    ``units/``, ``include/`` and ``fragments.json`` are for compilers, ``wheel/`` has files of the wheel, and
    ``operators.json`` describes the operators for Python. ``judge`` may refuse the sources. Without ``has_lists``, the
    headers that list all operators stay PyTorch's: only code that is compiled against an installed torch needs them.
    """
    generated, wheel = Output(out), headers.WheelOutput(out / "wheel", base)
    operators = load_operators(base, natives, wheel.folder)
    generate_sources(operators, rules.read_policies(natives), generated, wheel, cuda)
    if operators.declared.functions:
        generate_declared(operators.declared, generated)
    judge(operators, generated)
    kernels, formulas = (natives.entries(file, replacing=True) for file in (FUNCTIONS, DERIVATIVES))
    helpers = helpers_of(natives)
    replaced = operators.replaced_by(kernels, formulas, helpers.names)
    if replaced.kernels.functions or replaced.formulas.functions:
        generate_replacements(operators, replaced, base, generated, cuda)
    generate_header_of_helpers(helpers, base, generated)
    headers.generate_fragments(operators, generated)
    # Compilers must not find files of an earlier run.
    generated.prune(of=("units", "include"))
    wheel.prune(of=("torch/include/ATen/ops",))
    print(SOURCES_ARE_THERE, flush=True)
    parts = replaced_parts(operators, natives, kernels, [*(each.operator for each in formulas), *replaced.calling])
    generated.write(DESCRIPTION, describe(operators.new, parts).dump())
    if has_lists:
        headers.generate_aten_headers(operators, wheel)
        headers.generate_autograd_headers(operators.every, operators.derivatives.infos, wheel, "torch/include")
    wheel.names |= {path.relative_to(wheel.folder) for path in (wheel.folder / "torchgen").rglob("*.yaml")}
    wheel.prune()


def generate_sources(
    operators: Operators, policies: Mapping[str, str], generated: Output, wheel: Output, cuda: str
) -> None:
    """Generate what is compiled: the sources of each unit below ``units``, and the headers of the new operators."""
    headers.generate_operator_headers(operators, wheel, generated)
    for selection in operators.units():
        unit = Output(generated.folder / "units" / selection.functions[0].root_name)
        sources.generate_aten_sources(selection, unit)
        rules.generate_batching_rules(selection, unit)
        rules.generate_autocast(selection, policies, unit)
        sources.generate_cuda(selection, cuda, unit)
        sources.generate_autograd_sources(selection, unit)
        sources.write_library(unit, is_large=len(selection.root_names) > sources.LARGE)
        generate_bindings(selection, unit)
        headers.generate_unit_headers(selection, unit)
        headers.narrow_headers(selection, unit)
        generated.names |= {unit.folder.relative_to(generated.folder) / name for name in unit.names}


def generate_declared(declared: Selection, generated: Output) -> None:
    """Generate the unit through which others call the operators that are defined elsewhere."""
    unit = Output(generated.folder / "units" / DECLARED)
    sources.generate_calls(declared, unit)
    sources.write_library(unit, '#include "graft_called.h"\n')
    headers.narrow_headers(declared, unit)
    generated.names |= {unit.folder.relative_to(generated.folder) / name for name in unit.names}


def generate_replacements(
    operators: Operators, replaced: Replacements, base: Path, generated: Output, cuda: str
) -> None:
    """Generate the unit that replaces kernels and derivative formulas of the base."""
    headers.generate_replaced_headers(replaced.kernels, operators, base, generated)
    unit = Output(generated.folder / "units" / REPLACED)
    sources.generate_replaced(replaced, cuda, unit)
    generate_bindings(replaced.formulas, unit)
    headers.generate_replaced_nodes(replaced, unit)
    generated.names |= {unit.folder.relative_to(generated.folder) / name for name in unit.names}


def generate_header_of_helpers(helpers: Helpers, base: Path, generated: Output) -> None:
    """Generate PyTorch's header of functions for formulas with the declarations of native folders, if there are any."""
    if text := helpers.header((base / "torch/include" / HEADER).read_text(encoding="utf-8")):
        generated.write(f"include/{HEADER}", text)


def generate_python(base: Path, natives: NativeFolders, out: Path) -> None:
    """Generate what the build of a source tree does not: texts to append to its files, and the description."""
    appended = Output(out / "appended")
    for name, text in missing_names(natives).items():
        appended.write(name, text)
    operators = load_operators(base, natives, out / "wheel")
    Output(out).write(DESCRIPTION, describe(operators.new).dump())
    # In these folders, which hold upstream's handwritten files, the build compiles every source.
    rules.generate_batching_rules(operators.new, appended, "aten/src/ATen/functorch")
    rules.generate_autocast(operators.new, rules.read_policies(natives), appended, "aten/src/ATen")


def replaced_parts(
    operators: Operators, natives: NativeFolders, kernels: Sequence[Entry], formulas: Iterable[str]
) -> dict[str, list[str]]:
    """Return the replaced parts of PyTorch's operators, by name: the dispatch keys of kernels in entries, `derivatives`
    for those with other ``formulas``, and the dispatch keys of kernels that sources register.
    """
    found = {entry.operator: list(entry.kernels) or ["CompositeImplicitAutograd"] for entry in kernels}
    for operator in dict.fromkeys(formulas):
        found.setdefault(operator, []).append("derivatives")
    theirs = {str(f.func.name) for f in operators.functions if f not in operators.new}
    registered: dict[str, dict[str, None]] = {}
    for each in registered_in(natives):
        for name in [name for name in each.names if name in theirs][:1]:
            registered.setdefault(name, {})[each.key] = None
    for name, keys in registered.items():
        found.setdefault(name, []).extend(keys)
    return found


def load_operators(base: Path, natives: NativeFolders, wheel: Path) -> Operators:
    """Append the YAML of ``natives`` to PyTorch's, write it into ``wheel``, and parse it.

    Operators that need changes in PyTorch's own sources are refused.
    """
    merge_with_base(natives, base, wheel)
    extend_modules(missing_names(natives))
    entries, formulas = (natives.entries(file, replacing=False) for file in (FUNCTIONS, DERIVATIVES))
    declared = read_entries(natives.declared) if natives.declared else ()
    operators = Operators(base, entries, formulas, declared)
    faults = [
        f"{f.loc.file}:{f.loc.line}: {f.func.name}: manual_cpp_binding needs a handwritten C++ function in PyTorch's "
        "sources, which a native folder cannot contain. Leave it out; the function is then generated"
        for f in operators.new.functions
        if f.manual_cpp_binding
    ]
    if faults:
        raise ValueError("\n".join(faults))
    return operators


if __name__ == "__main__":
    sys.exit(main())
