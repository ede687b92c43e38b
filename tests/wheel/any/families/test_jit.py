"""TorchScript: test_ops_jit.py."""

import torch
from opinfos import QUIET, in_one, instantiate
from torch.testing._internal import common_utils
from torch.testing._internal.common_jit import JitCommonTestCase, check_against_reference
from torch.testing._internal.jit_metaprogramming_utils import check_alias_annotation, create_script_fn, create_traced_fn
from torch.testing._internal.opinfo.core import OpInfo

pytestmark = QUIET

# Set by the command line of PyTorch's own test files.
common_utils.GRAPH_EXECUTOR = common_utils.GRAPH_EXECUTOR or common_utils.cppProfilingFlagsToProfilingMode()


class TestJit(JitCommonTestCase):
    @in_one
    def test_script_and_trace(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        is_differentiable = op.supports_autograd and dtype.is_floating_point
        for sample in op.sample_inputs(device, dtype, requires_grad=is_differentiable):
            variants = {"function": op.get_op(), "method": op.get_method()}
            for kind, variant in variants.items():
                if variant is None:
                    continue
                name, called = (op.name, "functional") if kind == "function" else (variant.__name__, kind)
                forms = [create_traced_fn(self, variant)] if op.supports_tracing else []
                forms += [create_script_fn(self, name, called)] if op.supports_scripting else []
                for form in forms:
                    check_against_reference(
                        self,
                        form,
                        op.get_op(),
                        lambda value: value,
                        (sample.input, *sample.args),
                        sample.kwargs,
                        no_grad=not is_differentiable,
                        no_gradgrad=not (is_differentiable and op.supports_gradgrad),
                    )

    @in_one
    def test_alias_annotation(self, device: str, dtype: torch.dtype, op: OpInfo) -> None:
        for sample in op.sample_inputs(device, dtype):
            check_alias_annotation(
                op.name, (sample.input, *sample.args), sample.kwargs, aten_name=op.aten_name, func_type="functional"
            )


instantiate(globals(), TestJit)
