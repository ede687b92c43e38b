"""torch.compile, torch.export, TorchScript and FX."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor.utils import run_and_get_code
from torch.testing import assert_close
from torch.testing._internal.optests import aot_autograd_check, fake_check, make_fx_check

from tests.kit.subject import Subject, first_result
from tests.kit.surfaces import FORMULA, IN_PLACE, META, METHOD, OUT, SCHEMA_TYPES, SYMBOLIC, surface, surfaces

INDUCTOR = f"compare the decomposition with the kernel; if there is none, {META}"
DECOMPOSITION = "write a decomposition into python/_decomp/decompositions.py, like the skeleton of `make new-op`"


def compiled(function: Callable[..., Any], backend: str = "aot_eager", **options: Any) -> Callable[..., Any]:
    return torch.compile(function, fullgraph=True, backend=backend, **options)


@surfaces(
    "options",
    {
        "torch.compile traces torch.op(x)": ({"backend": "eager"}, META),
        "torch.compile traces x.op()": ({"form": "method"}, METHOD),
        "torch.compile with dynamic shapes": ({"dynamic": True}, SYMBOLIC),
    },
)
def test_compiled(subject: Subject, options: dict[str, Any]) -> None:
    call, tensors = subject.on_tensors(getattr(subject, options.get("form", "function")))
    more = {name: value for name, value in options.items() if name != "form"}
    assert_close(compiled(call, **more)(*tensors), subject.expected())


@surface("torch.compile traces x.op_()", IN_PLACE)
def test_compiled_in_place(subject: Subject) -> None:
    call, tensors = subject.in_place_on_tensors()
    compiled(call)(*tensors)
    assert_close(tensors[0], subject.expected())


@surface("torch.compile traces out=", OUT)
def test_compiled_out(subject: Subject) -> None:
    if not subject.info.supports_out:
        pytest.skip("no out= form")
    expected, function = subject.expected(), subject.function
    args, kwargs = subject.sample()
    result = torch.empty_like(expected)
    compiled(lambda out, *given, **named: function(*given, **named, out=out))(result, *args, **kwargs)
    assert_close(result, expected)


@surface("torch.compile, backward", FORMULA)
def test_compiled_backward(subject: Subject) -> None:
    call, tensors, wanted, expected = subject.gradients()
    assert_close(torch.autograd.grad(compiled(call)(*tensors).sum(), wanted), expected)


@surface("compiled autograd", FORMULA)
def test_compiled_autograd(subject: Subject) -> None:
    call, tensors, wanted, expected = subject.gradients()
    result = call(*tensors).sum()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        result.backward()
    assert_close(tuple(tensor.grad for tensor in wanted), expected)


@surfaces(
    "check",
    {
        "torch.testing: fake_check": ((fake_check,), META),
        "torch.testing: aot_autograd_check, static": ((aot_autograd_check, False), META),
        "torch.testing: aot_autograd_check, dynamic": ((aot_autograd_check, True), SYMBOLIC),
    },
)
def test_checked(subject: Subject, check: tuple[Any, ...]) -> None:
    function, *more = check
    function(subject.function, *subject.differentiable_sample(), *more)


@surface("torch.testing: make_fx_check", META)
def test_make_fx_checked(subject: Subject) -> None:
    for mode in ("real", "fake", "symbolic"):
        make_fx_check(subject.function, *subject.sample(), mode)


@surface("torch.library.opcheck", META)
def test_opchecked(subject: Subject) -> None:
    args, kwargs = subject.differentiable_sample()
    torch.library.opcheck(subject.overload, tuple(args), kwargs)


@surface("Inductor", INDUCTOR)
def test_inductor(subject: Subject) -> None:
    call, tensors = subject.on_tensors(dtype=torch.float32)
    assert_close(torch.compile(call, fullgraph=True)(*tensors), subject.expected(dtype=torch.float32))


@surface("Inductor fuses it with its neighbors", DECOMPOSITION)
def test_fused(subject: Subject) -> None:
    subject.require_pointwise()
    call, (first, *rest) = subject.on_tensors(dtype=torch.float32)
    _, (code,) = run_and_get_code(torch.compile(lambda x: call(x.exp(), *rest).exp(), fullgraph=True), first)
    called = re.search(rf"torch\.ops\.aten\.{subject.aten_name}\b", code)
    assert not called, f"the code that Inductor writes calls the kernel: {subject.aten_name} has no decomposition"
    loops = re.findall(r"^\s+cpp_fused_\w+\(", code, re.M)
    assert len(loops) == 1, f"Inductor writes {len(loops)} loops where one would do: {', '.join(loops)}"


class Model(torch.nn.Module):
    """A module that calls a function."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *given: Tensor) -> Any:
        return self.call(*given)


