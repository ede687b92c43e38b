"""``python -m scripts.generate``: generate headers, sources, bindings and stubs for one merged operator set."""

from __future__ import annotations

import argparse
import gc
import sys
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from torchgen.yaml_utils import YamlLoader

from ..compose.python_files import GENERATED
from ..inputs.native import AUTOCAST, DOCS
from .autocast import generate_autocast
from .batching import generate_batching_rules
from .bindings import generate_bindings
from .docs import docstrings, generate_docs
from .headers import HeaderSink, generate_aten_headers, generate_autograd_headers
from .lists import Entry, Lists, extend_lists, missing_names, texts
from .operators import Derivatives, Operators, YamlFiles
from .parallel import beside
from .pyi import generate_stubs
from .python_lists import generate_added, generate_surfaces
from .sources import (
    generate_aten_sources,
    generate_autograd_sources,
    generate_cuda_registrations,
    write_units,
)
from .writer import Output


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.generate", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the base wheel's tree")
    parser.add_argument("--overlay", type=Path, required=True, help="the new wheel's additions, merged YAML included")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--generated", type=Path, help="where sources go")
    what.add_argument("--only-cpp", type=Path, help="where sources go; nothing is written for Python's own files")
    what.add_argument("--only-cuda", type=Path, help="where registrations go; nothing but those for CUDA, and headers")
    what.add_argument("--only-python", type=Path, help="write torch/_added_operators.py, and behind/ to here; no more")
    parser.add_argument("--native", type=Path, required=True, help="the native folder: its docs/ and autocast.yaml")
    parser.add_argument("--verbose", action="store_true", help="show a traceback when it fails")
    options = parser.parse_args()
    gc.disable()  # everything lives until the end, which comes soon
    try:
        if options.only_python:
            generate_python(options.base, options.overlay, options.only_python, options.native)
        elif options.only_cpp:
            generate_cpp(options.base, options.overlay, options.only_cpp)
        elif options.only_cuda:
            generate_cuda(options.base, options.overlay, options.only_cuda)
        else:
            generate(options.base, options.overlay, options.generated, options.native)
    except Exception as error:  # torchgen raises whatever assert, ValueError or KeyError fits
        if options.verbose:
            traceback.print_exc()
        print(error)
        return 1
    return 0


def generate(base: Path, overlay_folder: Path, generated_folder: Path, native: Path) -> None:
    """Generate all that a wheel with the merged YAML in ``overlay_folder`` needs, and the rest of ``native``."""
    packaged = base / "torchgen/packaged"
    overlay, generated = Output(overlay_folder), Output(generated_folder)
    behind = Output(generated_folder / GENERATED)
    operators = load_operators(base, overlay_folder)
    sink = HeaderSink(base, overlay)

    def generate_aten() -> None:
        generate_aten_headers(operators, sink, generated)
        generate_aten_sources(operators, packaged=packaged, out=generated)
        generate_batching_rules(operators, generated)
        generate_autocast(operators, native / AUTOCAST, generated)
        documented = docstrings(operators, native / DOCS)
        generate_stubs(operators, {(bound.place.name, bound.name): doc for bound, doc in documented}, base, overlay)
        generate_surfaces(operators, base, overlay)
        generate_docs(documented, behind)

    with beside(generate_aten, overlay, generated, behind):
        derivatives = Derivatives(operators)
        generate_autograd_headers(operators, derivatives, sink)
        generate_autograd_sources(operators, derivatives, packaged=packaged, output=generated)
        generate_bindings(operators, derivatives, packaged=packaged, out=generated)
    write_units(generated)
    note_overlay(overlay, generated)
    generated.names |= {GENERATED / name for name in behind.names}
    generated.prune()


def generate_cpp(base: Path, overlay_folder: Path, generated_folder: Path) -> None:
    """Generate headers and sources, and nothing that needs the rest of a wheel."""
    packaged = base / "torchgen/packaged"
    overlay, generated = Output(overlay_folder), Output(generated_folder)
    operators = load_operators(base, overlay_folder)
    sink = HeaderSink(base, overlay)
    generate_aten_headers(operators, sink, generated)
    generate_aten_sources(operators, packaged=packaged, out=generated)
    derivatives = Derivatives(operators)
    generate_autograd_headers(operators, derivatives, sink)
    generate_autograd_sources(operators, derivatives, packaged=packaged, output=generated)
    generate_bindings(operators, derivatives, packaged=packaged, out=generated)


def generate_cuda(base: Path, overlay_folder: Path, generated_folder: Path) -> None:
    """Generate ATen's headers and the registrations for CUDA."""
    overlay, generated = Output(overlay_folder), Output(generated_folder)
    operators = load_operators(base, overlay_folder)
    generate_aten_headers(operators, HeaderSink(base, overlay), generated)
    generate_cuda_registrations(operators, packaged=base / "torchgen/packaged", out=generated)
    note_overlay(overlay, generated)
    generated.prune()


def generate_python(base: Path, overlay_folder: Path, folder: Path, native: Path) -> None:
    """Generate what a source tree's own build does not: the list of added operators, and what goes behind its files."""
    behind = Output(folder / GENERATED)
    for name, text in texts(lists_of(base, overlay_folder)).items():
        behind(behind.folder / name, text)
    operators = load_operators(base, overlay_folder)
    generate_added(operators, Output(overlay_folder))
    generate_docs(docstrings(operators, native / DOCS), behind)
    # Upstream's are written by hand, in folders of which the build compiles every source.
    with TemporaryDirectory() as scratch:
        rules, policies = Output(Path(scratch) / "rules"), Output(Path(scratch) / "policies")
        generate_batching_rules(operators, rules)
        generate_autocast(operators, native / AUTOCAST, policies)
        for output, target in ((rules, "aten/src/ATen/functorch"), (policies, "aten/src/ATen")):
            for source in (output.folder / name for name in output.names if name.suffix == ".cpp"):
                behind(behind.folder / target / source.name, source.read_text())


def note_overlay(overlay: Output, generated: Output) -> None:
    """Write the names of what was generated into the overlay, for the builder to keep."""
    names = "".join(f"{name.as_posix()}\n" for name in sorted(overlay.names))
    generated(generated.folder / "overlay.txt", names)


def load_operators(base: Path, overlay_folder: Path) -> Operators:
    """Parse the merged YAML in ``overlay_folder``."""
    base_yaml = YamlFiles.below(base / "torchgen/packaged")
    merged = YamlFiles.below(overlay_folder / "torchgen/packaged")
    files = YamlFiles(merged.native_functions, base_yaml.tags, merged.derivatives, base_yaml.deprecated)
    extend_lists(lists_of(base, overlay_folder))
    operators = Operators(files, base_yaml.native_functions.read_text().count("\n"))
    operators.refuse_unsupported()
    return operators


def lists_of(base: Path, overlay_folder: Path) -> Lists:
    """What torchgen's own lists lack of the merged YAML in ``overlay_folder``."""
    base_yaml = YamlFiles.below(base / "torchgen/packaged")
    merged = YamlFiles.below(overlay_folder / "torchgen/packaged")
    return missing_names(
        new_entries(base_yaml.native_functions, merged.native_functions),
        new_entries(base_yaml.derivatives, merged.derivatives),
    )


def new_entries(base: Path, merged: Path) -> list[Entry]:
    """The entries of ``merged`` behind those of ``base``, with whose text it begins."""
    addition = merged.read_text()[len(base.read_text()) :]
    return list(yaml.load(addition, YamlLoader) or [])


if __name__ == "__main__":
    sys.exit(main())
