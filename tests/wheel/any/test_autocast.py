"""Under autocast an operator with a policy gets its arguments in one dtype, as in the folder's autocast.yaml."""

import os

import pytest
import torch
import yaml
from graft.core.layout import native_folders
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree

from tests.kit.opinfos import added_op_infos
from tests.kit.samples import tensors_of

FILES = [folder / "autocast.yaml" for folder in native_folders(os.environ["GRAFT_NATIVE"])]
LISTS: list[dict[str, list[str]]] = [yaml.safe_load(file.read_text()) or {} for file in FILES if file.is_file()]
POLICIES = {name: policy for lists in LISTS for policy, names in lists.items() for name in names}
INFOS = {info.aten_name: info for info in added_op_infos()}


def test_policies_are_registered() -> None:
    for name in torch._added_operators.OPERATORS:
        if name.startswith("aten::") and name.removeprefix("aten::") in POLICIES:
            for key in ("AutocastCPU", "AutocastCUDA"):
                assert torch._C._dispatch_has_kernel_for_dispatch_key(name, key), (name, key)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.half])
@pytest.mark.parametrize("name", [name for name in POLICIES if name in INFOS])
def test_arguments_are_cast(name: str, low: torch.dtype) -> None:
    """One argument in the lower precision and the others in float, as between layers; then all in the same dtype.
    Tensors of other types stay.
    """
    op, policy = INFOS[name], POLICIES[name]
    samples = list(op.sample_inputs("cpu", torch.float, requires_grad=op.supports_autograd))
    assert samples
    for sample in samples:
        given = (sample.input.to(low), sample.args, sample.kwargs)
        leaves = [each for each in pytree.tree_leaves(given) if isinstance(each, Tensor) and each.is_floating_point()]
        is_low = policy == "lower_precision_fp" or (policy == "promote" and all(each.dtype == low for each in leaves))
        target = low if is_low else torch.float
        cast = pytree.tree_map_only(Tensor, lambda t, to=target: t.to(to) if t.is_floating_point() else t, given)
        expected = called(op, cast)
        with torch.autocast("cpu", low):
            result = called(op, given)
        torch.testing.assert_close(result, expected, rtol=0, atol=0)
        assert [each.requires_grad for each in tensors_of(result)] == [
            each.requires_grad for each in tensors_of(expected)
        ]


def called(op: OpInfo, given: tuple[Tensor, tuple[object, ...], dict[str, object]]) -> object:
    first, args, kwargs = given
    return op(first, *args, **kwargs)


@pytest.mark.parametrize("name", [name for name in POLICIES if name in INFOS])
def test_double_is_left_alone(name: str) -> None:
    op = INFOS[name]
    if torch.double not in op.dtypes:
        pytest.skip(f"{name} takes no double")
    for sample in op.sample_inputs("cpu", torch.double):
        given = (sample.input, sample.args, sample.kwargs)
        expected = called(op, given)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(called(op, given), expected, rtol=0, atol=0)
