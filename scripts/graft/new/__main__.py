"""``python -m graft.new BASE NATIVE SCHEMA KIND VARIANTS``: print the texts of a new operator as JSON, or an error."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from string import Template

from ..core.errors import OperatorError
from ..inputs.native import DERIVATIVES, FUNCTIONS, SAMPLES
from .values import Request, Values, parse_request, values_of

TEMPLATES = Path(__file__).parent / "templates"


def scaffold(base: Path, native: Path, schema: str, kind: str, variants: set[str]) -> dict[str, str]:
    """Return the texts of a new operator, by path in the native folder.

    Args:
        base: the base wheel's tree.
        native: the native folder, which may not exist.
        schema: the schema of the functional variant.
        kind: ``plain``, ``kernel``, ``pointwise`` or ``composite``.
        variants: ``inplace`` and ``out``, or some of them.

    Raises:
        OperatorError: the schema is not supported, or the name is taken.
    """
    request = parse_request(schema, kind, variants)
    upstream = operators_of(base / "torchgen/packaged/ATen/native" / FUNCTIONS)
    refuse_known(request, operators_of(native / FUNCTIONS), upstream)
    is_public = not request.op.startswith("_") and request.op not in {name.partition(".")[0] for name in upstream}
    samples = (native / SAMPLES).read_text(encoding="utf-8") if (native / SAMPLES).is_file() else ""
    is_described = bool(re.search(rf"^(def )?{request.op}\b", samples, re.M))
    values = values_of(request, is_public, is_described)
    texts, names = {}, {"Op": request.camel, "test_op": f"test_{request.file}", "/op": f"/{request.op}"}
    for folder in (TEMPLATES / "any", TEMPLATES / (kind if kind in ("kernel", "pointwise") else "calls")):
        for path in folder.rglob("*.in"):
            name = path.relative_to(folder).as_posix().removesuffix(".in")
            texts[re.sub("|".join(names), lambda hit: names[hit[0]], name)] = fill(
                path.read_text(encoding="utf-8"), values
            )
    if (native / f"docs/{request.op}.rst").exists():  # by another overload
        del texts[f"docs/{request.op}.rst"]
    if request.backward:
        refuse_known(request.backward, operators_of(native / FUNCTIONS), upstream)
        values = values_of(request.backward, is_public=False, is_described=True)
        for file in (FUNCTIONS, DERIVATIVES):
            texts[file.name] += "\n" + fill((TEMPLATES / f"any/{file}.in").read_text(encoding="utf-8"), values)
        kernel = (TEMPLATES / "kernel/Op.cpp.in").read_text(encoding="utf-8")
        texts[f"{request.backward.camel}.cpp"] = fill(kernel, values)
    return {name: text for name, text in sorted(texts.items()) if text}


def operators_of(path: Path) -> dict[str, str]:
    """Return ``file:line`` of each operator in a native_functions.yaml, which may not exist."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    entries = ((re.match(r"\s*- func:\s*['\"]?([\w.]+)\(", line), number) for number, line in enumerate(lines, 1))
    return {entry[1]: f"{path}:{number}" for entry, number in entries if entry}


def refuse_known(request: Request, ours: dict[str, str], upstream: dict[str, str]) -> None:
    """Check that no variant has the name of an operator, given the results of ``operators_of``.

    Raises:
        OperatorError: gives the place of each that exists.
    """
    known, names = upstream | ours, [str(func.name) for func in request.variants.values()]
    if not request.func.name.overload_name:
        # Beside overloads of PyTorch's, it must be one with its own name.
        names += [name for name in upstream if name.startswith(f"{request.op}.")][:1]
    if faults := [f"{known[name]}: the operator {name} already exists" for name in names if name in known]:
        raise OperatorError("\n".join(faults), todo=f"choose another name, or an overload: {request.op}.mine(...)")


def fill(template: str, values: Values) -> str:
    """Replace each ``$name`` in a template by its value.

    A line is repeated for each element of the lists that it names; so it is left out if they are empty. The same holds
    for a paragraph whose first line names lists.
    """
    filled = ""
    for paragraph in re.split(r"(?<=[^\n]\n)(?=\n)", template):
        for common in _repeated(paragraph.lstrip("\n").partition("\n")[0], values):
            for line in paragraph.splitlines(keepends=True):
                filled += "".join(Template(line).substitute(each) for each in _repeated(line, common))
    return filled.lstrip("\n")


def _repeated(line: str, values: Values) -> list[Values]:
    """Return the values for each repetition of a line."""
    lists = {name: found for name in re.findall(r"\$\{?(\w+)", line) if isinstance(found := values[name], list)}
    each = zip(*lists.values(), strict=True)
    return [values | dict(zip(lists, one, strict=True)) for one in each] if lists else [values]


if __name__ == "__main__":
    base, native, schema, kind, variants = sys.argv[1:]
    try:
        print(json.dumps(scaffold(Path(base), Path(native), schema, kind, set(variants.split(",")))))
    except OperatorError as error:
        print(json.dumps({"error": vars(error)}))
