"""Generation, compared with upstream's build: the base wheel's own headers, stubs and lists."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from corpus import noted
from graft.codegen import FRAGMENTS, SOURCES_ARE_THERE, describe, headers
from graft.codegen.__main__ import generate
from graft.codegen.description import NAMESPACES, Namespace
from graft.codegen.lists import is_composite_implicit, viewed_argument
from graft.codegen.operators import Operators
from graft.codegen.output import Output
from graft.compile.header_views import Views
from graft.compose.docs import insert_functions, with_docstring
from graft.core.layout import PACKAGES
from graft.inputs.entries import Entry
from graft.inputs.native import load_natives
from helpers import write
from torchgen.model import FunctionSchema

FUNCTIONS = "torchgen/packaged/ATen/native/native_functions.yaml"
DERIVATIVES = "torchgen/packaged/autograd/derivatives.yaml"


class Watched(headers.WheelOutput):
    """Records what is generated before it is compared with the base's."""

    seen: ClassVar[set[str]] = set()

    def write(self, name: str | Path, text: str) -> None:
        self.seen.add(Path(name).name)
        super().write(name, text)


def test_every_header_of_the_base_is_reproduced(everything: Operators, base: Path, tmp_path: Path) -> None:
    """Generated from the base's YAML, each header equals the wheel's, so the new wheel gets none."""
    wheel = Watched(tmp_path / "wheel", base)
    headers.generate_operator_headers(everything, wheel, Output(tmp_path))
    headers.generate_aten_headers(everything, wheel)
    headers.generate_autograd_headers(everything.every, everything.derivatives.infos, wheel, "torch/include")
    assert wheel.names == set()
    # The headers that were compared at all.
    in_wheel = {path.name for path in (base / "torch/include/ATen/ops").glob("*.h")}
    assert in_wheel - wheel.seen == {"from_blob.h", "tensor.h"}  # handwritten upstream
    assert {"TensorBody.h", "Functions.h", "RedispatchFunctions.h", "ViewFuncs.h", "variable_factories.h"} <= wheel.seen
    assert "aten_interned_strings.h" not in wheel.seen
    assert "enum_tag.h" not in wheel.seen


def parsed_functions(path: Path, class_name: str | None) -> dict[str, list[str]]:
    """Return signatures by function name, without docstrings, comments and layout."""
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    if class_name:
        body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == class_name).body
    found: dict[str, list[str]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            node.body, node.decorator_list = [ast.Expr(ast.Constant(...))], []
            found.setdefault(node.name, []).append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    "namespace", [namespace for namespace in NAMESPACES if namespace.name in ("methods", "torch")], ids=lambda p: p.name
)
def test_stubs_are_those_upstream_generates(everything: Operators, base: Path, namespace: Namespace) -> None:
    """The hints for every operator of the base, compared with the wheel's stub files."""
    theirs = parsed_functions(base / namespace.stub, namespace.stub_class)
    ours = describe.hints(describe.new_signature_groups(everything.new, namespace))
    compared = differing = 0
    for name, texts in ours.items():
        if name in theirs:
            compared += 1
            signatures = sorted(ast.unparse(ast.parse(text)) for text in texts)
            if not set(signatures) <= set(theirs[name]):
                differing += 1
    # Upstream writes about sixty stubs by hand, for example that of add (tools/pyi/gen_python.py, blocklist).
    assert compared > 500
    assert differing / compared < 0.1, f"{differing} of {compared} differ"


def test_stub_insertion_keeps_names_sorted_and_overloads_together() -> None:
    text = '__all__ = [\n    "a",\n    "c",\n]\n\ndef a() -> int: ...\ndef c(x: int) -> int:\n    """doc"""\n    ...\n'
    result = insert_functions(text, None, {"b": ["def b() -> int: ..."], "c": ["def c(x: str) -> int: ..."]})
    assert result == (
        '__all__ = [\n    "a",\n    "b",\n    "c",\n]\n\ndef a() -> int: ...\ndef b() -> int: ...\n'
        '@overload\ndef c(x: int) -> int:\n    """doc"""\n    ...\n@overload\ndef c(x: str) -> int: ...\n'
    )


