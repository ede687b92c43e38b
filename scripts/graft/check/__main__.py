"""``python -m graft.check``: print the errors in native folders; exit with 1 if a build is impossible."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..inputs.entries import Entry, read_entries
from ..inputs.native import DERIVATIVES, FUNCTIONS, NativeFolder, load_native
from .base import BaseOperators
from .cplusplus import read_sources
from .derivatives import check_derivatives
from .files import check_files
from .finding import Findings
from .kernels import check_kernels, wanted_kernels
from .names import check_autocast, check_docs, check_samples
from .python import check_python
from .schemas import check_functions, misread, root_of


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
    folders = [load_native(native) for native in natives]
    check_files(folders, findings)
    yaml = {native / name for native in natives for name in (FUNCTIONS, DERIVATIVES)}
    entries, formulas = (_entries([native / name for native in natives], findings) for name in (FUNCTIONS, DERIVATIVES))
    # Without entries, everything else would be reported as unknown.
    if not yaml & {error.file for error in findings.errors}:
        _check_operators(folders, entries, formulas, base, findings)
    check_python(folders, base.tree, findings)
    return findings


def _entries(files: Sequence[Path], findings: Findings) -> list[Entry]:
    readable = [file for file in files if file not in findings.unreadable]
    return [entry for file in readable for entry in read_entries(file, findings.add)]


def _check_operators(
    folders: Sequence[NativeFolder],
    entries: list[Entry],
    formulas: list[Entry],
    base: BaseOperators,
    findings: Findings,
) -> None:
    natives = [folder.path for folder in folders]
    functions = check_functions(entries, base, findings)
    sources = read_sources(natives)
    misunderstood = misread(entries, functions)
    unknown = {entry.operator for entry in misunderstood}
    names = {f.schema.name.name.base for f in functions}
    names |= {name for operator in unknown for name in (root_of(operator), operator.partition(".")[0])}
    check_derivatives(formulas, functions, unknown, base, findings)
    has_cuda = (base.tree / "torch/lib/libtorch_cuda.so").is_file()
    with_cuda = natives if has_cuda else [source.folder for source in sources if source.is_cuda]
    kernels = wanted_kernels(functions, with_cuda=with_cuda)
    check_kernels(kernels, sources, base, findings, are_all=not misunderstood)
    check_docs(folders, names, findings)
    check_samples(folders, names, findings)
    check_autocast(folders, functions, unknown, findings)


if __name__ == "__main__":
    sys.exit(main())
