"""The added operators, described without torchgen: where they are bound, and what is written about them.

The generator writes the description; what composes and delivers files reads it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """A class or module of ``torch._C`` that operators are bound in.

    Args:
        name: the ``python_module`` of its entries, or ``methods`` or ``torch``.
        predicate: torchgen's function that selects its operators (gen_python_functions.py).
        attribute: its name in ``torch._C``.
        owner: where users find its functions.
        variable: the name of the module in torchgen's bindings; empty for methods.
        annotated: its name in upstream's generator of annotated_fn_args.py; empty if that has none of its functions.
        stub: its stub file; empty if there is none.
        stub_class: the class in the stub file, if it is not the module.
        has_all: whether the public module has ``__all__``.
    """

    name: str
    predicate: str
    attribute: str
    owner: str
    variable: str
    annotated: str = ""
    stub: str = ""
    stub_class: str | None = None
    has_all: bool = True

    @property
    def module(self) -> str | None:
        """torchgen's name of the Python module; None for methods."""
        if self.is_method:
            return None
        return "torch" if self.name == "torch" else f"torch.{self.name}"

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


def _module(name: str, prefix: str, *, annotated: bool = True, stub: str = "", has_all: bool = True) -> Place:
    owner = f"torch._C._{name}"
    variable = f"THP{prefix}VariableFunctionsModule"
    return Place(
        name, f"is_py_{name}_function", f"_{name}", owner, variable, owner if annotated else "", stub, None, has_all
    )


_FUNCTIONS = "_VariableFunctions"

PLACES = (
    Place(
        *("methods", "is_py_variable_method", "TensorBase", "torch.Tensor", "", "torch.Tensor"),
        *("torch/_C/__init__.pyi", "TensorBase"),
    ),
    Place(
        *("torch", "is_py_torch_function", f"{_FUNCTIONS}Class", "torch", "THPVariableFunctionsModule"),
        *(f"torch._C.{_FUNCTIONS}", f"torch/_C/{_FUNCTIONS}.pyi"),
    ),
    _module("nn", "NN", stub="torch/_C/_nn.pyi", has_all=False),
    _module("fft", "FFT"),
    _module("linalg", "Linalg", has_all=False),
    _module("nested", "Nested", annotated=False),
    _module("sparse", "Sparse", annotated=False),
    _module("special", "Special"),
)

# Devices whose library no official wheel for Linux on x86-64 contains. Registrations for them are skipped.
ABSENT_DEVICES = ("MPS", "XPU", "HPU", "MTIA")

# The valid values of `python_module` in an entry.
PYTHON_MODULES = frozenset(place.name for place in PLACES) - {"methods", "torch"}


@dataclass(frozen=True)
class Bound:
    """A name that added operators are bound to, and that the base does not have.

    Args:
        place: the class or module of ``torch._C``.
        name: its name there.
        public: the public name: ``torch.fft.x`` if ``name`` is ``fft_x``.
        signatures: the first lines of its docstring.
        reference: the rest of the docstring if it refers to another name; else empty.
        derived: a description derived from the schema, for operators without a docstring in the native folder.
    """

    place: Place
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
        overloads: those of them that are overloads of a name that PyTorch has operators of.
        pointwise: the pointwise operators whose meta kernel is in C++, where TensorIterator takes no symbolic shapes.
        functions: a stand-in of the same signature for each new function and method, by its full name.
        public: the full name of each new function, by its name below ``torch``.
        factories: the full names of those that make a tensor on a given device.
        bound: the names that the base does not have.
        hints: definitions for stub files, by place and name.
        return_types: definitions of named tuples for ``return_types.pyi``, by name.
        annotated: lines for ``annotated_fn_args.py``, from which PyTorch's test_overrides.py takes arguments.
    """

    operators: list[str]
    overloads: list[str]
    pointwise: list[str]
    functions: dict[str, str]
    public: dict[str, str]
    factories: list[str]
    bound: list[Bound]
    hints: dict[str, dict[str, list[str]]]
    return_types: dict[str, list[str]]
    annotated: list[str]

    def dump(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def load(cls, path: Path) -> Description:
        """Read the JSON in a file."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        bound = [Bound(Place(**each.pop("place")), **each) for each in fields.pop("bound")]
        return cls(bound=bound, **fields)

    def module(self) -> str:
        """Return the text of ``torch/_added_operators.py``, where the appended Python texts look the operators up."""
        functions = "".join(f'    "{name}": {stand_in},\n' for name, stand_in in self.functions.items())
        public = "".join(f'    "{name}": "{bound}",\n' for name, bound in self.public.items())
        lists = (self.operators, self.overloads, self.factories, self.pointwise)
        operators, overloads, factories, pointwise = ("".join(f'    "{n}",\n' for n in each) for each in lists)
        overloads = f"{{\n{overloads}}}" if overloads else "set()"
        return (
            f"{_MODULE}FUNCTIONS = {{\n{functions}}}\n\nPUBLIC = {{\n{public}}}\n\nOPERATORS = [\n{operators}]\n\n"
            f"OVERLOADS = {overloads}\n\nFACTORIES = [\n{factories}]\n\nPOINTWISE = [\n{pointwise}]\n"
        )


_MODULE = '''"""Operators that were added to this torch. Generated.

FUNCTIONS: each new function and method, with a stand-in of the same signature that returns -1. Dynamo's trace rules
    and ``torch.overrides.get_testing_overrides`` take them from here.
PUBLIC: each new function, as it is named below ``torch``, with the name that it is bound to.
OPERATORS: the name of each new operator, overload included.
OVERLOADS: those of them that are overloads of a name that PyTorch has operators of.
FACTORIES: the functions that make a tensor on a given device.
POINTWISE: the pointwise operators whose meta kernel is in C++, where TensorIterator takes no symbolic shapes.
"""

import operator
import sys


def resolve(name):
    """The object that the dotted ``name``, which starts with ``torch``, stands for."""
    return operator.attrgetter(name.removeprefix("torch."))(sys.modules["torch"])


'''
