"""torch.compile, torch.export, TorchScript and FX."""

from __future__ import annotations

import io
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close
from torch.testing._internal.optests import aot_autograd_check, fake_check, make_fx_check

from .subject import NotThere, Subject, first_result
from .table import Surfaces

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)
    from torch._inductor.utils import run_and_get_code

SURFACES = Surfaces()


def as_module(subject: Subject) -> tuple[torch.nn.Module, tuple[Tensor, ...]]:
    """Return a module that calls the operator, and its inputs."""
    call, tensors = subject.on_tensors()

    class Model(torch.nn.Module):
        def forward(self, *given: Tensor) -> Any:
            return call(*given)

    return Model(), tuple(tensors)


def compiled(title: str, backend: str, **options: Any) -> None:
    """Define the surface of a way to compile."""

    @SURFACES(title)
    def probe(subject: Subject) -> None:
        call, tensors = subject.on_tensors()
        function = torch.compile(call, fullgraph=True, backend=backend, **options)
        assert_close(function(*tensors), subject.expected())


compiled("torch.compile traces torch.op(x)", "eager")
compiled("torch.compile with dynamic shapes", "aot_eager", dynamic=True)


@SURFACES("torch.compile traces x.op()")
def compiled_method(subject: Subject) -> None:
    call, tensors = subject.on_tensors(subject.method)
    assert_close(torch.compile(call, fullgraph=True, backend="aot_eager")(*tensors), subject.expected())


@SURFACES("torch.compile traces x.op_()")
def compiled_in_place(subject: Subject) -> None:
    call, tensors = subject.on_tensors(subject.in_place)
    if subject.expected().shape != tensors[0].shape:
        raise NotThere("the sample broadcasts self")
    torch.compile(call, fullgraph=True, backend="aot_eager")(*tensors)
    assert_close(tensors[0], subject.expected())


@SURFACES("torch.compile traces out=")
def compiled_out(subject: Subject) -> None:
    if not subject.info.supports_out:
        raise NotThere("no out= form")
    expected = subject.expected()

    def call(result: Tensor, *given: Any, **named: Any) -> Any:
        return subject.function(*given, **named, out=result)

    args, kwargs = subject.sample()
    result = torch.empty_like(expected)
    torch.compile(call, fullgraph=True, backend="aot_eager")(result, *args, **kwargs)
    assert_close(result, expected)


@SURFACES("torch.compile, backward")
def compiled_backward(subject: Subject) -> None:
    subject.require_gradient()
    call, tensors = subject.on_tensors(requires_grad=True)
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    expected = torch.autograd.grad(call(*tensors).sum(), wanted)
    result = torch.compile(call, fullgraph=True, backend="aot_eager")(*tensors)
    assert_close(torch.autograd.grad(result.sum(), wanted), expected)


@SURFACES("compiled autograd")
def compiled_autograd(subject: Subject) -> None:
    subject.require_gradient()
    call, tensors = subject.on_tensors(requires_grad=True)
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    expected = torch.autograd.grad(call(*tensors).sum(), wanted)
    result = call(*tensors).sum()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        result.backward()
    assert_close(tuple(tensor.grad for tensor in wanted), expected)


def checked(title: str, check: Callable[..., Any], *more: Any) -> None:
    """Define the surface of a check from torch.testing."""

    @SURFACES(title)
    def probe(subject: Subject) -> None:
        args, kwargs = subject.sample(requires_grad=subject.info.supports_autograd)
        check(subject.function, args, kwargs, *more)


checked("torch.testing: fake_check", fake_check)
checked("torch.testing: aot_autograd_check, static", aot_autograd_check, False)
checked("torch.testing: aot_autograd_check, dynamic", aot_autograd_check, True)


@SURFACES("torch.testing: make_fx_check")
def make_fx_checked(subject: Subject) -> None:
    args, kwargs = subject.sample()
    for mode in ("real", "fake", "symbolic"):
        make_fx_check(subject.function, args, kwargs, mode)


@SURFACES("torch.library.opcheck")
def opchecked(subject: Subject) -> None:
    args, kwargs = subject.sample(requires_grad=subject.info.supports_autograd)
    torch.library.opcheck(subject.overload, tuple(args), kwargs)


@SURFACES("Inductor")
def inductor(subject: Subject) -> None:
    call, tensors = subject.on_tensors(dtype=torch.float32)
    result, _ = run_and_get_code(torch.compile(call, fullgraph=True), *tensors)
    assert_close(result, subject.expected(dtype=torch.float32))


