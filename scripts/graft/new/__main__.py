"""``python -m graft.new BASE NATIVE SCHEMA KIND VARIANTS``: print the texts of a new operator as JSON, or an error."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from ..check.types import unsupported
from ..core.errors import BuildError
from ..inputs.entries import places_of_operators
from ..inputs.merge import PACKAGED
from ..inputs.native import DERIVATIVES, FUNCTIONS, SAMPLES
from .rendering import rendered, templates_in
from .values import NewOperator, parse_operator, values_of


def scaffold(base: Path, native: Path, schema: str, kind: str, variants: set[str]) -> dict[str, str]:
    """Return the texts of a new operator, by path in the native folder.

    Args:
        base: the base wheel's tree.
        native: the native folder, which may not exist.
        schema: the schema of the functional variant.
        kind: ``plain``, ``kernel``, ``pointwise`` or ``composite``.
        variants: ``inplace`` and ``out``, or some of them.

    Raises:
        BuildError: the schema is not supported, or the name is taken.
    """
    operator = parse_operator(schema, kind, variants)
    for _, what, todo in unsupported(operator.func, base):
        raise BuildError(f"SCHEMA: {schema}\n  PyTorch's code generator does not support {what}", todo=todo)
    upstream = places_of_operators(base / PACKAGED[FUNCTIONS] / FUNCTIONS)
    refuse_known(operator, places_of_operators(native / FUNCTIONS), upstream)
    is_public = not operator.op.startswith("_") and operator.op not in {name.partition(".")[0] for name in upstream}
    samples = (native / SAMPLES).read_text(encoding="utf-8") if (native / SAMPLES).is_file() else ""
    is_described = bool(re.search(rf"^(def )?{operator.op}\b", samples, re.M))
    values = values_of(operator, is_public, is_described)
    names = {"Op": operator.camel, "test_op": f"test_{operator.file}", "/op": f"/{operator.op}"}
    templates = templates_in("any") | templates_in(kind if kind in ("kernel", "pointwise") else "calls")
    texts = {
        re.sub("|".join(names), lambda hit: names[hit[0]], name): rendered(template, values)
        for name, template in templates.items()
    }
    if (native / f"docs/{operator.op}.rst").exists():  # another overload has written it
        del texts[f"docs/{operator.op}.rst"]
    if operator.backward:
        refuse_known(operator.backward, places_of_operators(native / FUNCTIONS), upstream)
        values = values_of(operator.backward, is_public=False, is_described=True)
        for file in (FUNCTIONS.name, DERIVATIVES.name):
            texts[file] += "\n" + rendered(templates[file], values)
        texts[f"{operator.backward.camel}.cpp"] = rendered(templates["Op.cpp"], values)
    return {name: text for name, text in sorted(texts.items()) if text}


def refuse_known(operator: NewOperator, ours: dict[str, str], upstream: dict[str, str]) -> None:
    """Refuse variants whose names are taken; ``ours`` and ``upstream`` are results of ``places_of_operators``."""
    known, names = upstream | ours, [str(func.name) for func in operator.variants.values()]
    if not operator.func.name.overload_name:
        # If PyTorch has overloads of this name, a new operator must be an overload, too.
        names += [name for name in upstream if name.startswith(f"{operator.op}.")][:1]
    if faults := [f"{known[name]}: the operator {name} already exists" for name in names if name in known]:
        raise BuildError("\n".join(faults), todo=f"choose another name, or an overload: {operator.op}.mine(...)")


if __name__ == "__main__":
    base, native, schema, kind, variants = sys.argv[1:]
    try:
        print(json.dumps(scaffold(Path(base), Path(native), schema, kind, set(variants.split(",")))))
    except BuildError as error:
        print(json.dumps({"error": vars(error)}))
