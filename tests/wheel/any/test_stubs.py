"""The type stubs of the added functions and methods: valid calls are accepted, others are not."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from type_checkers import CHECKERS, complaints, marked_lines

from tests.kit.samples import functional_overload

# Values for arguments without a default, by the schema's type.
VALUES = {
    "Tensor": "x",
    "List[Tensor]": "[x, x]",
    "List[Optional[Tensor]]": "[x, None]",
    "int": "1",
    "SymInt": "1",
    "List[int]": "[1, 1]",
    "List[SymInt]": "[1, 1]",
    "float": "0.5",
    "List[float]": "[0.5]",
    "number": "2",
    "List[number]": "[2]",
    "bool": "True",
    "List[bool]": "[True]",
    "str": '"s"',
    "ScalarType": "torch.float32",
    "Layout": "torch.strided",
    "MemoryFormat": "torch.contiguous_format",
}


def arguments(overload: torch._ops.OpOverload) -> list[str] | None:
    """Return arguments for an overload; None if a value is not available."""
    found = []
    for argument in overload._schema.arguments:
        if argument.has_default_value():
            continue
        # ``argument.type`` is int for all enumerations.
        real = str(argument.real_type)
        kind = real if real in VALUES else str(argument.type)
        value = "None" if kind.startswith("Optional[") else VALUES.get(kind)
        if value is None:
            return None
        found.append(f"{argument.name}={value}" if argument.kwarg_only else value)
    return found


def calls(name: str) -> Iterator[str]:
    """Yield valid and invalid calls of a function or method of torch's."""
    is_method = name.startswith("torch.Tensor.")
    given = arguments(functional_overload(name.rpartition(".")[2]))
    function = name
    if is_method:
        function, given = f"x.{name.removeprefix('torch.Tensor.')}", given and given[1:]
    yield f"{function}  # it is there"
    yield f"{function}(no_such_argument=1)  # error"
    if given is not None:
        yield f"{function}({', '.join(given)})"
    if not is_method:
        yield f"{function}(object())  # error"


def program() -> str:
    names = [
        name
        for name in torch._added_operators.FUNCTIONS
        if not name.rpartition(".")[2].startswith("_") and name.count(".") == (2 if ".Tensor." in name else 1)
    ]
    lines = [line for name in names for line in calls(name)]
    return "\n".join(["import torch", "", "x = torch.ones(2, 3)", *lines, ""])


@pytest.mark.parametrize("checker", CHECKERS)
def test_calls_are_as_the_schema_says(checker: Callable[[str, Path], dict[int, str]], tmp_path: Path) -> None:
    text = program()
    if not marked_lines(text):
        pytest.skip("the folder adds no public function of torch's, and no method")
    assert complaints(text, checker(text, tmp_path)) == []
