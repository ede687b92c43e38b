"""A case: two ways to compute the same result, which are timed alternately, so that a change of speed hits both.

The peer runs with PyTorch's own kernels, also where the wheel replaces them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import _graft
from torch.utils.benchmark import Measurement, Timer

Side = Callable[[], object]
Function = Callable[..., object]
Make = Callable[[str], tuple[Side, Side]]

# Calls before the first that counts. A large tensor may need new memory until all have their place.
_WARM_UP = 5


@dataclass(frozen=True)
class Case:
    """A comparison.

    Args:
        operator: the operator's name in the table.
        peer: what it is compared with.
        name: sizes, dtype and format.
        step: "forward" or "backward", of models "inference" or "training".
        aim: the required speedup over the peer.
        elements: of the input, for the plot; 0 for models and replaced operators, which the plot leaves out.
        make: creates both sides, ours first; called right before they are measured.
        group: cases of one operator and peer with the same group share a line of the summary.
    """

    operator: str
    peer: str
    name: str
    step: str
    aim: float
    elements: int
    make: Callable[[], tuple[Side, Side]]
    group: str = ""


@dataclass(frozen=True)
class CaseResult:
    """The result of a case.

    Args:
        case: the case.
        threads: the number of threads of both sides.
        ratios: the peer's time divided by ours, in each round.
        measurements: of each side in each round.
    """

    case: Case
    threads: int
    ratios: list[float]
    measurements: list[Measurement]

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def is_missed(self) -> bool:
        """Whether the speedup is below the aim."""
        return self.ratio < self.case.aim


def both_steps(
    operator: str, peer: str, name: str, aim: float, elements: int, make: Make, group: str = ""
) -> Iterator[Case]:
    """Yield the forward and the backward case of an operator."""
    for step in ("forward", "backward"):
        yield Case(operator, peer, name, step, aim, elements, partial(make, step), group)


def compared(step: str, ours: Function, theirs: Function, *inputs: torch.Tensor) -> tuple[Side, Side]:
    """Call both functions without a graph, or compute the gradients of the inputs that require one."""
    detached = [x.detach() for x in inputs]
    wanted = [x for x in inputs if x.requires_grad]
    if step == "forward":
        return lambda: ours(*detached), lambda: theirs(*detached)

    def gradients(function: Function) -> Side:
        output = function(*inputs)
        assert isinstance(output, torch.Tensor)
        grad = torch.ones_like(output)
        return lambda: torch.autograd.grad(output, wanted, grad, retain_graph=True)

    return gradients(ours), gradients(theirs)


def measure(case: Case, threads: int, rounds: int, seconds: float) -> CaseResult:
    """Time ``case`` for about ``seconds`` on each side in each of ``rounds``."""
    torch.set_num_threads(threads)
    sides, kernels = case.make(), (nullcontext, _graft.stock)
    for _ in range(_WARM_UP):
        for side, chosen in zip(sides, kernels, strict=True):
            with chosen():
                side()
    # One thread's processor time is reliable on a shared machine. With several threads it would exclude waiting.
    clock = time.process_time if threads == 1 else time.perf_counter
    title = {"label": f"{case.operator} and {case.peer}", "sub_label": f"{case.name}, {case.step}"}
    timers = [
        Timer("side()", timer=clock, globals={"side": side}, num_threads=threads, description=name, **title)
        for side, name in zip(sides, ("ours", "peer"), strict=True)
    ]
    measured = []
    for timer, chosen in [*zip(timers, kernels, strict=True)] * rounds:
        with chosen():
            measured.append(timer.blocked_autorange(min_run_time=seconds))
    ratios = [peer.median / our.median for our, peer in zip(measured[::2], measured[1::2], strict=True)]
    return CaseResult(case, threads, ratios, measured)
