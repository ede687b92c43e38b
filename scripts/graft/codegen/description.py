"""The description of the added operators, which needs no torchgen: their names in Python, signatures and docstrings.

The generator writes it once; composing and delivering files read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..inputs.merge import MARK


@dataclass(frozen=True)
class Namespace:
    """A class or module of ``torch._C`` that operators are bound in.

    Args:
        name: the ``python_module`` of its entries, or ``methods`` or ``torch``.
        attribute: its name in ``torch._C``.
        owner: where users find its functions.
        annotated: its name in upstream's generator of annotated_fn_args.py; empty if that has none of its functions.
        stub: its stub file; empty if there is none.
        stub_class: the class in the stub file, if it is not the module.
        has_all: whether the public module has ``__all__``.
    """

    name: str
    attribute: str
    owner: str
    annotated: str = ""
    stub: str = ""
    stub_class: str | None = None
    has_all: bool = True

    @property
    def is_method(self) -> bool:
        """Whether these are methods of Tensor."""
        return self.name == "methods"

    def public_name(self, name: str) -> str:
        """Return the name below ``torch`` of a function: ``torch._C._fft.fft_x`` is ``fft.x``."""
        if self.name in ("methods", "torch"):
            return name
        module = "nn.functional" if self.name == "nn" else self.name
        return f"{module}.{name.removeprefix(f'{self.name}_')}"


_FUNCTIONS = "_VariableFunctions"
NAMESPACES = (
    Namespace("methods", "TensorBase", "torch.Tensor", "torch.Tensor", "torch/_C/__init__.pyi", "TensorBase"),
    Namespace("torch", f"{_FUNCTIONS}Class", "torch", f"torch._C.{_FUNCTIONS}", f"torch/_C/{_FUNCTIONS}.pyi"),
    Namespace("nn", "_nn", "torch._C._nn", "torch._C._nn", "torch/_C/_nn.pyi", has_all=False),
    Namespace("fft", "_fft", "torch._C._fft", "torch._C._fft"),
    Namespace("linalg", "_linalg", "torch._C._linalg", "torch._C._linalg", has_all=False),
    Namespace("nested", "_nested", "torch._C._nested"),
    Namespace("sparse", "_sparse", "torch._C._sparse"),
    Namespace("special", "_special", "torch._C._special", "torch._C._special"),
)

# The valid values of `python_module` in an entry.
PYTHON_MODULES = frozenset(namespace.name for namespace in NAMESPACES) - {"methods", "torch"}


@dataclass(frozen=True)
class BoundName:
    """A name that added operators are bound to, and that the base does not have.

    Args:
        namespace: the class or module of ``torch._C``.
        name: its name there.
        public: the public name: ``torch.fft.x`` if ``name`` is ``fft_x``.
        signatures: the first lines of its docstring.
        reference: the rest of the docstring if it refers to another name; else empty.
        derived: a description derived from the schema, for operators without a docstring in the native folder.
    """

    namespace: Namespace
    name: str
    public: str
    signatures: str
    reference: str
    derived: str

    @property
    def short(self) -> str:
        """The last part of the public name."""
        return self.public.rpartition(".")[2]


@dataclass(frozen=True)
class Description:
    """The added operators.

    Args:
        operators: their names with namespace and overload.
        overloads: the operators that overload the name of an operator of PyTorch.
        pointwise: the pointwise operators whose meta kernel is in C++, where TensorIterator takes no symbolic shapes.
        functions: a stand-in of the same signature for each new function and method, by its full name.
        public: the full name of each new function, by its name below ``torch``.
        factories: the full names of the functions that make a tensor on a given device.
        bound: the names that the base does not have.
        hints: definitions for stub files, by namespace and name.
        return_types: definitions of named tuples for ``return_types.pyi``, by name.
        replaced: the replaced parts of PyTorch's operators, by name: dispatch keys of kernels, or `derivatives`.
        annotated: lines for ``annotated_fn_args.py``, from which PyTorch's test_overrides.py takes arguments.
        writing: the operators that write positional arguments and have no kernel for functionalization.
        stubs: the dispatch stubs of PyTorch that folders have kernels for; known once the libraries are linked.
        entries: an entry of native_functions.yaml for callers of each operator, by name with namespace and overload.
    """

    operators: Sequence[str] = ()
    overloads: Sequence[str] = ()
    pointwise: Sequence[str] = ()
    functions: Mapping[str, str] = field(default_factory=dict)
    public: Mapping[str, str] = field(default_factory=dict)
    factories: Sequence[str] = ()
    bound: Sequence[BoundName] = ()
    hints: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    return_types: Mapping[str, list[str]] = field(default_factory=dict)
    replaced: Mapping[str, Sequence[str]] = field(default_factory=dict)
    annotated: Sequence[str] = ()
    writing: Sequence[str] = ()
    stubs: Sequence[str] = ()
    entries: Mapping[str, str] = field(default_factory=dict)

    @property
    def replaced_parts(self) -> dict[str, Sequence[str]]:
        """The replaced parts by name, dispatch stubs included."""
        return {**self.replaced, **{stub: ["dispatch stub"] for stub in self.stubs}}

    @property
    def replaced_lines(self) -> list[str]:
        """The replaced parts as lines of text."""
        return [f"{name} ({', '.join(what)})" for name, what in self.replaced_parts.items()]

    def dump(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def load(cls, path: Path) -> Description:
        """Read the JSON in a file."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        bound = [BoundName(Namespace(**each.pop("namespace")), **each) for each in fields.pop("bound")]
        return cls(bound=bound, **fields)

    def module(self, there: str = "") -> str:
        """Return the text of ``torch/_added_operators.py``, where the appended Python texts look the operators up.

        Args:
            there: the text in a base that has added operators already, which comes first.
        """
        values = {
            "FUNCTIONS": _lines("{}", (f'"{name}": {stand_in}' for name, stand_in in self.functions.items())),
            "PUBLIC": _lines("{}", (f'"{name}": "{bound}"' for name, bound in self.public.items())),
            "OPERATORS": _names("[]", self.operators),
            "OVERLOADS": _names("{}", self.overloads) if self.overloads else "set()",
            "FACTORIES": _names("[]", self.factories),
            "POINTWISE": _names("[]", self.pointwise),
            "WRITING": _names("[]", self.writing),
            "REPLACED": _lines("{}", (f'"aten::{name}": {json.dumps(what)}' for name, what in self.replaced.items())),
        }
        assign = {name: "=" if not there else "+=" if value[0] == "[" else "|=" for name, value in values.items()}
        text = "\n\n".join(f"{name} {assign[name]} {value}" for name, value in values.items())
        return f"{there}{MARK}{text}\n" if there else f"{_MODULE}{text}\n"


