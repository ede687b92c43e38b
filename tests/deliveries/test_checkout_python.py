"""An edit of every function that PyTorch registers for operators, as text behind its files."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from graft.checkout.changed_python import Difference
from graft.checkout.python_operators import Function
from users import Environment

# The files, each with how many functions with decorators can be edited, of how many, in PyTorch 2.13.
FILES = {
    "torch/_decomp/decompositions.py": (172, 173),
    "torch/_inductor/decomposition.py": (51, 53),
    "torch/_meta_registrations.py": (249, 249),
    "torch/_refs/special/__init__.py": (15, 15),
    "torch/_subclasses/fake_impls.py": (36, 44),
}
# Imports torch with texts behind files, by path. No file is written, so that the bytecode of all others is there.
IMPORT = """
import json, sys
from importlib.machinery import SourceFileLoader

behind, get_code = json.load(open(sys.argv[1])), SourceFileLoader.get_code

def with_text(loader, name):
    if text := behind.get(loader.path):
        return compile(loader.get_data(loader.path) + text.encode(), loader.path, "exec")
    return get_code(loader, name)

SourceFileLoader.get_code = with_text
"""
TABLES = """
import json, torch
import torch._inductor.decomposition
from torch._subclasses.fake_impls import op_implementations_dict

def is_marked(function, seen):
    if id(function) in seen:
        return False
    seen.add(id(function))
    if "graft_mark" in getattr(getattr(function, "__code__", None), "co_varnames", ()):
        return True
    inner = [each.cell_contents for each in getattr(function, "__closure__", None) or ()]
    return any(is_marked(each, seen) for each in inner if callable(each))

tables = {
    "decompositions": torch._decomp.decomposition_table,
    "meta": torch._meta_registrations.meta_table,
    "inductor": torch._inductor.decomposition.decompositions,
    "fake": op_implementations_dict,
}
print(json.dumps({name: [sorted(map(str, table)), sum(is_marked(each, set()) for each in table.values())]
    for name, table in tables.items()}))
"""


def marked(text: str) -> tuple[str, int]:
    """Return a text with a line more in each function that has decorators, and how many have."""
    lines, count = text.split("\n"), 0
    for each in reversed(ast.parse(text).body):
        if isinstance(each, Function) and each.decorator_list and each.body[0].lineno > each.lineno:
            lines.insert(each.body[0].lineno - 1, f"{' ' * each.body[0].col_offset}graft_mark = 1")
            count += 1
    return "\n".join(lines), count


def test_every_function_that_is_registered(stock: Environment, tmp_path: Path) -> None:
    """All other entries of the tables stay; those that are edited are there once."""
    before = json.loads(stock.run(TABLES).stdout)
    texts = {}
    for name, (taken, of) in FILES.items():
        text = (stock.packages / name).read_text(encoding="utf-8")
        after, count = marked(text)
        texts[str(stock.packages / name)], faults = Difference(text, after, file=name).behind()
        assert (count - len(faults), count) == (taken, of), faults
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    arguments = f"import sys; sys.argv[1:] = [{str(tmp_path / 'texts.json')!r}]\n"
    found = json.loads(stock.run(f"{arguments}{IMPORT}{TABLES}").stdout)
    assert {name: names for name, (names, _) in found.items()} == {name: names for name, (names, _) in before.items()}
    assert all(count > 40 for _, count in found.values()) and not any(count for _, count in before.values())
