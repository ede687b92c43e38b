"""Python files that list operators: kept by hand or generated upstream, here derived from the new operators."""

from __future__ import annotations

from pathlib import Path

from torchgen.api.python import PythonSignatureGroup, has_tensor_options
from torchgen.model import NativeFunction, SchemaKind
from torchgen.packaged.autograd.gen_annotated_fn_args import gen_annotated_args

from .bindings import PLACES, Place, new_names
from .operators import Operators, qualified_name
from .pyi import new_signature_groups
from .writer import Output

_ADDED = "torch/_added_operators.py"
_ANNOTATED = "torch/testing/_internal/generated/annotated_fn_args.py"

# Where Python finds the functions of a place.
_OWNERS = {
    "methods": "torch.Tensor",
    "torch": "torch",
    "nn": "torch._C._nn",
    "fft": "torch._C._fft",
    "linalg": "torch._C._linalg",
    "nested": "torch._C._nested",
    "sparse": "torch._C._sparse",
    "special": "torch._C._special",
}
# As upstream's generator of annotated_fn_args.py names them (tools/autograd/gen_annotated_fn_args.py).
_ANNOTATED_OWNERS = {
    "torch": "torch._C._VariableFunctions",
    "nn": "torch._C._nn",
    "linalg": "torch._C._linalg",
    "special": "torch._C._special",
    "fft": "torch._C._fft",
    "methods": "torch.Tensor",
}

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


def generate_surfaces(operators: Operators, base: Path, overlay: Output) -> None:
    """Write the Python files that list operators into ``overlay``; ``base`` is the base wheel's tree."""
    generate_added(operators, overlay)
    _annotate(operators, base, overlay)


def generate_added(operators: Operators, overlay: Output) -> None:
    """Write the module that the patches of torch's own Python files take the new operators from."""
    functions, public, factories = [], [], []
    for place in PLACES:
        owner = _OWNERS[place.name]
        old = names_of_base(operators, place)
        groups = (group for group in new_signature_groups(operators, place) if group.signature.name not in old)
        signatures = {group.signature.name: group for group in groups}
        for name, group in sorted(signatures.items()):
            if name.startswith("__") and not place.is_method:
                continue  # torch/__init__.py names no such function
            functions.append(f'    "{owner}.{name}": {stand_in(group)},\n')
            if not place.is_method and not (short := public_name(place, name)).rpartition(".")[2].startswith("_"):
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
    overlay(overlay.folder / _ADDED, _HEADER + body)


def names_of_base(operators: Operators, place: Place) -> frozenset[str]:
    """The names bound at ``place`` that the base has operators of."""
    return frozenset(
        str(f.func.name.name) for f in operators.functions if not operators.is_new(f) and place.predicate(f)
    )


def makes_tensor(name: str, group: PythonSignatureGroup) -> bool:
    """Whether this function makes a tensor on a device that no argument but ``device`` tells."""
    follows_another = group.signature.method or name.endswith("_like") or name.startswith("new_")
    return has_tensor_options(group.base) and not follows_another


def needs_symbolic_meta(f: NativeFunction) -> bool:
    """Whether ``f`` is a functional or in-place pointwise operator of a structured kernel that returns one tensor."""
    returns_one_tensor = [str(r.type) for r in f.func.returns] == ["Tensor"]
    is_of_kind = f.func.kind() in (SchemaKind.functional, SchemaKind.inplace)
    return "pointwise" in f.tags and f.part_of_structured_group and returns_one_tensor and is_of_kind


def stand_in(group: PythonSignatureGroup) -> str:
    """A lambda with the Python signature of ``group``, as torch/overrides.py writes them."""
    signature = group.signature
    inputs = ["self"] if signature.method else []
    for argument in signature.arguments(skip_outputs=True):
        # Python calls the first argument of a function `input` where the schema says `self`.
        name = "input" if argument.name == "self" and not signature.method else argument.name
        inputs.append(name if argument.default is None else f"{name}=None")
    if group.outplace is not None and not signature.method:
        inputs.append("out=None")
    return f"lambda {', '.join(inputs)}: -1" if inputs else "lambda: -1"


def public_name(place: Place, name: str) -> str:
    """The name below ``torch`` of a function: ``torch._C._fft.fft_x`` is ``fft.x``."""
    if place.name in ("methods", "torch"):
        return name
    module = "nn.functional" if place.name == "nn" else place.name
    return f"{module}.{name.removeprefix(f'{place.name}_')}"


def _annotate(operators: Operators, base: Path, overlay: Output) -> None:
    """Add the new operators' arguments to what PyTorch's test_overrides.py calls functions with."""
    lines = []
    for place in PLACES:
        if place.name not in _ANNOTATED_OWNERS:
            continue
        names = new_names(operators, place)
        for f in operators.new_functions:
            if f.func.name.name in names and place.predicate(f) and "generated" not in f.tags:
                lines.append(f"    {_ANNOTATED_OWNERS[place.name]}.{gen_annotated_args(f)}\n")
    if lines:
        text = (base / _ANNOTATED).read_text()
        head, brace, tail = text.rpartition("}")
        overlay(overlay.folder / _ANNOTATED, f"{head}{''.join(lines)}{brace}{tail}")