def _lines(brackets: str, items: Iterable[str]) -> str:
    """Return a list, dictionary or set of Python, with each item in a line of its own."""
    return "\n".join([brackets[0], *(f"    {item}," for item in items), brackets[1]])


def _names(brackets: str, names: Iterable[str]) -> str:
    return _lines(brackets, (f'"{name}"' for name in names))


_MODULE = '''"""Operators that were added to this torch. Generated.

FUNCTIONS: each new function and method, with a stand-in of the same signature that returns -1. Dynamo's trace rules
    and ``torch.overrides.get_testing_overrides`` take them from here.
PUBLIC: each new function, as it is named below ``torch``, with the name that it is bound to.
OPERATORS: the name of each new operator, overload included.
OVERLOADS: those of them that are overloads of a name that PyTorch has operators of.
FACTORIES: the functions that make a tensor on a given device.
POINTWISE: the pointwise operators whose meta kernel is in C++, where TensorIterator takes no symbolic shapes.
WRITING: the operators that write positional arguments and have no kernel for functionalization.
REPLACED: what was replaced of PyTorch's own operators: dispatch keys of kernels, or `derivatives`.
"""

import operator
import sys


def resolve(name):
    """The object that the dotted ``name``, which starts with ``torch``, stands for."""
    return operator.attrgetter(name.removeprefix("torch."))(sys.modules["torch"])


'''
