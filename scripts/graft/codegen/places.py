"""Where operators are bound: the classes and modules of ``torch._C``, their names, and the devices of a wheel."""

from __future__ import annotations

from dataclasses import dataclass


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
