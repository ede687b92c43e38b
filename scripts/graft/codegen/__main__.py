"""``python -m graft.codegen``: run torchgen on one merged operator set."""

from __future__ import annotations

import argparse
import gc
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from torchgen.yaml_utils import YamlLoader

from ..core.lock import build_lock
from ..inputs.native import AUTOCAST
from . import KERNELS, MISSING, NO_CUDA, SOURCES_ARE_THERE
from .added_operators import generate_added
from .autocast import generate_autocast
from .batching import generate_batching_rules
from .bindings import generate_bindings
from .cuda import generate_cuda
from .description import generate_description
from .fragments import generate_fragments
from .headers import (
    HeaderSink,
    generate_aten_headers,
    generate_autograd_headers,
    generate_operator_headers,
    generate_unit_headers,
    narrow_headers,
)
from .lists import Entry, Lists, extend_lists, missing_names, texts
from .operators import Derivatives, Operators, YamlFiles
from .parallel import alongside
from .sources import generate_aten_sources, generate_autograd_sources, write_library
from .writer import Output

Part = Callable[[Path, Path, Path], None]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m graft.codegen", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the unpacked base")
    parser.add_argument("--native", type=Path, required=True, help="the native folder")
    parser.add_argument("--out", type=Path, required=True, help="has the merged YAML below wheel/; receives the output")
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
        print(error)
        return 1
    return 0


def generate(base: Path, native: Path, out: Path, *, cuda: str = NO_CUDA) -> None:
    """Generate everything that a wheel needs, below ``out``:

    ``units/``, ``include/`` and ``fragments.json`` are for compilers, ``wheel/`` has files of the wheel, and
    ``operators.json`` describes the operators for docstrings, stubs and lists.
    """
    generated, wheel = Output(out), Output(out / "wheel")
    operators = load_operators(base, out / "wheel")
    derivatives = Derivatives(operators)

    def headers_of_the_wheel() -> None:
        sink = HeaderSink(base, wheel)
        generate_aten_headers(operators, sink)
        generate_autograd_headers(operators, derivatives, sink)

    with alongside(headers_of_the_wheel, wheel):
        generate_sources(operators, derivatives, native, generated, HeaderSink(base, wheel), cuda)
        generate_fragments(operators, generated)
        # Compilers must not find files of an earlier run.
        generated.prune(of=("units", "include"))
        wheel.prune(of=("torch/include/ATen/ops",))
        print(SOURCES_ARE_THERE, flush=True)
        generate_description(operators, generated)
        generate_added(operators, wheel)
    wheel.names |= {path.relative_to(wheel.folder) for path in (wheel.folder / "torchgen").rglob("*.yaml")}
    wheel.prune()


def generate_sources(
    operators: Operators, derivatives: Derivatives, native: Path, generated: Output, sink: HeaderSink, cuda: str
) -> None:
    """Generate what is compiled: the sources of each unit below ``units``, and the headers of the new operators."""
    packaged = sink.base / "torchgen/packaged"
    generate_operator_headers(operators, sink, generated)
    for roots in operators.units():
        part, of_part = operators.part(roots), derivatives.part(operators.part(roots))
        unit = Output(generated.folder / "units" / roots[0])
        generate_aten_sources(part, packaged=packaged, out=unit)
        generate_batching_rules(part, unit)
        generate_autocast(part, native / AUTOCAST, unit)
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


def generate_cpp(base: Path, native: Path, out: Path) -> None:
    """Generate only headers and sources, in one unit."""
    generated, wheel = Output(out), Output(out / "wheel")
    operators = load_operators(base, out / "wheel")
    derivatives = Derivatives(operators)
    sink = HeaderSink(base, wheel)
    generate_operator_headers(operators, sink, generated)
    generate_aten_headers(operators, sink)
    generate_autograd_headers(operators, derivatives, sink)
    generate_aten_sources(operators, packaged=base / "torchgen/packaged", out=generated)
    generate_autograd_sources(operators, derivatives, packaged=base / "torchgen/packaged", output=generated)
    generate_bindings(operators, derivatives, packaged=base / "torchgen/packaged", out=generated)


def generate_python(base: Path, native: Path, out: Path) -> None:
    """Generate what the build of a source tree does not: lists of the added operators, and texts to append to its
    files.
    """
    generated, wheel, appended = Output(out), Output(out / "wheel"), Output(out / "appended")
    for name, text in texts(lists_of(base, out / "wheel")).items():
        appended(appended.folder / name, text)
    operators = load_operators(base, out / "wheel")
    generate_added(operators, wheel)
    generate_description(operators, generated)
    # In these folders, which hold upstream's handwritten files, the build compiles every source.
    with TemporaryDirectory() as scratch:
        rules, policies = Output(Path(scratch) / "rules"), Output(Path(scratch) / "policies")
        generate_batching_rules(operators, rules)
        generate_autocast(operators, native / AUTOCAST, policies)
        for output, target in ((rules, "aten/src/ATen/functorch"), (policies, "aten/src/ATen")):
            for source in (output.folder / name for name in output.names if name.suffix == ".cpp"):
                appended(appended.folder / target / source.name, source.read_text(encoding="utf-8"))


_PARTS: dict[str, Part] = {
    "cpp": generate_cpp,
    "python": generate_python,
}


def load_operators(base: Path, wheel: Path) -> Operators:
    """Parse the merged YAML in ``wheel``."""
    base_yaml = YamlFiles.below(base / "torchgen/packaged")
    merged = YamlFiles.below(wheel / "torchgen/packaged")
    files = YamlFiles(merged.native_functions, base_yaml.tags, merged.derivatives, base_yaml.deprecated)
    extend_lists(lists_of(base, wheel))
    operators = Operators(files, base_yaml.native_functions.read_text(encoding="utf-8").count("\n"))
    operators.refuse_unsupported()
    return operators


def lists_of(base: Path, wheel: Path) -> Lists:
    """Return what torchgen's own lists lack for the merged YAML in ``wheel``."""
    base_yaml = YamlFiles.below(base / "torchgen/packaged")
    merged = YamlFiles.below(wheel / "torchgen/packaged")
    return missing_names(
        new_entries(base_yaml.native_functions, merged.native_functions),
        new_entries(base_yaml.derivatives, merged.derivatives),
    )


def new_entries(base: Path, merged: Path) -> list[Entry]:
    """Return the entries of ``merged`` after those of ``base``. Its text begins with that of ``base``."""
    addition = merged.read_text(encoding="utf-8")[len(base.read_text(encoding="utf-8")) :]
    return list(yaml.load(addition, YamlLoader) or [])


if __name__ == "__main__":
    sys.exit(main())
