"""``python -m graft.codegen``: run torchgen on one merged operator set."""

from __future__ import annotations

import argparse
import gc
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.files import build_lock
from ..inputs.entries import Entry, read_entries
from ..inputs.merge import merge_with_base
from ..inputs.native import DERIVATIVES, FUNCTIONS
from ..inputs.patches import ADDED
from . import DESCRIPTION, KERNELS, MISSING, NO_CUDA, SOURCES_ARE_THERE
from .bindings import generate_bindings
from .derived import generate_autocast, generate_batching_rules, read_policies
from .headers import (
    HeaderSink,
    generate_aten_headers,
    generate_autograd_headers,
    generate_fragments,
    generate_operator_headers,
    generate_unit_headers,
    narrow_headers,
)
from .operators import Derivatives, Operators, YamlFiles
from .python import describe
from .sources import generate_aten_sources, generate_autograd_sources, generate_cuda, write_library
from .upstream import Lists, missing_names
from .writer import Output, alongside

Part = Callable[[Path, Sequence[Path], Path], None]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m graft.codegen", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the unpacked base")
    parser.add_argument("--native", type=Path, nargs="+", required=True, help="the native folders")
    parser.add_argument("--out", type=Path, required=True, help="receives the output")
    parser.add_argument(
        "--part", choices=("all", *_PARTS), default="all", help="what to generate (default: %(default)s)"
    )
    parser.add_argument(
        "--cuda", choices=(KERNELS, MISSING, NO_CUDA), default=NO_CUDA, help="what to generate for CUDA"
    )
    parser.add_argument("--verbose", action="store_true", help="show a traceback on errors")
    options = parser.parse_args()
    gc.disable()  # the process ends soon, so nothing needs to be freed
    try:
        # A process left by a killed build must end first. Its child holds the lock, too.
        with build_lock(options.out):
            part = _PARTS.get(options.part) or partial(generate, cuda=options.cuda)
            part(options.base, options.native, options.out)
    except Exception as error:  # torchgen raises AssertionError, ValueError or KeyError
        if options.verbose:
            traceback.print_exc()
        print(explained(str(error), options.native))
        return 1
    return 0


def explained(message: str, natives: Sequence[Path]) -> str:
    """Return torchgen's ``message``, with the entries before it that it quotes without their place."""
    if any(f"{native}/" in message for native in natives):
        return message
    entries = [
        entry for native in natives for file in (FUNCTIONS, DERIVATIVES) for entry in read_entries(native / file)
    ]
    quoted = [f"{each.file}:{each.line}: {each.schema}" for each in entries if each.schema in message]
    return "\n".join([*quoted, message])


def generate(base: Path, natives: Sequence[Path], out: Path, *, cuda: str = NO_CUDA) -> None:
    """Generate everything that a wheel needs, below ``out``:

    ``units/``, ``include/`` and ``fragments.json`` are for compilers, ``wheel/`` has files of the wheel, and
    ``operators.json`` describes the operators for docstrings, stubs and lists.
    """
    generated, wheel = Output(out), Output(out / "wheel")
    operators = load_operators(base, natives, out / "wheel")
    derivatives = Derivatives(operators)

    def headers_of_the_wheel() -> None:
        sink = HeaderSink(base, wheel)
        generate_aten_headers(operators, sink)
        generate_autograd_headers(operators, derivatives, sink)

    with alongside(headers_of_the_wheel, wheel):
        generate_sources(operators, derivatives, read_policies(natives), generated, HeaderSink(base, wheel), cuda)
        generate_fragments(operators, generated)
        # Compilers must not find files of an earlier run.
        generated.prune(of=("units", "include"))
        wheel.prune(of=("torch/include/ATen/ops",))
        print(SOURCES_ARE_THERE, flush=True)
        write_description(operators, generated, wheel)
    wheel.names |= {path.relative_to(wheel.folder) for path in (wheel.folder / "torchgen").rglob("*.yaml")}
    wheel.prune()


