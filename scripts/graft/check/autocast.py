"""Check ``autocast.yaml``: upstream's names of policies, each with a list of operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import yaml
from torchgen.model import SchemaKind

from ..codegen.derived import POLICIES
from ..inputs.native import AUTOCAST
from .entries import compose, text_of
from .finding import Findings, line_of, nearest
from .schemas import Function


def check_autocast(
    natives: Sequence[Path], functions: Iterable[Function], unknown: set[str], findings: Findings
) -> None:
    """Check that each policy is one of PyTorch's, and that each operator is in the folders and is listed once.

    Operators in ``unknown``, whose entries are invalid, are not checked.
    """
    schemas = {str(f.schema.name): f.schema for f in functions}
    castable = [name for name, schema in schemas.items() if schema.kind() == SchemaKind.functional]
    seen: dict[str, tuple[Path, int, int]] = {}
    for path, node in _listed(natives, findings):
        name, place = str(node.value), _place(path, node)
        if name in unknown:
            continue
        if name not in schemas:
            findings.add(place, f"no operator of the folder is named {name}", nearest(name, castable))
        elif name not in castable:
            findings.add(place, f"{name} mutates an argument, which autocast cannot cast", "leave it out")
        elif name in seen:
            where = line_of(*seen[name][:2], seen_from=path)
            findings.add(place, f"{name} is already listed, in {where}", "delete one of the two")
        seen.setdefault(name, place)


def _listed(natives: Sequence[Path], findings: Findings) -> Iterator[tuple[Path, yaml.ScalarNode]]:
    """Yield the operators' names, each with its file. Anything but a list of names is reported."""
    for path in (native / AUTOCAST for native in natives):
        tree = compose(path, findings)
        if tree is not None:
            yield from ((path, node) for node in _policies(path, tree, findings))


def _policies(path: Path, tree: yaml.Node, findings: Findings) -> Iterator[yaml.ScalarNode]:
    form = "write a policy and a list of operators: `fp32: [my_loss]`"
    if not isinstance(tree, yaml.MappingNode):
        findings.add(_place(path, tree), "no policies", form)
        return
    for key, value in tree.value:
        policy = text_of(key)
        if policy not in POLICIES:
            findings.add(_place(path, key), f"autocast has no policy {policy}", nearest(policy, POLICIES))
        names = value.value if isinstance(value, yaml.SequenceNode) else []
        if not names or not all(isinstance(name, yaml.ScalarNode) for name in names):
            findings.add(_place(path, value), f"{policy}: not a list of operators", form)
        else:
            yield from names


def _place(path: Path, node: yaml.Node) -> tuple[Path, int, int]:
    return path, node.start_mark.line + 1, node.start_mark.column + 1
