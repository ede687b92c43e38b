"""Generation, against what upstream's build generated: the base wheel's own headers, stubs and lists."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.common.layout import REPOSITORY
from scripts.generate import headers, pyi
from scripts.generate.__main__ import generate
from scripts.generate.bindings import PLACES, Place
from scripts.generate.lists import is_composite_implicit
from scripts.generate.operators import Derivatives, Operators, YamlFiles
from scripts.generate.python_lists import stand_in
from scripts.generate.writer import Output

FUNCTIONS = "torchgen/packaged/ATen/native/native_functions.yaml"
DERIVATIVES = "torchgen/packaged/autograd/derivatives.yaml"


@pytest.fixture(scope="module")
def everything() -> Operators:
    """The base's operators, all taken for new ones."""
    packaged = Path(os.environ["GRAFT_BASE"]) / "tree/torchgen/packaged"
    return Operators(YamlFiles.below(packaged), base_lines=0)


def append(overlay: Path, name: str, text: str) -> None:
    with (overlay / name).open("a") as file:
        file.write(text)


def generated(base: Path, overlay: Path) -> Path:
    target = overlay.parent / "generated"
    generate(base, overlay, target, overlay.parent)
    return target


def generate_headers(operators: Operators, sink: headers.HeaderSink, folder: Path) -> None:
    headers.generate_aten_headers(operators, sink, Output(folder / "generated"))
    headers.generate_autograd_headers(operators, Derivatives(operators), sink)


def test_every_header_of_the_base_is_reproduced(everything: Operators, base: Path, tmp_path: Path) -> None:
    """Generated from the base's YAML, each header equals the wheel's: so the overlay holds none."""
    overlay = Output(tmp_path / "overlay")
    generate_headers(everything, headers.HeaderSink(base, overlay), tmp_path)
    assert overlay.names == set()


