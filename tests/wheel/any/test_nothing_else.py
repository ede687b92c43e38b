"""Nothing of the stock wheel is lost or changed: every schema, dispatch table entry, name and docstring."""

import ast
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from graft.core.layout import native_folders
from graft.inputs.native import load_native
from probe import offer_of

from tests.kit.replaced import replaced
from tests.kit.stock import MODULE, added_in, environment


@pytest.fixture(scope="module")
def theirs(stock: Path) -> dict[str, Any]:
    answer = offer_of(environment(stock))
    assert "graft" not in answer["version"]
    return answer


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    answer = offer_of(environment(None))
    assert answer["version"] == torch.__version__
    return answer


def test_comparison_with_stock_refuses_the_torch_under_test(stock: Path) -> None:
    """The fixture ``stock`` relies on this: a process that chooses no torch has the operators."""
    operators = torch._added_operators.OPERATORS
    assert added_in(operators, environment(None)) == {MODULE, *operators}
    assert added_in(operators, environment(stock)) == set()


def test_no_surface_is_left_out(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    assert theirs.keys() == ours.keys()
    assert len(theirs["schemas"]) > 3000
    assert len(theirs["dispatch tables"]) > 3000
    assert len(theirs["names of torch"]) > 1000
    assert len(theirs["names of Tensor"]) > 500


def test_everything_of_the_stock_wheel_is_there_unchanged(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    for surface in theirs.keys() - {"version"}:
        changed = {key for key, value in theirs[surface].items() if ours[surface].get(key) != value}
        # The dispatch tables of replaced operators name the header that registers the kernels.
        changed -= {key for key in changed if "graft_replaced.h" in str(ours[surface].get(key))}
        # torch.torch_version etc. contain the version itself.
        assert changed - {"__version__"} == set(), surface


def test_what_was_added_is_new(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    natives = [load_native(folder) for folder in native_folders(os.environ["GRAFT_NATIVE"])]
    python = [name for native in natives for name in (*native.python, *native.overlay)]
    assert ours["schemas"].keys() - theirs["schemas"].keys() or replaced() or python


STUBS = ["torch/_C/__init__.pyi", "torch/_C/_VariableFunctions.pyi", "torch/_C/_nn.pyi", "torch/return_types.pyi"]


@pytest.mark.parametrize("name", STUBS)
def test_stubs_only_gain_definitions(stock: Path, name: str) -> None:
    def definitions(root: Path) -> list[str]:
        found = []
        for node in ast.walk(ast.parse((root / name).read_text())):
            if isinstance(node, ast.FunctionDef):
                node.decorator_list = [d for d in node.decorator_list if ast.unparse(d) != "overload"]
                found.append(ast.unparse(node))
        return found

    lost = set(definitions(stock)) - set(definitions(Path(torch.__file__).parent.parent))
    assert lost == set()
