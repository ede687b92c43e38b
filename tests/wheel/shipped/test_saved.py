"""Saved programs with the operators: another process loads them, and a torch without the operators names what is
missing.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.kit.stock import environment

pytestmark = pytest.mark.unsanitized("half of it runs on the stock wheel")

LOAD = """
import json, sys, torch, traceback
folder, found = sys.argv[1], {}
for kind, load in {
    "module": lambda: torch.load(f"{folder}/module", weights_only=False),
    "export": lambda: torch.export.load(f"{folder}/export.pt2").module(),
    "script": lambda: torch.jit.load(f"{folder}/script"),
}.items():
    try:
        found[kind] = load()(torch.ones(3, 4)).sum().item()
    except Exception:
        traceback.print_exc()
print(json.dumps(found))
"""

# PyTorch's message if the operator is missing.
MESSAGES = {
    "module": "AttributeError: module 'torch' has no attribute 'twice_plus'",
    "export": "failed to resolve torch.ops.aten.twice_plus.default",
    "script": "Unknown builtin op: aten::twice_plus",
}


class Model(torch.nn.Module):
    """torch.load imports this module to find the class."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.twice_plus(x, self.weight)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with a file of each kind."""
    torch.save(Model(), tmp_path / "module")
    torch.export.save(torch.export.export(Model(), (torch.ones(3, 4),)), tmp_path / "export.pt2")
    torch.jit.save(torch.jit.script(Model()), tmp_path / "script")
    return tmp_path


def loaded(folder: Path, torch_folder: Path | None) -> tuple[dict[str, float], str]:
    """Load each kind in another process. Return the sum of a result by kind, and what was said about the others."""
    env = environment(torch_folder)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), str(Path(__file__).parent)]))
    command = [sys.executable, "-c", LOAD, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    return json.loads(done.stdout), done.stderr


def test_another_process_loads_it(saved: Path) -> None:
    assert loaded(saved, None)[0] == dict.fromkeys(MESSAGES, 36.0)


def test_torch_without_the_operator_names_it(saved: Path, stock: Path) -> None:
    found, said = loaded(saved, stock)
    assert found == {}
    for message in MESSAGES.values():
        assert message in said, said
