"""The dispatcher: keys, tensors without data, modes and subclasses; and the C++ headers."""

import re
from pathlib import Path
from typing import Any

import pytest
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

from tests.kit.samples import is_differentiable
from tests.kit.subject import Subject
from tests.kit.surfaces import COMPLIANT, IN_PLACE, META, OUT, SYMBOLIC, surface, surfaces


def described(value: Any) -> list[Any]:
    """Return the properties of tensors that do not depend on their data."""
    return [(each.shape, each.dtype, each.stride()) for each in pytree.tree_leaves(value) if isinstance(each, Tensor)]


@surface("torch.ops.aten.op")
def test_packet(subject: Subject) -> None:
    call, tensors = subject.on_tensors(getattr(torch.ops.aten, subject.aten_name))
    assert_close(call(*tensors), subject.expected())


@surface("the tag pt2_compliant", COMPLIANT)
def test_compliant(subject: Subject) -> None:
    assert torch.Tag.pt2_compliant_tag in subject.overload.tags


@surface("a kernel for Meta: tensors without data", META)
def test_meta(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    result = call(*(tensor.to("meta") for tensor in tensors))
    assert result.is_meta
    assert described(result) == described(subject.expected())


@surface("fake tensors", META)
def test_fake(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    with FakeTensorMode() as mode:
        result = call(*(mode.from_tensor(tensor) for tensor in tensors))
    assert described(result) == described(subject.expected())


@surface("fake tensors with symbolic shapes", SYMBOLIC)
def test_symbolic(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        fakes = [mode.from_tensor(tensor, static_shapes=False) for tensor in tensors]
        assert any(isinstance(size, torch.SymInt) for fake in fakes for size in fake.shape)
        result = call(*fakes)
    assert [int(size) for size in result.shape] == list(subject.expected().shape)


@surface("make_fx records one node", META)
def test_traced(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    graph = make_fx(call)(*tensors)
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert [target for target in targets if isinstance(target, torch._ops.OpOverload)] == [subject.overload]
    assert_close(graph(*tensors), subject.expected())


@surface("functionalization of the in-place form", IN_PLACE)
def test_functionalized(subject: Subject) -> None:
    call, tensors = subject.in_place_on_tensors()
    graph = make_fx(torch.func.functionalize(lambda first, *rest: call(first.clone(), *rest)))(*tensors)
    names = {str(node.target) for node in graph.graph.nodes}
    assert f"aten.{subject.in_place.__name__}.default" not in names, names
    assert str(subject.overload) in names, names
    assert_close(graph(*tensors), subject.expected())


@surface("functionalization of the out= form", OUT)
def test_functionalized_out(subject: Subject) -> None:
    expected = subject.expected()
    call, tensors = subject.on_tensors(
        lambda *args, **kwargs: subject.out(*args, **kwargs, out=torch.empty(expected.shape, dtype=expected.dtype))
    )
    graph = make_fx(torch.func.functionalize(call))(*tensors)
    assert str(subject.overload) in {str(node.target) for node in graph.graph.nodes}
    assert_close(graph(*tensors), expected)


@surface("__torch_dispatch__ sees the overload", COMPLIANT)
def test_torch_dispatch(subject: Subject) -> None:
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    call, tensors = subject.on_tensors()
    with Mode():
        call(*tensors)
    assert seen == [subject.overload]


@surface("a wrapper subclass", COMPLIANT)
def test_wrapper_subclass(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    result = call(*(TwoTensor(tensor, tensor.clone()) for tensor in tensors))
    assert isinstance(result, TwoTensor)
    for part in (result.a, result.b):
        assert_close(part, subject.expected())


@surface("the subclasses of torch.testing", COMPLIANT)
def test_tested_subclasses(subject: Subject) -> None:
    subject.require_pointwise()  # otherwise the values are any
    call, tensors = subject.on_tensors()
    for cls, info in subclass_db.items():
        if cls is not Tensor and info.closed_under_ops:
            assert type(call(*(info.create_fn(tensor.shape) for tensor in tensors))) is cls


@surface("composite compliance", COMPLIANT)
def test_composite(subject: Subject) -> None:
    check_with_mode(subject.function, *subject.sample(), assert_close)


@surface(
    "aliases and writes are as the schema says",
    "write (a!) after the type of each mutated argument, and (a) after one that is returned",
)
def test_schema(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    with SchemaCheckMode():
        call(*tensors)


@surface(
    "conjugate and negative views",
    "read tensors with operators or TensorIterator; call .resolve_conj() before reading memory",
)
def test_math_bits(subject: Subject) -> None:
    if torch.cdouble not in subject.info.dtypes:
        pytest.skip("no complex numbers")
    call, tensors = subject.on_tensors(dtype=torch.cdouble)
    conjugated = [torch.conj(tensor.conj().resolve_conj()) for tensor in tensors]
    assert any(tensor.is_conj() for tensor in conjugated)
    negated = [torch._neg_view(-tensor) if is_differentiable(tensor) else tensor for tensor in tensors]
    for views in (conjugated, negated):
        assert_close(call(*views), call(*tensors))


@surface("memory layouts are kept", "let TensorIterator allocate the result, or create it with at::empty_like(self)")
def test_layouts(subject: Subject) -> None:
    subject.require_pointwise()
    call, tensors = subject.on_tensors()
    shaped = [torch.rand(2, 3, 4, 5, dtype=torch.double) for _ in tensors]
    result = call(*(tensor.contiguous(memory_format=torch.channels_last) for tensor in shaped))
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert_close(result, call(*shaped))


@surface("nested tensors", "write `tags: pointwise`, or a kernel for NestedTensorCPU into `dispatch:`")
def test_nested(subject: Subject) -> None:
    subject.require_pointwise()
    call, tensors = subject.on_tensors()
    parts = [torch.rand(2, 4, dtype=torch.double), torch.rand(3, 4, dtype=torch.double)]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    result = call(*([jagged] * len(tensors)))
    for ours, part in zip(result.unbind(), parts, strict=True):
        assert_close(ours, call(*([part] * len(tensors))))


@surface(
    "deterministic mode", "call at::globalContext().alertNotDeterministic() only if the kernel is nondeterministic"
)
def test_deterministic(subject: Subject) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert_close(subject.expected(), subject.expected())
    finally:
        torch.use_deterministic_algorithms(False)


@surface("the profiler names it")
def test_profiled(subject: Subject) -> None:
    with profile() as found:
        subject.expected()
    assert f"aten::{subject.aten_name}" in {event.name for event in found.events() or []}


@surface(
    "CPU autocast takes half types",
    "support half types in the kernel, or list the operator in autocast.yaml under fp32",
)
def test_autocast(subject: Subject) -> None:
    call, tensors = subject.on_tensors(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        result = call(*tensors)
    assert result.dtype in (torch.float32, torch.bfloat16)


@surface("CPU autocast's policy casts arguments to one type", "list the operator in autocast.yaml")
def test_autocast_policy(subject: Subject) -> None:
    if not subject.has_kernel("AutocastCPU"):
        pytest.skip("no policy")
    call, (first, *rest) = subject.on_tensors(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        result = call(first.bfloat16(), *rest)
    given = (first.bfloat16(), *rest)
    cast = [each.to(result.dtype) if each.is_floating_point() else each for each in given]
    assert_close(result, call(*cast))


COMPILER = "install a C++ compiler; the headers themselves are generated"
# For each surface, what headers of the wheel contain: their names with `op`, and patterns.
HEADERS: dict[str, dict[str, str]] = {
    "C++: at::op": {"ATen/ops/op.h": r"\bop\(", "ATen/Functions.h": r"<ATen/ops/op\.h>"},
    "C++: at::op_out": {"ATen/ops/op.h": r"\bop_out\("},
    "C++: x.op()": {"ATen/core/TensorBody.h": r"\bop\("},
    "C++: at::redispatch::op": {"ATen/RedispatchFunctions.h": r"\bop\(c10::DispatchKeySet"},
    "C++: vmap's plumbing, registration declarations": {
        "ATen/VmapGeneratedPlumbing.h": r"\bop_(\w+_)?generated_plumbing\(",
        "ATen/RegistrationDeclarations.h": r" op\(",
    },
}


@pytest.mark.needs_headers
@surfaces("title", {title: (title, COMPILER) for title in HEADERS})
def test_headers(subject: Subject, title: str) -> None:
    overloads = getattr(torch.ops.aten, subject.aten_name).overloads()
    if title == "C++: at::op_out" and not any(overload.endswith("out") for overload in overloads):
        pytest.skip("no out form")
    assert title != "C++: x.op()" or callable(subject.method)
    for header, pattern in HEADERS[title].items():
        path = Path(torch.__file__).parent / "include" / re.sub(r"\bop\b", subject.aten_name, header)
        assert re.search(re.sub(r"op(?=[\\_])", subject.aten_name, pattern), path.read_text(encoding="utf-8")), path
