"""Schemas in the spelling of ``m.def`` become those that torchgen takes; torchgen's own stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.inputs.entries import read_entries
from graft.inputs.merge import added_list
from graft.inputs.native import load_native
from graft.inputs.spelling import respelled
from helpers import of_the_base_wheel, write


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("f(Tensor[]a, Tensor?b, int[2]c) -> Tensor", "f(Tensor[] a, Tensor? b, int[2] c) -> Tensor"),
        ("f(Tensor y, int? max = None) -> Tensor", "f(Tensor y, int? max=None) -> Tensor"),
        ("f(Tensor a,Tensor b)->Tensor", "f(Tensor a, Tensor b) -> Tensor"),
        ("  f (Tensor a,  Tensor b ) ->  Tensor", "f(Tensor a, Tensor b) -> Tensor"),
        ("f(Tensor a, Tensor b,) -> Tensor", "f(Tensor a, Tensor b) -> Tensor"),
        ("f(Tensor! x, Tensor![] y, Tensor!? z) -> ()", "f(Tensor(a!) x, Tensor(b!)[] y, Tensor(c!)? z) -> ()"),
        ("f(Tensor(a!) x, Tensor! y) -> ()", "f(Tensor(a!) x, Tensor(b!) y) -> ()"),
        ("f(Tensor a, int[2] s=[0, 1]) -> Tensor", "f(Tensor a, int[2] s=[0,1]) -> Tensor"),
        ("f(Tensor a) -> (Tensor[])", "f(Tensor a) -> Tensor[]"),
        ("f(Tensor(a!) a) -> (Tensor(a!))", "f(Tensor(a!) a) -> Tensor(a!)"),
        ("f(Tensor a) -> (Tensor, Tensor)", "f(Tensor a) -> (Tensor, Tensor)"),
        ('f(str m="a ,  b!", Tensor x) -> Tensor', 'f(str m="a ,  b!", Tensor x) -> Tensor'),
        ("f( ) -> ( )", "f() -> ()"),
        ("no schema", "no schema"),
    ],
)
def test_spelling(written: str, expected: str) -> None:
    assert respelled(written) == expected
    assert respelled(expected) == expected


def test_pytorch_s_own_schemas_have_it() -> None:
    folder = of_the_base_wheel("GRAFT_BASE") / "tree/torchgen/packaged/ATen/native"
    entries = read_entries(folder / "native_functions.yaml")
    assert len(entries) > 2000
    assert [entry.written for entry in entries if entry.written != entry.schema] == []


def test_both_files_may_spell_it_otherwise_and_the_wheel_has_one(tmp_path: Path) -> None:
    functions = "# mine\n- func: 'f(Tensor self,int n = 3)->Tensor'\n  variants: function\n"
    write(
        tmp_path, {"native_functions.yaml": functions, "derivatives.yaml": "- name: f(Tensor self, int n=3,)->Tensor\n"}
    )
    schema = "f(Tensor self, int n=3) -> Tensor"
    for name in ("native_functions.yaml", "derivatives.yaml"):
        (entry,) = read_entries(tmp_path / name)
        assert entry.schema == schema and entry.operator == "f"
        assert schema in added_list(load_native(tmp_path), Path(name))
    assert added_list(load_native(tmp_path), Path("native_functions.yaml")) == functions.replace(
        "f(Tensor self,int n = 3)->Tensor", schema
    )
