"""Docstrings of the new operators, as PyTorch's own files write them: a signature, then what the native folder says.

The texts go behind ``torch/_torch_docs.py``, ``torch/_tensor_docs.py`` and the public modules, which name an operator
of ``torch._C._fft`` and the like in the same statement that gives it its docstring.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchgen.api.python import PythonSignatureGroup

from .bindings import PLACES, Place, named_returns
from .operators import Operators
from .pyi import function_hint, new_signature_groups
from .python_lists import names_of_base, public_name
from .writer import Output

_FUNCTIONS = "torch/_torch_docs.py"
_METHODS = "torch/_tensor_docs.py"

# torch/nn/functional.py and torch/linalg/__init__.py have no __all__.
_WITHOUT_ALL = frozenset({"nn", "linalg"})


@dataclass(frozen=True)
class Bound:
    """A name that new operators are bound to, with all its overloads.

    Args:
        place: the class or module of ``torch._C``.
        name: as it is bound there.
        public: as users write it: ``torch.fft.x`` where ``name`` is ``fft_x``.
        groups: its Python signatures.
    """

    place: Place
    name: str
    public: str
    groups: Sequence[PythonSignatureGroup]

    @property
    def short(self) -> str:
        """The last part of the public name."""
        return self.public.rpartition(".")[2]


def bound_names(operators: Operators, place: Place) -> list[Bound]:
    """The names at ``place`` that the base does not have; one that it has is documented there."""
    old = names_of_base(operators, place)
    groups: dict[str, list[PythonSignatureGroup]] = {}
    for group in new_signature_groups(operators, place):
        groups.setdefault(group.signature.name, []).append(group)
    found = []
    for name, overloads in sorted(groups.items()):
        prefix = "torch.Tensor" if place.is_method else "torch"
        public = f"{prefix}.{public_name(place, name)}"
        if name not in old and not name.startswith("__"):
            found.append(Bound(place, name, public, overloads))
    return found


def docstrings(operators: Operators, docs: Path) -> list[tuple[Bound, str]]:
    """Every new name with its docstring.

    Args:
        operators: the merged set.
        docs: the native folder's ``docs/``, which may be missing.
    """
    bound = [each for place in PLACES for each in bound_names(operators, place)]
    functions = {each.name: each for each in bound if not each.place.is_method}
    methods = {each.name: each for each in bound if each.place.is_method}
    return [(each, f"{_signatures(each)}\n\n{_body(each, functions, methods, docs).strip()}") for each in bound]


def generate_docs(documented: Sequence[tuple[Bound, str]], behind: Output) -> None:
    """Write what gives the new operators their docstrings and public names.

    Args:
        documented: every new name with its docstring.
        behind: takes the texts, each under the path of the file it goes behind.
    """
    texts: dict[str, list[str]] = {}
    for bound, text in documented:
        doc = _literal(text)
        if bound.place.is_method:
            texts.setdefault(_METHODS, []).append(f'add_docstr_all("{bound.name}", {doc})\n')
        elif bound.place.name == "torch":
            texts.setdefault(_FUNCTIONS, []).append(f"add_docstr(torch.{bound.name}, {doc})\n")
        elif not bound.short.startswith("_"):
            file = _file_of(bound.public.rpartition(".")[0])
            texts.setdefault(file, [_import_of(bound.place)]).append(_public_function(bound, doc))
            if bound.place.name == "nn":
                stub = f"from torch._C._nn import {bound.name} as {bound.short}\n{_export(bound)}"
                texts.setdefault(f"{file}i", []).append(stub)
    for name, parts in texts.items():
        behind(behind.folder / name, "\n".join(parts))


def _file_of(module: str) -> str:
    path = module.replace(".", "/")
    return f"{path}.py" if module == "torch.nn.functional" else f"{path}/__init__.py"


def _import_of(place: Place) -> str:
    return f"from torch._C import _add_docstr, _{place.name}  # type: ignore[attr-defined]\n"


def _public_function(bound: Bound, doc: str) -> str:
    definition = f"{bound.short} = _add_docstr(_{bound.place.name}.{bound.name}, {doc})\n"
    return definition if bound.place.name in _WITHOUT_ALL else f"{definition}{_export(bound)}"


def _export(bound: Bound) -> str:
    return f'__all__ += ["{bound.short}"]\n'


def _signatures(bound: Bound) -> str:
    return "\n".join(dict.fromkeys(signature_line(bound, group) for group in bound.groups))


def _literal(text: str) -> str:
    """A docstring as Python writes it."""
    is_plain = '"""' not in text and not text.endswith(("\\", '"'))
    return f'r"""\n{text}\n"""' if is_plain else repr(f"\n{text}\n")


