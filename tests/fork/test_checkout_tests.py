"""PyTorch's own tests of the operators that a checkout changes."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.checkout.tests import opinfo_names
from helpers import write

_INTERNAL = "torch/testing/_internal"
_OPINFOS = {
    f"{_INTERNAL}/common_methods_invocations.py": """op_db = [
    UnaryUfuncInfo('sinc', ref=f),
    OpInfo("nn.functional.gelu", aten_name="gelu"),
    OpInfo('cross'),
]
""",
    f"{_INTERNAL}/opinfo/definitions/linalg.py": """op_db = [OpInfo(
    "linalg.cross",
)]
""",
}


@pytest.mark.parametrize(
    ("operator", "names"),
    [
        ("sinc.out", ["sinc"]),
        ("gelu_backward.grad_input", ["gelu"]),
        ("linalg_cross", ["linalg_cross"]),
        ("cross", ["cross"]),
        ("_cross", ["cross"]),
        ("functional", []),
    ],
)
def test_names_of_opinfos(tmp_path: Path, operator: str, names: list[str]) -> None:
    assert opinfo_names(write(tmp_path, _OPINFOS), [operator]) == names
