"""``python -m scripts.check``: print what is wrong with a native folder; exit with 1 if no build can go on."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from .base import BaseOperators
from .derivatives import check_derivatives
from .entries import read_entries
from .finding import Findings
from .functions import check_functions
from .kernels import check_kernels, source_texts
from .python import check_docs, check_python


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
    functions = check_functions(read_entries(native / "native_functions.yaml", findings), base, findings)
    texts = source_texts(native)
    words = {word for text in texts.values() for word in re.findall(r"[A-Za-z_]\w*", text)}
    words |= {f.schema.name.name.base for f in functions}
    check_derivatives(read_entries(native / "derivatives.yaml", findings), functions, base, words, findings)
    check_kernels(functions, texts, base, findings)
    check_docs(native, functions, findings)
    check_python(native, base.tree, findings)
    return findings


if __name__ == "__main__":
    sys.exit(main())
