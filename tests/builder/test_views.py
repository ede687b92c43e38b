"""Which headers a source is compiled with: those of the operators that it names, before the base's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from graft.compile.views import Views
from helpers import beside

CASES = beside(__file__)

TEMPLATE = CASES["template"]
BODY = CASES["body"]
FRAGMENTS = CASES["fragments"]


@pytest.fixture
def views(tmp_path: Path) -> Views:
    base = tmp_path / "base"
    texts = {"torch/include/ATen/core/TensorBody.h": BODY, "torchgen/packaged/ATen/templates/TensorBody.h": TEMPLATE}
    for name, text in texts.items():
        (base / name).parent.mkdir(parents=True)
        (base / name).write_text(text)
    (tmp_path / "fragments.json").write_text(json.dumps(FRAGMENTS))
    return Views(base, tmp_path / "fragments.json", tmp_path / "views")


def test_source_that_names_no_new_operator_has_no_view(views: Views, tmp_path: Path) -> None:
    assert views.of("at::add(x, y); ungdh(); gdh2; // nothing of ours\n") is None
    assert not (tmp_path / "views").exists()


def test_method_is_in_the_view_of_a_source_that_names_it(views: Views) -> None:
    folder = views.of("x.gdh()")
    assert folder
    body = (folder / "ATen/core/TensorBody.h").read_text()
    declared, defined = FRAGMENTS["gdh"]["declarations"], FRAGMENTS["gdh"]["definitions"]
    # In the class and after it; the rest is the base's, in its order.
    inside, outside = body.split("};", 1)
    assert all(text in inside for text in declared)
    assert defined[0] in outside
    added = {*declared, *defined, ""}
    assert [line for line in body.splitlines() if line not in added] == [line for line in BODY.splitlines() if line]
    assert "#include <ATen/ops/gdh_ops.h>" in (folder / "ATen/MethodOperators.h").read_text()
    for name, suffix in (("Functions", ""), ("NativeFunctions", "_native"), ("Operators", "_ops")):
        text = (folder / f"ATen/{name}.h").read_text()
        assert text == f"#pragma once\n#include_next <ATen/{name}.h>\n#include <ATen/ops/gdh{suffix}.h>\n"
    redispatch = (folder / "ATen/RedispatchFunctions.h").read_text()
    assert FRAGMENTS["gdh"]["redispatch"][0] in redispatch
    assert "roi" not in redispatch


def test_function_leaves_the_class_alone(views: Views) -> None:
    folder = views.of("at::roi(x)")
    assert folder
    assert not (folder / "ATen/core/TensorBody.h").exists()
    assert not (folder / "ATen/MethodOperators.h").exists()
    assert "#include <ATen/ops/roi.h>" in (folder / "ATen/Functions.h").read_text()


def test_sources_that_name_the_same_operators_share_a_view(views: Views) -> None:
    assert views.of("gdh_out(y, x)") == views.of("x.gdh_()") != views.of("gdh(roi(x))")


def test_view_depends_on_nothing_but_what_is_named(views: Views, tmp_path: Path) -> None:
    """Adding an operator recompiles no source that does not name it."""
    before = views.of("x.gdh()")
    more = {**FRAGMENTS, "aaa": {**FRAGMENTS["gdh"], "names": ["aaa"]}}
    (tmp_path / "fragments.json").write_text(json.dumps(more))
    assert Views(tmp_path / "base", tmp_path / "fragments.json", tmp_path / "views").of("x.gdh()") == before