@surface("torch.export, saved and loaded", META)
def test_exported(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    program = torch.export.export(Model(call), tuple(tensors))
    assert subject.overload in {node.target for node in program.graph.nodes}
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    assert_close(torch.export.load(file).module()(*tensors), subject.expected())


@surface("torch.export with dynamic shapes", SYMBOLIC)
def test_exported_dynamic(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    dynamic = tuple({0: torch.export.Dim.AUTO} if tensor.dim() else None for tensor in tensors)
    program = torch.export.export(Model(call), tuple(tensors), dynamic_shapes=(dynamic,))
    assert_close(program.module()(*tensors), subject.expected())
    assert_close(program.run_decompositions().module()(*tensors), subject.expected())


@surface("AOTInductor", INDUCTOR)
def test_aot_inductor(subject: Subject, tmp_path: Path) -> None:
    call, tensors = subject.on_tensors()
    program = torch.export.export(Model(call), tuple(tensors))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    assert_close(torch._inductor.aoti_load_package(package)(*tensors), subject.expected())


def script(subject: Subject, is_method: bool) -> tuple[Any, list[Tensor]]:
    """Return a TorchScript function that calls the operator, and its arguments."""
    args, kwargs = subject.sample()
    if kwargs or not all(isinstance(each, Tensor) for each in args):
        pytest.skip("the sample holds more than tensors")
    names = [f"x{number}" for number in range(len(args))]
    owner, given = (names[0], names[1:]) if is_method else ("torch", names)
    name = subject.method.__name__ if is_method else subject.name
    declared = ", ".join(f"{each}: Tensor" for each in names)
    return torch.jit.CompilationUnit(f"def f({declared}):\n    return {owner}.{name}({', '.join(given)})\n").f, args


@surfaces(
    "is_method",
    {
        "torch.jit.script, saved and loaded": (False, SCHEMA_TYPES),
        "torch.jit.script of the method": (True, SCHEMA_TYPES),
    },
)
def test_scripted(subject: Subject, is_method: bool) -> None:
    function, args = script(subject, is_method)
    assert_close(first_result(function(*args)), subject.expected())
    assert_close(first_result(torch.jit.load(io.BytesIO(function.save_to_buffer()))(*args)), subject.expected())


@surface("torch.jit.trace records one node", SCHEMA_TYPES)
def test_traced(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    graph = torch.jit.trace(call, tuple(tensors))
    kinds = [node.kind() for node in graph.graph.nodes()]
    assert f"aten::{subject.aten_name}" in kinds, kinds
    assert_close(torch.jit.load(io.BytesIO(graph.save_to_buffer()))(*tensors), subject.expected())


@surface("torch.fx.symbolic_trace", SCHEMA_TYPES)
def test_symbolically_traced(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    names = ", ".join(f"x{number}" for number in range(len(tensors)))
    graph = torch.fx.symbolic_trace(eval(f"lambda {names}: call({names})", {"call": call}))
    assert subject.function in {node.target for node in graph.graph.nodes}
    assert_close(first_result(graph(*tensors)), subject.expected())