def generate_sources(
    operators: Operators,
    derivatives: Derivatives,
    policies: Mapping[str, str],
    generated: Output,
    sink: HeaderSink,
    cuda: str,
) -> None:
    """Generate what is compiled: the sources of each unit below ``units``, and the headers of the new operators."""
    packaged = sink.base / "torchgen/packaged"
    generate_operator_headers(operators, sink, generated)
    for roots in operators.units():
        part, of_part = operators.part(roots), derivatives.part(operators.part(roots))
        unit = Output(generated.folder / "units" / roots[0])
        generate_aten_sources(part, packaged=packaged, out=unit)
        generate_batching_rules(part, unit)
        generate_autocast(part, policies, unit)
        generate_cuda(part, cuda, packaged=packaged, out=unit)
        generate_autograd_sources(part, of_part, packaged=packaged, output=unit)
        text = write_library(unit)
        if generate_bindings(part, of_part, packaged=packaged, out=unit):
            text += "\n".join(
                (unit.folder / name).read_text(encoding="utf-8")
                for name in unit.names
                if name.name == "bindings.cpp" or name.parent.name == "python"
            )
        generate_unit_headers(part, of_part, sink.base, unit)
        narrow_headers(part, text, packaged / "ATen/templates", unit)
        generated.names |= {unit.folder.relative_to(generated.folder) / name for name in unit.names}


def generate_cpp(base: Path, natives: Sequence[Path], out: Path) -> None:
    """Generate only headers and sources, in one unit."""
    generated, wheel = Output(out), Output(out / "wheel")
    operators = load_operators(base, natives, out / "wheel")
    derivatives = Derivatives(operators)
    sink = HeaderSink(base, wheel)
    generate_operator_headers(operators, sink, generated)
    generate_aten_headers(operators, sink)
    generate_autograd_headers(operators, derivatives, sink)
    generate_aten_sources(operators, packaged=base / "torchgen/packaged", out=generated)
    generate_autograd_sources(operators, derivatives, packaged=base / "torchgen/packaged", output=generated)
    generate_bindings(operators, derivatives, packaged=base / "torchgen/packaged", out=generated)


def generate_python(base: Path, natives: Sequence[Path], out: Path) -> None:
    """Generate what the build of a source tree does not: lists of the added operators, and texts to append to its
    files.
    """
    generated, wheel, appended = Output(out), Output(out / "wheel"), Output(out / "appended")
    for name, text in lists_of(natives).texts().items():
        appended(appended.folder / name, text)
    operators = load_operators(base, natives, out / "wheel")
    write_description(operators, generated, wheel)
    # In these folders, which hold upstream's handwritten files, the build compiles every source.
    with TemporaryDirectory() as scratch:
        rules, policies = Output(Path(scratch) / "rules"), Output(Path(scratch) / "policies")
        generate_batching_rules(operators, rules)
        generate_autocast(operators, read_policies(natives), policies)
        for output, target in ((rules, "aten/src/ATen/functorch"), (policies, "aten/src/ATen")):
            for source in (output.folder / name for name in output.names if name.suffix == ".cpp"):
                appended(appended.folder / target / source.name, source.read_text(encoding="utf-8"))


_PARTS: dict[str, Part] = {
    "cpp": generate_cpp,
    "python": generate_python,
}


def write_description(operators: Operators, generated: Output, wheel: Output) -> None:
    """Write ``operators.json`` and ``torch/_added_operators.py``."""
    description = describe(operators)
    generated(generated.folder / DESCRIPTION, description.dump())
    wheel(wheel.folder / ADDED, description.module())


def load_operators(base: Path, natives: Sequence[Path], wheel: Path) -> Operators:
    """Merge the YAML of ``natives`` with PyTorch's in ``wheel``, and parse it."""
    merged = merge_with_base(natives, base, wheel)
    ours, theirs = (YamlFiles.below(folder / "torchgen/packaged") for folder in (wheel, base))
    lists_of(natives).extend()
    files = YamlFiles(ours.native_functions, theirs.tags, ours.derivatives, theirs.deprecated)
    operators = Operators(files, merged[FUNCTIONS])
    operators.refuse_unsupported()
    return operators


def lists_of(natives: Sequence[Path]) -> Lists:
    """Return what torchgen's own lists lack for the entries of ``natives``."""
    functions, formulas = (entries_of(natives, file) for file in (FUNCTIONS, DERIVATIVES))
    return missing_names([entry.fields for entry in functions], [entry.fields for entry in formulas])


def entries_of(natives: Sequence[Path], file: Path) -> list[Entry]:
    """Return the entries of all ``natives`` in one of their files."""
    return [entry for native in natives for entry in read_entries(native / file)]


if __name__ == "__main__":
    sys.exit(main())
