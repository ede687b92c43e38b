"""Saved programs with the operators: another process loads them, and a torch without the operators names what is
missing.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.kit.stock import environment

pytestmark = pytest.mark.unsanitized("half of it runs on the stock wheel")

LOADERS = {
    "module": "torch.load(path, weights_only=False)",
    "export": "torch.export.load(path).module()",
    "script": "torch.jit.load(path)",
}

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
    """A folder with a file for each loader."""
    x = torch.ones(3, 4)
    torch.save(Model(), tmp_path / "module")
    torch.export.save(torch.export.export(Model(), (x,)), tmp_path / "export.pt2")
    torch.jit.save(torch.jit.script(Model()), tmp_path / "script")
    return tmp_path


def load(kind: str, folder: Path, torch_folder: Path | None) -> subprocess.CompletedProcess[str]:
    path = next(folder.glob(f"{kind}*"))
    program = f"import torch\npath = {str(path)!r}\nprint({LOADERS[kind]}(torch.ones(3, 4)).sum().item())\n"
    env = environment(torch_folder)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), str(Path(__file__).parent)]))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize("kind", LOADERS)
def test_another_process_loads_it(kind: str, saved: Path) -> None:
    done = load(kind, saved, None)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "36.0"


@pytest.mark.parametrize("kind", LOADERS)
def test_torch_without_the_operator_names_it(kind: str, saved: Path, stock: Path) -> None:
    done = load(kind, saved, stock)
    assert done.returncode != 0
    assert MESSAGES[kind] in done.stderr, done.stderr
