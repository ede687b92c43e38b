"""Operators that write positional arguments: what ``make check`` accepts, refuses and asks for; what is generated."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from corpus import said_of
from graft.check.base import BaseOperators
from graft.codegen.lists import missing_names
from graft.inputs.entries import fields_of
from graft.inputs.native import load_natives
from torchgen.api.autograd import NativeFunctionWithDifferentiabilityInfo
from torchgen.gen_functionalization_type import MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION
from torchgen.model import Location, NativeFunction
from torchgen.packaged.autograd import gen_inplace_or_view_type, gen_trace_type, gen_variable_type

KERNELS = "  dispatch:\n    CPU: {0}\n"

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


def found(known: BaseOperators, folder: Path, schema: str, kernel: str = "", derivatives: str = "") -> list[str]:
    """Return what check finds in a folder with one operator."""
    name = schema.partition("(")[0].partition(".")[0]
    functions = f"- func: {schema}\n{KERNELS.format(name)}"
    source = f"namespace at::native {{\n{kernel} {{}}\n}}\n" if kernel else ""
    files = {"native_functions.yaml": functions, "derivatives.yaml": derivatives, "F.cpp": source}
    return said_of(folder, known, files)


@pytest.mark.parametrize("schema", ACCEPTED)
def test_writing_positional_arguments_is_accepted(schema: str, known: BaseOperators, tmp_path: Path) -> None:
    lines = found(known, tmp_path, schema, ACCEPTED[schema])
    # Without results, compilers need no kernel for Meta.
    assert lines == [] or (not schema.endswith("-> ()") and all("none for Meta" in line for line in lines))


def generators_know(folder: Path, entry: str) -> NativeFunction:
    """Give torchgen the texts behind its files for a folder with one operator, which is returned."""
    (folder / "native_functions.yaml").write_text(entry)
    for file, text in missing_names(load_natives([folder])).items():
        exec(text, vars(import_module(file.removesuffix(".py").replace("/", "."))))
    native, _ = NativeFunction.from_yaml(fields_of(entry), Location("a.yaml", 1), set(), set())
    return native


def test_kernels_are_made_of_the_written_arguments(tmp_path: Path) -> None:
    entry = f"- func: f(Tensor x, Tensor(a!) low, Tensor(b!)[] others) -> Tensor\n{KERNELS.format('f')}"
    native = generators_know(tmp_path, entry)
    of_native = NativeFunctionWithDifferentiabilityInfo(func=native, info=None, fw_derivatives=None)
    (versions,) = gen_inplace_or_view_type.gen_inplace_or_view_type_env(of_native)["inplace_or_view_method_definitions"]
    assert "increment_version(low);" in versions
    assert "for (const auto& _each : others) { increment_version(_each); }" in versions
    assert "increment_version(x)" not in versions
    (autograd,) = gen_variable_type.gen_variable_type_func(of_native)["type_derived_method_definitions_Default"]
    assert all(f"check_inplace({name}, _any_requires_grad);" in autograd for name in ("low", "_each"))
    assert "flatten_tensor_args( low, others )" in autograd


def test_kernels_skip_an_optional_that_is_none(tmp_path: Path) -> None:
    schema = "f(Tensor x, Tensor(a!)? out) -> ()"
    native = generators_know(tmp_path, f"- func: {schema}\n{KERNELS.format('f')}")
    of_native = NativeFunctionWithDifferentiabilityInfo(func=native, info=None, fw_derivatives=None)
    (versions,) = gen_inplace_or_view_type.gen_inplace_or_view_type_env(of_native)["inplace_or_view_method_definitions"]
    (autograd,) = gen_variable_type.gen_variable_type_func(of_native)["type_derived_method_definitions_Default"]
    for kernel, call in (versions, "increment_version(*out);"), (autograd, "check_inplace(*out, _any_requires_grad);"):
        assert "const ::std::optional<at::Tensor> & out" in kernel
        assert f"if (out.has_value() && out->defined()) {{ {call} }}" in kernel


@pytest.mark.parametrize(
    ("schema", "key", "wanted"),
    [
        ("f(Tensor x, Tensor(a!) out) -> ()", "CPU", "insertNode(node)"),
        ("f(Tensor x, Tensor(a!) out, Tensor(b!)[] others) -> Tensor", "CPU", '"aten::f: it writes a list'),
        ("f_(Tensor(a!)[] self) -> ()", "CPU", '"aten::f_: it writes a list'),
        ("f(Tensor x, Tensor(a!)[] outs) -> ()", "CompositeExplicitAutograd", ""),  # records what the kernel calls
    ],
)
def test_traces_have_the_call_or_an_error(schema: str, key: str, wanted: str, tmp_path: Path) -> None:
    native = generators_know(tmp_path, f"- func: {schema}\n  dispatch:\n    {key}: f\n")
    (kernel,) = gen_trace_type.gen_trace_type_func(native)["trace_method_definitions"]
    assert wanted in kernel if wanted else "tracer" not in kernel


def test_only_operators_without_variants_are_exceptions_of_functionalization(tmp_path: Path) -> None:
    alone = "- func: lonely(Tensor x, Tensor(a!) out) -> Tensor\n" + KERNELS.format("lonely")
    generators_know(tmp_path, alone)
    generators_know(tmp_path, alone.replace("lonely", "paired") + "  autogen: paired_functional, paired.out\n")
    generators_know(tmp_path, alone.replace("lonely", "composed").partition("  dispatch")[0])
    assert "lonely" in MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION
    assert not {"paired", "composed"} & set(MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION)


def test_folders_without_such_operators_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "native_functions.yaml").write_text("- func: f(Tensor x) -> Tensor\n")
    assert missing_names(load_natives([tmp_path])) == {}
