"""The JSON Schemas for editors: they are what the tables of check say, and they accept and refuse as check does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from corpus import BROKEN, RIGHT, files_of
from graft.adopt.forwards import files_of as adopted_files
from graft.adopt.plan import Adopted, Operator
from graft.adopt.schema import read_schema
from graft.core.layout import REPOSITORY
from graft.deliver.editor import SCHEMAS, schema_line
from graft.inputs.merge import PACKAGED
from graft.inputs.native import AUTOCAST, DERIVATIVES, FUNCTIONS
from graft.inputs.pyproject import tomllib

from tests.kit.json_schemas import schemas

YAML = tuple(map(str, (FUNCTIONS, DERIVATIVES, AUTOCAST)))

# The mistakes that concern the form of an entry.
STRUCTURAL = {
    *("key-missing", "unknown-key", "unknown-dispatch-key", "unknown-value", "invalid-yaml", "invalid-entry"),
    *("dispatch-form", "autocast-policy", "schema-syntax"),
}
# Those of them that a schema cannot see: other entries say what is wrong, a parser of YAML has dropped it, or it is in
# the schema of an operator.
UNSEEN = {
    "a policy for an operator that mutates",
    "a key given twice",
    "one dispatch key named twice",
    "a dispatch table that PyTorch's entry does not have",
    "an argument without a name",
}


def faults(name: str, value: Any) -> list[str]:
    """Return what the schema of a file refuses in a value."""
    schema = json.loads((SCHEMAS / f"{Path(name).stem}.json").read_text())
    return [each.message for each in jsonschema.Draft7Validator(schema).iter_errors(value)]


def test_schemas_are_those_of_the_tables(base: Path) -> None:
    """Another release of PyTorch may have other tags and dispatch keys."""
    made = schemas(base)
    assert made.keys() == {path.name for path in SCHEMAS.iterdir()}
    for name, text in made.items():
        there = json.loads((SCHEMAS / name).read_text())
        jsonschema.Draft7Validator.check_schema(there)
        if name == "native_functions.json":
            ours, theirs = there["items"]["properties"], json.loads(text)["items"]["properties"]
            assert ours.keys() == theirs.keys()
            assert {*theirs["tags"]["anyOf"][0]["enum"]} <= {*ours["tags"]["anyOf"][0]["enum"]}
        else:
            assert there == json.loads(text)


def test_pytorch_s_own_files_are_accepted(base: Path) -> None:
    for name in (FUNCTIONS, DERIVATIVES):
        assert faults(str(name), yaml.safe_load((base / PACKAGED[name] / name).read_text())) == []


def folders() -> Iterator[Path]:
    for top in ("native", "tests"):
        yield from (path for name in YAML for path in (REPOSITORY / top).rglob(name) if "broken" not in path.parts)


@pytest.mark.parametrize("file", [*folders()], ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_folders_are_accepted(file: Path) -> None:
    assert faults(file.name, yaml.safe_load(file.read_text())) == []


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case["right"])
def test_what_check_accepts_is_accepted(case: dict[str, Any]) -> None:
    for name, text in files_of(case).items():
        if name in YAML:
            assert faults(name, yaml.safe_load(text)) == []


def is_yaml(text: str) -> bool:
    try:
        yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return False
    return True


def structural() -> Iterator[tuple[str, str, str]]:
    """Yield the mistakes in the form of entries that a parser of YAML does not report: name, file and text."""
    for case in BROKEN:
        file = str(case.get("expect", "")).partition(":")[0]
        if case.get("code") in STRUCTURAL and file in YAML and is_yaml(case[file]):
            yield case["mistake"], file, case[file]


@pytest.mark.parametrize(("mistake", "file", "text"), [*structural()])
def test_structural_mistakes_are_refused(mistake: str, file: str, text: str) -> None:
    assert bool(faults(file, yaml.safe_load(text))) == (mistake not in UNSEEN)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("adopt", 'source = ["../theirs"]'),
        ("adopt", "only = 'f'"),
        ("adopt", 'writes = {f = "out"}'),
        ("adopt", "sources = ''"),
        ("pyproject", "[tool.graft]\nnatives = 'native'"),
        ("pyproject", "[tool.graft]\ncpu-flags = '-mavx2'"),
        ("pyproject", "[[tool.graft.extensions]]\nsources = 'x.cpp'"),
        ("pyproject", "[[tool.graft.extensions]]\nname = ['x']"),
    ],
)
def test_mistakes_in_toml_are_refused(name: str, text: str) -> None:
    assert faults(f"{name}.toml", tomllib.loads(text))


def test_settings_of_projects_are_accepted() -> None:
    text = """
[project]
name = "my-ops"
[tool.graft]
native = ["native", "other"]
cpu-flags = {"csrc/dot.cc" = "-mavx512bf16"}
packages = {their_package = "../their_tree/their_package"}
[[tool.graft.extensions]]
name = "their_package._C"
sources = ["../their_tree/csrc/**/*.cpp"]
"""
    assert faults("pyproject.toml", tomllib.loads(text)) == []
    assert faults("adopt.toml", tomllib.loads('source = ""\nwrites = {f = ["out"], "*" = []}\nprefix = true')) == []


def test_first_line_names_the_schema_that_editor_links() -> None:
    assert schema_line("native_functions.yaml").endswith("$schema=.graft/native_functions.json\n")
    assert {f"{Path(name).stem}.json" for name in YAML} < {path.name for path in SCHEMAS.iterdir()}


def test_first_line_of_adopted_entries_names_the_schema() -> None:
    names = ("their::f", "", "their::f(Tensor x) -> Tensor", ("CPU", "Autograd"), "at::Tensor (at::Tensor const&)")
    schema = read_schema("f(Tensor x) -> Tensor")
    adopted = Adopted(Operator(*names, "FROM_SCHEMA", (), 0), schema, ("x",), own=("CPU",))
    texts = adopted_files([adopted], ["their"], [], "")
    for name in ("native_functions.yaml", "derivatives.yaml"):
        assert texts[name].startswith(schema_line(name))
