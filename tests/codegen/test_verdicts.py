"""Check's verdict is the build's: on random schemas and formulas, it accepts those whose generated code compiles.

The types in formulas are left to the compiler, so the formulas here have right ones. Kernels are not needed: generated
code is parsed with their declarations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest
from graft.check.__main__ import check
from graft.check.base import BaseOperators
from graft.codegen import NO_CUDA
from graft.codegen.__main__ import generate_sources
from graft.codegen.describe import describe
from graft.codegen.headers import WheelOutput
from graft.codegen.operators import Operators
from graft.codegen.output import Output
from graft.inputs.entries import read_entries
from graft.inputs.native import load_natives
from helpers import write
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from test_names import refused
from test_types import TYPES, errors_of

# Many in one folder, since a compiler mostly reads headers; one folder, since it takes minutes. Of what check refuses
# and torchgen accepts, some are compiled: their errors fill pages.
_SCHEMAS, _FOLDERS, _REFUSED = 100, 1, 20

# What no compiler refuses: users would not find it, or find it odd.
_ODD = re.compile("no file of the folder|would be hidden|Python keyword|has the name of an out variant")

# What compiles, and raises in each call from Python.
_AT_RUN_TIME = "does not support the default"

_NAMES = ("x", "op", "result", "r", "size", "grad", "other", "dim", "at", "ks", "out", "name", "weight", "p", "default")
_USUAL = (
    *(
        ("Tensor", ""),
        ("Tensor?", "=None"),
        ("Tensor[]", ""),
        ("Tensor?[]", ""),
        ("Scalar", "=1"),
        ("Scalar?", "=None"),
    ),
    *(("int", "=-1"), ("int?", "=None"), ("int[2]", "=0"), ("int[]", "=[0,1]"), ("SymInt", ""), ("SymInt[]", "")),
    *(("float", "=0.5"), ("float[]?", "=None"), ("bool", "=True"), ("str", "='text'"), ("ScalarType?", "=None")),
)
_DEFAULTS = ("=None", "=1", "=0.5", "=True", "='text'", "=[]", "=[0,1]", "=long", "=Mean", "=x")
_WRITTEN = (("Tensor(a!)", ""), ("Tensor(a!)?", ""), ("Tensor(a!)[]", ""), ("Tensor(a)", ""))
_ARGUMENTS = st.one_of(
    *[st.sampled_from(_USUAL)] * 6,
    st.tuples(st.sampled_from(TYPES), st.just("")),
    st.tuples(st.sampled_from(TYPES), st.sampled_from(_DEFAULTS)),
    st.sampled_from(_WRITTEN),
)
_RESULTS = (*["Tensor"] * 9, "(Tensor, Tensor)", "Tensor[]", "()", "int", "SymInt", "(Tensor a, Tensor b)")
_FORMULAS = (
    *("grad", "grad * self", "non_differentiable", "not_implemented", "auto_linear", "grads[0]"),
    *("grad * nosuch", "grad.nosuch()", "at::nosuch(grad)", "grad * result", "self", "grad, self", "grad;", "self_t"),
    *("mul_tensor_backward(grad, self, self.scalar_type())", "at::zeros_like(self)", "grad.sum_to_size(self.sizes())"),
)


@dataclass(frozen=True)
class Operator:
    """An operator: what follows its name in the schema, and the formulas of both passes."""

    schema: str
    backward: str
    forward: str

    def entries(self, name: str) -> tuple[str, str]:
        """Return its entries in native_functions.yaml and derivatives.yaml."""
        seeded = "  tags: nondeterministic_seeded\n" if "Generator" in self.schema else ""
        function = (
            f"- func: {name}{self.schema}\n  variants: function, method\n  dispatch:\n    CPU, Meta: {name}\n{seeded}"
        )
        formulas = [("self", self.backward), ("result", self.forward)]
        lines = [f"  {key}: {formula}\n" for key, formula in formulas if formula]
        return function, "".join([f"- name: {name}{self.schema}\n", *lines]) if lines else ""


@st.composite
def operators(draw: st.DrawFn) -> Operator:
    arguments = ["Tensor self"]
    for name in draw(st.lists(st.sampled_from(_NAMES), max_size=3, unique=True)):
        kind, default = draw(_ARGUMENTS)
        arguments.append(f"{kind} {name}{default}")
    if draw(st.integers(0, 4)) == 4 and len(arguments) > 1:
        arguments.insert(draw(st.integers(1, len(arguments) - 1)), "*")
    result = draw(st.sampled_from(_RESULTS))
    schema = f"({', '.join(arguments)}) -> {result}"
    formulas = st.one_of(st.just(""), st.sampled_from(_FORMULAS))
    forward = ("", "", "auto_element_wise", *(("self_t", "self_t * nosuch") if result != "Tensor[]" else ()))
    return Operator(schema, draw(formulas), draw(st.sampled_from(forward)))


def write_folder(folder: Path, chosen: dict[str, Operator]) -> Path:
    functions, formulas = zip(*(operator.entries(name) for name, operator in chosen.items()), strict=True)
    return write(folder, {"native_functions.yaml": "".join(functions), "derivatives.yaml": "".join(formulas)})


def refused_by_check(folder: Path, base: Path, out: Path) -> dict[str, str]:
    """Return what check says of operators that it refuses, before torchgen runs or of what that makes."""
    found = [
        error for error in check(load_natives([folder]), BaseOperators(base)).errors if not _ODD.search(error.what)
    ]
    said = {name_at(error.file, error.line): error.what for error in found}
    if not said:
        text = refused(folder, base, out)
        places = re.findall(r"^(\S+?):(\d+):\d+: (.*)", text, re.M)
        said = {name_at(Path(file), int(line)): what for file, line, what in places}
        assert bool(said) == bool(text), text
    return said


def name_at(file: Path, line: int) -> str:
    """Return the operator of the entry at a line."""
    before = "\n".join(file.read_text().splitlines()[:line])
    return re.findall(r"^- (?:func|name): (\w+)", before, re.M)[-1]


@pytest.mark.slow
@settings(
    max_examples=_FOLDERS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.generate],  # an error names the operator
)
@given(st.lists(operators(), min_size=_SCHEMAS, max_size=_SCHEMAS, unique=True))
def test_verdict_is_the_build_s(base: Path, tmp_path_factory: pytest.TempPathFactory, chosen: list[Operator]) -> None:
    place = tmp_path_factory.mktemp("verdicts")
    left = {f"vd_{number}": operator for number, operator in enumerate(chosen)}
    told: dict[str, str] = {}
    number = 0
    # An error may hide others.
    while found := refused_by_check(write_folder(place / str(number), left), base, place / "judged"):
        told |= found
        left = {name: operator for name, operator in left.items() if name not in found}
        number += 1
    assert errors_of(place / str(number), base, place / "out") == ""
    each_refused = ((name, chosen[int(name[3:])]) for name, said in told.items() if _AT_RUN_TIME not in said)
    accepted = (pair for pair in each_refused if is_generated(place / pair[0], *pair, base))
    generated = dict(islice(accepted, _REFUSED))
    said = errors_of(write_folder(place / "refused", generated), base, place / "compiled") if generated else ""
    # Errors name a function, or the class of a formula: Vd17Backward0.
    failed = {f"vd_{number}" for number in re.findall(r"vd_?(\d+)", said, re.I)}
    wrong = [f"{each}: {told[name]}" for name, each in generated.items() if name not in failed]
    assert not wrong, "\n".join(wrong)


def is_generated(place: Path, name: str, operator: Operator, base: Path) -> bool:
    """Return whether torchgen accepts an operator, and Python the stub that it writes."""
    folder = write_folder(place, {name: operator})
    try:
        entries = [read_entries(folder / file) for file in ("native_functions.yaml", "derivatives.yaml")]
        alone = Operators(base, *entries)
        generate_sources(alone, {}, Output(place / "out"), WheelOutput(place / "wheel", base), NO_CUDA)
        describe(alone.new)
    except Exception:  # torchgen raises arbitrary errors
        return False
    return True