def test_docstring_that_a_stub_cannot_hold_is_left_out() -> None:
    definitions = ["def f() -> int: ...", "def f(x: int) -> int: ..."]
    for doc in ('Holds """quotes""".', "ends in \\", ""):
        assert with_docstring(definitions, doc) == definitions
    documented = with_docstring(definitions, "Says it.")
    assert [ast.get_docstring(ast.parse(text).body[0]) for text in documented] == ["Says it."] * 2


PROBES = """
- func: graft_probe(Tensor self, Scalar factor) -> Tensor
  variants: function, method
  dispatch:
    CompositeExplicitAutograd: graft_probe
  autogen: graft_probe.out

- func: add.probe(Tensor self, str other) -> Tensor
  variants: function, method
"""
FORMULA = """
- name: graft_probe(Tensor self, Scalar factor) -> Tensor
  self: grad * factor
"""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A native folder of ``PROBES``."""
    files = {"native_functions.yaml": PROBES, "derivatives.yaml": FORMULA}
    return write(tmp_path_factory.mktemp("native"), files)


@pytest.fixture(scope="module")
def generated(base: Path, native: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated files for ``PROBES``."""
    folder = tmp_path_factory.mktemp("probes")
    generate(base, load_natives([native]), folder)
    return folder


def run_generator(base: Path, native: Path, out: Path) -> subprocess.CompletedProcess[str]:
    natives = noted(native, out.with_suffix(".natives"))
    command = [sys.executable, "-m", "graft.check", base, natives, "--out", out, "--unchecked"]
    env = {**os.environ, "PYTHONPATH": f"{PACKAGES}:{base}"}
    return subprocess.run(command, env=env, capture_output=True, text=True)


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_only_the_new_operators_get_sources(generated: Path) -> None:
    sources = [path.read_text() for path in generated.rglob("*.cpp")]
    registered = {name for text in sources for name in re.findall(r'm\.(?:impl|def)\("([\w.]+)', text)}
    assert registered == {"graft_probe", "graft_probe.out", "add.probe"}
    assert "GraftProbeBackward0" in (generated / "units/graft_probe/autograd/Functions.cpp").read_text()


def test_second_run_rewrites_nothing(base: Path, native: Path, generated: Path) -> None:
    times = {path: path.stat().st_mtime_ns for path in files_below(generated)}
    assert len(times) > 30
    generate(base, load_natives([native]), generated)
    assert times == {path: path.stat().st_mtime_ns for path in files_below(generated)}


def test_what_is_of_an_operator_that_is_gone_is_deleted(base: Path, generated: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(generated, tmp_path / "generated"))
    wheel = folder / "wheel"
    assert (folder / "units/graft_probe/ATen/RegisterCompositeExplicitAutograd.cpp").exists()
    assert (wheel / "torch/include/ATen/ops/graft_probe.h").exists()
    empty = write(tmp_path / "native", {"native_functions.yaml": ""})
    done = run_generator(base, empty, folder)
    assert done.stdout == f"{SOURCES_ARE_THERE}\n"
    # Without operators, the wheel gains only the merged YAML.
    assert files_below(folder / "units") == set()
    assert files_below(wheel) == {wheel / FUNCTIONS, wheel / DERIVATIVES}


@pytest.fixture(scope="module")
def fragments(generated: Path) -> dict[str, Any]:
    return dict(json.loads((generated / FRAGMENTS).read_text()))


def test_fragments_name_what_code_calls_an_operator_by(fragments: dict[str, Any]) -> None:
    assert set(fragments) == {"graft_probe", "add"}
    variants = ("", "_out", "_outf", "_symint", "_symint_out", "_symint_outf")
    assert set(fragments["graft_probe"]["names"]) == {f"graft_probe{variant}" for variant in variants}
    # For a name that the base has, too: the overloads of both.
    assert {"add", "add_outf", "add_probe", "add_Tensor", "add_Scalar_out"} <= set(fragments["add"]["names"])


