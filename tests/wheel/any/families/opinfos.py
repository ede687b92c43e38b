"""The operators that PyTorch's families of tests run on, and helpers of these families.

The wheel contains ``torch.testing._internal``, but not the files in PyTorch's ``test/``. The properties are those of
test_ops.py, test_ops_gradients.py, test_ops_fwd_gradients.py, test_ops_jit.py, test_meta.py, test_proxy_tensor.py,
test_schema_check.py, functorch's test_vmap.py and test_aotdispatch.py, and inductor's test_torchinductor_opinfo.py.
``GRAFT_OPERATORS`` names other operators to test, separated by commas.
"""

import os
import unittest
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from tests.kit.opinfos import added_op_infos

QUIET = [
    # Code that reads all attributes of a tensor reads this one, too.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    # Inductor warns about every operator that returns a complex tensor, including PyTorch's own.
    pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex operators"),
]


def wanted_names() -> list[str]:
    if names := os.environ.get("GRAFT_OPERATORS"):
        return names.split(",")
    return list(torch._added_operators.PUBLIC)


def each_of(infos: list[OpInfo], **options: Any) -> Callable[..., Any]:
    """PyTorch's ``ops``, which rejects an empty list; in that case the test is skipped."""
    return ops(infos, **options) if infos else unittest.skip("the folder adds no such operator")


ADDED = added_op_infos()
OPERATORS = [info for info in op_db if info.name in wanted_names()]
if not OPERATORS:
    pytest.skip("no function of the folder has an OpInfo; test_samples.py says why", allow_module_level=True)

# References of PyTorch's own operators have other signatures.
REFERENCED = [info for info in OPERATORS if any(info is each for each in ADDED) and info.ref]
DIFFERENTIABLE = [info for info in OPERATORS if info.supports_autograd]
TWICE_DIFFERENTIABLE = [info for info in DIFFERENTIABLE if info.supports_gradgrad]
FLOATING = (torch.double, torch.cdouble)
in_one = each_of(OPERATORS, dtypes=OpDTypes.any_one, allowed_dtypes=(torch.float32, torch.int64))
differentiable = each_of(DIFFERENTIABLE, dtypes=OpDTypes.supported_backward, allowed_dtypes=FLOATING)


def called(op: Callable[..., Any], sample: SampleInput) -> Any:
    return op(sample.input, *sample.args, **sample.kwargs)


def tensors_of(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def gradients(results: Any, given: Any) -> tuple[Tensor | None, ...]:
    """Return the gradients of the tensors among arguments; none if no result has one."""
    wanted = [x for x in tensors_of(given) if x.requires_grad]
    outputs = [x for x in tensors_of(results) if x.requires_grad]
    ones = [torch.ones_like(x) for x in outputs]
    return torch.autograd.grad(outputs, wanted, ones, allow_unused=True) if outputs else ()


def instantiate(scope: dict[str, Any], *families: type[TestCase]) -> None:
    """Define a test for each property, operator and dtype in a module's ``scope``."""
    for family in families:
        instantiate_device_type_tests(family, scope, only_for="cpu")
