"""Derivatives and the transforms of torch.func."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.graph import saved_tensors_hooks
from torch.testing import assert_close
from torch.testing._internal.composite_compliance import check_backward_formula, check_forward_ad_formula
from torch.utils.checkpoint import checkpoint

from .subject import NotThere, Subject
from .table import Surfaces

SURFACES = Surfaces()


def differentiable(subject: Subject, dtype: torch.dtype = torch.double) -> tuple[Callable[..., Any], list[Tensor]]:
    """Return a function of the sample's tensors, and the tensors, which require gradients if possible."""
    subject.require_gradient()
    if dtype not in subject.info.dtypes:
        raise NotThere(f"no {dtype}")
    return subject.on_tensors(dtype=dtype, requires_grad=True)


@SURFACES("gradcheck")
def first(subject: Subject) -> None:
    assert gradcheck(*differentiable(subject))


@SURFACES("gradcheck of complex numbers")
def first_complex(subject: Subject) -> None:
    assert gradcheck(*differentiable(subject, torch.cdouble))


@SURFACES("gradgradcheck")
def second(subject: Subject) -> None:
    assert gradgradcheck(*differentiable(subject))


@SURFACES("forward mode")
def forward(subject: Subject) -> None:
    assert gradcheck(*differentiable(subject), check_forward_ad=True, check_backward_ad=False)


@SURFACES("forward mode over backward")
def forward_over_backward(subject: Subject) -> None:
    assert gradgradcheck(*differentiable(subject), check_fwd_over_rev=True)


@SURFACES("batched gradients")
def batched_gradients(subject: Subject) -> None:
    call, tensors = differentiable(subject)
    assert gradcheck(call, tensors, check_batched_grad=True)
    assert gradcheck(call, tensors, check_forward_ad=True, check_batched_forward_grad=True)


@SURFACES("undefined gradients")
def undefined_gradients(subject: Subject) -> None:
    assert gradcheck(*differentiable(subject), check_undefined_grad=True)


@SURFACES("gradient of the in-place form")
def in_place(subject: Subject) -> None:
    subject.require_gradient()
    call, tensors = subject.on_tensors(subject.in_place, requires_grad=True)
    if subject.expected().shape != tensors[0].shape:
        raise NotThere("the sample broadcasts self")
    assert gradcheck(lambda *given: call(given[0].clone(), *given[1:]), tensors)


@SURFACES("composite compliance of the backward formula")
def composite_backward(subject: Subject) -> None:
    subject.require_gradient()
    args, kwargs = subject.sample(requires_grad=True)
    check_backward_formula(subject.function, args, kwargs, assert_equal_fn=torch.testing.assert_close)


@SURFACES("composite compliance of the forward formula")
def composite_forward(subject: Subject) -> None:
    subject.require_gradient()
    args, kwargs = subject.sample(requires_grad=True)
    check_forward_ad_formula(subject.function, args, kwargs, assert_equal_fn=torch.testing.assert_close)


@SURFACES("the node is named after it")
def node(subject: Subject) -> None:
    call, tensors = differentiable(subject)
    name = call(*tensors).grad_fn.name()
    camel = subject.aten_name.replace("_", "")
    assert re.fullmatch(rf"{camel}backward\d+", name.lower()), name


@SURFACES("the node is a class of torch._C._functions")
def node_class(subject: Subject) -> None:
    call, tensors = differentiable(subject)
    cls = type(call(*tensors).grad_fn)
    assert getattr(torch._C._functions, cls.__name__) is cls


@SURFACES("the node tells what it saved")
def saved(subject: Subject) -> None:
    call, tensors = differentiable(subject)
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        function = call(*tensors).grad_fn
    names = [name for name in dir(function) if name.startswith("_saved_")]
    if not names and not packed:
        raise NotThere("it saves no tensor")
    assert names
    for name in names:
        getattr(function, name)


@SURFACES("hooks on saved tensors")
def saved_hooks(subject: Subject) -> None:
    call, tensors = differentiable(subject)
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    expected = torch.autograd.grad(call(*tensors).sum(), wanted)
    with saved_tensors_hooks(lambda tensor: tensor.numpy(), torch.from_numpy):
        result = call(*tensors)
    assert_close(torch.autograd.grad(result.sum(), wanted), expected)


@SURFACES("torch.utils.checkpoint")
def checkpointed(subject: Subject) -> None:
    call, tensors = differentiable(subject)
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    expected = torch.autograd.grad(call(*tensors).sum(), wanted)
    for reentrant in (False, True):
        result = checkpoint(call, *tensors, use_reentrant=reentrant)
        result.sum().backward()
        assert_close(tuple(tensor.grad for tensor in wanted), expected)
        for tensor in wanted:
            tensor.grad = None


@contextmanager
def no_loop() -> Iterator[None]:
    """Without a batching rule vmap loops over slices, which counts as a failure here."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        torch._C._functorch._set_vmap_fallback_enabled(True)


@SURFACES("torch.vmap without a loop")
def vmapped(subject: Subject) -> None:
    call, tensors = subject.on_tensors()
    batches = [torch.stack([tensor, tensor.flip(0) if tensor.dim() else -tensor]) for tensor in tensors]
    expected = torch.stack([call(*(batch[i] for batch in batches)) for i in range(2)])
    with no_loop():
        assert_close(torch.vmap(call)(*batches), expected)
        assert_close(torch.vmap(call, -1)(*(batch.movedim(0, -1) for batch in batches)), expected)


@SURFACES("torch.vmap of the in-place form without a loop")
def vmapped_in_place(subject: Subject) -> None:
    call, tensors = subject.on_tensors(subject.in_place)
    if subject.expected().shape != tensors[0].shape:
        raise NotThere("the sample broadcasts self")
    batches = [torch.stack([tensor, tensor]) for tensor in tensors]
    with no_loop():
        assert_close(torch.vmap(call)(*batches), torch.stack([subject.expected()] * 2))


TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "grad": torch.func.grad,
    "jacrev": torch.func.jacrev,
    "jacfwd": torch.func.jacfwd,
    "hessian": torch.func.hessian,
    "vjp": lambda f: lambda x: torch.func.vjp(f, x)[1](torch.ones_like(f(x))),
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),)),
}


def transformed(name: str) -> None:
    """Define the surface of a transform."""

    @SURFACES(f"torch.func.{name}, and under torch.vmap")
    def probe(subject: Subject) -> None:
        subject.require_gradient()
        call, (first, *rest) = subject.on_tensors()
        transform = TRANSFORMS[name](lambda x: call(x, *rest).sin().sum())
        with no_loop():
            alone = transform(first)
            many = torch.vmap(transform)(torch.stack([first, first]))
        flat, batched = (torch.utils._pytree.tree_leaves(each) for each in (alone, many))
        for one, two in zip(flat, batched, strict=True):
            assert_close(two, torch.stack([one, one]))


for _name in TRANSFORMS:
    transformed(_name)
