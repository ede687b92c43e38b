"""How new operators are divided among translation units, and that each unit is independent of the others."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from graft.codegen import KERNELS, MISSING, NARROW, NARROW_OF_FORMULAS, NO_CUDA, PARTS
from graft.codegen.__main__ import generate_sources, load_operators
from graft.codegen.base_operators import known_operators
from graft.codegen.headers import WheelOutput
from graft.codegen.operators import Operators, Selection
from graft.codegen.output import Output
from graft.codegen.rules import read_policies
from graft.codegen.sources import LARGE
from graft.codegen.torchgen import IGNORED_KEYS
from graft.inputs.entries import read_entries
from graft.inputs.merge import PACKAGED
from graft.inputs.native import FUNCTIONS, load_natives
from helpers import write
from torchgen import gen
from torchgen.model import NativeFunction

EXPLICIT = "  dispatch:\n    CompositeExplicitAutograd: {name}\n"


def entry(name: str, schema: str = "(Tensor self) -> Tensor", more: str = EXPLICIT) -> str:
    return f"\n- func: {name}{schema}\n{more.format(name=name)}"


def formula(name: str, text: str, schema: str = "(Tensor self) -> Tensor") -> str:
    return f"\n- name: {name}{schema}\n  self: {text}\n"


VIEW = entry("u_view", "(Tensor(a) self) -> Tensor(a)")
VIEW_COPY = entry(
    "u_view_copy",
    more="  dispatch:\n    CompositeExplicitAutogradNonFunctional: {name}\n  tags: view_copy\n  autogen: {name}.out\n",
)


def parsed(base: Path, folder: Path, text: str) -> Operators:
    """PyTorch's operators, and as new ones those of a YAML."""
    write(folder, {str(FUNCTIONS): text})
    return Operators(base, read_entries(folder / FUNCTIONS))


