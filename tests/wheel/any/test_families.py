"""PyTorch's OpInfo-driven families of tests, for the operators of the folder.

The wheel holds ``torch.testing._internal``, which they are made of, but not the files in PyTorch's ``test/``: the
properties are those of test_ops.py, test_ops_gradients.py, test_ops_fwd_gradients.py, test_ops_jit.py, test_meta.py,
test_proxy_tensor.py, test_schema_check.py, functorch's test_vmap.py and test_aotdispatch.py, and inductor's
test_torchinductor_opinfo.py. ``GRAFT_OPERATORS`` names other operators to test, separated by commas.
"""

from __future__ import annotations

import itertools
import os
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.fake_utils import CrossRefFakeMode
from torch._subclasses.schema_check_mode import SchemaCheckMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal import common_utils, composite_compliance
from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_jit import JitCommonTestCase, check_against_reference
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, TestGradients
from torch.testing._internal.jit_metaprogramming_utils import check_alias_annotation, create_script_fn, create_traced_fn
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.testing._internal.optests import aot_autograd_check
from torch.utils import _pytree as pytree

pytestmark = [
    # What reads a tensor's attributes one by one asks for this one, too.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    # So it says of every operator that makes a complex tensor, PyTorch's own included.
    pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex operators"),
]


def wanted_names() -> list[str]:
    if names := os.environ.get("GRAFT_OPERATORS"):
        return names.split(",")
    return list(torch._added_operators.PUBLIC)


OPERATORS = [info for info in op_db if info.name in wanted_names()]
if not OPERATORS:
    pytest.skip("the folder adds no function with samples", allow_module_level=True)

# What the command line of PyTorch's own test files sets.
common_utils.GRAPH_EXECUTOR = common_utils.GRAPH_EXECUTOR or common_utils.cppProfilingFlagsToProfilingMode()

DIFFERENTIABLE = [info for info in OPERATORS if info.supports_autograd]
FLOATING = (torch.double, torch.cdouble)
in_precision = ops(OPERATORS, dtypes=OpDTypes.supported, allowed_dtypes=FLOATING)
in_one = ops(OPERATORS, dtypes=OpDTypes.any_one, allowed_dtypes=(torch.float32, torch.int64))
differentiable = ops(DIFFERENTIABLE, dtypes=OpDTypes.supported_backward, allowed_dtypes=FLOATING)


def called(op: Callable[..., Any], sample: SampleInput) -> Any:
    return op(sample.input, *sample.args, **sample.kwargs)


