"""``python -m graft.adopt BASE REQUEST``: plan the entries of an extension's operators, and print them as JSON.

REQUEST is a JSON file with the answer of the dispatcher and the options. torchgen is in the tree BASE, so this program
runs in a process of its own.
"""

from __future__ import annotations

import json
import keyword
import sys
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..check.__main__ import check
from ..check.base import BaseOperators
from ..check.generated import used_names
from ..codegen import NO_CUDA
from ..codegen.__main__ import generate_sources, load_operators
from ..codegen.headers import WheelOutput
from ..codegen.output import Output
from ..codegen.torchgen import SKIP_PYTHON_BINDINGS, BaseTy
from ..core.errors import Finding
from ..core.files import lay_out_files
from ..cpp.syntax import is_keyword
from ..inputs.entries import lines_of_operators
from ..inputs.native import DERIVATIVES, FUNCTIONS, load_natives
from .adopt_options import FILE
from .forwards import files_of
from .names import Names
from .patterns import is_named, unused
from .plan import Adopted, Operator, Planner
from .schema import Schema


def adopt(base: BaseOperators, request: dict[str, Any], folder: Path) -> tuple[list[Adopted], dict[str, str]]:
    """Return the plan for each operator, and the texts of the files by name. Trial files are written to ``folder``."""
    needs = request["functions"]["needs"]
    operators = [Operator.read(each) for each in request["operators"]]
    operators += [Operator.unregistered(name, schema) for name, (schema, *lines) in needs.items() if "writes" in lines]
    operators = [each for each in operators if _is_wanted(each, request)]
    taken = base.torch_names | base.base_names | {*request["taken"]}
    names = Names(
        package=request["modules"][0].partition(".")[0],
        namespace_first=request["prefix"],
        is_taken=lambda name: name in taken,
        is_bound=lambda name: not any(pattern.match(name) for pattern in SKIP_PYTHON_BINDINGS),
        is_word=lambda name: keyword.iskeyword(name) or is_keyword(name),
        given=request["names"],
    )
    methods = None if request["methods"] == ["all"] else request["methods"]
    types = {each.name for each in BaseTy}
    planner = Planner(operators, names, methods, request["own"], base.tensor_names, types, request["writes"])
    # Refusing or renaming an operator can cause an error in another one: repeat until there is none.
    while True:
        plan = [replace(each, needs=(*each.needs, *needs.get(each.operator.full, ())[1:])) for each in planner.plan()]
        texts = _files(plan, request)
        while refused := _refused(texts, folder, base):
            plan = [_refusing(each, refused) for each in plan]
            texts = _files(plan, request)
        if not (used := _used(folder, base, plan)):
            return plan, texts
        for operator, name in used:
            planner.used.setdefault(operator, set()).add(name)


def _is_wanted(operator: Operator, request: dict[str, Any]) -> bool:
    name = operator.name.rpartition("::")[2]
    return is_named(name, request["only"] or ["*"]) and not is_named(name, request["except_"])


def _left_out(request: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the operators that adopt.toml leaves out, each with the reason."""
    read = (Operator.read(each) for each in request["operators"])
    return [(each.full, f"left out, as {FILE} says") for each in read if not _is_wanted(each, request)]


def _unknown(request: dict[str, Any], known: Collection[str]) -> list[str]:
    """Return the author's names and patterns that match no operator."""
    said = [name for key in ("only", "except_", "names", "own", "methods") for name in request[key]]
    return sorted({*unused(said, known)} - {"all"})


def _files(plan: list[Adopted], request: dict[str, Any]) -> dict[str, str]:
    return files_of(plan, request["modules"], request["libraries"], request["functions"]["text"])


def _used(folder: Path, base: BaseOperators, plan: list[Adopted]) -> list[tuple[str, str]]:
    """Return pairs of an operator's full name in torch.ops and an argument whose name torchgen's code already uses."""
    natives, generated = load_natives([folder]), Output(folder.with_name("generated"))
    wheel = WheelOutput(folder.with_name("wheel"), base.tree)
    operators = load_operators(base.tree, natives, wheel.folder)
    generate_sources(operators, {}, generated, wheel, NO_CUDA)
    full = {each.schema.operator: each.operator.full for each in plan if each.schema}
    return [(full[entry.operator], name) for entry, name in used_names(natives, operators, generated)]


def _refused(texts: dict[str, str], folder: Path, base: BaseOperators) -> dict[str, Finding]:
    """Check the files like those of any native folder. Return the first error of each entry, by operator."""
    lay_out_files(folder, {name: text.encode() for name, text in texts.items()})
    # Also where YAML cannot be read.
    places = {folder / file: lines_of_operators(folder / file) for file in (FUNCTIONS, DERIVATIVES)}
    refused: dict[str, Finding] = {}
    for finding in sorted(check(load_natives([folder]), base).errors):
        above = [name for name, line in places.get(finding.file, {}).items() if line <= finding.line]
        if not above:
            raise AssertionError(f"an adopted folder has an error: {finding}")
        refused.setdefault(above[-1], finding)
    return refused


def _refusing(adopted: Adopted, refused: dict[str, Finding]) -> Adopted:
    if adopted.schema is None or adopted.refusal or adopted.schema.operator not in refused:
        return adopted
    found = refused[adopted.schema.operator]
    if found.code == "no-seeded-tag" and not adopted.is_seeded:
        return replace(adopted, is_seeded=True)
    if found.code == "same-arguments":
        what, todo = "another overload has the same arguments", "call it by the name in torch.ops"
        return replace(adopted, refusal=what, todo=todo)
    return replace(adopted, refusal=found.what, todo=found.todo)


def _shown(adopted: Adopted) -> dict[str, Any]:
    schema: Schema | None = adopted.schema
    return {
        **asdict(adopted.operator),
        "full": adopted.operator.full,
        "entry": str(schema) if adopted.is_entry else "",
        "arguments": adopted.arguments,
        "kept": adopted.kept,
        "function": schema.name if schema else "",
        "is_method": adopted.is_method,
        "kernels": adopted.operator.kernels,
        "has_kernel": adopted.has_kernel,
        "needs": adopted.needs,
        "notes": adopted.notes,
        "refusal": adopted.refusal,
        "todo": adopted.todo,
    }


if __name__ == "__main__":
    tree, file = map(Path, sys.argv[1:])
    request = json.loads(file.read_text(encoding="utf-8"))
    found, texts = adopt(BaseOperators(tree), request, file.parent / "trial")
    every = [each["name"] for each in request["operators"]] + [*request["functions"]["needs"]]
    every += [place.replace(":", "::") for place, _ in request["functions"]["left_out"]]
    known = sorted({name.rpartition("::")[2].partition(".")[0] for name in every})
    answer = {"operators": [*map(_shown, found)], "files": texts, "left_out": _left_out(request)}
    print(json.dumps({**answer, "unknown": _unknown(request, known), "known": known}))
