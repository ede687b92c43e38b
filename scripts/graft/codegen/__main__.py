"""``python -m graft.codegen``: run torchgen on one merged operator set."""

from __future__ import annotations

import argparse
import gc
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from ..core.bugs import expected
from ..core.errors import OperatorError
from ..core.files import build_lock
from ..inputs.entries import Entry
from ..inputs.merge import merge_with_base
from ..inputs.native import DERIVATIVES, FUNCTIONS, NativeFolders, saved_natives
from ..inputs.patches import ADDED
from ..inputs.registered import registered_in
from . import DESCRIPTION, KERNELS, MISSING, NO_CUDA, REPLACED, SOURCES_ARE_THERE
from .headers import (
    WheelOutput,
    generate_aten_headers,
    generate_autograd_headers,
    generate_fragments,
    generate_operator_headers,
    generate_replaced_headers,
    generate_replaced_nodes,
    generate_unit_headers,
    narrow_headers,
)
from .operators import Operators, Replaced, missing_names
from .python import describe, generate_bindings
from .sources import (
    generate_aten_sources,
    generate_autocast,
    generate_autograd_sources,
    generate_batching_rules,
    generate_cuda,
    generate_replaced,
    read_policies,
    write_library,
)
from .upstream import Output


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m graft.codegen", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the unpacked base")
    parser.add_argument("--natives", type=saved_natives, required=True, help="a file that a snapshot writes")
    parser.add_argument("--out", type=Path, required=True, help="receives the output")
    parser.add_argument("--part", choices=("all", "python"), default="all", help="what to generate (default: all)")
    parser.add_argument(
        "--cuda", choices=(KERNELS, MISSING, NO_CUDA), default=NO_CUDA, help="what to generate for CUDA"
    )
    parser.add_argument("--verbose", action="store_true", help="show a traceback on errors")
    options = parser.parse_args()
    gc.disable()  # the process ends soon, so nothing needs to be freed

    run = partial(generate, cuda=options.cuda) if options.part == "all" else generate_python
    return reported(partial(run, options.base, options.natives, options.out), options)


def reported(run: Callable[[], None], options: argparse.Namespace) -> int:
    """Run generators. Print an error of theirs, with its place in the native folders; return the exit code."""
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
        shown = OperatorError(message) if is_of_user else expected(error)
        print(shown)
        return shown.exit_code
    return 0


def names_file(message: str, natives: NativeFolders) -> bool:
    """Return whether a message names a file of the user."""
    return any(str(folder.path / name) in message for folder in natives.folders for name in folder.files)


def explained(message: str, natives: NativeFolders) -> str:
    """Return torchgen's ``message``, with the entries before it that it quotes without their place."""
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
) -> None:
    """Generate everything that a wheel needs, below ``out``:

    ``units/``, ``include/`` and ``fragments.json`` are for compilers, ``wheel/`` has files of the wheel, and
    ``operators.json`` describes the operators for docstrings, stubs and lists. ``judge`` may refuse the sources.
    """
    generated, wheel = Output(out), WheelOutput(out / "wheel", base)
    operators = load_operators(base, natives, wheel.folder)
    generate_sources(operators, read_policies(natives), generated, wheel, cuda)
    judge(operators, generated)
    kernels, formulas = replacing = [natives.entries(file, replacing=True) for file in (FUNCTIONS, DERIVATIVES)]
    if kernels or formulas:
        generate_replacements(operators.replaced_by(kernels, formulas), base, generated, cuda)
    generate_fragments(operators, generated)
    # Compilers must not find files of an earlier run.
    generated.prune(of=("units", "include"))
    wheel.prune(of=("torch/include/ATen/ops",))
    print(SOURCES_ARE_THERE, flush=True)
    replaced = replaced_names(*replacing)
    for name, keys in registered_names(operators, natives).items():
        replaced.setdefault(name, []).extend(keys)
    write_description(operators, generated, wheel, replaced)
    generate_aten_headers(operators, wheel)
    generate_autograd_headers(operators.every, operators.derivatives.infos, wheel, "torch/include")
    wheel.names |= {path.relative_to(wheel.folder) for path in (wheel.folder / "torchgen").rglob("*.yaml")}
    wheel.prune()


