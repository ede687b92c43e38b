"""``python -m graft.check``: print the errors in native folders; exit with 1 if a build is impossible."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..inputs.native import DERIVATIVES, FUNCTIONS
from .arguments import check_arguments
from .autocast import check_autocast
from .base import BaseOperators
from .cplusplus import read_sources
from .derivatives import check_derivatives
from .dispatch_stubs import check_stubs
from .entries import Entry, read_entries
from .files import check_files
from .finding import Findings
from .functions import check_functions, misread, root_of
from .groups import check_groups
from .kernels import check_kernels, wanted_kernels
from .python import check_docs, check_python, check_samples


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m graft.check", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the base wheel's tree")
    parser.add_argument("--native", type=Path, nargs="+", required=True, help="the native folders")
    options = parser.parse_args()
    findings = check(options.native, BaseOperators(options.base))
    print("\n".join(findings.lines()))
    return 1 if findings.errors else 0


def check(natives: Sequence[Path], base: BaseOperators) -> Findings:
    """Check the YAML, the kernels and the Python files of ``natives``, which are built together."""
    findings = Findings()
    check_files(natives, findings)
    yaml = {native / name for native in natives for name in (FUNCTIONS, DERIVATIVES)}
    entries = [entry for native in natives for entry in read_entries(native / FUNCTIONS, findings)]
    formulas = [entry for native in natives for entry in read_entries(native / DERIVATIVES, findings)]
    # Without entries, everything else would be reported as unknown.
    if not yaml & {error.file for error in findings.errors}:
        _check_operators(natives, entries, formulas, base, findings)
    check_python(natives, base.tree, findings)
    return findings


def _check_operators(
    natives: Sequence[Path], entries: list[Entry], formulas: list[Entry], base: BaseOperators, findings: Findings
) -> None:
    functions = check_functions(entries, base, findings)
    unwritable = check_arguments(functions, findings)
    check_groups(entries, functions, base, findings)
    sources = read_sources(natives)
    misunderstood = misread(entries, functions)
    unknown = {entry.operator for entry in misunderstood}
    names = {f.schema.name.name.base for f in functions}
    names |= {name for operator in unknown for name in (root_of(operator), operator.partition(".")[0])}
    check_derivatives(formulas, functions, unknown, sources, base, findings)
    has_cuda = (base.tree / "torch/lib/libtorch_cuda.so").is_file()
    with_cuda = list(natives) if has_cuda else [source.folder for source in sources if source.is_cuda]
    kernels = wanted_kernels(functions, unwritable, with_cuda=with_cuda)
    check_kernels(kernels, misunderstood, sources, base, findings)
    check_stubs(sources, findings)
    check_docs(natives, names, findings)
    check_samples(natives, names, findings)
    check_autocast(natives, functions, unknown, findings)


if __name__ == "__main__":
    sys.exit(main())
