"""Run a program in two processes, the ranks of one gloo process group."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

NEEDS_TWO_RANKS = [
    pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch is built without torch.distributed"),
    pytest.mark.unsanitized("two processes at once, with twice the memory of a sanitized one"),
]

_PREAMBLE = """
import os
import sys
import torch
import torch.distributed as dist

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
torch.manual_seed(0)
"""

# Python is not finalized: a thread of gloo may still hold the last tensor, and releasing it would then need the GIL and
# end the process in std::terminate (see upstream's pull request 179291).
_END = """
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)
"""


def run_on_two_ranks(program: str, folder: Path) -> None:
    """Run ``program`` with ``torch``, ``dist`` and ``rank`` defined. It can import what tests can."""
    (folder / "program.py").write_text(f"{_PREAMBLE}{program}{_END}")
    command = [sys.executable, str(folder / "program.py")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(folder / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