def generate_sources(
    operators: Operators, policies: Mapping[str, str], generated: Output, wheel: Output, cuda: str
) -> None:
    """Generate what is compiled: the sources of each unit below ``units``, and the headers of the new operators."""
    generate_operator_headers(operators, wheel, generated)
    for part in operators.units():
        unit = Output(generated.folder / "units" / part.functions[0].root_name)
        generate_aten_sources(part, unit)
        generate_batching_rules(part, unit)
        generate_autocast(part, policies, unit)
        generate_cuda(part, cuda, unit)
        generate_autograd_sources(part, unit)
        write_library(unit)
        generate_bindings(part, unit)
        generate_unit_headers(part, unit)
        narrow_headers(part, unit)
        generated.names |= {unit.folder.relative_to(generated.folder) / name for name in unit.names}


def generate_replacements(replaced: Replaced, base: Path, generated: Output, cuda: str) -> None:
    """Generate the unit with what replaces kernels and derivative formulas of operators of the base."""
    generate_replaced_headers(replaced.kernels, base, generated)
    unit = Output(generated.folder / "units" / REPLACED)
    generate_replaced(replaced, cuda, unit)
    generate_bindings(replaced.formulas, unit)
    generate_replaced_nodes(replaced, unit)
    generated.names |= {unit.folder.relative_to(generated.folder) / name for name in unit.names}


def generate_python(base: Path, natives: NativeFolders, out: Path) -> None:
    """Generate what the build of a source tree does not: lists of the added operators, and texts to append to its
    files.
    """
    appended = Output(out / "appended")
    for name, text in missing_names(natives).items():
        appended.write(name, text)
    operators = load_operators(base, natives, out / "wheel")
    write_description(operators, Output(out), Output(out / "wheel"))
    # In these folders, which hold upstream's handwritten files, the build compiles every source.
    generate_batching_rules(operators.new, appended, "aten/src/ATen/functorch")
    generate_autocast(operators.new, read_policies(natives), appended, "aten/src/ATen")


def write_description(
    operators: Operators, generated: Output, wheel: Output, replaced: Mapping[str, list[str]] | None = None
) -> None:
    """Write ``operators.json`` and ``torch/_added_operators.py``."""
    description = replace(describe(operators.new), replaced=dict(replaced or {}))
    generated.write(DESCRIPTION, description.dump())
    wheel.write(ADDED, description.module())


def replaced_names(kernels: Sequence[Entry], formulas: Sequence[Entry]) -> dict[str, list[str]]:
    """Return what entries replace, by operator."""
    replaced = {entry.operator: list(entry.kernels) or ["CompositeImplicitAutograd"] for entry in kernels}
    for entry in formulas:
        replaced.setdefault(entry.operator, []).append("derivatives")
    return replaced


def registered_names(operators: Operators, natives: NativeFolders) -> dict[str, list[str]]:
    """Return the dispatch keys that sources register something for, by operator of PyTorch."""
    theirs = {str(f.func.name) for f in operators.functions if f not in operators.new}
    found: dict[str, list[str]] = {}
    for each in registered_in(natives):
        for name in [name for name in each.names if name in theirs][:1]:
            if each.key not in found.setdefault(name, []):
                found[name].append(each.key)
    return found


def load_operators(base: Path, natives: NativeFolders, wheel: Path) -> Operators:
    """Write the YAML of ``natives`` behind PyTorch's into ``wheel``, and parse it.

    Raises:
        ValueError: operators need changes in PyTorch's own sources; lists each of them with its place.
    """
    merge_with_base(natives, base, wheel)
    for file, text in missing_names(natives).items():
        exec(text, vars(import_module(file.removesuffix(".py").replace("/", "."))))
    operators = Operators(base, *(natives.entries(file, replacing=False) for file in (FUNCTIONS, DERIVATIVES)))
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