def tensors_of(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


class TestCommon(TestCase):
    @ops(OPERATORS, dtypes=OpDTypes.supported)
    def test_variant_consistency_eager(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            expected = called(op.get_op(), sample)
            for variant in (op.get_method(), op.get_inplace()):
                is_inplace = variant is op.get_inplace()
                if variant is None or (is_inplace and sample.broadcasts_input):
                    continue
                first = sample.input.clone() if is_inplace else sample.input
                if is_inplace and (first.shape, first.dtype) != (expected.shape, expected.dtype):
                    continue
                self.assertEqual(variant(first, *sample.args, **sample.kwargs), expected)

    @ops(OPERATORS, dtypes=OpDTypes.supported)
    def test_noncontiguous_samples(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            self.assertEqual(called(op, sample.noncontiguous()), called(op, sample))

    @ops([info for info in OPERATORS if info.supports_out], dtypes=OpDTypes.any_one)
    def test_out(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            expected = called(op, sample)
            outputs = [
                torch.empty_like(expected),
                torch.empty(0, dtype=expected.dtype),
                torch.empty(2 * expected.numel(), dtype=expected.dtype)[::2].view(expected.shape),
            ]
            for out in outputs:
                pointer, strides = out.data_ptr(), out.stride()
                result = op(sample.input, *sample.args, **sample.kwargs, out=out)
                self.assertIs(result, out)
                self.assertEqual(out, expected)
                if out.numel() and out is not outputs[1]:
                    self.assertEqual((out.data_ptr(), out.stride()), (pointer, strides))
            if expected.dtype.is_floating_point:
                with self.assertRaises(RuntimeError):
                    op(sample.input, *sample.args, **sample.kwargs, out=torch.empty_like(expected, dtype=torch.long))

    @ops(OPERATORS, dtypes=OpDTypes.unsupported)
    def test_unsupported_dtypes_are_refused(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        """As test_dtypes has it: what is not said to work does not."""
        try:
            samples = list(op.sample_inputs(device, dtype))
        except (RuntimeError, TypeError, NotImplementedError) as error:
            raise unittest.SkipTest(f"no samples of {dtype}") from error
        with self.assertRaises((RuntimeError, TypeError)):
            for sample in samples:
                called(op, sample)


class TestMathBits(TestCase):
    @ops([info for info in OPERATORS if torch.cdouble in info.dtypes], allowed_dtypes=(torch.cdouble,))
    def test_conj_and_neg_views(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        views: list[Callable[[Tensor], Tensor]] = [
            lambda t: torch.conj_physical(t).conj(),
            lambda t: torch._neg_view(-t),
            lambda t: torch._neg_view(-torch.conj_physical(t)).conj(),
        ]
        for sample, view in itertools.product(op.sample_inputs(device, dtype), views):
            viewed = sample.transform(lambda t, view=view: view(t) if isinstance(t, Tensor) else t)
            self.assertEqual(called(op, viewed), called(op, sample))


class TestCompositeCompliance(TestCase):
    @in_one
    def test_operator(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            args = [sample.input, *sample.args]
            composite_compliance.check_with_mode(op, args, sample.kwargs, self.assertEqual)
            composite_compliance.check_all_permutations(op, args, sample.kwargs, self.assertEqual)

    @differentiable
    def test_backward(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype, requires_grad=True):
            args = [sample.input, *sample.args]
            composite_compliance.check_backward_formula(
                op.get_op(), args, sample.kwargs, sample.output_process_fn_grad, op.gradcheck_wrapper, self.assertEqual
            )

    @ops([info for info in DIFFERENTIABLE if info.supports_forward_ad], allowed_dtypes=FLOATING)
    def test_forward_ad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype, requires_grad=True):
            args = [sample.input, *sample.args]
            composite_compliance.check_forward_ad_formula(
                op.get_op(), args, sample.kwargs, op.gradcheck_wrapper, self.assertEqual
            )


class TestFakeTensor(TestCase):
    @ops(OPERATORS, dtypes=OpDTypes.supported)
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


class TestTags(TestCase):
    @in_one
    def test_tags(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        packet = getattr(torch.ops.aten, op.aten_name)
        for name in packet.overloads():
            self.assertIn(torch.Tag.pt2_compliant_tag, getattr(packet, name).tags)


class TestBwdGradients(TestGradients):
    @differentiable
    def test_fn_grad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._grad_test_helper(device, dtype, op, op.get_op())

    @differentiable
    def test_fn_gradgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._check_helper(device, dtype, op, op.get_op(), "bwgrad_bwgrad")

    @ops([info for info in DIFFERENTIABLE if info.inplace_variant], allowed_dtypes=FLOATING)
    def test_inplace_grad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._grad_test_helper(device, dtype, op, self._get_safe_inplace(op.get_inplace()))

    @ops([info for info in DIFFERENTIABLE if info.inplace_variant], allowed_dtypes=FLOATING)
    def test_inplace_gradgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._check_helper(device, dtype, op, self._get_safe_inplace(op.get_inplace()), "bwgrad_bwgrad")


class TestFwdGradients(TestGradients):
    @ops([info for info in DIFFERENTIABLE if info.supports_forward_ad], allowed_dtypes=FLOATING)
    def test_forward_mode_AD(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._grad_test_helper(
            device,
            dtype,
            op,
            op.get_op(),
            check_forward_ad=True,
            check_batched_forward_grad=op.check_batched_forward_grad,
        )

    @ops([info for info in DIFFERENTIABLE if info.supports_fwgrad_bwgrad], allowed_dtypes=FLOATING)
    def test_fn_fwgrad_bwgrad(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        self._check_helper(device, dtype, op, op.get_op(), "fwgrad_bwgrad")


class TestJit(JitCommonTestCase):
    @in_one
    def test_variant_consistency_jit(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        is_differentiable = op.supports_autograd and dtype.is_floating_point
        for sample in op.sample_inputs(device, dtype, requires_grad=is_differentiable):
            variants = {"function": op.get_op(), "method": op.get_method()}
            for kind, variant in variants.items():
                if variant is None:
                    continue
                name = f"torch.{op.name}" if kind == "function" else variant.__name__
                scripted = create_script_fn(
                    self, name.removeprefix("torch."), "functional" if kind == "function" else kind
                )
                for form in (create_traced_fn(self, variant), scripted):
                    check_against_reference(
                        self,
                        form,
                        op.get_op(),
                        lambda value: value,
                        (sample.input, *sample.args),
                        sample.kwargs,
                        no_grad=not is_differentiable,
                        no_gradgrad=not is_differentiable,
                    )

    @in_one
    def test_alias_annotation(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            check_alias_annotation(
                op.name, (sample.input, *sample.args), sample.kwargs, aten_name=op.aten_name, func_type="functional"
            )


class TestMeta(TestCase):
    @ops(OPERATORS, dtypes=OpDTypes.supported)
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


class TestProxyTensor(TestCase):
    @in_one
    def test_make_fx_exhaustive(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for mode in ("real", "fake", "symbolic"):
            for sample in op.sample_inputs(device, dtype):
                leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))

                def function(*given: Any, spec: Any = spec) -> Any:
                    first, args, kwargs = pytree.tree_unflatten(list(given), spec)
                    return op(first, *args, **kwargs)

                graph = make_fx(function, tracing_mode=mode)(*leaves)
                self.assertEqual(graph(*leaves), function(*leaves))

    @ops([info for info in OPERATORS if info.inplace_variant], dtypes=OpDTypes.any_one, allowed_dtypes=(torch.float32,))
    def test_make_fx_symbolic_inplace(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            if sample.broadcasts_input or called(op, sample).shape != sample.input.shape:
                continue

            def function(first: Tensor, args: Any, kwargs: Any) -> Tensor:
                return op.get_inplace()(first.clone(), *args, **kwargs)

            given = (sample.input, sample.args, sample.kwargs)
            graph = make_fx(function, tracing_mode="symbolic")(*given)
            self.assertEqual(graph(*given), function(*given))


class TestSchemaCheck(TestCase):
    @ops(OPERATORS, dtypes=OpDTypes.supported)
    def test_schema_correctness(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        with SchemaCheckMode():
            for sample in op.sample_inputs(device, dtype):
                called(op, sample)


class TestVmap(TestCase):
    SIZE = 3

    def batched(self, tensors: list[Tensor], dims: tuple[int | None, ...]) -> list[Tensor]:
        """Each tensor repeated along its dimension, each time another one."""
        return [
            t if dim is None else torch.stack([t, t.flip(0) if t.dim() else t + t, t * 0], dim)
            for t, dim in zip(tensors, dims, strict=True)
        ]

    def cases(self, op: OpInfo, device: str, dtype: torch.dtype) -> Iterator[Any]:
        for sample in op.sample_inputs(device, dtype):
            leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
            places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

            def function(*tensors: Tensor, leaves: Any = leaves, spec: Any = spec, places: Any = places) -> Any:
                values = list(leaves)
                for place, tensor in zip(places, tensors, strict=True):
                    values[place] = tensor
                first, args, kwargs = pytree.tree_unflatten(values, spec)
                return op(first, *args, **kwargs)

            for dims in itertools.product((None, 0, -1), repeat=len(places)):
                if any(dim is not None for dim in dims):
                    yield function, self.batched([leaves[place] for place in places], dims), dims

    @in_one
    def test_vmap_exhaustive(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        torch._C._functorch._set_vmap_fallback_warning_enabled(False)
        self.addCleanup(torch._C._functorch._set_vmap_fallback_warning_enabled, True)
        for function, tensors, dims in self.cases(op, device, dtype):
            slices = [
                [t if dim is None else t.select(dim, i) for t, dim in zip(tensors, dims, strict=True)]
                for i in range(self.SIZE)
            ]
            expected = [function(*each) for each in slices]
            result = torch.vmap(function, dims)(*tensors)
            for position, ours in enumerate(tensors_of(result)):
                self.assertEqual(ours, torch.stack([tensors_of(each)[position] for each in expected]))


class TestAOTAutograd(TestCase):
    @in_one
    def test_aot_autograd_exhaustive(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        is_differentiable = op.supports_autograd and dtype.is_floating_point
        for dynamic in (False, True):
            for sample in op.sample_inputs(device, dtype, requires_grad=is_differentiable):
                aot_autograd_check(op, [sample.input, *sample.args], sample.kwargs, dynamic)


@pytest.mark.unsanitized("Inductor compiles for each sample")
class TestInductorOpInfo(TestCase):
    @in_one
    def test_comprehensive(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in list(op.sample_inputs(device, dtype))[:3]:
            torch._dynamo.reset()
            self.assertEqual(called(torch.compile(op.get_op(), fullgraph=True), sample), called(op, sample))


for family in (
    TestCommon,
    TestMathBits,
    TestCompositeCompliance,
    TestFakeTensor,
    TestTags,
    TestBwdGradients,
    TestFwdGradients,
    TestJit,
    TestMeta,
    TestProxyTensor,
    TestSchemaCheck,
    TestVmap,
    TestAOTAutograd,
    TestInductorOpInfo,
):
    instantiate_device_type_tests(family, globals(), only_for="cpu")