def _body(bound: Bound, functions: Mapping[str, Bound], methods: Mapping[str, Bound], docs: Path) -> str:
    root = bound.name.removesuffix("_")
    if bound.place.is_method and bound.name in functions:
        return f"See :func:`{functions[bound.name].public}`"
    if root != bound.name and root in methods and bound.place.is_method:
        return f"In-place version of :meth:`~Tensor.{root}`"
    if root != bound.name and root in functions:
        return f"In-place version of :func:`{functions[root].public}`"
    if (docs / f"{root}.rst").is_file():
        return (docs / f"{root}.rst").read_text()
    return derived_body(bound.groups[0])


def derived_body(
    group: PythonSignatureGroup, summary: str = "An operator that was added to this build of PyTorch.", todo: str = ""
) -> str:
    """What the schema alone tells; ``todo`` stands where it tells nothing of an argument."""
    arguments = _arguments(group)
    positional = [
        _describe(*each, todo) for each in zip(*_with_defaults(arguments.args, arguments.defaults), strict=True)
    ]
    keyword = [_describe(*each, todo) for each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    parts = [summary]
    if positional:
        parts.append("Args:\n" + "\n".join(positional))
    if keyword:
        parts.append("Keyword args:\n" + "\n".join(keyword))
    return "\n\n".join(parts)


def _describe(argument: ast.arg, default: ast.expr | None, todo: str) -> str:
    kind = _type_text(argument.annotation) if argument.annotation else "object"
    if argument.arg == "out":
        return f"    out ({kind.removesuffix(' or None')}, optional): the output."
    if default is not None:
        kind = f"{kind.removesuffix(' or None')}, optional"
    is_said = default is not None and not (isinstance(default, ast.Constant) and default.value is None)
    said = [text for text in (todo, f"Default: ``{ast.unparse(default)}``." if default and is_said else "") if text]
    return f"    {argument.arg} ({kind}){': ' if said else ''}{' '.join(said)}"


def signature_line(bound: Bound, group: PythonSignatureGroup) -> str:
    """The first line of a docstring: ``lerp(input, end, weight, *, out=None) -> Tensor``."""
    arguments = _arguments(group)
    words = [_word(*each) for each in zip(*_with_defaults(arguments.args, arguments.defaults), strict=True)]
    keyword = [_word(*each) for each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    separator = ["*"] if keyword else []
    return f"{bound.short}({', '.join([*words, *separator, *keyword])}) -> {_returns_text(group)}"


def _word(argument: ast.arg, default: ast.expr | None) -> str:
    return argument.arg if default is None else f"{argument.arg}={ast.unparse(default)}"


def _definition(group: PythonSignatureGroup) -> ast.FunctionDef:
    (definition,) = ast.parse(function_hint(group)).body
    assert isinstance(definition, ast.FunctionDef)
    return definition


def _arguments(group: PythonSignatureGroup) -> ast.arguments:
    """The arguments of the stub's definition, without the ``self`` of a method."""
    arguments = _definition(group).args
    if group.signature.method:
        del arguments.args[0]
    return arguments


def _with_defaults(
    arguments: list[ast.arg], defaults: Sequence[ast.expr]
) -> tuple[list[ast.arg], list[ast.expr | None]]:
    return arguments, [*([None] * (len(arguments) - len(defaults))), *defaults]


def _type_text(node: ast.expr) -> str:
    """A type as docstrings write it: ``_int | None`` is ``int or None``."""
    text = re.sub(r"\b_(?=[a-z])", "", ast.unparse(node))
    return text.replace(" | ", " or ")


def _returns_text(group: PythonSignatureGroup) -> str:
    """What is returned: ``Tensor``, ``(Tensor, int)`` or, with names, ``(Tensor low, Tensor high)``."""
    if named_returns(group.base):
        return f"({', '.join(f'{each.type} {each.name}' for each in group.base.func.returns)})"
    node = _definition(group).returns
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        return f"({', '.join(map(_type_text, node.slice.elts))})"
    return _type_text(node) if node is not None else "None"
