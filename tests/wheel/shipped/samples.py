"""Helpers for the tests of several operators: tensors, and checks of how PyTorch runs an operator."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from helpers import require_capability

HALF = [torch.float16, torch.bfloat16]
REAL = [torch.float32, torch.float64, *HALF]
COMPLEX = [torch.complex64, torch.complex128]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]


def values(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    """Return normally distributed values, or integers from 0 to 99."""
    generator = np.random.default_rng(seed)
    if dtype.is_complex:
        numbers = generator.normal(size=shape) + 1j * generator.normal(size=shape)
    elif dtype.is_floating_point:
        numbers = generator.normal(size=shape)
    else:
        numbers = generator.integers(0, 100, shape)
    # NumPy's strides of empty arrays are zeros.
    return torch.from_numpy(np.asarray(numbers)).to(dtype).clone(memory_format=torch.contiguous_format)


def layouts(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the same values in other memory layouts, by name."""
    wide = torch.empty(*x.shape, 2, dtype=x.dtype)
    wide[..., 0] = x
    found = {"strided": wide[..., 0], "offset": torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)}
    if x.dim() > 1:
        found["transposed"] = x.transpose(0, -1).contiguous().transpose(0, -1)
        found["expanded"] = x[:1].expand_as(x)
    if x.dim() == 4:
        found["channels_last"] = x.to(memory_format=torch.channels_last)
    if x.is_complex():
        found["conjugated"] = x.conj().resolve_conj().conj()
    return found


def assert_exact(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Check for the same shape, dtype and values, including NaN."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def double(shape: tuple[int, ...], dtype: torch.dtype = torch.float64, seed: int = 1) -> torch.Tensor:
    """Return an argument for gradcheck."""
    return values(shape, dtype, seed).requires_grad_()


def check_derivatives(function: Callable[..., object], *inputs: torch.Tensor) -> None:
    """Check reverse, double and forward derivatives, also under vmap, for inputs that samples.py cannot contain."""
    everything = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
    assert torch.autograd.gradcheck(function, inputs, **everything)
    assert torch.autograd.gradgradcheck(function, inputs, check_fwd_over_rev=True, check_batched_grad=True)


def check_third_derivatives(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    """Check third derivatives; PyTorch's families check the first two."""
    weights = [torch.randn_like(x) for x in inputs]

    def second(*inputs: torch.Tensor) -> torch.Tensor:
        outputs = function(*inputs)
        gradients = torch.autograd.grad(outputs.square().sum(), inputs, create_graph=True)
        return sum((g * w).sum() for g, w in zip(gradients, weights, strict=True))

    assert torch.autograd.gradgradcheck(second, inputs)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run the body with this number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def result_and_gradients(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Return a function's result, and the gradients of the sum of its squares."""
    result = function(*inputs)
    wanted = [x for x in inputs if x.requires_grad]
    return [result, *torch.autograd.grad(result.square().sum(), wanted)]


def check_deterministic(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    """Check that a result and its gradients have the same bits each time, with any number of threads."""
    found = []
    for count in (1, 2, 3, 2):
        with threads(count):
            found.append(result_and_gradients(function, *inputs))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert_exact(two, one)


def flops(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> tuple[int, int]:
    """Return the floating-point operations of a call, and of the call with its backward."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        result = function(*inputs)
        forward = counter.get_total_flops()
        result.sum().backward()
        return forward, counter.get_total_flops()


def allocated(function: Callable[..., object], *inputs: torch.Tensor) -> int:
    """Return how many bytes the operators that a call runs allocate and do not free themselves."""
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function(*inputs)
    return sum(max(event.self_cpu_memory_usage, 0) for event in profile.events())


def at_capability(capability: str, program: str) -> None:
    """Run ``program`` with the kernels for ``capability``; skip if the processor lacks it."""
    require_capability(capability)
    names = [capability, "NO AVX"] if capability == "DEFAULT" else [capability]  # its name in older releases
    check = f"import torch\nassert torch.backends.cpu.get_cpu_capability() in {names}\n"
    env = {**os.environ, "ATEN_CPU_CAPABILITY": capability.lower(), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", check + program], env=env, check=True)
