"""Threads that call operators at the same time: kernels, formulas and bindings share no state by accident."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from opinfos import OPERATORS, QUIET, called, gradients, tensors_of
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

pytestmark = QUIET

THREADS, ROUNDS = 8, 3

Call = tuple[OpInfo, SampleInput]


def calls() -> list[Call]:
    """Return each operator with each of its samples."""
    found: list[Call] = []
    for info in OPERATORS:
        is_float = torch.float32 in info.supported_dtypes("cpu")
        dtype = torch.float32 if is_float else next(iter(info.supported_dtypes("cpu")))
        samples = info.sample_inputs("cpu", dtype, requires_grad=info.supports_autograd and is_float)
        found += [(info, sample) for sample in samples]
    return found


def results(call: Call) -> list[Tensor | None]:
    """Return the results of a call, and the gradients of its inputs."""
    info, given = call
    sample = given.transform(lambda x: x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x)
    found = tensors_of(called(info, sample))
    return [*(x.detach() for x in found), *gradients(found, (sample.input, sample.args, sample.kwargs))]


def test_threads_get_the_results_of_one() -> None:
    """Each thread begins with another call, so that different operators run forward and backward at the same time."""
    every = calls()
    expected = [results(call) for call in every]
    start = threading.Barrier(THREADS)

    def work(number: int) -> None:
        start.wait()
        first = number * len(every) // THREADS
        for place in (*range(first, len(every)), *range(first)) * ROUNDS:
            found = results(every[place])
            torch.testing.assert_close(found, expected[place], rtol=0, atol=0, equal_nan=True)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
