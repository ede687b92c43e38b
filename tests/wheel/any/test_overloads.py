"""Every operator, also those that only other operators call, such as backwards: refused dtypes, and opcheck."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_utils import CrossRefFakeMode
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tests.kit.fuzz.judge import attempt
from tests.kit.opinfos import added_op_infos
from tests.kit.samples import tensors_of

ADDED = frozenset(torch._added_operators.OPERATORS)
DTYPES = sorted({each for each in vars(torch).values() if isinstance(each, torch.dtype)}, key=str)
INFOS = [info for info in added_op_infos() if torch.float in info.dtypes]


class Recorded(TorchDispatchMode):
    """Records one call of each overload of the folder."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[torch._ops.OpOverload, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func.name() in ADDED:
            is_pure = not func._schema.is_mutable

            def copied(tensor: Tensor) -> Tensor:
                return tensor.detach().requires_grad_(tensor.requires_grad and is_pure)

            self.calls.setdefault(func, pytree.tree_map_only(Tensor, copied, (args, dict(kwargs or {}))))
        return func(*args, **(kwargs or {}))


def recorded(info: OpInfo, sample: SampleInput) -> Recorded:
    """Return the calls that a sample makes, forward and backward."""
    with Recorded() as calls:
        found = info(sample.input, *sample.args, **sample.kwargs)
        results, given = (
            [each for each in tensors_of(some) if each.requires_grad]
            for some in (found, (sample.input, sample.args, sample.kwargs))
        )
        if results:
            is_twice = info.supports_gradgrad
            ones = [torch.ones_like(each).requires_grad_(is_twice) for each in results]
            torch.autograd.grad(results, given, ones, create_graph=is_twice, allow_unused=True)
    return calls


def converted(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a tensor to a dtype, or make one if there is no conversion. Indices keep their dtype."""
    tensor = tensor.detach()
    if tensor.dtype != torch.float:
        return tensor
    if str(dtype).startswith("torch.q"):
        return torch.quantize_per_tensor(tensor, 1.0, 0, dtype)
    try:
        return tensor.to(dtype)
    except (RuntimeError, NotImplementedError):
        return torch.empty(tensor.shape, dtype=dtype)


@pytest.mark.filterwarnings("ignore")  # PyTorch's, about some of the dtypes
@pytest.mark.parametrize("info", INFOS, ids=[info.name for info in INFOS])
def test_dtype_that_is_not_supported_is_named(info: OpInfo) -> None:
    """For every dtype of PyTorch, it returns a result or raises an error that names the dtype."""
    sample = next(iter(info.sample_inputs("cpu", torch.float, requires_grad=info.supports_autograd)))
    for overload, given in recorded(info, sample).calls.items():
        for dtype in DTYPES:
            try:
                args, kwargs = pytree.tree_map_only(Tensor, lambda t, to=dtype: converted(t, to), given)
            except (RuntimeError, NotImplementedError):  # there are no such tensors
                continue
            attempt(lambda: tensors_of(overload(*args, **kwargs)), large=False)  # noqa: B023


@pytest.mark.parametrize("info", INFOS, ids=[info.name for info in INFOS])
def test_opcheck_of_what_only_operators_call(info: OpInfo) -> None:
    """And fake tensors for all samples: opcheck compares none where an operator is in ``aten``."""
    if info.get_decorators("TestOpcheck", "test_opcheck", "cpu", torch.float, {}):
        pytest.skip("its own opcheck is skipped")
    checked = set()
    for sample in info.sample_inputs("cpu", torch.float, requires_grad=info.supports_autograd):
        for overload, (args, kwargs) in recorded(info, sample).calls.items():
            if overload._schema.name == f"aten::{info.aten_name}":  # which families/test_compilers.py checks
                continue
            with CrossRefFakeMode():
                overload(*args, **kwargs)
            if overload not in checked:
                torch.library.opcheck(overload, args, kwargs)
            checked.add(overload)
