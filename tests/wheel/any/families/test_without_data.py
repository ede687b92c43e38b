"""Fake, meta and proxy tensors: test_ops.py, test_meta.py and test_proxy_tensor.py."""

from typing import Any

import torch
from opinfos import OPERATORS, QUIET, called, differentiable, each_of, in_one, instantiate, tensors_of
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.fake_utils import CrossRefFakeMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_device_type import OpDTypes
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree

pytestmark = QUIET
IN_PLACE = [info for info in OPERATORS if info.inplace_variant]


class TestFakeTensor(TestCase):
    @each_of(OPERATORS, dtypes=OpDTypes.supported)
    def test_fake(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            expected = called(op, sample)
            with FakeTensorMode() as mode:
                fake = sample.transform(lambda t, mode=mode: mode.from_tensor(t) if isinstance(t, Tensor) else t)
                result = called(op, fake)
            for ours, theirs in zip(tensors_of(result), tensors_of(expected), strict=True):
                described = [(t.shape, t.dtype, t.stride(), t.device, t.storage_offset()) for t in (ours, theirs)]
                self.assertEqual(*described)

    @differentiable
    def test_fake_crossref_backward(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype, requires_grad=True):
            with CrossRefFakeMode():
                results = [result for result in tensors_of(called(op, sample)) if result.requires_grad]
                torch.autograd.backward(results, [torch.ones_like(result) for result in results])


class TestMeta(TestCase):
    @each_of(OPERATORS, dtypes=OpDTypes.supported)
    def test_meta(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            expected = called(op, sample)
            meta = sample.transform(lambda t: t.to("meta") if isinstance(t, Tensor) else t)
            for dispatcher in (False, True):
                with enable_python_dispatcher() if dispatcher else torch.no_grad():
                    result = called(op, meta)
                for ours, theirs in zip(tensors_of(result), tensors_of(expected), strict=True):
                    self.assertTrue(ours.is_meta)
                    self.assertEqual(
                        (ours.shape, ours.dtype, ours.stride()), (theirs.shape, theirs.dtype, theirs.stride())
                    )


class TestProxyTensorOpInfo(TestCase):
    def trace(self, op: OpInfo, device: str, dtype: torch.dtype, mode: str) -> None:
        for sample in op.sample_inputs(device, dtype):
            leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))

            def function(*given: Any, spec: Any = spec) -> Any:
                first, args, kwargs = pytree.tree_unflatten(list(given), spec)
                return op(first, *args, **kwargs)

            graph = make_fx(function, tracing_mode=mode)(*leaves)
            self.assertEqual(graph(*leaves), function(*leaves))

    @in_one
    def test_make_fx_exhaustive(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self.trace(op, device, dtype, "real")

    @in_one
    def test_make_fx_fake_exhaustive(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self.trace(op, device, dtype, "fake")

    @in_one
    def test_make_fx_symbolic_exhaustive(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self.trace(op, device, dtype, "symbolic")

    @each_of(IN_PLACE, dtypes=OpDTypes.any_one, allowed_dtypes=(torch.float32,))
    def test_make_fx_symbolic_exhaustive_inplace(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            if sample.broadcasts_input or called(op, sample).shape != sample.input.shape:
                continue

            def function(first: Tensor, args: Any, kwargs: Any) -> Tensor:
                return op.get_inplace()(first.clone(), *args, **kwargs)

            given = (sample.input, sample.args, sample.kwargs)
            graph = make_fx(function, tracing_mode="symbolic")(*given)
            self.assertEqual(graph(*given), function(*given))


instantiate(globals(), TestFakeTensor, TestMeta, TestProxyTensorOpInfo)
