"""``python -m scripts.check``: print what is wrong with a native folder; exit with 1 if no build can go on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..inputs.native import CUDA_SUFFIXES
from .arguments import check_arguments
from .autocast import check_autocast
from .base import BaseOperators
from .cplusplus import read_sources
from .derivatives import check_derivatives
from .dispatch_stubs import check_stubs
from .entries import Entry, read_entries
from .finding import Findings
from .functions import check_functions, misread, root_of
from .groups import check_groups
from .kernels import check_kernels, wanted_kernels
from .python import check_docs, check_python, check_samples
from .unread import check_unread


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.check", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the base wheel's tree")
    parser.add_argument("--native", type=Path, required=True, help="the native folder")
    options = parser.parse_args()
    findings = check(options.native, BaseOperators(options.base))
    print("\n".join(findings.lines()))
    return 1 if findings.errors else 0


def check(native: Path, base: BaseOperators) -> Findings:
    """Find what is wrong with the YAML, the kernels and the Python files of ``native``."""
    findings = Findings()
    entries = read_entries(native / "native_functions.yaml", findings)
    formulas = read_entries(native / "derivatives.yaml", findings)
    if not findings.errors:  # without the entries, all else would seem to name what is not there
        _check_operators(native, entries, formulas, base, findings)
    check_python(native, base.tree, findings)
    check_unread(native, findings)
    return findings


def _check_operators(
    native: Path, entries: list[Entry], formulas: list[Entry], base: BaseOperators, findings: Findings
) -> None:
    functions = check_functions(entries, base, findings)
    unwritable = check_arguments(functions, findings)
    check_groups(entries, functions, base, findings)
    sources = read_sources(native)
    misunderstood = misread(entries, functions)
    unknown = {entry.operator for entry in misunderstood}
    names = {f.schema.name.name.base for f in functions}
    names |= {name for operator in unknown for name in (root_of(operator), operator.partition(".")[0])}
    words = names.union(*(source.words for source in sources))
    check_derivatives(formulas, functions, unknown, base, words, findings)
    with_cuda = any(source.path.suffix in CUDA_SUFFIXES for source in sources)
    kernels = wanted_kernels(functions, unwritable, with_cuda=with_cuda)
    check_kernels(kernels, misunderstood, sources, base, findings)
    check_stubs(native, sources, findings)
    check_docs(native, names, findings)
    check_samples(native, names, findings)
    check_autocast(native, functions, unknown, findings)


if __name__ == "__main__":
    sys.exit(main())