@SURFACES("Inductor fuses it with its neighbors")
def fused(subject: Subject) -> None:
    if not subject.is_pointwise:
        raise NotThere("not pointwise")
    call, tensors = subject.on_tensors(dtype=torch.float32)
    first, *rest = tensors
    _, (code,) = run_and_get_code(torch.compile(lambda x: call(x.exp(), *rest).exp(), fullgraph=True), first)
    called = re.search(rf"torch\.ops\.aten\.{subject.aten_name}\b", code)
    assert not called, f"the code that Inductor writes calls the kernel: {subject.aten_name} has no decomposition"
    loops = re.findall(r"^\s+cpp_fused_\w+\(", code, re.M)
    assert len(loops) == 1, f"Inductor writes {len(loops)} loops where one would do: {', '.join(loops)}"


@SURFACES("torch.export, saved and loaded")
def exported(subject: Subject) -> None:
    model, tensors = as_module(subject)
    program = torch.export.export(model, tensors)
    assert subject.overload in {node.target for node in program.graph.nodes}
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    assert_close(torch.export.load(file).module()(*tensors), subject.expected())


@SURFACES("torch.export with dynamic shapes")
def exported_dynamic(subject: Subject) -> None:
    model, tensors = as_module(subject)
    dynamic = tuple({0: torch.export.Dim.AUTO} if tensor.dim() else None for tensor in tensors)
    program = torch.export.export(model, tensors, dynamic_shapes=(dynamic,))
    assert_close(program.module()(*tensors), subject.expected())
    assert_close(program.run_decompositions().module()(*tensors), subject.expected())


@SURFACES("AOTInductor")
def aot_inductor(subject: Subject) -> None:
    model, tensors = as_module(subject)
    program = torch.export.export(model, tensors)
    with tempfile.TemporaryDirectory() as folder:
        package = torch._inductor.aoti_compile_and_package(program, package_path=str(Path(folder) / "model.pt2"))
        assert_close(torch._inductor.aoti_load_package(package)(*tensors), subject.expected())


@SURFACES("torch.jit.script, saved and loaded")
def scripted(subject: Subject) -> None:
    args, kwargs = subject.sample()
    if kwargs or not all(isinstance(each, Tensor) for each in args):
        raise NotThere("the sample holds more than tensors")
    names = ", ".join(f"x{number}: Tensor" for number in range(len(args)))
    given = ", ".join(f"x{number}" for number in range(len(args)))
    unit = torch.jit.CompilationUnit(f"def f({names}):\n    return torch.{subject.name}({given})\n")
    assert_close(first_result(unit.f(*args)), subject.expected())
    assert_close(first_result(torch.jit.load(io.BytesIO(unit.f.save_to_buffer()))(*args)), subject.expected())


@SURFACES("torch.jit.script of the method")
def scripted_method(subject: Subject) -> None:
    args, kwargs = subject.sample()
    if kwargs or not all(isinstance(each, Tensor) for each in args):
        raise NotThere("the sample holds more than tensors")
    name = subject.method.__name__
    names = ", ".join(f"x{number}: Tensor" for number in range(len(args)))
    given = ", ".join(f"x{number}" for number in range(1, len(args)))
    unit = torch.jit.CompilationUnit(f"def f({names}):\n    return x0.{name}({given})\n")
    assert_close(first_result(unit.f(*args)), subject.expected())


@SURFACES("torch.jit.trace records one node")
def traced(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    graph = torch.jit.trace(call, tuple(tensors))
    kinds = [node.kind() for node in graph.graph.nodes()]
    assert f"aten::{subject.aten_name}" in kinds, kinds
    assert_close(saved_and_loaded(graph)(*tensors), subject.expected())


def saved_and_loaded(function: Any) -> Any:
    """Save a TorchScript function to a file and load it."""
    file = io.BytesIO()
    torch.jit.save(function, file)
    file.seek(0)
    return torch.jit.load(file)


@SURFACES("torch.fx.symbolic_trace")
def symbolically_traced(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    names = [f"x{number}" for number in range(len(tensors))]
    scope: dict[str, Any] = {"call": call}
    exec(f"def f({', '.join(names)}): return call({', '.join(names)})", scope)
    graph = torch.fx.symbolic_trace(scope["f"])
    assert subject.function in {node.target for node in graph.graph.nodes}
    assert_close(first_result(graph(*tensors)), subject.expected())
