"""Describe the new operators for the writers of docstrings, stubs and lists."""

from __future__ import annotations

import json

from torchgen.api.python import returns_structseq_pyi
from torchgen.packaged.autograd.gen_annotated_fn_args import gen_annotated_args

from . import DESCRIPTION
from .bindings import belongs, new_names
from .docs import bound_names, derived_body, reference, signature_lines
from .operators import Operators
from .places import PLACES
from .pyi import hints, new_signature_groups
from .writer import Output


def generate_description(operators: Operators, out: Output) -> None:
    """Write ``operators.json``, which ``graft.compose.description`` reads."""
    names = [each for place in PLACES for each in bound_names(operators, place)]
    functions = {each.name: each for each in names if not each.place.is_method}
    methods = {each.name: each for each in names if each.place.is_method}
    bound = [
        {
            "place": each.place.name,
            "name": each.name,
            "public": each.public,
            "signatures": signature_lines(each),
            "reference": reference(each, functions, methods),
            "derived": derived_body(each.groups[0]),
        }
        for each in names
    ]
    groups = {place.name: new_signature_groups(operators, place) for place in PLACES}
    named = [returns_structseq_pyi(group.signature) for each in groups.values() for group in each]
    description = {
        "bound": bound,
        "hints": {name: hints(each) for name, each in groups.items() if each},
        "return_types": {each[0]: [each[1].rstrip()] for each in named if each},
        "annotated": _annotated(operators),
    }
    out(out.folder / DESCRIPTION, json.dumps(description, indent=1))


def _annotated(operators: Operators) -> list[str]:
    """Return the new operators' arguments for the calls in PyTorch's test_overrides.py."""
    lines = []
    for place in PLACES:
        names = new_names(operators, place) if place.annotated else frozenset()
        for f in operators.new_functions:
            if f.func.name.name in names and belongs(f, place) and "generated" not in f.tags:
                lines.append(f"    {place.annotated}.{gen_annotated_args(f)}\n")
    return lines
