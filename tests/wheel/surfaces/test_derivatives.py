"""Derivatives and the transforms of torch.func."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.graph import saved_tensors_hooks
from torch.testing import assert_close
from torch.testing._internal.composite_compliance import check_backward_formula, check_forward_ad_formula
from torch.utils.checkpoint import checkpoint

from tests.kit.samples import is_differentiable
from tests.kit.subject import Subject
from tests.kit.surfaces import BATCHED, FORMULA, surface, surfaces

SECOND = f"{FORMULA}; the operators that they call must be differentiable, too"
FORWARD = f"add a formula `result:` to derivatives.yaml, or {FORMULA}"


@surfaces(
    "options",
    {
        "gradcheck": ({}, FORMULA),
        "gradcheck of complex numbers": (
            {"dtype": torch.cdouble},
            f"{FORMULA}: gradients of complex tensors need .conj()",
        ),
        "forward mode": ({"check_forward_ad": True, "check_backward_ad": False}, FORWARD),
        "undefined gradients": ({"check_undefined_grad": True}, FORMULA),
    },
)
def test_first(subject: Subject, options: dict[str, Any]) -> None:
    checks = {name: value for name, value in options.items() if name != "dtype"}
    assert gradcheck(*subject.differentiable(options.get("dtype", torch.double)), **checks)


@surfaces("is_mixed", {"gradgradcheck": (False, SECOND), "forward mode over backward": (True, SECOND)})
def test_second(subject: Subject, is_mixed: bool) -> None:
    assert gradgradcheck(*subject.differentiable(), check_fwd_over_rev=is_mixed)


@surface("batched gradients", FORWARD)
def test_batched_gradients(subject: Subject) -> None:
    call, tensors = subject.differentiable()
    assert gradcheck(call, tensors, check_batched_grad=True)
    assert gradcheck(call, tensors, check_forward_ad=True, check_batched_forward_grad=True)


@surface("gradient of the in-place form", FORMULA)
def test_in_place(subject: Subject) -> None:
    subject.differentiable()
    call, tensors = subject.in_place_on_tensors(requires_grad=True)
    assert gradcheck(lambda first, *rest: call(first.clone(), *rest), tensors)


@surfaces(
    "check",
    {
        "composite compliance of the backward formula": (check_backward_formula, FORMULA),
        "composite compliance of the forward formula": (check_forward_ad_formula, FORMULA),
    },
)
def test_composite(subject: Subject, check: Callable[..., None]) -> None:
    subject.differentiable()
    check(subject.function, *subject.differentiable_sample(), assert_equal_fn=assert_close)


@surface("the node is named after it", FORMULA)
def test_node(subject: Subject) -> None:
    call, tensors = subject.differentiable()
    name = call(*tensors).grad_fn.name()
    camel = subject.aten_name.replace("_", "")
    assert re.fullmatch(rf"{camel}backward\d+", name.lower()), name


@surface("the node is a class of torch._C._functions", FORMULA)
def test_node_class(subject: Subject) -> None:
    call, tensors = subject.differentiable()
    cls = type(call(*tensors).grad_fn)
    assert getattr(torch._C._functions, cls.__name__) is cls


@surface("the node tells what it saved", FORMULA)
def test_saved(subject: Subject) -> None:
    call, tensors = subject.differentiable()
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        function = call(*tensors).grad_fn
    names = [name for name in dir(function) if name.startswith("_saved_")]
    if not names and not packed:
        pytest.skip("it saves no tensor")
    assert names
    for name in names:
        getattr(function, name)


@surface("hooks on saved tensors", FORMULA)
def test_saved_hooks(subject: Subject) -> None:
    call, tensors, wanted, expected = subject.gradients()
    with saved_tensors_hooks(lambda tensor: tensor.numpy(), torch.from_numpy):
        result = call(*tensors)
    assert_close(torch.autograd.grad(result.sum(), wanted), expected)


@surface("torch.utils.checkpoint", FORMULA)
def test_checkpointed(subject: Subject) -> None:
    call, tensors, wanted, expected = subject.gradients()
    for reentrant in (False, True):
        checkpoint(call, *tensors, use_reentrant=reentrant).sum().backward()
        assert_close(tuple(tensor.grad for tensor in wanted), expected)
        for tensor in wanted:
            tensor.grad = None


def changed(tensor: Tensor) -> Tensor:
    """Return other values. An index may have to be sorted, and stays."""
    if not is_differentiable(tensor):
        return tensor
    return tensor.flip(0) if tensor.dim() else -tensor


@pytest.mark.usefixtures("no_loop")
@surface("torch.vmap without a loop", BATCHED)
def test_vmapped(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    batches = [torch.stack([tensor, changed(tensor)]) for tensor in tensors]
    expected = torch.stack([call(*(batch[i] for batch in batches)) for i in range(2)])
    assert_close(torch.vmap(call)(*batches), expected)
    assert_close(torch.vmap(call, -1)(*(batch.movedim(0, -1) for batch in batches)), expected)


@pytest.mark.usefixtures("no_loop")
@surface("torch.vmap of the in-place form without a loop", BATCHED)
def test_vmapped_in_place(subject: Subject) -> None:
    call, tensors = subject.in_place_on_tensors()
    batches = [torch.stack([tensor, tensor]) for tensor in tensors]
    assert_close(torch.vmap(call)(*batches), torch.stack([subject.expected()] * 2))


TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "grad": torch.func.grad,
    "jacrev": torch.func.jacrev,
    "jacfwd": torch.func.jacfwd,
    "hessian": torch.func.hessian,
    "vjp": lambda f: lambda x: torch.func.vjp(f, x)[1](torch.ones_like(f(x))),
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),)),
}


@pytest.mark.usefixtures("no_loop")
@surfaces(
    "transform",
    {
        f"torch.func.{name}, and under torch.vmap": (transform, f"{FORMULA}; under vmap: {BATCHED}")
        for name, transform in TRANSFORMS.items()
    },
)
def test_transformed(subject: Subject, transform: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    subject.differentiable()
    call, tensors = subject.on_tensors()
    place = [is_differentiable(each) for each in tensors].index(True)
    first = tensors[place]
    function = transform(lambda x: call(*tensors[:place], x, *tensors[place + 1 :]).sin().sum())
    alone = function(first)
    many = torch.vmap(function)(torch.stack([first, first]))
    flat, batched = (torch.utils._pytree.tree_leaves(each) for each in (alone, many))
    for one, two in zip(flat, batched, strict=True):
        assert_close(two, torch.stack([one, one]))
