"""``python -m scripts.codegen``: generate headers, sources, bindings and stubs for one merged operator set."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .bindings import generate_bindings
from .headers import generate_headers
from .operators import Derivatives, Operators, YamlFiles, base_function_names
from .sources import generate_sources
from .writer import Output


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.codegen", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the base wheel's tree")
    parser.add_argument("--overlay", type=Path, required=True, help="the new wheel's additions, merged YAML included")
    parser.add_argument("--generated", type=Path, required=True, help="where sources go")
    options = parser.parse_args()

    packaged = options.base / "torchgen/packaged"
    base_yaml = YamlFiles.below(packaged)
    merged = YamlFiles.below(options.overlay / "torchgen/packaged")
    yaml = YamlFiles(merged.native_functions, base_yaml.tags, merged.derivatives, base_yaml.deprecated)
    overlay, generated = Output(options.overlay), Output(options.generated)
    operators = Operators(yaml, base_function_names(base_yaml))
    derivatives = Derivatives(operators)
    generate_headers(operators, derivatives, base=options.base, overlay=overlay, generated=generated)
    generate_sources(operators, derivatives, packaged=packaged, out=generated)
    generate_bindings(operators, derivatives, packaged=packaged, out=generated)
    generated.prune("ATen", "autograd", "python", "include")
    names = "".join(f"{name.as_posix()}\n" for name in sorted(overlay.names))
    generated(generated.folder / "overlay.txt", names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