@pytest.fixture(scope="module")
def twelve(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Operators:
    names = [f"u_{number}" for number in range(12)]
    return parsed(base, tmp_path_factory.mktemp("twelve"), "".join(map(entry, reversed(names))))


@pytest.mark.parametrize("count", range(1, 13))
def test_sizes_are_the_binary_digits_and_the_last_two_are_one(
    twelve: Operators, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    first = twelve.new.functions[:count]
    monkeypatch.setattr(twelve, "new", Selection(twelve, first))
    units = twelve.units()
    sizes = [len(unit.root_names) for unit in units]
    assert sum(sizes) == count
    assert all(size & (size - 1) == 0 for size in sizes if size > 3)
    assert sum(size <= 3 for size in sizes) == (count % 4 > 0)
    assert all(larger > smaller for larger, smaller in pairwise(sizes))
    assert [f.root_name for unit in units for f in unit.functions] == [f.root_name for f in first]


def test_each_function_is_in_one_unit(base: Path, tmp_path: Path) -> None:
    texts = [
        entry("u_a", more=EXPLICIT + "  autogen: u_a.out\n"),
        entry("u_b"),
        entry("u_a.overload", "(Tensor self, int n) -> Tensor"),
        entry("u_b_", "(Tensor(a!) self) -> Tensor(a!)"),
        VIEW,
        entry("u_c"),
        VIEW_COPY,
    ]
    operators = parsed(base, tmp_path, "".join(texts))
    units = operators.units()
    # A view and its copy count as one: four groups.
    assert [unit.root_names for unit in units] == [{"u_a", "u_b", "u_view", "u_view_copy", "u_c"}]
    divided = [str(f.func.name) for unit in units for f in unit.functions]
    assert sorted(divided) == sorted(str(f.func.name) for f in operators.new.functions)
    assert {"u_a", "u_a.out", "u_a.overload", "u_b", "u_b_", "u_view", "u_view_copy.out"} <= set(divided)


@pytest.mark.parametrize("between", range(4))
def test_views_and_their_copies_stay_together(base: Path, tmp_path: Path, between: int) -> None:
    others = [entry(f"u_{number}") for number in range(between)]
    units = parsed(base, tmp_path, "".join([entry("u_first"), VIEW, *others, VIEW_COPY])).units()
    for unit in units:
        assert ("u_view" in unit.root_names) == ("u_view_copy" in unit.root_names)


Texts = dict[str, dict[str, str]]
Generate = Callable[..., Texts]


@pytest.fixture(scope="module")
def units_of(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Generate:
    """Return a function that generates for entries and formulas added to PyTorch's own, and returns the texts of each
    unit by name.
    """

    def generate(functions: list[str], derivatives: list[str], autocast: str = "", cuda: str = NO_CUDA) -> Texts:
        folder = tmp_path_factory.mktemp("units")
        files = {"native_functions.yaml": functions, "derivatives.yaml": derivatives, "autocast.yaml": [autocast]}
        native = write(folder / "native", {name: "".join(texts) for name, texts in files.items()})
        operators = load_operators(base, load_natives([native]), folder / "wheel")
        wheel = WheelOutput(folder / "wheel", base)
        generate_sources(operators, read_policies(load_natives([native])), Output(folder), wheel, cuda)
        return {
            unit.name: {
                path.relative_to(unit).as_posix(): path.read_text() for path in unit.rglob("*") if path.is_file()
            }
            for unit in (folder / "units").iterdir()
        }

    return generate


# A unit of four: a method with an autograd node, a structured kernel, two composite ones.
FIRST = [
    entry("u_first", more=EXPLICIT + "  variants: function, method\n  autogen: u_first.out\n"),
    entry("u_plus", more="  structured_delegate: u_plus.out\n"),
    entry(
        "u_plus.out",
        "(Tensor self, *, Tensor(a!) out) -> Tensor(a!)",
        "  structured: True\n  structured_inherits: TensorIteratorBase\n  dispatch:\n    CPU: {name}\n",
    ).replace("CPU: u_plus.out", "CPU: u_plus_out"),
    *map(entry, ("u_third", "u_fourth")),
]
LAST = entry("u_last", "(Tensor self) -> (Tensor low, Tensor high)", "  variants: function, method\n")
FORMULAS = [formula("u_first", "grad * self.digamma()"), formula("u_plus", "grad.nextafter(self)")]


@pytest.fixture(scope="module")
def four_and_one(units_of: Generate) -> Texts:
    return units_of([*FIRST, LAST], FORMULAS, "fp32: [u_first, u_last]\n")


@pytest.fixture(scope="module")
def four(units_of: Generate) -> Texts:
    return units_of(FIRST, FORMULAS, "fp32: [u_first]\n")


def test_operator_at_the_end_leaves_the_other_units_as_they_were(four: Texts, four_and_one: Texts) -> None:
    assert set(four) == {"u_first"}
    assert set(four_and_one) == {"u_first", "u_last"}
    assert four["u_first"] == four_and_one["u_first"]
    assert {"library.cpp", "bindings.cpp", "ATen/RegisterCPU.cpp", "autograd/Functions.cpp"} <= set(four["u_first"])


def test_unit_does_not_depend_on_the_others(units_of: Generate, four_and_one: Texts) -> None:
    alone = units_of([LAST], [], "fp32: [u_last]\n")
    assert alone == {"u_last": four_and_one["u_last"]}
    # Units of the same names do not contain the other's operators, either.
    assert not any("u_last" in text for text in four_and_one["u_first"].values())
    assert not any("u_first" in text or "u_plus" in text for text in four_and_one["u_last"].values())


@pytest.mark.parametrize(("count", "parts"), [(1, ("formulas", "operators")), (LARGE + 3, PARTS)])
def test_what_depends_on_formulas_is_a_part_of_its_own(units_of: Generate, count: int, parts: tuple[str, ...]) -> None:
    names = [f"l_{number}" for number in range(count)]
    more = EXPLICIT + "  variants: function, method\n"
    entries = [entry(name, more=more) for name in names]
    entries.append(entry(f"{names[0]}_", "(Tensor(a!) self) -> Tensor(a!)", more))
    entries.append(entry(f"{names[0]}.out", "(Tensor self, *, Tensor(a!) out) -> Tensor(a!)"))
    # The second calls another function, too.
    edits = (f"{text}\n  result: auto_element_wise" for text in ("grad * result", "grad * result.digamma()"))
    before, after = (units_of(entries, [formula(names[0], text)]) for text in edits)
    (unit,) = (texts for texts in before.values() if "formulas.cpp" in texts)
    assert unit["library.cpp"] == "".join(f'#include "{part}.cpp"\n' for part in parts)
    assert not re.search(r"__out\(|_out__", unit["autograd/Formulas.cpp"])
    included = [re.findall('"(.*)"', unit[f"{part}.cpp"]) for part in parts]
    every = sorted(name for of_part in included for name in of_part)
    sources = (name for name in unit if re.fullmatch(r"(ATen|autograd)/\w+\.cpp", name))
    assert every == sorted([*sources, "nodes.cpp"])  # which loads compile with the nodes
    other = after[names[0]]
    changed = {name for name in unit | other if unit.get(name) != other.get(name)}
    assert included[0] == ["autograd/Formulas.cpp"]
    headers = {f"{NARROW_OF_FORMULAS}/ATen/{name}.h" for name in ("Functions", "NativeFunctions", "Operators")}
    assert changed == {"autograd/Formulas.cpp", *headers}


def test_forward_formula_may_use_any_result(units_of: Generate) -> None:
    schema = "(Tensor self, int[] sizes) -> (Tensor values, Tensor[] parts, int count)"
    given = "grad * 2\n  output_differentiability: [True, False, False]"
    text = f"{given}\n  values: at::mul(self_t, count) * parts[0] + sizes[0]"
    (unit,) = units_of([entry("l_many", schema)], [formula("l_many", text, schema)]).values()
    (function,) = re.findall(r"at::Tensor l_many__values\((.*)\) \{", unit["autograd/Formulas.cpp"])
    assert function.split(", ") == [
        "const at::Tensor & self_t",
        "at::IntArrayRef sizes",
        "const ::std::vector<at::Tensor> & parts",
        "const int64_t & count",
    ]
    assert f"at::Tensor l_many__values({function});" in unit["autograd/VariableType.cpp"]
    assert "tangents::l_many__values(self_t, sizes, parts, count);" in unit["autograd/VariableType.cpp"]


def included(text: str) -> set[str]:
    return set(re.findall(r"#include <ATen/ops/(\w+)\.h>", text))


def test_narrow_headers_include_what_the_unit_names(four: Texts, four_and_one: Texts, base: Path) -> None:
    narrow = {name: text for name, text in four["u_first"].items() if name.startswith("narrow/")}
    listing = ("Functions", "NativeFunctions", "Operators")
    assert set(narrow) == {
        *(f"{NARROW}/ATen/{name}.h" for name in (*listing, "RedispatchFunctions")),
        *(f"{NARROW_OF_FORMULAS}/ATen/{name}.h" for name in listing),
    }
    for name, suffix in (("Functions", ""), ("NativeFunctions", "_native"), ("Operators", "_ops")):
        whole = included((base / f"torch/include/ATen/{name}.h").read_text())
        ours, of_formulas = (included(narrow[f"{folder}/ATen/{name}.h"]) for folder in (NARROW, NARROW_OF_FORMULAS))
        assert {f"u_first{suffix}", f"u_plus{suffix}"} <= ours - whole
        # The operators of the formulas and of the header's handwritten functions, and not the many others.
        assert {f"digamma{suffix}", f"nextafter{suffix}"} <= (of_formulas - ours) & whole
        assert f"std{suffix}" in ours & whole
        assert f"#include_next <ATen/{name}.h>" in narrow[f"{NARROW_OF_FORMULAS}/ATen/{name}.h"]
        assert len(ours | of_formulas) < len(whole) / 10
        of_last = included(four_and_one["u_last"][f"{NARROW}/ATen/{name}.h"])
        assert {f"u_last{suffix}", f"std{suffix}"} <= of_last
        assert of_last.isdisjoint({f"digamma{suffix}", f"nextafter{suffix}", f"u_first{suffix}"})
    redispatch = narrow[f"{NARROW}/ATen/RedispatchFunctions.h"]
    assert set(re.findall(r"at::_ops::(\w+)::redispatch", redispatch)) == {
        *("u_first", "u_first_out", "u_plus", "u_plus_out", "u_third", "u_fourth")
    }


def test_function_of_the_base_in_a_new_one_s_group_is_not_registered_again(units_of: Generate) -> None:
    schema = "(Tensor(a!) self, Tensor indices, SymInt[2] output_size) -> Tensor(a!)"
    more = "  dispatch:\n    CPU: max_unpooling2d_forward_cpu_\n"
    (files,) = units_of([entry("max_unpool2d_", schema, more)], []).values()
    text = "".join(text for name, text in files.items() if "Functionalization" in name)
    assert re.findall(r'm\.impl\("([\w.]+)"', text) == ["max_unpool2d_"]


ON_CUDA = "  dispatch:\n    CPU: {name}_cpu\n    CUDA: {name}_cuda\n"
LOOP = """\
  structured: True
  structured_inherits: TensorIteratorBase
  ufunc_inner_loop:
    Generic: u_loop (Float)
"""
FOR_CUDA = [
    entry("u_dense", more=ON_CUDA),
    entry("u_cpu"),
    entry("u_loop", "(Tensor self, Tensor other) -> Tensor", "  structured_delegate: u_loop.out\n"),
    entry("u_loop.out", "(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)", LOOP),
]


def test_kernels_for_cuda_are_registered_in_a_source_of_their_own(units_of: Generate) -> None:
    units = units_of(FOR_CUDA, [], cuda=KERNELS)
    texts = {f"{unit}/{name}": text for unit, files in units.items() for name, text in files.items()}
    (registered,) = (text for name, text in texts.items() if name == "u_dense/cuda/RegisterCUDA.cpp")
    assert "u_dense_cuda" in registered and "u_cpu" not in registered
    assert {name.split("/")[1] for name in texts if name.endswith("CUDA.cpp")} == {"cuda"}
    assert not [name for name, text in texts.items() if name.endswith("RegisterCPU.cpp") and "u_dense_cuda" in text]
    # torchgen generates the kernel around an inner loop, also for CUDA.
    (loop,) = (name for name in texts if "UfuncCUDA_" in name)
    assert loop.endswith("cuda/UfuncCUDA_u_loop.cu")
    assert not [text for name, text in texts.items() if name.endswith("/cuda.cpp") and "UfuncCUDA" in text]


def test_an_error_is_registered_in_place_of_each_kernel_that_is_missing(units_of: Generate) -> None:
    units = units_of(FOR_CUDA, [], cuda=MISSING)
    text = "".join(files.get("ATen/RegisterMissingCUDA.cpp", "") for files in units.values())
    # The other variants of a structured operator call this one.
    assert sorted(re.findall(r'm\.impl\("([\w.]+)"', text)) == ["u_dense", "u_loop.out"]
    assert not [name for files in units.values() for name in files if name.startswith("cuda")]


def test_operator_without_a_formula_in_its_entry_has_no_nodes(units_of: Generate) -> None:
    formulas = ["\n- name: u_last(Tensor self) -> Tensor\n  output_differentiability: [False]\n"]
    (files,) = units_of([entry("u_last")], formulas).values()
    assert "python_functions" not in files["bindings.cpp"]


def test_operators_of_all_folders_are_new_and_have_their_places(base: Path, tmp_path: Path) -> None:
    files = [write(tmp_path / name, {"f.yaml": entry(f"u_{name}")}) / "f.yaml" for name in ("a", "b")]
    for count in range(3):
        entries = [each for file in files[:count] for each in read_entries(file)]
        functions = Operators(base, entries).new.functions
        assert [(str(f.func.name), f.loc.line) for f in functions] == [("u_a", 2), ("u_b", 2)][:count]
        assert [f.loc.file for f in functions] == list(map(str, files[:count]))


def test_what_is_kept_of_pytorch_is_what_torchgen_parses(base: Path, tmp_path: Path) -> None:
    """Also behind damage of what is kept."""
    first = known_operators.__wrapped__(base, tmp_path)
    (kept,) = tmp_path.iterdir()
    assert known_operators.__wrapped__(base, tmp_path) == first
    for damage in (b"", kept.read_bytes()[:-9], pickle.dumps([])):
        kept.write_bytes(damage)
        assert known_operators.__wrapped__(base, tmp_path) == first
    tags = str(base / "torchgen/packaged/ATen/native/tags.yaml")
    whole = gen.parse_native_yaml(str(base / PACKAGED[FUNCTIONS] / FUNCTIONS), tags, IGNORED_KEYS)
    assert Operators(base, []).backend_indices == whole.backend_indices

    def unplaced(functions: Iterable[NativeFunction]) -> list[dict[str, object]]:
        """All of them but the folder of their file, which may be another base's with the same content."""
        return [{**vars(f), "loc": f.loc.line} for f in functions]

    assert unplaced(Operators(base, []).functions) == unplaced(whole.native_functions)
