"""What can be wrong with ``autocast.yaml``: policies by upstream's names, each with a list of operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml
from torchgen.model import SchemaKind
from torchgen.yaml_utils import YamlLoader

from ..codegen.autocast import POLICIES
from ..native import AUTOCAST
from .finding import Findings, nearest
from .functions import Function


def check_autocast(native: Path, functions: Iterable[Function], findings: Findings) -> None:
    """Check that each policy is one of PyTorch's, and that each operator is one of the folder's and is named once."""
    path = native / AUTOCAST
    tree = _composed(path, findings) if path.is_file() else None
    if tree is None:
        return
    schemas = {str(f.schema.name): f.schema for f in functions}
    castable = [name for name, schema in schemas.items() if schema.kind() == SchemaKind.functional]
    seen: set[str] = set()
    for policy, node in _listed(path, tree, findings):
        name, place = str(node.value), _place(path, node)
        if name not in schemas:
            findings.add(place, f"no operator of the folder is named {name}", nearest(name, castable))
        elif name not in castable:
            findings.add(place, f"{name} writes to an argument, which autocast cannot cast", "leave it out")
        elif name in seen:
            findings.add(place, f"{name} has a policy already, and {policy} is another", "leave one out")
        seen.add(name)


def _composed(path: Path, findings: Findings) -> yaml.Node | None:
    try:
        return yaml.compose(path.read_text(), YamlLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (path, mark.line + 1, mark.column + 1) if mark else (path, 1, 0)
        findings.add(place, f"not YAML: {error.problem}", "mend the indentation")
    return None


def _listed(path: Path, tree: yaml.Node, findings: Findings) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """The operators' names, each with its policy; what is no list of names under a policy is a finding."""
    form = "write policies with lists of operators: `fp32: [my_loss]`"
    if not isinstance(tree, yaml.MappingNode):
        findings.add(_place(path, tree), "no policies", form)
        return
    for key, value in tree.value:
        policy = str(key.value)
        if policy not in POLICIES:
            findings.add(_place(path, key), f"autocast has no policy {policy}", nearest(policy, POLICIES))
        names = value.value if isinstance(value, yaml.SequenceNode) else []
        if not names or not all(isinstance(name, yaml.ScalarNode) for name in names):
            findings.add(_place(path, value), f"{policy}: no list of operators", form)
        else:
            yield from ((policy, name) for name in names)


def _place(path: Path, node: yaml.Node) -> tuple[Path, int, int]:
    return path, node.start_mark.line + 1, node.start_mark.column + 1
