"""``python -m tests.kit.fuzz.worker FIRST``: run one seed after another, starting with FIRST, until terminated.

Each line on stdout is a JSON list: ``["begin", seed, call]`` before a call, ``["large", seed]`` if it may need too much
memory or time, ``["end", seed, operator, kind, text]`` after it. So the last call before a crash is known.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import sys
import warnings
from pathlib import Path

import torch

from .calls import call_of
from .corpus import overloads, right_calls
from .judge import is_large, judge, written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("--step", type=int, default=1, help="from one seed to the next")
    parser.add_argument("--memory", type=int, default=0, help="address space in MB, in addition to what is in use")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    added, right = overloads(), right_calls()
    print(json.dumps(["ready", len(added), sum(bool(right.get(str(o.name()))) for o in added)]), flush=True)
    if options.memory:
        limit_memory(options.memory << 20)
    for seed in itertools.count(options.first, options.step):
        overload, call = call_of(seed, added, right)
        torch.manual_seed(seed)
        torch.set_num_threads(1 + seed % 2)
        say("begin", seed, written(overload, call))
        large = is_large(overload, call)
        if large:
            say("large", seed)
        outcome = judge(overload, call, large)
        say("end", seed, str(overload.name()), outcome.kind, outcome.text)


def say(*values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def limit_memory(more: int) -> None:
    """Make allocations fail that need more than ``more`` in addition to the memory in use."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
