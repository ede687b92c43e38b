"""Entries with ``replace: True``: what they may say, and what is generated for them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from corpus import said_of
from graft.check.__main__ import check
from graft.check.base import BaseOperators
from graft.codegen import torchgen
from graft.codegen.__main__ import generate
from graft.codegen.headers import generate_replaced_headers
from graft.codegen.operators import Operators
from graft.codegen.output import Output
from graft.core.layout import REPOSITORY
from graft.inputs.entries import Loader, fields_of, read_entries, split_entries, texts_of_entries
from graft.inputs.merge import with_replacing
from graft.inputs.native import load_natives
from helpers import write

FOLDER = REPOSITORY / "tests/replaced"
TRACE = """#include <ATen/core/Tensor.h>
#include <ATen/ops/trace_native.h>
namespace at::native {
Tensor my_trace(const Tensor& self) {
  return self;
}
}
"""


def test_one_formula_for_several_arguments_is_replaced_whole(known: BaseOperators, tmp_path: Path) -> None:
    """PyTorch's has `self, mat1, mat2` in one key, or several, depending on the operator."""
    several = [
        (fields["name"], next(key for key in fields if "," in key))
        for fields in map(fields_of, known.derivatives.values())
        if any("," in key for key in fields)
    ]
    schema, key = several[0]
    entry = f"- name: {schema}\n  {key.split(',')[0]}: grad\n  replace: True\n"
    lines = said_of(tmp_path, known, {"native_functions.yaml": "", "derivatives.yaml": entry})
    assert [f"`{key}`" in line for line in lines if "one formula" in line] == [True]


def test_file_of_pytorch_may_define_its_other_kernels_again(known: BaseOperators, tmp_path: Path) -> None:
    """But a file that replaces nothing may not."""
    again = "\nTensor trace_backward_symint(const Tensor& grad, c10::SymIntArrayRef sizes) {\n  return grad;\n}\n"
    entry = "- func: trace(Tensor self) -> Tensor\n  replace: True\n  dispatch:\n    CPU: my_trace\n"
    text = TRACE.removesuffix("}\n") + again + "}\n"
    folder = write(tmp_path, {"native_functions.yaml": entry, "Trace.cpp": text})
    assert check(load_natives([folder]), known).errors == []
    write(folder, {"Trace.cpp": TRACE, "Other.cpp": text.replace("my_trace", "other")})
    (error,) = check(load_natives([folder]), known).errors
    assert error.what == "PyTorch already has at::native::trace_backward_symint with this signature"


def test_valid_folder_has_one_warning(known: BaseOperators) -> None:
    """Of the composite that gets a kernel and no formula."""
    (line,) = check(load_natives([FOLDER]), known).lines()
    assert "warning: vander has no entry in derivatives.yaml; " in line


