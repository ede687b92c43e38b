"""``make bench-calls``: what a call of a new operator costs, beside one of PyTorch's own.

Run by the Python of an environment that holds the rebuilt wheel of ``native/``. Both sides are timed in one process, in
turn, so that the ratio holds when the machine's speed drifts.
"""

from __future__ import annotations

import statistics

ROUNDS = 11
CALLS = {
    "torch.twice_plus(x, y)": "torch.add(y, x, alpha=2)",
    "x.twice_plus(y)": "y.add(x, alpha=2)",
    "torch.twice_plus(x, y, out=z)": "torch.add(y, x, alpha=2, out=z)",
    "torch.ops.aten.twice_plus(x, y)": "torch.ops.aten.add(y, x, alpha=2)",
}


def main() -> None:
    """Print the ratios for one element, and for sizes up to 64 Mi elements with ``out=``."""
    import torch
    from torch.utils.benchmark import Timer

    def ratios(ours: str, theirs: str, names: dict[str, object]) -> list[float]:
        timers = [Timer(statement, globals={"torch": torch, **names}) for statement in (ours, theirs)]
        found = []
        for _ in range(ROUNDS):
            first, second = (timer.blocked_autorange(min_run_time=0.1).median for timer in timers)
            found.append(first / second)
        return found

    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; time over that of torch.add(alpha=2)")
    print(f"{'call':36} {'elements':>10}  median  least  most")
    names = {name: torch.ones(1) for name in "xyz"}
    for ours, theirs in CALLS.items():
        _report(ours, 1, ratios(ours, theirs, names))
    ours, theirs = list(CALLS.items())[2]
    for exponent in range(4, 27, 2):
        names = {name: torch.ones(2**exponent) for name in "xyz"}
        _report(ours, 2**exponent, ratios(ours, theirs, names))


def _report(call: str, elements: int, found: list[float]) -> None:
    print(f"{call:36} {elements:>10}  {statistics.median(found):6.2f} {min(found):6.2f} {max(found):5.2f}", flush=True)


if __name__ == "__main__":
    main()
