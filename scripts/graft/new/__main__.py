"""``python -m graft.new``: print the texts of a new operator as JSON, or an error."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

from torchgen.gen import parse_tags_yaml

from ..core.errors import OperatorError
from ..inputs.native import DERIVATIVES, FUNCTIONS, SAMPLES
from .decomposition import FILE, decomposition
from .docs import docs_file
from .entries import derivative_entry, function_entries, parse_entries, refuse_known
from .kernels import kernel_files
from .python_test import python_test
from .request import parse_request
from .samples import samples_entry


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m graft.new", description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="the base wheel's tree")
    parser.add_argument("--native", type=Path, required=True, help="the native folder")
    parser.add_argument("--schema", required=True)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--variants", required=True, help="separated by commas")
    options = parser.parse_args()
    try:
        text = scaffold(
            options.base, options.native, options.schema, options.kind, set(filter(None, options.variants.split(",")))
        )
    except OperatorError as error:
        print(json.dumps({"what": error.what, "cause": error.cause, "todo": error.todo}))
        return OperatorError.exit_code
    print(json.dumps(text))
    return 0


def scaffold(base: Path, native: Path, schema: str, kind: str, variants: set[str]) -> dict[str, dict[str, str]]:
    """Generate the texts of a new operator.

    Args:
        base: the base wheel's tree.
        native: the native folder, which may not exist.
        schema: the schema of the functional variant.
        kind: ``pointwise``, ``plain`` or ``composite``.
        variants: ``inplace`` and ``out``, or some of them.

    Returns:
        ``appended``: what is appended to the YAML files, ``samples.py`` and the decompositions; ``created``: the new
        files; each by its path in ``native``.

    Raises:
        OperatorError: the schema is not supported, or the name is taken.
    """
    request = parse_request(schema, kind, variants)
    packaged = base / "torchgen/packaged/ATen/native"
    refuse_known(request, native / FUNCTIONS, packaged / FUNCTIONS)
    entries = function_entries(request)
    functions = parse_entries(entries, parse_tags_yaml(str(packaged / "tags.yaml")))
    appended = {FUNCTIONS.name: entries, DERIVATIVES.name: derivative_entry(request)}
    known = {
        name.partition(".")[0]
        for name in re.findall(r"^- func: ([\w.]+)", (packaged / FUNCTIONS).read_text(encoding="utf-8"), re.M)
    }
    appended[SAMPLES.name] = samples_entry(request, native, known)
    appended[FILE] = decomposition(request, native)
    created = {
        **kernel_files(request, functions),
        **docs_file(request, functions, native, known),
        f"tests/test_{request.name}.py": python_test(request),
    }
    return {"appended": {name: text for name, text in appended.items() if text}, "created": created}


if __name__ == "__main__":
    sys.exit(main())
