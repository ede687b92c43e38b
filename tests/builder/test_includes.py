"""Which files of a folder sources include, and with which headers of operators a source is compiled."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from graft.compile.header_views import Views
from graft.cpp.includes import included, looked_for, search_flags, text_with_headers, texts_in
from helpers import beside, write

# Folders with a source A.cpp or others; a header called no... is not what is meant.
FOLDERS: dict[str, dict[str, str]] = {
    "a header in quotes, from the root": {
        "A.cpp": '#include "lib/deep/impl.h"\n',
        "lib/deep/impl.h": '#include "lib/api/types.h"\n',
        "lib/api/types.h": "",
    },
    "a header beside hides one of the root": {
        "cpu/A.cpp": '#include "types.h"\n#include "other.h"\n',
        "cpu/types.h": "",
        "no-types.h": "",
        "types.h": '#include "no-types.h"\n',
        "other.h": "",
    },
    "a header by its place in PyTorch": {
        "A.cpp": '#include <ATen/native/lib/a.h>\n#  include "ATen/native/lib/b.h"\n',
        "lib/a.h": "",
        "lib/b.h": '#include "../c.h"\n#include "c.h"\n',
        "c.h": "",
        "lib/c.h": "",
    },
    "a name in angle brackets is not the folder's": {
        "A.cpp": "#include <omp.h>\n#include <stdio.h>\n",
        "omp.h": '#include "no-omp.h"\n',
        "no-omp.h": "",
        "stdio.h": "#error not this one\n",
    },
    "a header that hides itself from others": {
        "A.cpp": '#include "omp.h"\n',
        "omp.h": '#pragma once\n#include <omp.h>\n#include "lib/b.h"\n',
        "lib/b.h": '#pragma once\n#include "b.h"\n',
    },
}


@pytest.fixture(params=FOLDERS.values(), ids=FOLDERS)
def native(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path / "src/ATen/native", request.param)


def sources(native: Path) -> list[Path]:
    return [path.relative_to(native) for path in native.rglob("*.cpp")]


def read_by_compiler(native: Path) -> set[Path]:
    """Return the files below the folder that the compiler reads."""
    flags = search_flags(native.parents[1])
    text = "".join(
        subprocess.run(
            ["g++", *flags, "-M", native / name], capture_output=True, text=True, check=True, cwd=native.parents[2]
        ).stdout
        for name in sources(native)
    )
    paths = [Path(os.path.normpath(word)) for word in text.replace("\\\n", " ").split()]
    return {path.relative_to(native) for path in paths if path.is_relative_to(native)} - {*sources(native)}


def test_scanner_finds_what_the_compiler_finds(native: Path) -> None:
    found = read_by_compiler(native)
    assert not any(path.name.startswith("no-") for path in found)
    assert included(texts_in(native), sources(native)) == found


def test_views_are_made_of_the_same_text(native: Path) -> None:
    """Of each source with the headers that it includes; a view declares the operators that these use."""
    for path in native.rglob("*.h"):
        path.write_text(f"{path.read_text()}\n// {path.relative_to(native)}\n")
    text = "".join(text_with_headers(native, native / name) for name in sources(native))
    marks = {Path(line[3:]) for line in text.splitlines() if line.startswith("// ")}
    assert marks == read_by_compiler(native)


def test_file_that_a_source_asks_for_is_read(tmp_path: Path) -> None:
    write(tmp_path, {"A.cpp": '#if __has_include("lib/opt.h")\n#endif\n', "lib/opt.h": ""})
    assert included(texts_in(tmp_path), [Path("A.cpp")]) == {Path("lib/opt.h")}


def test_places_where_a_new_file_would_be_found(tmp_path: Path) -> None:
    names = ['"api/types.h"', "<ATen/native/own.h>", "<omp.h>", '"/elsewhere/a.h"']
    text = "".join(f"#include {name}\n" for name in names)
    write(tmp_path, {"cpu/A.cpp": f'#if __has_include("opt.h")\n#endif\n{text}', "api/types.h": ""})
    below = ("cpu/opt.h", "opt.h", "cpu/api/types.h", "own.h")
    assert looked_for(tmp_path, [Path("cpu/A.cpp")]) == {Path("/elsewhere/a.h"), *(tmp_path / name for name in below)}
    write(tmp_path, {"B.cpp": '#include "api/types.h"\n'})
    assert looked_for(tmp_path, [Path("B.cpp")], [Path("more")]) == set()  # nowhere behind the first


CASES = beside(__file__)

TEMPLATE = CASES["template"]
BODY = CASES["body"]
FRAGMENTS = CASES["fragments"]


@pytest.fixture
def views(tmp_path: Path) -> Views:
    base = tmp_path / "base"
    texts = {"torch/include/ATen/core/TensorBody.h": BODY, "torchgen/packaged/ATen/templates/TensorBody.h": TEMPLATE}
    write(base, texts)
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