def test_view_of_all_operators_is_the_wheel_s_header(generated: Path, base: Path, tmp_path: Path) -> None:
    views = Views(base, generated / FRAGMENTS, tmp_path)
    assert views.of("at::digamma(self)") is None
    view = views.of("at::add(self, other); self.graft_probe(2)")
    assert view is not None
    name = "ATen/core/TensorBody.h"
    theirs = (generated / "wheel/torch/include" / name).read_text()
    assert sorted((view / name).read_text().split()) == sorted(theirs.split())
    for header in ("Functions", "NativeFunctions", "Operators", "MethodOperators"):
        gained = set((generated / f"wheel/torch/include/ATen/{header}.h").read_text().splitlines())
        gained -= set((base / f"torch/include/ATen/{header}.h").read_text().splitlines())
        assert gained
        assert gained <= set((view / f"ATen/{header}.h").read_text().splitlines())
    only_add = views.of("at::add(self, other)")
    assert only_add is not None
    assert "graft_probe" not in "".join(path.read_text() for path in only_add.rglob("*.h"))


@pytest.mark.parametrize(
    ("dispatch", "expected"),
    [
        (None, True),
        ({"CompositeImplicitAutograd, NestedTensorCPU": "f"}, True),
        ({"CPU": "f", "CompositeExplicitAutograd": "g"}, False),
    ],
)
def test_composite_operators_are_told_by_each_of_their_keys(dispatch: dict[str, str] | None, expected: bool) -> None:
    fields = {"func": "f(Tensor(a) self) -> Tensor(a)", "dispatch": dispatch}
    assert is_composite_implicit(Entry(Path(), 1, fields, {}, {})) == expected


def test_stand_ins_have_the_signatures_torch_overrides_writes(everything: Operators) -> None:
    namespace = next(namespace for namespace in NAMESPACES if namespace.name == "torch")
    groups = describe.new_signature_groups(everything.new, namespace)
    written = {name: describe.stand_in(groups[name][-1]) for name in ("digamma", "lerp")}
    assert written["digamma"] == "lambda input, out=None: -1"
    assert written["lerp"] == "lambda input, end, weight, out=None: -1"


@pytest.mark.parametrize(
    ("schema", "viewed"),
    [
        ("f(Tensor other, Tensor(a) self) -> Tensor(a)", "self"),
        ("f(Tensor self, Tensor(a) other) -> (Tensor, Tensor(a))", "other"),
        ("f(Tensor self) -> Tensor", None),
        ("f_(Tensor(a!) self) -> Tensor(a!)", None),
        ("f(Tensor(a) self, Tensor(b) other) -> Tensor(b)", "other"),
    ],
)
def test_argument_that_a_result_is_a_view_of(schema: str, viewed: str | None) -> None:
    assert viewed_argument(FunctionSchema.parse(schema)) == viewed


@pytest.mark.parametrize(
    ("functions", "derivatives", "messages"),
    [
        ("# mine\n- func: mine(Tensr self) -> Tensor\n", "", ["Tensr", "{native}/native_functions.yaml:2:"]),
        (
            "- func: mine(Tensor self) -> Tensor\n",
            "# mine\n- name: mine(Tensor x) -> Tensor\n  x: grad\n",
            ["{native}/derivatives.yaml:2:\n", "mine(Tensor x) -> Tensor"],
        ),
        ("- func: mine(\n", "", ["{native}/native_functions.yaml:"]),
    ],
)
def test_message_names_the_user_s_file_and_line(
    functions: str, derivatives: str, messages: list[str], base: Path, tmp_path: Path
) -> None:
    native = write(tmp_path / "native", {"native_functions.yaml": functions, "derivatives.yaml": derivatives})
    done = run_generator(base, native, tmp_path / "generated")
    assert done.returncode == 1
    for message in messages:
        assert message.format(native=native) in done.stdout
