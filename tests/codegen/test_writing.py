"""Operators that write positional arguments: ``make check`` accepts them."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import said_of
from graft.check.base import BaseOperators
from graft.codegen.lists import missing_names
from graft.inputs.native import load_natives

# Schemas, each with the signature of its kernel `f`.
ACCEPTED = {
    "f(Tensor x, Tensor(a!) out) -> ()": "void f(const Tensor& x, Tensor& out)",
    "f(Tensor(a!) out, Tensor x) -> ()": "void f(Tensor& out, const Tensor& x)",
    "f(Tensor(a!) self, Tensor x) -> ()": "void f(Tensor& self, const Tensor& x)",
    "f(Tensor self, Tensor(a!) out) -> ()": "void f(const Tensor& self, Tensor& out)",
    "f(Tensor x, Tensor(a!) low, Tensor(b!) high) -> ()": "void f(const Tensor& x, Tensor& low, Tensor& high)",
    "f(Tensor x, Tensor(a!)[] outs) -> ()": "void f(const Tensor& x, TensorList outs)",
    "f_(Tensor(a!)[] self) -> ()": "void f_(TensorList self)",
    "f.some(Tensor x, Tensor(a!) out, SymInt n) -> ()": "void f(const Tensor& x, Tensor& out, int64_t n)",
    "f(Tensor x, Tensor(a!) out) -> Tensor": "Tensor f(const Tensor& x, Tensor& out)",
    "f(Tensor(a!) self, Tensor x) -> Tensor": "Tensor f(Tensor& self, const Tensor& x)",
    "f(Tensor x, Tensor(a!)? out) -> ()": "void f(const Tensor& x, const std::optional<Tensor>& out)",
    "f(Tensor(a!)? self, int n) -> ()": "void f(const std::optional<Tensor>& self, int64_t n)",
    "f(Tensor x, Tensor(a!)? out=None) -> Tensor": "Tensor f(const Tensor& x, const std::optional<Tensor>& out)",
    "f(Tensor x, Tensor(a!) out) -> (Tensor, Tensor)": "std::tuple<Tensor, Tensor> f(const Tensor& x, Tensor& out)",
}


@pytest.mark.parametrize(("schema", "kernel"), ACCEPTED.items())
def test_writing_positional_arguments_is_accepted(
    schema: str, kernel: str, known: BaseOperators, tmp_path: Path
) -> None:
    name = schema.partition("(")[0].partition(".")[0]
    functions = f"- func: {schema}\n  dispatch:\n    CPU: {name}\n"
    source = f"namespace at::native {{\n{kernel} {{}}\n}}\n"
    lines = said_of(tmp_path, known, {"native_functions.yaml": functions, "F.cpp": source})
    # Without results, compilers need no kernel for Meta.
    assert lines == [] or (not schema.endswith("-> ()") and all("none for Meta" in line for line in lines))


def test_folders_without_such_operators_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "native_functions.yaml").write_text("- func: f(Tensor x) -> Tensor\n")
    assert missing_names(load_natives([tmp_path])) == {}
