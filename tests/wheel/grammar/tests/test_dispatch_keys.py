"""Kernels by dispatch key, and code by CPU capability."""

import os
import subprocess
import sys
from operator import attrgetter

import pytest
import torch
from helpers import require_capability
from support import aten, check_gradients, real


def test_a_kernel_for_each_backend() -> None:
    x = torch.eye(3)
    assert torch.gr_backend(x) == 1
    assert x.to_sparse().gr_backend() == 2
    assert x.to_sparse_csr().gr_backend() == 3
    assert torch.nested.nested_tensor([x, x[:2]]).gr_backend() == 6
    assert torch.quantize_per_tensor(x, 1, 0, torch.qint8).gr_backend() == 5
    assert torch._efficientzerotensor(3).gr_backend() == 7
    assert torch.gr_backend(x.to("meta")).is_meta


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this processor or wheel has no oneDNN")
def test_a_kernel_for_onednn() -> None:
    assert torch.eye(3).to_mkldnn().gr_backend() == 4


def test_one_kernel_for_two_keys() -> None:
    x = torch.ones(2, 3).t()
    assert torch.gr_strided(x).stride() == (1, 3)
    assert torch.gr_strided(x.to("meta")).stride() == (1, 3)
    for key in ("CPU", "Meta"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::gr_strided", key)


def test_composite_kernels() -> None:
    x = torch.ones(2)
    assert torch.gr_new_storage(x).tolist() == [1, 1]
    assert torch.gr_nested_or_not(x).tolist() == [2, 2]
    nested = torch.nested.nested_tensor([x, torch.ones(1)])
    assert torch.gr_nested_or_not(nested).unbind()[1].tolist() == [3]
    table = torch._C._dispatch_dump
    assert "CompositeImplicitAutograd[alias]" in table("aten::gr_is_square")
    assert "CompositeImplicitAutogradNestedTensor[alias]" in table("aten::gr_nested_or_not")
    assert "CompositeExplicitAutogradNonFunctional[alias]" in table("aten::gr_new_storage")
    assert "CompositeExplicitAutograd[alias]" in table("aten::gr_square")


def test_a_kernel_in_a_namespace_of_its_own() -> None:
    assert torch.gr_elsewhere(torch.zeros(1)) == 8


def test_a_kernel_that_calls_a_function_the_base_hides() -> None:
    x = torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(1, 2)])
    assert [part.unique().tolist() for part in torch.gr_nested_sum(x, x).unbind()] == [[2], [2]]


def test_a_formula_for_each_autograd_key() -> None:
    check_gradients(torch.gr_by_key, real(3))
    x = torch.ones(2, requires_grad=True)
    nested = torch.nested.as_nested_tensor([x, x])
    torch.gr_by_key(nested).to_padded_tensor(0).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [10, 10]


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("gr_mix.default", {"core", "pointwise"}),
        ("gr_row_sum.default", {"reduction"}),
        ("gr_nonzero_values.default", {"dynamic_output_shape"}),
        ("gr_count.default", {"data_dependent_output"}),
        ("gr_strided.default", {"needs_exact_strides", "nondeterministic_bitwise", "cudagraph_unsafe"}),
        ("gr_cube.out", {"generated"}),
    ],
)
def test_tags(name: str, tags: set[str]) -> None:
    found = {tag.name for tag in attrgetter(name)(aten).tags}
    assert tags <= found
    assert "pt2_compliant_tag" in found


@pytest.mark.parametrize(("capability", "told"), [("default", 0), ("avx2", 2), ("avx512", 512)])
def test_code_compiled_for_a_capability_runs(capability: str, told: int) -> None:
    require_capability(capability)
    program = "import torch; print(torch.ones(1).gr_capability())"
    env = {**os.environ, "ATEN_CPU_CAPABILITY": capability}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert int(done.stdout) == told


def test_the_code_compiled_for_this_processor_runs() -> None:
    told = {"DEFAULT": 0, "NO AVX": 0, "AVX2": 2, "AVX512": 512, "SVE128": 128, "SVE256": 256}
    assert torch.ones(1).gr_capability() == told[torch.backends.cpu.get_cpu_capability()]


@pytest.mark.parametrize("threads", [1, 2])
def test_functions_in_a_namespace_of_their_own_in_parallel(threads: int) -> None:
    """Functions of a library, parallel by OpenMP and by ATen."""
    x, before = torch.randn(301, 7), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        rows, columns = torch.gr_row_range(x), torch.gr_column_range(x)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(rows, x.amax(1) - x.amin(1), rtol=0, atol=0)
    torch.testing.assert_close(columns, x.amax(0) - x.amin(0), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("operator", "is_on", "records"), [("gr_modes", 1, 0), ("gr_modes_without_grad", 0, 0), ("gr_modes_composed", 1, 1)]
)
def test_grad_mode_in_kernels(operator: str, is_on: int, records: int) -> None:
    """A kernel of a dispatch key is below autograd, in the grad mode of its caller."""
    x = torch.ones(3, requires_grad=True)
    function = getattr(torch, operator)
    result = function(x)
    assert result.tolist() == [is_on, records]
    assert result.requires_grad == (operator != "gr_modes_composed"), "by the formula"
    with torch.no_grad():
        assert function(x).tolist() == [0, 0]
