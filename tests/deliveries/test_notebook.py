"""A notebook of ten cells in a kernel with the official torch: ``%%graft``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from sessions import stock_variables
from snippets import REPOSITORY, Snippet, documents, snippets_of

FIRST = """
%load_ext graft
import torch
"""

CLIP = """
%%graft "soft_clip(Tensor self, Scalar limit=1) -> Tensor"
// self: grad * (1 - (result / limit).pow(2))

Tensor soft_clip(const Tensor& self, const Scalar& limit) {
  return self.div(limit).tanh().mul(limit);
}
"""

MODEL = """
class Clip(torch.nn.Module):
    def forward(self, x):
        return torch.soft_clip(x, 2)

def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(data).mean(1) - target).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

torch.set_num_threads(1)
torch.manual_seed(0)
data, losses = torch.randn(32, 4), []
target = data.mean(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), Clip(), torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(5)
"""

EDITED = (
    CLIP.replace("pow(2))", "pow(2)) * 3")
    .replace("mul(limit);", "mul(limit).mul(3);")
    .replace("result / limit", "result / (3 * limit.toDouble())")
)

GOES_ON = """
before = losses[-1]
train(40)
x = torch.randn(5, dtype=torch.double, requires_grad=True)
[losses[-1] < before, torch.autograd.gradcheck(torch.soft_clip, x),
 torch.equal(torch.soft_clip(x), 3 * torch.tanh(x))]
"""

REPLACED = """
%%graft --name traces
/* yaml
- func: trace(Tensor self) -> Tensor
  replace: True
  dispatch:
    CPU: own_trace

- func: trace_twice(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutograd: trace_twice
*/
Tensor own_trace(const Tensor& self) {
  return self.diagonal().sum().mul(2);
}

Tensor trace_twice(const Tensor& self) {
  return self.diagonal().sum().mul(4);
}
"""

STOCK = """
from torch import _graft
ours = torch.trace(torch.eye(3)).item()
with _graft.stock():
    stock = torch.trace(torch.eye(3)).item()
[ours, stock, torch.trace_twice(torch.eye(3)).item()]
"""

# The mistake is in the seventh line.
WRONG = """
%%graft "soft_clip(Tensor self, Scalar limit=1) -> Tensor"
// self: grad * (1 - (result / limit).pow(2))

