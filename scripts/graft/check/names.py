"""Check names of operators in files other than the YAML lists: docs/, samples.py and autocast.yaml."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml
from torchgen.model import SchemaKind

from ..codegen.derived import POLICIES
from ..inputs.entries import Place, compose, text_of
from ..inputs.native import AUTOCAST, SAMPLES, NativeFolder
from .finding import Findings, line_of, nearest
from .python import parse_python
from .schemas import Function


def check_docs(folders: Sequence[NativeFolder], names: set[str], findings: Findings) -> None:
    """Check that each docstring is named after an operator of the folders."""
    for path in (folder.path / name for folder in folders for name in folder.docs):
        if path.stem not in names:
            findings.add((path, 1, 0), f"no operator of the folder is named {path.stem}", nearest(path.stem, names))


def check_samples(folders: Sequence[NativeFolder], names: set[str], findings: Findings) -> None:
    """Check that each public function of ``samples.py`` is named after an operator, and is in one folder only.

    References and error inputs are named after operators, too.
    """
    names = names | {f"{name}{of}" for name in names for of in ("_reference", "_errors")}
    seen: dict[str, Path] = {}
    for path in (folder.path / SAMPLES for folder in folders):
        module = parse_python(path, findings)
        for node in module.body if module else []:
            if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
                continue
            place = (path, node.lineno, node.col_offset + 5)
            if node.name not in names:
                findings.add(place, f"no operator of the folder is named {node.name}", nearest(node.name, names))
            elif seen.setdefault(node.name, path) != path:
                what = f"{seen[node.name]} already has samples for {node.name}"
                findings.add(place, what, "delete one; only the last would be used")


def check_autocast(
    folders: Sequence[NativeFolder], functions: Sequence[Function], unknown: set[str], findings: Findings
) -> None:
    """Check that each policy is one of PyTorch's, and that each operator is in the folders and is listed once.

    Operators in ``unknown``, whose entries are invalid, are not checked.
    """
    names = {str(f.schema.name) for f in functions}
    castable = {str(f.schema.name) for f in functions if f.schema.kind() == SchemaKind.functional}
    seen: dict[str, Place] = {}
    for name, place in _cast(folders, findings):
        if name in unknown:
            continue
        if name not in names:
            findings.add(place, f"no operator of the folder is named {name}", nearest(name, castable))
        elif name not in castable:
            findings.add(place, f"{name} mutates an argument, which autocast cannot cast", "leave it out")
        elif name in seen:
            where = line_of(*seen[name][:2], seen_from=place[0])
            findings.add(place, f"{name} is already listed, in {where}", "delete one of the two")
        seen.setdefault(name, place)


def _cast(folders: Sequence[NativeFolder], findings: Findings) -> Iterator[tuple[str, Place]]:
    """Yield the operators that the folders list for autocast. Anything but policies with lists of names is reported."""
    form = "write a policy and a list of operators: `fp32: [my_loss]`"
    for path in (folder.path / AUTOCAST for folder in folders):
        tree = compose(path, findings.add)
        if tree is not None and not isinstance(tree, yaml.MappingNode):
            findings.add(_place(path, tree), "no policies", form)
        for key, value in tree.value if isinstance(tree, yaml.MappingNode) else []:
            policy = text_of(key)
            if policy not in POLICIES:
                findings.add(_place(path, key), f"autocast has no policy {policy}", nearest(policy, POLICIES))
            names = value.value if isinstance(value, yaml.SequenceNode) else []
            if names and all(isinstance(name, yaml.ScalarNode) for name in names):
                yield from ((str(name.value), _place(path, name)) for name in names)
            else:
                findings.add(_place(path, value), f"{policy}: not a list of operators", form)


def _place(path: Path, node: yaml.Node) -> Place:
    return path, node.start_mark.line + 1, node.start_mark.column + 1