def test_headers_were_compared_at_all(
    everything: Operators, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle of the test above: count what is generated where nothing is left out as equal."""
    seen: list[str] = []
    monkeypatch.setattr(headers.HeaderSink, "__call__", lambda self, path, text: seen.append(path.name))
    generate_headers(everything, headers.HeaderSink(base, Output(tmp_path / "overlay")), tmp_path)
    in_wheel = {path.name for path in (base / "torch/include/ATen/ops").glob("*.h")}
    assert in_wheel - set(seen) == {"from_blob.h", "tensor.h"}  # written by hand upstream
    assert {"TensorBody.h", "Functions.h", "RedispatchFunctions.h", "ViewFuncs.h", "variable_factories.h"} <= set(seen)
    assert "aten_interned_strings.h" not in seen
    assert "enum_tag.h" not in seen


def parsed_functions(path: Path, class_name: str | None) -> dict[str, list[str]]:
    """Signatures by function name, without docstrings, comments and layout."""
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
    "place", [place for place in PLACES if place.name in ("methods", "torch")], ids=lambda p: p.name
)
def test_stubs_are_those_upstream_generates(everything: Operators, base: Path, place: Place) -> None:
    """Hints for every operator of the base, against the wheel's stub files."""
    file, class_name = pyi._STUBS[place.name]
    theirs = parsed_functions(base / file, class_name)
    ours = pyi.hints(pyi.new_signature_groups(everything, place))
    compared = differing = 0
    for name, texts in ours.items():
        if name in theirs:
            compared += 1
            signatures = sorted(ast.unparse(ast.parse(text)) for text in texts)
            if not set(signatures) <= set(theirs[name]):
                differing += 1
    # Upstream writes some sixty stubs by hand, add and its like among them (tools/pyi/gen_pyi.py, blocklist).
    assert compared > 500
    assert differing / compared < 0.1, f"{differing} of {compared} differ"


def test_stub_insertion_keeps_names_sorted_and_overloads_together() -> None:
    text = '__all__ = [\n    "a",\n    "c",\n]\n\ndef a() -> int: ...\ndef c(x: int) -> int:\n    """doc"""\n    ...\n'
    result = pyi.insert_functions(text, None, {"b": ["def b() -> int: ..."], "c": ["def c(x: str) -> int: ..."]})
    assert result == (
        '__all__ = [\n    "a",\n    "b",\n    "c",\n]\n\ndef a() -> int: ...\ndef b() -> int: ...\n'
        '@overload\ndef c(x: int) -> int:\n    """doc"""\n    ...\n@overload\ndef c(x: str) -> int: ...\n'
    )


def test_header_that_loses_a_line_is_refused() -> None:
    headers.require_additions_only(Path("a.h"), "one\ntwo\n", "one\nadded\ntwo\n")
    with pytest.raises(ValueError, match=r"a\.h:2: .*`two`"):
        headers.require_additions_only(Path("a.h"), "one\ntwo\n", "two\none\n")


ONE = """
- func: graft_probe(Tensor self, Scalar factor) -> Tensor
  variants: function, method
  dispatch:
    CompositeExplicitAutograd: graft_probe
  autogen: graft_probe.out
"""


def test_only_the_new_operators_get_sources(base: Path, merged: Path) -> None:
    append(merged, FUNCTIONS, ONE)
    append(merged, DERIVATIVES, "\n- name: graft_probe(Tensor self, Scalar factor) -> Tensor\n  self: grad * factor\n")
    folder = generated(base, merged)
    registered = {
        name for path in folder.rglob("*.cpp") for name in re.findall(r'm\.(?:impl|def)\("([\w.]+)', path.read_text())
    }
    assert registered == {"graft_probe", "graft_probe.out"}
    assert "GraftProbeBackward0" in (folder / "autograd/Functions.cpp").read_text()


def test_second_run_rewrites_nothing(base: Path, merged: Path) -> None:
    append(merged, FUNCTIONS, ONE)
    folder = generated(base, merged)
    times = {path: path.stat().st_mtime_ns for root in (folder, merged) for path in root.rglob("*") if path.is_file()}
    generate(base, merged, folder, merged.parent / "docs")
    assert times == {path: path.stat().st_mtime_ns for path in times}


def test_sources_of_an_operator_that_is_gone_are_deleted(base: Path, merged: Path) -> None:
    before = (merged / FUNCTIONS).read_text()
    append(merged, FUNCTIONS, ONE)
    folder = generated(base, merged)
    assert (folder / "ATen/RegisterCompositeExplicitAutograd.cpp").exists()
    (merged / FUNCTIONS).write_text(before)
    # In a process of its own: torchgen parses a path once a process.
    command = [sys.executable, "-m", "scripts.generate", "--base", base, "--overlay", merged, "--generated", folder]
    command += ["--native", merged.parent]
    subprocess.run(command, cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{base}"}, check=True)
    assert not (folder / "ATen/RegisterCompositeExplicitAutograd.cpp").exists()


def test_no_operators_at_all_is_a_wheel_without_additions(base: Path, merged: Path) -> None:
    folder = generated(base, merged)
    assert not list((folder / "ATen").glob("Register*.cpp"))
    assert not list((merged / "torch/include").rglob("*.h"))


def test_operator_methods_of_an_overloaded_name_are_bound_again(base: Path, merged: Path) -> None:
    """``+`` is bound to the C function of ``add``; where that is made anew, so are ``__add__`` and ``__radd__``."""
    append(merged, FUNCTIONS, "\n- func: add.probe(Tensor self, str other) -> Tensor\n  variants: function, method\n")
    bindings = (generated(base, merged) / "python/python_bindings.cpp").read_text()
    for name in ("__add__", "__radd__"):
        assert f'{{"{name}", ' in bindings
    assert '{"__mul__", ' not in bindings


@pytest.mark.parametrize(
    ("dispatch", "expected"),
    [
        (None, True),
        ({"CompositeImplicitAutograd, NestedTensorCPU": "f"}, True),
        ({"CPU": "f", "CompositeExplicitAutograd": "g"}, False),
    ],
)
def test_composite_operators_are_told_by_each_of_their_keys(dispatch: dict[str, str] | None, expected: bool) -> None:
    assert is_composite_implicit({"func": "f(Tensor(a) self) -> Tensor(a)", "dispatch": dispatch}) == expected


def test_stand_ins_have_the_signatures_torch_overrides_writes(everything: Operators) -> None:
    place = next(place for place in PLACES if place.name == "torch")
    groups = [g for g in pyi.new_signature_groups(everything, place) if g.signature.name in ("digamma", "lerp")]
    written = {group.signature.name: stand_in(group) for group in groups}
    assert written["digamma"] == "lambda input, out=None: -1"
    assert written["lerp"] == "lambda input, end, weight, out=None: -1"