@pytest.fixture(scope="module")
def made(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("generated")
    generate(base, load_natives([FOLDER]), out)
    return out


def registered(made: Path) -> dict[str, set[str]]:
    """Return the operators that the unit registers kernels for, by dispatch key."""
    found: dict[str, set[str]] = {}
    for path in (made / "units/Replaced__").glob("*/*.cpp"):
        for key, body in re.findall(r"TORCH_LIBRARY_IMPL\(aten, (\w+), m\) \{(.*?)\n\}", path.read_text(), re.S):
            found.setdefault(key, set()).update(re.findall(r'm\.impl\("([^"]+)"', body))
    return {key: names for key, names in found.items() if names}


def test_only_what_is_replaced_is_registered(made: Path) -> None:
    """A structured operator with its variants; of formulas, also operators on lists, which torchgen derives."""
    foreach = {f"_foreach_{name}" for name in ("sinh", "sinh_", "lerp.Scalar", "lerp_.Scalar")}
    foreach |= {"_foreach_lerp.ScalarList", "_foreach_lerp_.ScalarList", "_foreach_lerp.List", "_foreach_lerp_.List"}
    foreach |= {"_foreach_cosh", "_foreach_cosh_"}
    assert registered(made) == {
        "CPU": {"trace", "renorm", "renorm_", "renorm.out", "flipud", "vander", "bincount", "sgn", "sgn_", "sgn.out"},
        "Meta": {"renorm", "renorm_", "renorm.out", "_spsolve", "cholesky_inverse", "sgn", "sgn_", "sgn.out"},
        "CompositeExplicitAutogradNonFunctional": {"renorm", "renorm_", "sgn", "sgn_"},
        "CompositeExplicitAutograd": {"rot90"},
        "CompositeImplicitAutograd": {"fliplr", "kron"},
        "FuncTorchBatchedDecomposition": {"fliplr", "kron"},
        "Autograd": {"sinh", "sinh_", "sinh.out", "lerp.Scalar", "lerp_.Scalar", "lerp.Scalar_out", *foreach}
        | {"cosh", "cosh_", "cosh.out", "lerp.Tensor", "lerp_.Tensor", "lerp.Tensor_out"}
        | {"cholesky", "cholesky.out", "flipud", "vander"},
    }


def test_what_is_shipped_has_nothing_of_it(made: Path, base: Path) -> None:
    """Headers of the wheel only gain the new operator; its YAML has the base's entries."""
    for name in ("trace", "renorm", "fliplr", "rot90", "sinh"):
        assert not (made / f"wheel/torch/include/ATen/ops/{name}_native.h").exists()
    assert not (made / "wheel/torch/include/torch/csrc/autograd/generated/Functions.h").exists()
    place = "torchgen/packaged/ATen/native/native_functions.yaml"
    ours, theirs = (texts_of_entries(root / place) for root in (made / "wheel", base))
    assert ours.keys() - theirs.keys() == {"beside_replaced"}
    assert all(fields_of(ours[name]) == fields_of(theirs[name]) for name in ("trace", "renorm.out", "rot90"))
    assert "replace:" not in (made / "wheel" / place).read_text()


def test_in_the_yaml_of_a_source_tree_the_entry_takes_the_place_of_pytorch_s(base: Path) -> None:
    path = base / "torchgen/packaged/ATen/native/native_functions.yaml"
    entries = [entry for entry in read_entries(FOLDER / "native_functions.yaml") if entry.is_replacing]
    text = with_replacing(path.read_text(), entries)
    before, after = (yaml.load(each, Loader) for each in (path.read_text(), text))
    changed = {old["func"].partition("(")[0]: new for old, new in zip(before, after, strict=True) if old != new}
    assert changed["trace"]["dispatch"]["CPU"] == "trace_and_one"
    assert changed["trace"]["dispatch"]["CUDA"] == "trace_cuda"
    # The kernels of others keep PyTorch's names.
    named = {"trace", "renorm.out", "_spsolve", "cholesky_inverse", "flipud", "vander", "sgn.out"}
    assert changed.keys() == named
    assert "replace" not in changed["trace"]


def test_stock_kernels_are_declared_once(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchgen of 2.15 names the library of a device in declarations."""
    declare = torchgen.compute_native_function_declaration

    def of_device(group: Any, index: torchgen.BackendIndex) -> list[str]:
        api = "TORCH_CUDA_CPP_API" if "CUDA" in str(index.dispatch_key) else "TORCH_API"
        return [each.replace("TORCH_API", api) for each in declare(group, index)]

    monkeypatch.setattr(torchgen, "compute_native_function_declaration", of_device)
    entry = "- func: sgn.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)\n  structured: True\n  dispatch:\n"
    path = write(tmp_path, {"f.yaml": f"{entry}    CPU: my_sgn\n  replace: True\n"}) / "f.yaml"
    operators, out = Operators(base, []), Output(tmp_path)
    generate_replaced_headers(operators.replaced_by(read_entries(path), []).kernels, operators, base, out)
    text = out.read("include/ATen/ops/sgn_native.h")
    lines = text.partition("namespace at::native::stock {")[2].splitlines()
    declared = [line for line in lines if line.startswith(("TORCH_", "struct "))]
    assert len(declared) > 3 and len({re.sub(r"TORCH_\w+ ", "", line) for line in declared}) == len(declared)


def test_in_the_yaml_of_a_source_tree_a_formula_has_pytorch_s_for_stock(base: Path) -> None:
    text = (base / "torchgen/packaged/autograd/derivatives.yaml").read_text()
    after = with_replacing(text, read_entries(FOLDER / "derivatives.yaml"))
    cosh, lerp = (fields_of(split_entries(after)[name]) for name in ("cosh", "lerp.Tensor"))
    assert cosh["self"] == "2 * (grad * self.sinh().conj())"
    assert lerp["result"].startswith("(at::lerp(self_t, end_t, weight_p)")
    assert lerp["result"].endswith(") + 1")
