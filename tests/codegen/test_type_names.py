"""Types of C++ and Python in schemas: what to write instead."""

from __future__ import annotations

import pytest
from graft.check.base import BaseOperators
from graft.check.type_names import foreign, of_schema
from graft.inputs.spelling import respelled


@pytest.mark.parametrize(
    ("written", "schema"),
    [
        ("double", "float"),
        ("int64_t", "int"),
        ("size_t", "int"),
        ("unsigned long", "int"),
        ("boolean", "bool"),
        ("std::string", "str"),
        ("c10::string_view", "str"),
        ("const std::string&", "str"),
        ("const char*", "str"),
        ("const at::Tensor&", "Tensor"),
        ("torch.Tensor", "Tensor"),
        ("torch::Tensor", "Tensor"),
        ("torch.Tensor?", "Tensor?"),
        ("at::Tensor(a!)[]", "Tensor(a!)[]"),
        ("std::vector<int64_t>", "int[]"),
        ("at::ArrayRef<double>", "float[]"),
        ("IntArrayRef", "int[]"),
        ("at::OptionalIntArrayRef", "int[]?"),
        ("TensorList", "Tensor[]"),
        ("std::array<bool, 2>", "bool[2]"),
        ("std::optional<std::vector<double>>", "float[]?"),
        ("List[Tensor]", "Tensor[]"),
        ("Sequence[int]", "int[]"),
        ("tuple[int, ...]", "int[]"),
        ("Optional[torch.Tensor]", "Tensor?"),
        ("list[int] | None", "int[]?"),
        ("torch.dtype", "ScalarType"),
        ("number", "Scalar"),
        ("Dict[str, int]", ""),
        ("Foo", ""),
        ("List[Foo]", ""),
    ],
)
def test_type_has_a_name_in_schemas(written: str, schema: str) -> None:
    assert of_schema(written) == schema


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("self: Tensor, x: Optional[Tensor] = None", ["Tensor self", "Tensor? x=None"]),
        ("Tensor self, *, str mode='a: double b'", []),
        ("Tensor self, std::array<bool,2> mask, double eps=1e-5", ["bool[2] mask", "float eps=1e-5"]),
        ("Tensor(a!) self, Foo x", []),
    ],
)
def test_arguments_are_written_as_schemas_do(schema: str, said: list[str]) -> None:
    assert [right for _, _, right in foreign(respelled(f"f({schema}) -> Tensor"))] == said


@pytest.mark.parametrize(
    ("written", "schema"),
    [
        ("void", "()"),
        ("at::Tensor", "Tensor"),
        ("List[Tensor]", "Tensor[]"),
        ("std::tuple<Tensor, Tensor>", "(Tensor, Tensor)"),
        ("Tuple[Tensor, float]", "(Tensor, float)"),
        ("(double, Tensor)", "(float, Tensor)"),
    ],
)
def test_result_is_written_as_schemas_do(written: str, schema: str) -> None:
    assert [*foreign(f"f(Tensor self) -> {written}")] == [("result", written, schema)]


def test_schemas_of_pytorch_are_written_right(known: BaseOperators) -> None:
    assert [name for name, schema in known.schemas.items() if [*foreign(schema)]] == []
    assert len(known.schemas) > 2000