Tensor soft_clip(const Tensor& self, const Scalar& limit) {
  // Clips.
  const auto scaled = self.div(limit);
  return scaled.tanh().mul(limt);
}
"""

STAYS = "torch.equal(torch.soft_clip(x), 3 * torch.tanh(x))"

SAVED = """
sorted(path.name for path in Out[4].save("my_ops").iterdir())
"""

CELLS = [FIRST, CLIP, MODEL, EDITED, GOES_ON, REPLACED, STOCK, WRONG, STAYS, SAVED]


class Notebook:
    """A notebook and its kernel.

    Args:
        folder: the folder of the notebook, in which the kernel runs.
        cells: the texts of its cells.
    """

    def __init__(self, folder: Path, cells: list[str]) -> None:
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        self.cells: list[Any] = made.cells
        self.errors: dict[int, str] = {}
        self.said = folder / "said"
        client = NotebookClient(made, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
        variables = stock_variables(folder, IPYTHONDIR=str(folder / "ipython"), JUPYTER_RUNTIME_DIR=str(folder))
        with self.said.open("w") as file, client.setup_kernel(env=variables, stdout=file, stderr=file):
            for number, cell in enumerate(self.cells, 1):
                try:
                    client.execute_cell(cell, number - 1, execution_count=number)
                except CellExecutionError as error:
                    self.errors[number] = str(error)

    def texts(self, number: int) -> list[str]:
        """Return what a cell shows above its value."""
        shown = [each for each in self.cells[number - 1].outputs if each.output_type != "execute_result"]
        return [
            each.text if each.output_type == "stream" else each.get("data", {}).get("text/plain", "") for each in shown
        ]

    def value(self, number: int) -> str:
        """Return the value of a cell."""
        (shown,) = (each for each in self.cells[number - 1].outputs if each.output_type == "execute_result")
        return str(shown.data["text/plain"])


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Notebook:
    return Notebook(tmp_path_factory.mktemp("notebook"), [cell.strip("\n") for cell in CELLS])


def test_operator_is_edited_while_a_model_trains(notebook: Notebook) -> None:
    assert notebook.value(2) == notebook.value(4) == "<operators of soft_clip: soft_clip>"
    assert notebook.value(5) == "[True, True, True]"


def test_build_is_one_line(notebook: Notebook) -> None:
    assert re.fullmatch(r"soft_clip: built in [\d.]+ s", "\n".join(notebook.texts(4)))
    assert [text for number in (1, 3, 5, 7, 9, 10) for text in notebook.texts(number)] == []


def test_warning_shows_the_line_of_the_cell(notebook: Notebook) -> None:
    # The line of a long build is there before.
    warning, built = sorted(notebook.texts(6), key=lambda text: text.startswith("traces: "))
    assert warning.startswith("cell:8: warning: trace_twice has no entry in derivatives.yaml")
    assert warning.endswith("\n    8 | - func: trace_twice(Tensor self) -> Tensor")
    assert built.startswith("traces: built in")


def test_operator_of_pytorch_is_replaced_outside_stock(notebook: Notebook) -> None:
    assert notebook.value(7) == "[6.0, 3.0, 12.0]"


def test_mistake_is_shown_in_the_cell(notebook: Notebook) -> None:
    assert list(notebook.errors) == [8]
    (error,) = (each for each in notebook.cells[7].outputs if each.output_type == "error")
    assert error.ename == "BuildError"
    shown = "\n".join(error.traceback)
    assert re.search(
        r"^BuildError: cell:7:28: error: .*limt.*\n    7 \|   return scaled.tanh\(\).mul\(limt\);\n      \| {28}\^",
        shown,
    ), shown
    assert "Traceback" not in shown and "/session/" not in shown
    assert notebook.value(9) == "True"


def test_cell_is_saved_as_a_folder(notebook: Notebook) -> None:
    assert notebook.value(10) == "['SoftClip.cpp', 'derivatives.yaml', 'native_functions.yaml']"


def test_nothing_is_written_to_the_kernels_own_stderr(notebook: Notebook) -> None:
    lines = notebook.said.read_text().splitlines()
    assert [line for line in lines if not line.startswith("[IPKernelApp]")] == []


SHOWN: list[Snippet] = [each for path in documents() for each in snippets_of(path) if each.is_cell]


def test_cells_that_pages_show_run(tmp_path: Path) -> None:
    """In one session, as a reader would type them, one page after another."""
    notebook = Notebook(tmp_path, [FIRST, *(each.text for each in SHOWN)])
    assert notebook.errors == {}
    assert SHOWN


@pytest.mark.slow
def test_tutorial_runs_and_its_outputs_are_those_that_are_kept(tmp_path: Path) -> None:
    """Values are the same; times and pictures are there."""
    page = nbformat.read(REPOSITORY / "native/guides/tutorial.ipynb", 4)
    kept = [cell for cell in page.cells if cell.cell_type == "code"]
    notebook = Notebook(tmp_path, [cell.source for cell in kept])
    assert notebook.errors == {}
    assert [values(cell) for cell in kept] == [values(cell) for cell in notebook.cells]
    assert [cell.source for cell in kept[1:] if not cell.outputs] == [
        cell.source for cell in notebook.cells[1:] if not cell.outputs
    ]
    assert sum("image/svg+xml" in each for cell in kept for each in values(cell)) == 2


def values(cell: Any) -> list[dict[str, str]]:
    """Return the values that a cell shows: of a picture, only that it is one."""
    shown = [dict(each.data) for each in cell.outputs if each.output_type == "execute_result"]
    return [{kind: "" if "svg" in kind else text for kind, text in each.items()} for each in shown]


def test_what_is_no_cell_is_refused_at_once(tmp_path: Path) -> None:
    wrong = ["\n\n%%graft --name x\nint a;", "%%graft --nmae x\nint a;"]
    notebook = Notebook(tmp_path, ["%load_ext graft", *wrong, "%unload_ext graft", wrong[0]])
    assert list(notebook.errors) == [2, 3, 5]
    assert "\nUsageError: cell:3: there is no schema\n    3 | %%graft --name x\n" in notebook.errors[2]
    assert "\nUsageError: %%graft: --nmae is no option" in notebook.errors[3]
    assert "`%%graft` not found" in notebook.errors[5] + str(notebook.texts(5))
