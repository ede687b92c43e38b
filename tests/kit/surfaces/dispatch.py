"""The dispatcher: keys, tensors without data, modes and subclasses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.profiler import profile
from torch.testing import assert_close
from torch.testing._internal.common_subclass import subclass_db
from torch.testing._internal.composite_compliance import check_with_mode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .subject import NotThere, Subject
from .table import Surfaces

SURFACES = Surfaces()


def described(value: Any) -> list[Any]:
    """Return the properties of a tensor that do not depend on its data."""
    return [
        (each.shape, each.dtype, each.stride()) for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor)
    ]


@SURFACES("torch.ops.aten.op")
def packet(subject: Subject) -> None:
    call, tensors = subject.on_tensors(getattr(torch.ops.aten, subject.aten_name))
    assert_close(call(*tensors), subject.expected())


@SURFACES("the tag pt2_compliant")
def compliant(subject: Subject) -> None:
    assert torch.Tag.pt2_compliant_tag in subject.overload.tags


@SURFACES("a kernel for Meta: tensors without data")
def meta(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    result = call(*(tensor.to("meta") for tensor in tensors))
    assert result.is_meta
    assert described(result) == described(subject.expected())


@SURFACES("fake tensors")
def fake(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    with FakeTensorMode() as mode:
        result = call(*(mode.from_tensor(tensor) for tensor in tensors))
    assert described(result) == described(subject.expected())


@SURFACES("fake tensors with symbolic shapes")
def symbolic(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        fakes = [mode.from_tensor(tensor, static_shapes=False) for tensor in tensors]
        assert any(isinstance(size, torch.SymInt) for fake in fakes for size in fake.shape)
        result = call(*fakes)
    assert [int(size) for size in result.shape] == list(subject.expected().shape)


@SURFACES("make_fx records one node")
def traced(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    graph = make_fx(call)(*tensors)
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert [target for target in targets if isinstance(target, torch._ops.OpOverload)] == [subject.overload]
    assert_close(graph(*tensors), subject.expected())


@SURFACES("functionalization of the in-place form")
def functionalized(subject: Subject) -> None:
    call, tensors = subject.on_tensors(subject.in_place)
    if subject.expected().shape != tensors[0].shape:
        raise NotThere("the sample broadcasts self")
    first, *rest = tensors
    graph = make_fx(torch.func.functionalize(lambda *given: call(given[0].clone(), *given[1:])))(first, *rest)
    names = {str(node.target) for node in graph.graph.nodes}
    assert f"aten.{subject.in_place.__name__}.default" not in names, names
    assert str(subject.overload) in names, names
    assert_close(graph(first, *rest), subject.expected())


@SURFACES("functionalization of the out= form")
def functionalized_out(subject: Subject) -> None:
    if not subject.info.supports_out:
        raise NotThere("no out= form")
    call, tensors = subject.on_tensors(lambda *args, **kwargs: subject.function(*args, **kwargs, out=empty()))
    expected = subject.expected()

    def empty() -> Tensor:
        return torch.empty(expected.shape, dtype=expected.dtype)

    graph = make_fx(torch.func.functionalize(call))(*tensors)
    assert str(subject.overload) in {str(node.target) for node in graph.graph.nodes}
    assert_close(graph(*tensors), expected)


@SURFACES("__torch_dispatch__ sees the overload")
def torch_dispatch(subject: Subject) -> None:
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    call, tensors = subject.on_tensors()
    with Mode():
        call(*tensors)
    assert seen == [subject.overload]


@SURFACES("a wrapper subclass")
def wrapper_subclass(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    result = call(*(TwoTensor(tensor, tensor.clone()) for tensor in tensors))
    assert isinstance(result, TwoTensor)
    for part in (result.a, result.b):
        assert_close(part, subject.expected())


@SURFACES("the subclasses of torch.testing")
def tested_subclasses(subject: Subject) -> None:
    if not subject.is_pointwise:
        raise NotThere("not pointwise: the values are any")
    call, tensors = subject.on_tensors()
    for cls, info in subclass_db.items():
        if cls is Tensor or not info.closed_under_ops:
            continue
        assert type(call(*(info.create_fn(tensor.shape) for tensor in tensors))) is cls


@SURFACES("composite compliance")
def composite(subject: Subject) -> None:
    args, kwargs = subject.sample()
    check_with_mode(subject.function, args, kwargs, torch.testing.assert_close)


@SURFACES("aliases and writes are as the schema says")
def schema(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    with SchemaCheckMode():
        call(*tensors)


@SURFACES("conjugate and negative views")
def math_bits(subject: Subject) -> None:
    if torch.cdouble not in subject.info.dtypes:
        raise NotThere("no complex numbers")
    call, tensors = subject.on_tensors(dtype=torch.cdouble)
    conjugated = [torch.conj(tensor.conj().resolve_conj()) for tensor in tensors]
    negative = [torch._neg_view(-tensor) for tensor in tensors]
    assert any(tensor.is_conj() for tensor in conjugated)
    for views in (conjugated, negative):
        assert_close(call(*views), call(*tensors))


@SURFACES("memory layouts are kept")
def layouts(subject: Subject) -> None:
    if not subject.is_pointwise:
        raise NotThere("not pointwise")
    call, tensors = subject.on_tensors()
    shaped = [torch.rand(2, 3, 4, 5, dtype=torch.double) for _ in tensors]
    last = [tensor.contiguous(memory_format=torch.channels_last) for tensor in shaped]
    result = call(*last)
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert_close(result, call(*shaped))


@SURFACES("nested tensors")
def nested(subject: Subject) -> None:
    if not subject.is_pointwise:
        raise NotThere("not pointwise")
    call, tensors = subject.on_tensors()
    parts = [torch.rand(2, 4, dtype=torch.double), torch.rand(3, 4, dtype=torch.double)]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    result = call(*([jagged] * len(tensors)))
    for ours, part in zip(result.unbind(), parts, strict=True):
        assert_close(ours, call(*([part] * len(tensors))))


@SURFACES("deterministic mode")
def deterministic(subject: Subject) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert_close(subject.expected(), subject.expected())
    finally:
        torch.use_deterministic_algorithms(False)


@SURFACES("the profiler names it")
def profiled(subject: Subject) -> None:
    with profile() as found:
        subject.expected()
    assert f"aten::{subject.aten_name}" in {event.name for event in found.events() or []}


@SURFACES("CPU autocast takes half types")
def autocast(subject: Subject) -> None:
    call, tensors = subject.on_tensors(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        result = call(*tensors)
    assert result.dtype in (torch.float32, torch.bfloat16)


@SURFACES("CPU autocast's policy casts arguments to one type")
def autocast_policy(subject: Subject) -> None:
    if not subject.has_kernel("AutocastCPU"):
        raise NotThere("no policy")
    call, (first, *rest) = subject.on_tensors(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        result = call(first.bfloat16(), *rest)
    cast = [each.to(result.dtype) for each in (first.bfloat16(), *rest)]
    assert_close(result, call(*cast))


def header(name: str) -> str:
    """Return the text of a header of the wheel."""
    return (Path(torch.__file__).parent / "include" / name).read_text(encoding="utf-8")


@SURFACES("C++: at::op")
def cpp_function(subject: Subject) -> None:
    assert re.search(rf"\b{subject.aten_name}\(", header(f"ATen/ops/{subject.aten_name}.h"))
    assert f"<ATen/ops/{subject.aten_name}.h>" in header("ATen/Functions.h")


@SURFACES("C++: at::op_out")
def cpp_out(subject: Subject) -> None:
    overloads = getattr(torch.ops.aten, subject.aten_name).overloads()
    if not any(overload.endswith("out") for overload in overloads):
        raise NotThere("no out form")
    assert re.search(rf"\b{subject.aten_name}_out\(", header(f"ATen/ops/{subject.aten_name}.h"))


@SURFACES("C++: x.op()")
def cpp_method(subject: Subject) -> None:
    assert callable(subject.method)
    assert re.search(rf"\b{subject.aten_name}\(", header("ATen/core/TensorBody.h"))


@SURFACES("C++: at::redispatch::op")
def cpp_redispatch(subject: Subject) -> None:
    assert re.search(rf"\b{subject.aten_name}\(c10::DispatchKeySet", header("ATen/RedispatchFunctions.h"))


@SURFACES("C++: vmap's plumbing, registration declarations")
def cpp_lists(subject: Subject) -> None:
    assert re.search(rf"\b{subject.aten_name}_(\w+_)?generated_plumbing\(", header("ATen/VmapGeneratedPlumbing.h"))
    assert re.search(rf" {subject.aten_name}\(", header("ATen/RegistrationDeclarations.h"))
