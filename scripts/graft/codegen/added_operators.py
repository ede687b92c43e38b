"""Write ``torch/_added_operators.py``, from which lists of operators take the added ones."""

from __future__ import annotations

from torchgen.api.python import PythonSignatureGroup, has_tensor_options
from torchgen.model import NativeFunction, SchemaKind

from .bindings import belongs
from .operators import Operators, qualified_name
from .places import PLACES, Place
from .pyi import new_signature_groups
from .writer import Output

_ADDED = "torch/_added_operators.py"

_HEADER = '''"""Operators that were added to this torch. Generated.

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


def generate_added(operators: Operators, wheel: Output) -> None:
    """Write the module in which the appended Python texts look up the new operators."""
    functions, public, factories = [], [], []
    for place in PLACES:
        owner = place.owner
        old = names_of_base(operators, place)
        groups = (group for group in new_signature_groups(operators, place) if group.signature.name not in old)
        signatures = {group.signature.name: group for group in groups}
        for name, group in sorted(signatures.items()):
            if name.startswith("__") and not place.is_method:
                continue  # torch/__init__.py excludes such functions
            functions.append(f'    "{owner}.{name}": {stand_in(group)},\n')
            if not place.is_method and not (short := place.public_name(name)).rpartition(".")[2].startswith("_"):
                public.append(f'    "{short}": "{owner}.{name}",\n')
            if makes_tensor(name, group):
                factories.append(f'    "{owner}.{name}",\n')
    pointwise = [f'    "{qualified_name(f)}",\n' for f in operators.new_functions if needs_symbolic_meta(f)]
    known = {(f.namespace, f.func.name.name) for f in operators.functions if not operators.is_new(f)}
    extending = [f for f in operators.new_functions if (f.namespace, f.func.name.name) in known]
    overloads = [f'    "{qualified_name(f)}",\n' for f in extending]
    every = [f'    "{qualified_name(f)}",\n' for f in operators.new_functions]
    body = f"FUNCTIONS = {{\n{''.join(functions)}}}\n\nPUBLIC = {{\n{''.join(public)}}}\n\n"
    body += f"OPERATORS = [\n{''.join(every)}]\n\n"
    body += f"OVERLOADS = {{\n{''.join(overloads)}}}\n\n" if overloads else "OVERLOADS = set()\n\n"
    body += f"FACTORIES = [\n{''.join(factories)}]\n\nPOINTWISE = [\n{''.join(pointwise)}]\n"
    wheel(wheel.folder / _ADDED, _HEADER + body)


def names_of_base(operators: Operators, place: Place) -> frozenset[str]:
    """Return the names bound at ``place`` that the base has operators for."""
    return frozenset(
        str(f.func.name.name) for f in operators.functions if not operators.is_new(f) and belongs(f, place)
    )


def makes_tensor(name: str, group: PythonSignatureGroup) -> bool:
    """Return whether this function creates a tensor on the device of its ``device`` argument."""
    follows_another = group.signature.method or name.endswith("_like") or name.startswith("new_")
    return has_tensor_options(group.base) and not follows_another


def needs_symbolic_meta(f: NativeFunction) -> bool:
    """Return whether ``f`` is a functional or in-place pointwise operator with a structured kernel that returns one
    tensor.
    """
    returns_one_tensor = [str(r.type) for r in f.func.returns] == ["Tensor"]
    is_of_kind = f.func.kind() in (SchemaKind.functional, SchemaKind.inplace)
    return "pointwise" in f.tags and f.part_of_structured_group and returns_one_tensor and is_of_kind


def stand_in(group: PythonSignatureGroup) -> str:
    """Return a lambda with the Python signature of ``group``, as torch/overrides.py writes them."""
    signature = group.signature
    inputs = ["self"] if signature.method else []
    for argument in signature.arguments(skip_outputs=True):
        # In Python, the first argument of a function is `input` if the schema calls it `self`.
        name = "input" if argument.name == "self" and not signature.method else argument.name
        inputs.append(name if argument.default is None else f"{name}=None")
    if group.outplace is not None and not signature.method:
        inputs.append("out=None")
    return f"lambda {', '.join(inputs)}: -1" if inputs else "lambda: -1"
