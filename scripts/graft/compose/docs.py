"""Docstrings and stubs of the added operators.

Docstrings have the form of PyTorch's own and are appended to files such as ``torch/_torch_docs.py``. A public module,
such as ``torch.fft``, adds a name of ``torch._C._fft`` and its docstring in one statement. Definitions are inserted
into stub files where upstream's generator would put them (tools/pyi/gen_pyi.py).
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Mapping

from ..codegen.description import BoundName
from ..inputs.native import DOCS, NativeFolders

_FUNCTIONS = "torch/_torch_docs.py"
_METHODS = "torch/_tensor_docs.py"

_OVERLOAD = "@overload\n"


def docstring(bound: BoundName, natives: NativeFolders) -> str:
    """Return the docstring of ``bound``: its signatures, then the text of its file in ``docs/``."""
    written = natives.text_if_there(DOCS / f"{bound.name.removesuffix('_')}.rst")
    body = bound.reference or (bound.derived if written is None else _filled(written, bound.derived))
    return f"{bound.signatures}\n\n{body.strip()}"


def _filled(text: str, derived: str) -> str:
    """Replace lines ``{name}`` in ``text`` by the schema's description of the argument, as PyTorch does."""
    described = {name: line for line, name in re.findall(r"^    ((\w+) \(.*)$", derived, re.M)}
    return re.sub(
        r"^(\s*)\{(\w+)\}\s*?$", lambda m: f"{m[1]}{described[m[2]]}" if m[2] in described else m[0], text, flags=re.M
    )


def docstring_texts(documented: Mapping[BoundName, str]) -> dict[str, str]:
    """Return the code that sets docstrings and public names, by the file that it is appended to."""
    texts: dict[str, list[str]] = {}
    for bound, text in documented.items():
        is_plain = '"""' not in text and not text.endswith(("\\", '"'))
        doc = f'r"""\n{text}\n"""' if is_plain else repr(f"\n{text}\n")
        module, owner = bound.public.rpartition(".")[0], bound.namespace.attribute
        if bound.namespace.is_method:
            texts.setdefault(_METHODS, []).append(f'add_docstr_all("{bound.name}", {doc})\n')
        elif bound.namespace.name == "torch":
            texts.setdefault(_FUNCTIONS, []).append(f"add_docstr(torch.{bound.name}, {doc})\n")
        elif not bound.short.startswith("_"):
            file = module.replace(".", "/") + (".py" if module == "torch.nn.functional" else "/__init__.py")
            imported = f"from torch._C import _add_docstr, {owner}  # type: ignore[attr-defined]\n"
            export = f'__all__ += ["{bound.short}"]\n'
            definition = f"{bound.short} = _add_docstr({owner}.{bound.name}, {doc})\n"
            texts.setdefault(file, [imported]).append(definition + (export if bound.namespace.has_all else ""))
            if bound.namespace.name == "nn":
                stub = f"from torch._C._nn import {bound.name} as {bound.short}\n{export}"
                texts.setdefault(f"{file}i", []).append(stub)
    return {name: "\n".join(parts) for name, parts in texts.items()}


def with_docstring(definitions: Iterable[str], doc: str) -> list[str]:
    """Return the definitions of one name with its docstring, which upstream's generator also writes into stubs."""
    if not doc or '"""' in doc or doc.endswith("\\"):
        return list(definitions)
    body = "\n" + textwrap.indent(f'r"""\n{doc}\n"""\n', "    ")
    return [text.removesuffix(" ...") + body for text in definitions]


def insert_functions(text: str, class_name: str | None, definitions: Mapping[str, list[str]]) -> str:
    """Insert function definitions into a stub's module or class. Names stay sorted and overloads together."""
    module = ast.parse(text)
    scope: ast.Module | ast.ClassDef = module
    if class_name is not None:
        scope = next(node for node in module.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    indent = "    " if class_name else ""
    functions = [node for node in scope.body if isinstance(node, ast.FunctionDef)]
    insertions: list[tuple[int, str]] = []
    for name, texts in definitions.items():
        same = [node for node in functions if node.name == name]
        is_overloaded = len(same) + len(texts) > 1
        block = "".join(f"@overload\n{hint}\n" if is_overloaded else f"{hint}\n" for hint in texts)
        insertions.append((_place_for(name, same, functions, scope), textwrap.indent(block, indent)))
        if len(same) == 1 and not same[0].decorator_list:
            insertions.append((same[0].lineno - 1, f"{indent}{_OVERLOAD}"))
    if class_name is None:
        insertions += _exports(module, definitions)
    return _insert_lines(text, insertions)


def insert_classes(text: str, definitions: Mapping[str, list[str]]) -> str:
    """Insert class definitions into a stub's module. Names stay sorted."""
    module = ast.parse(text)
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    insertions = []
    for name, texts in definitions.items():
        if not any(node.name == name for node in classes):
            following = next((node for node in classes if node.name > name), None)
            line = following.lineno - 1 if following else len(text.splitlines())
            insertions.append((line, "".join(f"{definition}\n\n" for definition in texts)))
    return _insert_lines(text, [*insertions, *_exports(module, definitions)])


def _place_for(name: str, same: list[ast.FunctionDef], functions: list[ast.FunctionDef], scope: ast.AST) -> int:
    """Return the line after which a new definition of ``name`` is inserted."""
    if same:
        return same[-1].end_lineno or 0
    following = next((node for node in functions if node.name > name), None)
    if following is not None:
        return min([following.lineno, *(decorator.lineno for decorator in following.decorator_list)]) - 1
    return max((getattr(node, "end_lineno", None) or 0 for node in ast.walk(scope)), default=0)


def _exports(module: ast.Module, names: Iterable[str]) -> list[tuple[int, str]]:
    """Return the insertions that add ``names`` to the module's ``__all__``."""
    lists = [
        node.value for node in module.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    entries = [entry for each in lists if isinstance(each, ast.List) for entry in each.elts]
    listed = [(str(entry.value), entry.lineno) for entry in entries if isinstance(entry, ast.Constant)]
    insertions = []
    for name in names:
        if listed and name not in dict(listed):
            following = next((line - 1 for other, line in listed if other > name), listed[-1][1])
            insertions.append((following, f'    "{name}",\n'))
    return insertions


def _insert_lines(text: str, insertions: Iterable[tuple[int, str]]) -> str:
    lines = text.splitlines(keepends=True)
    # Insert from the end, so that earlier line numbers stay valid. At one line, insert `@overload` first, since it
    # belongs to the definition below, and then names in reverse order.
    ordered = sorted(insertions, key=lambda item: (item[0], item[1].strip() == _OVERLOAD.strip(), item[1]))
    for line, block in reversed(ordered):
        lines.insert(line, block)
    return "".join(lines)
